//! Servers of a test in processes of their own.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::TOKEN;

/// A server in a process of its own, which ends with this.
pub struct Process {
    /// The process.
    pub child: Child,
    /// The address of its HTTP.
    pub address: SocketAddr,
    /// The lines that it says next.
    pub said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a server.
    pub fn start(role: &str, name: &str, directory: &str) -> Self {
        Self::start_with(role, name, directory, |_| ())
    }

    /// Starts a server with more options, or with variables.
    pub fn start_with(role: &str, name: &str, directory: &str, more: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mini_server"));
        command.args([role, "--name", name, "--directory", directory, "--token", TOKEN, "--blocks", "512"]);
        more(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = said.next().unwrap().unwrap().trim().rsplit('/').next().unwrap().parse().unwrap();
        Self { child, address, said }
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
