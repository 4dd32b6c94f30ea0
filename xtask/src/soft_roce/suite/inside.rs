//! Runs the planned cases on one host, beside the device. Two hosts keep in step over a socket: the client of a
//! case starts when its server listens, and neither begins the next case alone.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;

use super::cases::{Planned, Sides};
use super::{REPORT, line};
use crate::process::{self, Group};
use crate::tally::Counts;

/// What the side that starts first is called.
const SERVER: &str = "server";
const STEP_PORT: u16 = 18_400;
const STEP_LIMIT: Duration = Duration::from_secs(300);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// Options of the hidden subcommand that a host runs.
#[derive(Parser)]
pub struct Args {
    /// The plan.
    plan: PathBuf,
}

/// What this host is told of itself.
struct Host {
    number: u8,
    hosts: u8,
    device: String,
    address: String,
    peer: String,
    out: PathBuf,
}

/// Runs the plan; fails when a case did on this host.
pub fn main(args: &Args) -> Result<()> {
    let host = Host::from_environment()?;
    let plan: Vec<Planned> =
        serde_json::from_slice(&fs::read(&args.plan)?).context("the plan does not parse")?;
    let mut peer = if host.hosts > 1 { Some(host.meet()?) } else { None };
    let mut failed = Vec::new();
    for case in &plan {
        println!("--- {}", case.name);
        let started = Instant::now();
        let counts = host.run(case, peer.as_mut()).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Counts::ONE_FAILED
        });
        let Counts { passed, failed: failures, skipped } = counts;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "--- {}: {passed} passed, {failures} failed, {skipped} skipped in {seconds:.1} s",
            case.name
        );
        host.report(&line(&case.name, counts))?;
        if failures > 0 {
            failed.push(case.name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("cases that failed here: {}", failed.join(", "));
    }
    Ok(())
}

impl Host {
    fn from_environment() -> Result<Host> {
        let get = |name: &str| {
            env::var(name).with_context(|| format!("{name} is not set: `cargo xtask soft-roce` does"))
        };
        Ok(Host {
            number: get("ROCE_HOST")?.parse()?,
            hosts: get("ROCE_HOSTS")?.parse()?,
            device: get("ROCE_DEVICE")?,
            address: get("ROCE_SELF")?,
            peer: get("ROCE_PEER")?,
            out: PathBuf::from(get("ROCE_OUT")?),
        })
    }

    /// The socket by which two hosts keep in step.
    fn meet(&self) -> Result<TcpStream> {
        let deadline = Instant::now() + STEP_LIMIT;
        let stream = if self.number == 0 {
            let listener = TcpListener::bind((self.address.as_str(), STEP_PORT))?;
            listener.set_nonblocking(true)?;
            poll(deadline, "the other host did not come", || listener.accept().ok())?.0
        } else {
            let connect = || TcpStream::connect((self.peer.as_str(), STEP_PORT)).ok();
            poll(deadline, "the other host did not listen", connect)?
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STEP_LIMIT))?;
        Ok(stream)
    }

    fn run(&self, case: &Planned, peer: Option<&mut TcpStream>) -> Result<Counts> {
        match peer {
            None => self.run_alone(case),
            // The peer waits for a byte whatever happened here, so it is always sent.
            Some(peer) if self.number == 0 => {
                let server = self.serve(case);
                peer.write_all(&[u8::from(server.is_ok())])?;
                if case.server_stays {
                    peer.read_exact(&mut [0])?;
                    return server?.dismiss(self);
                }
                let counts = server.and_then(|mut server| server.finish(self, case.limit()));
                peer.read_exact(&mut [0])?;
                counts
            }
            Some(peer) => {
                let mut go = [0];
                peer.read_exact(&mut go)?;
                let counts =
                    if go == [1] { self.run_client(case) } else { Err(anyhow!("the server did not start")) };
                peer.write_all(&[0])?;
                counts
            }
        }
    }

    /// Both sides of a case here, or its only one.
    fn run_alone(&self, case: &Planned) -> Result<Counts> {
        if case.client.is_none() {
            return Side::start(self, case, SERVER, &case.server)?.finish(self, case.limit());
        }
        let mut server = self.serve(case)?;
        let client = self.run_client(case)?;
        let server =
            if case.server_stays { server.dismiss(self)? } else { server.finish(self, case.limit())? };
        Ok(Counts { failed: server.failed + client.failed, ..client })
    }

    fn serve(&self, case: &Planned) -> Result<Side> {
        let mut server = Side::start(self, case, SERVER, &case.server)?;
        server.await_listening()?;
        Ok(server)
    }

    fn run_client(&self, case: &Planned) -> Result<Counts> {
        let argv = case.client.as_ref().context("a case on two hosts needs a client")?;
        Side::start(self, case, "client", argv)?.finish(self, case.limit())
    }

    fn fill(&self, word: &str) -> String {
        word.replace("{device}", &self.device).replace("{self}", &self.address).replace("{peer}", &self.peer)
    }

    fn report(&self, line: &str) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.out.join(REPORT))?;
        file.write_all(line.as_bytes())?;
        Ok(())
    }
}

/// One process of a case.
struct Side {
    group: Group,
    log: PathBuf,
    names_device: bool,
    listening: BTreeSet<String>,
}

impl Side {
    fn start(host: &Host, case: &Planned, side: &str, argv: &[String]) -> Result<Side> {
        let argv: Vec<String> = argv.iter().map(|word| host.fill(word)).collect();
        let (program, args) = argv.split_first().context("a case without a program")?;
        println!("[{side}] {}", argv.join(" "));
        let log = host.out.join(format!("{}-{side}.log", case.name.replace(' ', "-")));
        let file = fs::File::create(&log)?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let listening = listeners()?;
        let names_device = side == SERVER || case.names_device == Sides::Both;
        Ok(Side { group: Group::spawn(&mut command)?, log, names_device, listening })
    }

    /// Waits until a socket listens that did not before.
    fn await_listening(&mut self) -> Result<()> {
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

    /// Waits for the process to end by itself.
    fn finish(&mut self, host: &Host, limit: Duration) -> Result<Counts> {
        let status = self.group.wait_until(Instant::now() + limit)?;
        self.group.end();
        let output = read(&self.log);
        println!("{output}");
        let Some(status) = status else { bail!("it ran for more than {} s", limit.as_secs()) };
        if !status.success() {
            println!("it ended with {status}");
        }
        Ok(self.count(host, Counts::of_run(&output, status.success()), &output))
    }

    /// Ends a process that was to serve until now, and must not have ended before.
    fn dismiss(&mut self, host: &Host) -> Result<Counts> {
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

fn poll<T>(deadline: Instant, late: &str, mut attempt: impl FnMut() -> Option<T>) -> Result<T> {
    loop {
        if let Some(value) = attempt() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("{late} within {} s", STEP_LIMIT.as_secs());
        }
        process::pause()?;
    }
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
