//! Runs a subcommand.

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rdma-tools");

/// A program that ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program with its arguments given as one line.
pub fn program(name: &str, line: &str) -> Ended {
    ended(Command::new(name).args(line.split_whitespace()))
}

/// Runs a program to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs `rdma-tools`.
pub fn rdma_tools(line: &str) -> Ended {
    program(PROGRAM, line)
}

/// Runs `rdma-tools` on a tree.
pub fn on(root: &Path, line: &str) -> Ended {
    rdma_tools(&format!("{line} --root {}", root.display()))
}

impl Ended {
    /// Checks that the program succeeded without a complaint, and returns its output.
    pub fn succeeded(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// Checks that the program failed, and that standard error has all of `words`; returns its output.
    pub fn failed_with(self, words: &[&str]) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {self:?}");
        }
        self.stdout
    }
}
