//! Output of the programs: standard output, whose reader may be slow or gone, and standard error, which processes
//! share.
//!
//! A rank must not wait for a reader, because the other ranks wait for the rank. So a thread of the [`stream`] writes,
//! and only [`end`] waits for it, when the job is over.

mod stream;

use crate::doctor::Findings;
use anyhow::Context;
use std::fmt::Display;
use std::io::{self, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stream::Stream;

/// The time that the last lines of the log have at the end, enough for a machine that does other things.
const LOG_WITHIN: Duration = Duration::from_secs(5);

static STDOUT: Stream = Stream::new(|| stdout().as_fd().try_clone_to_owned());
static STDERR: Stream = Stream::new(|| stderr().as_fd().try_clone_to_owned());

/// Writes to standard output, at once if it is read.
///
/// # Errors
///
/// When nobody reads standard output any more, or the disk behind it is full.
pub fn say(text: impl Display) -> anyhow::Result<()> {
    // A write may have failed since the last call, which its text must not hide.
    let text = text.to_string();
    let said = STDOUT.prompt().and_then(|()| STDOUT.put(text.as_bytes())).and_then(|()| STDOUT.prompt());
    said.context("standard output")
}

/// Writes a line to standard error in one piece: several processes share it.
pub fn complain(line: impl Display) {
    // There is nowhere left to say that it failed.
    let _ = STDERR.put(format!("{line}\n").as_bytes()).and_then(|()| STDERR.prompt());
}

/// Lines of the log, for standard error. A line that cannot be written is dropped: the log must neither stop a rank nor
/// end it.
#[derive(Debug)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let _ = STDERR.put(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a program: says why it failed, waits until everything is written, and returns the exit status, which is that of
/// `outcome` unless something fails.
///
/// A reader of standard output that has not taken everything within `patience` is waited for no longer, which is a
/// failure.
pub fn end(outcome: anyhow::Result<u8>, patience: Duration) -> ExitCode {
    if let Err(error) = &outcome {
        complain(in_a_line(error));
        if let Some(findings) = error.downcast_ref::<Findings>() {
            complain(findings.text());
        }
    }
    let written = STDOUT.written(Instant::now() + patience).and_then(|left| match left {
        0 => Ok(()),
        left => Err(io::Error::other(format!(
            "nobody reads it: {left} bytes still wait after {patience:?}; read it, or send it to a file"
        ))),
    });
    let written = written.context("standard output");
    // An outcome that is an error may be this one.
    if let (Err(error), Ok(_)) = (&written, &outcome) {
        complain(in_a_line(error));
    }
    // The last lines of the log are on their way. Nobody is told when standard error is not read.
    let _ = STDERR.written(Instant::now() + LOG_WITHIN);
    match (outcome, written) {
        (Ok(status), Ok(())) => status.into(),
        _ => ExitCode::FAILURE,
    }
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
