//! Programs that start themselves as several processes: starting, what is handed down, and seeing to their end.

use crate::output::complain;
use anyhow::Context;
use rdma_collective::bootstrap::BootstrapError;
use rdma_collective::bootstrap::JobToken;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The job's token in hexadecimal, by which its processes know each other; ours, since no launcher has one.
pub const JOB_TOKEN: &str = "RDMA_JOB_TOKEN";
/// The process that started this one, and watches it.
const LAUNCHER: &str = "RDMA_PARENT_PID";
/// How long the others may take to notice that one process failed, and to say so, before they are ended.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Facts that a process is told by the one that started it, besides its arguments.
#[derive(Debug, Clone, Copy)]
pub struct HandedDown {
    /// The job's token, if there is one.
    pub token: Option<JobToken>,
    /// The launcher; `None` for a process that was started by hand or by somebody else's launcher.
    pub launcher: Option<u32>,
}

/// A variable that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandedDownError {
    /// The token.
    #[error("RDMA_JOB_TOKEN: {0}")]
    Token(BootstrapError),
    /// The launcher.
    #[error("RDMA_PARENT_PID is `{0}`, which is no process: unset it")]
    Launcher(String),
}

impl HandedDown {
    /// Reads it from the environment; an empty variable counts as unset.
    ///
    /// # Errors
    ///
    /// [`HandedDownError`] quotes what cannot be read.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Self, HandedDownError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let token = variable(JOB_TOKEN).map(|hex| hex.parse().map_err(HandedDownError::Token)).transpose()?;
        let number = |value: String| value.parse().map_err(|_| HandedDownError::Launcher(value));
        Ok(Self { token, launcher: variable(LAUNCHER).map(number).transpose()? })
    }
}

/// Sets the variables for a process that this one starts.
pub fn hand_down(command: &mut Command, token: JobToken) {
    command.env(JOB_TOKEN, token.to_hex()).env(LAUNCHER, std::process::id().to_string());
}

/// Ends this process when its launcher is killed, which then cannot do it.
///
/// # Errors
///
/// When the launcher is gone already.
pub fn end_with(launcher: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    anyhow::ensure!(parent == Some(launcher), "the launcher (process {launcher}) is gone");
    Ok(())
}

/// Processes that are ended when it is dropped.
#[derive(Debug)]
pub struct Group {
    program: &'static str,
    running: Vec<(String, Child)>,
}

impl Group {
    /// No process yet; messages begin with `program`.
    pub fn new(program: &'static str) -> Self {
        Self { program, running: Vec::new() }
    }

    /// Starts this program again as the process called `name`, without input and with this one's output.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(&mut self, name: String, with: impl FnOnce(&mut Command)) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.stdin(Stdio::null());
        with(&mut command);
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        self.running.push((name, child));
        Ok(())
    }

    /// Waits for all of them, true when all succeeded; once one has failed, the others have ten seconds left.
    pub fn supervise(mut self) -> bool {
        let program = self.program;
        let mut failed: Option<Instant> = None;
        while !self.running.is_empty() {
            self.running.retain_mut(|(name, child)| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    if !status.success() {
                        failed.get_or_insert_with(Instant::now);
                        explain(program, name, child.id(), status);
                    }
                    false
                }
                Err(error) => {
                    failed.get_or_insert_with(Instant::now);
                    complain(format_args!("{program}: {name} cannot be waited for: {error}"));
                    false
                }
            });
            if failed.is_some_and(|since| since.elapsed() > GRACE) {
                let names: Vec<&str> = self.running.iter().map(|(name, _)| name.as_str()).collect();
                let names = names.join(", ");
                complain(format_args!(
                    "{program}: ended {names}, still running after another process failed"
                ));
                return false; // dropping the group ends them
            }
            sleep(LOOK_EVERY);
        }
        failed.is_none()
    }
}

/// A process that fails says why itself, unless it could not.
fn explain(program: &str, name: &str, pid: u32, status: ExitStatus) {
    if status.code().is_none() {
        complain(format_args!("{program}: {name} (process {pid}) was ended: {status}"));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // A process that has ended meanwhile cannot be killed and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<HandedDown, HandedDownError> {
        HandedDown::find(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_is_handed_down_is_found() {
        let token = JobToken::random().unwrap();
        let mut command = Command::new("true");
        hand_down(&mut command, token);
        let variables: Vec<(&str, &str)> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?))).collect();
        let found = find(&variables).unwrap();
        assert!(found.token == Some(token) && found.launcher == Some(std::process::id()));
    }

    #[test]
    fn without_it_there_is_no_token_and_nobody_watches() {
        for found in [find(&[]).unwrap(), find(&[(JOB_TOKEN, ""), (LAUNCHER, "")]).unwrap()] {
            assert!(found.token.is_none() && found.launcher.is_none());
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(find(&[(JOB_TOKEN, "xyz")]).unwrap_err().to_string().contains("RDMA_JOB_TOKEN"));
        assert!(find(&[(LAUNCHER, "-1")]).unwrap_err().to_string().contains("`-1`"));
    }
}
