//! Processes that run this program again, mostly one at each end, and hear of each other from here.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that runs this program again, as its parent sees it. Dropping it waits for the process, which learns by
/// the end of its input that nobody needs it any more.
pub struct End {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl End {
    /// Starts this program once more.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub fn start(arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { input: child.stdin.take(), output: BufReader::new(output), child })
    }

    /// Waits for the next line that the process says.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other("one end of the pair ended without a word; see its message above"));
        }
        Ok(line)
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()))
    }

    /// Kills the process, which leaves no time to say goodbye.
    ///
    /// # Errors
    ///
    /// The process has ended, and was waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

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

/// Runs one pair; see [`run_among`].
///
/// # Errors
///
/// When a process cannot be started, ends early, or fails.
pub fn run(sender: &[String], receiver: &[String]) -> io::Result<String> {
    run_among(sender, &[receiver])
}

/// Runs processes with these arguments: each says a line about itself. The first is told those of all others, with
/// spaces between, and each of the others that of the first. The first then says the result, which is returned.
///
/// # Errors
///
/// When a process cannot be started, ends early, or fails.
pub fn run_among(first: &[String], others: &[&[String]]) -> io::Result<String> {
    let mut others = others.iter().map(|arguments| End::start(arguments)).collect::<io::Result<Vec<_>>>()?;
    let mut first = End::start(first)?;
    let lines = others.iter_mut().map(End::hear).collect::<io::Result<Vec<_>>>()?;
    let from_first = first.hear()?;
    others.iter_mut().try_for_each(|other| other.tell(&from_first))?;
    first.tell(&(lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ") + "\n"))?;
    let result = first.hear()?;
    first.finish()?;
    others.into_iter().try_for_each(End::finish)?;
    Ok(result)
}

/// Inside an end: says its line, and hears that of the other, or those of all others.
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
