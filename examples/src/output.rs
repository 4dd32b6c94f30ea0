//! Output of the programs: to standard output, whose reader may leave, and to standard error, which processes share.

use anyhow::Context;
use std::fmt::Display;
use std::io::{Write, stderr, stdout};

/// Writes to standard output, at once.
///
/// # Errors
///
/// When nobody reads it any more, or the disk behind it is full.
pub fn say(text: impl Display) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).context("standard output")
}

/// Writes a line to standard error in one piece: several processes share it.
pub fn complain(line: impl Display) {
    // There is nowhere left to say that it failed.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// An error with its causes, in one line; what it quotes of a cause itself is not said again.
pub fn in_a_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| match line.as_str() {
        "" => cause,
        said if said.contains(&cause) => line,
        said => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use thiserror::Error;

    #[derive(Debug, Error)]
    #[error("nobody answers ({source}); start it first")]
    struct Quotes {
        source: io::Error,
    }

    #[test]
    fn a_cause_that_is_quoted_is_said_once() {
        let error = anyhow::Error::new(Quotes { source: io::Error::other("refused") }).context("decode");
        assert_eq!(in_a_line(&error), "decode: nobody answers (refused); start it first");
        let error = anyhow::Error::new(io::Error::other("full")).context("the file");
        assert_eq!(in_a_line(&error), "the file: full");
    }
}
