//! A process of a case on this host: its start, its output, and the count of its end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::cases::{Planned, Sides};
use super::ended::Ended;
use super::inside::Host;
use super::network::{Network, Wire};
use crate::process::{self, Group};
use crate::tally::Counts;

/// The name of the side that starts first.
pub const SERVER: &str = "server";
/// The name of the side that connects to it.
pub const CLIENT: &str = "client";
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// The line that programs print once they are connected.
const CONNECTED: &str = "# Using device";

/// A process of a case.
pub struct Side {
    name: &'static str,
    group: Group,
    log: PathBuf,
    names_device: bool,
    network: Network,
    /// See [`Planned::errors`].
    errors: Option<String>,
    listening: BTreeSet<String>,
    started: Instant,
}

impl Side {
    /// Starts one of `case`'s programs.
    pub fn start(host: &Host, case: &Planned, side: &'static str, argv: &[String]) -> Result<Side> {
        let argv: Vec<String> = argv.iter().map(|word| host.fill(word)).collect();
        let (program, args) = argv.split_first().context("a case without a program")?;
        println!("[{side}] {}", argv.join(" "));
        let log = host.out.join(format!("{}-{side}.log", case.name.replace([' ', '\'', '%'], "-")));
        let file = fs::File::create(&log)?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        if matches!(case.network, Network::PeerKilled { .. }) {
            // These cases run beside each other, so an emulated machine has been without a core for 3 s, and its peers
            // took it for lost before it was killed.
            command.env("RDMA_PEER_TIMEOUT", "10");
        }
        let listening = listeners()?;
        let names_device = match case.names_device {
            Sides::Server => side == SERVER,
            Sides::Both => true,
            Sides::Neither => false,
        };
        let errors = case.errors.as_ref().map(|errors| host.fill(&errors[usize::from(side != SERVER)]));
        Ok(Side {
            name: side,
            group: Group::spawn(&mut command)?,
            log,
            names_device,
            network: case.network,
            errors,
            listening,
            started: Instant::now(),
        })
    }

    /// Waits until a socket listens that did not before.
    pub fn await_listening(&mut self) -> Result<()> {
        let deadline = Instant::now() + LISTEN_LIMIT;
        while listeners()?.is_subset(&self.listening) {
            if let Some(status) = self.group.poll()? {
                bail!("the server ended with {status} before it listened:\n{}", read(&self.log));
            }
            if Instant::now() >= deadline {
                bail!("the server did not listen within {} s:\n{}", LISTEN_LIMIT.as_secs(), read(&self.log));
            }
            process::pause()?;
        }
        Ok(())
    }

    /// Waits until the process is connected, and so many packets have passed since.
    pub fn await_under_way(&mut self, wire: &Wire, packets: u64) -> Result<()> {
        let deadline = Instant::now() + CONNECT_LIMIT;
        let mut connected_at = None;
        loop {
            if let Some(status) = self.group.poll()? {
                bail!("the {} ended with {status} before it was disturbed:\n{}", self.name, read(&self.log));
            }
            if connected_at.is_none() && read(&self.log).contains(CONNECTED) {
                connected_at = Some(wire.packets()?.passed);
            }
            if let Some(before) = connected_at
                && wire.packets()?.passed - before >= packets
            {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("the {} did not get under way:\n{}", self.name, read(&self.log));
            }
            process::pause()?;
        }
    }

    /// Checks that the process still runs, with its machine about to be killed.
    pub fn ensure_running(&mut self) -> Result<()> {
        let Some(status) = self.group.poll()? else { return Ok(()) };
        bail!("the {} ended with {status} before its machine was killed:\n{}", self.name, read(&self.log))
    }

    /// Waits for the process to end by itself.
    pub fn finish(&mut self, host: &Host, limit: Duration) -> Result<Counts> {
        let status = self.group.wait_until(Instant::now() + limit)?;
        self.group.end();
        let output = read(&self.log);
        println!("{output}");
        let Some(status) = status else { bail!("it ran for more than {} s", limit.as_secs()) };
        if self.network == Network::Clean {
            if !status.success() {
                println!("it ended with {status}");
            }
            return Ok(self.count(host, Counts::of_run(&output, status.success()), &output));
        }
        println!("[{}] ended with {status} after {:.1} s", self.name, self.started.elapsed().as_secs_f64());
        let lost = matches!(self.network, Network::PeerKilled { .. });
        let ended = Ended { code: status.code(), output: &output };
        ended.judge(self.errors.as_deref(), lost).map_err(|wrong| anyhow!(wrong))?;
        Ok(self.count(host, Counts::ONE_PASSED, &output))
    }

    /// Ends a process that was to serve until now, and must not have ended before.
    pub fn dismiss(&mut self, host: &Host) -> Result<Counts> {
        let ended = self.group.poll()?;
        self.group.end();
        let output = read(&self.log);
        println!("{output}");
        if let Some(status) = ended {
            bail!("the server ended with {status} before the client was done");
        }
        Ok(self.count(host, Counts::ONE_PASSED, &output))
    }

    fn count(&self, host: &Host, counts: Counts, output: &str) -> Counts {
        if !self.names_device || names_device(output, &host.device) {
            return counts;
        }
        println!("it did not say that it used the device {}", host.device);
        counts.plus(Counts::ONE_FAILED)
    }
}

/// Whether a line about the device names it, as a whole word.
fn names_device(output: &str, device: &str) -> bool {
    let about = output.lines().filter(|line| line.to_ascii_lowercase().contains("device"));
    let is_part = |c: char| !c.is_alphanumeric() && c != '_';
    about.flat_map(|line| line.split(is_part)).any(|word| word == device)
}

/// The sockets that listen now, by address and inode.
fn listeners() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let listening = fields.filter(|fields| fields.get(3) == Some(&"0A"));
        found.extend(
            listening.map(|fields| format!("{} {}", fields[1], fields.get(9).copied().unwrap_or_default())),
        );
    }
    Ok(found)
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_a_whole_word_on_a_line_about_devices() {
        assert!(names_device(" Dual-port : OFF\t\tDevice         : rxe0\n", "rxe0"));
        assert!(names_device("# device rxe0 (ibverbs), port 1\n", "rxe0"));
        assert!(!names_device("# device rxe01\n", "rxe0"));
        assert!(!names_device("# device soft\nrxe0 was refused\n", "rxe0"));
    }
}
