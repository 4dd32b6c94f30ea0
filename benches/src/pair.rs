//! Two processes that run this program again, one at each end, and hear of each other from here.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An end of a pair, as the parent sees it. Dropping it ends the process.
pub struct End {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl End {
    fn start(arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { input: child.stdin.take(), output: BufReader::new(output), child })
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("one end of the pair ended without a word; see its message above"));
        }
        Ok(line)
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()))
    }
}

impl End {
    /// Lets it come to its end.
    fn finish(mut self) -> io::Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("one end of the pair: {status}")))
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Runs one pair: each end says a line about itself, is told the other's, and the sender then
/// says the result, which is returned.
///
/// # Errors
///
/// When a process cannot be started, ends early, or fails.
pub fn run(sender: &[String], receiver: &[String]) -> io::Result<String> {
    let (mut receiver, mut sender) = (End::start(receiver)?, End::start(sender)?);
    let (from_receiver, from_sender) = (receiver.hear()?, sender.hear()?);
    receiver.tell(&from_sender)?;
    sender.tell(&from_receiver)?;
    let result = sender.hear()?;
    sender.finish()?;
    receiver.finish()?;
    Ok(result)
}

/// Inside an end: says its line, and hears that of the other.
///
/// # Errors
///
/// When the parent is gone.
pub fn introduce(line: &str) -> io::Result<String> {
    say(line)?;
    let mut other = String::new();
    io::stdin().read_line(&mut other)?;
    Ok(other.trim().to_owned())
}

/// Inside an end: says a line to the parent.
///
/// # Errors
///
/// When the parent is gone.
pub fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")?;
    io::stdout().flush()
}

/// Inside a receiver: waits until the parent has no more use for it.
///
/// # Errors
///
/// When the parent is gone.
pub fn stay() -> io::Result<()> {
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}
