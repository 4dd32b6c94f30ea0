//! Child processes with a bound on their life. Each child leads a process group of its own, so that ending
//! it ends what it started and nothing else. What the children do is the caller's matter.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

const POLL: Duration = Duration::from_millis(50);
const TERM_GRACE: Duration = Duration::from_secs(3);

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that children are ended before this process is.
pub fn watch_signals() {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(flag)) {
            eprintln!("warning: signal {signal} would leave children behind: {error}");
        }
    }
}

/// Sleeps for one polling step, and fails once a signal has asked this process to end.
pub fn pause() -> Result<()> {
    thread::sleep(POLL);
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Whether a signal has asked this process to end.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// A child and all it started. Dropping it ends the group.
pub struct Group {
    child: Child,
    pid: Pid,
    status: Option<ExitStatus>,
}

impl Group {
    /// Starts `command` at the head of a new process group.
    pub fn spawn(command: &mut Command) -> Result<Group> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start `{name}`"))?;
        let pid = Pid::from_child(&child);
        Ok(Group { child, pid, status: None })
    }

    /// The status of the leader once it has ended; whatever it left behind is ended too.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.leader_ended()? {
            // The leader is not yet reaped, so the group's number cannot have passed to a stranger.
            let _ = kill_process_group(self.pid, Signal::KILL);
            self.status = Some(self.child.wait()?);
        }
        Ok(self.status)
    }

    /// Waits for the leader until `deadline`; `None` when it was still running then.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            pause()?;
        }
    }

    /// Ends the whole group: first politely, then for certain.
    pub fn end(&mut self) {
        if self.status.is_some() {
            return;
        }
        let _ = kill_process_group(self.pid, Signal::TERM);
        let deadline = Instant::now() + TERM_GRACE;
        while Instant::now() < deadline {
            if matches!(self.poll(), Ok(Some(_))) {
                return;
            }
            thread::sleep(POLL);
        }
        self.kill();
    }

    /// Kills the whole group, with no notice.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }

    fn leader_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs `command` to its end within `limit`, its output going to the file `log`.
pub fn run_logged(command: &mut Command, limit: Duration, log: &Path) -> Result<ExitStatus> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    run(command, limit)
}

/// Runs `command` to its end within `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let mut group = Group::spawn(command)?;
    match group.wait_until(Instant::now() + limit)? {
        Some(status) => Ok(status),
        None => {
            bail!("`{}` ran for more than {} s", command.get_program().to_string_lossy(), limit.as_secs())
        }
    }
}

/// The output of a command that answers at once, or `None` where it is absent or failed.
pub fn answer(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The last lines of a log, for a message.
pub fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n    ")
}

/// Runs `command` within `limit`; what it prints to its standard output is shown and returned.
pub fn run_shown(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let mut group = Group::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let stdout = group.child.stdout.take().context("no pipe from the child")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        for line in BufReader::new(stdout).split(b'\n').map_while(io::Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
        text
    });
    let status = group.wait_until(Instant::now() + limit)?;
    group.end();
    let text = reader.join().unwrap_or_default();
    match status {
        Some(status) => Ok((status, text)),
        None => {
            bail!("`{}` ran for more than {} s", command.get_program().to_string_lossy(), limit.as_secs())
        }
    }
}
