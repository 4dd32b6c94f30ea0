//! Runs the planned cases on one host, beside the device. Two hosts keep in step over a socket: the client of a
//! case starts when its server listens, and neither begins the next case alone.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;

use super::cases::Planned;
use super::network::{Network, Wire};
use super::side::{CLIENT, SERVER, Side};
use super::{REPORT, line};
use crate::process;
use crate::soft_roce::guest::KILL;
use crate::tally::Counts;

const STEP_PORT: u16 = 18_400;
const STEP_LIMIT: Duration = Duration::from_secs(300);
/// How long it takes until this machine is no more, once it has asked for that.
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// How long a process may take to end once its peer's machine is gone: less than its own deadline. A peer's silence is
/// noticed after 10 s, and so is the wait of a rank for the store on the lost machine.
const SURVIVOR_LIMIT: Duration = Duration::from_secs(40);

/// Options of the hidden subcommand that a host runs.
#[derive(Parser)]
pub struct Args {
    /// The plan.
    plan: PathBuf,
}

/// The facts that this host is given about itself.
pub struct Host {
    number: u8,
    hosts: u8,
    /// The device's name.
    pub device: String,
    address: String,
    peer: String,
    /// Where logs and the report go.
    pub out: PathBuf,
    wire: Wire,
}

/// Runs the plan; fails when a case did on this host.
pub fn main(args: &Args) -> Result<()> {
    let host = Host::from_environment()?;
    let plan: Vec<Planned> =
        serde_json::from_slice(&fs::read(&args.plan)?).context("the plan does not parse")?;
    let mut peer = if host.hosts > 1 { Some(host.meet()?) } else { None };
    let mut failed = Vec::new();
    let costs_a_host = |case: &Planned| matches!(case.network, Network::PeerKilled { .. });
    let (plan, last) = plan.split_at(plan.iter().position(costs_a_host).unwrap_or(plan.len()));
    for case in plan {
        println!("--- {}", case.name);
        let started = Instant::now();
        let counts = host.run(case, peer.as_mut());
        host.conclude(case, counts, started, &mut failed)?;
    }
    if let Some(peer) = &mut peer
        && !last.is_empty()
    {
        host.run_to_the_death(last, peer, &mut failed)?;
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
        let device = get("ROCE_DEVICE")?;
        Ok(Host {
            number: get("ROCE_HOST")?.parse()?,
            hosts: get("ROCE_HOSTS")?.parse()?,
            wire: Wire::new(env::var("ROCE_INTERFACE").unwrap_or_default(), &device),
            device,
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
        let Some(peer) = peer else { return self.run_alone(case) };
        if self.number > 0 {
            let mut go = [0];
            peer.read_exact(&mut go)?;
            let counts =
                if go == [1] { self.run_client(case) } else { Err(anyhow!("the server did not start")) };
            peer.write_all(&[0])?;
            return counts;
        }
        let disturbed = self.wire.disturb(case.network)?;
        let server = self.serve(case);
        // The peer waits for a byte whatever happened here, so it is always sent.
        peer.write_all(&[u8::from(server.is_ok())])?;
        if case.server_stays {
            peer.read_exact(&mut [0])?;
            return server?.dismiss(self);
        }
        let counts = server.and_then(|server| self.finish_server(case, server));
        let checked = disturbed.map_or(Ok(()), |disturbed| disturbed.check(self.number));
        peer.read_exact(&mut [0])?;
        checked.and(counts)
    }

    /// Waits for a server to end, while its link goes down where that belongs to the case.
    fn finish_server(&self, case: &Planned, mut server: Side) -> Result<Counts> {
        let (after_packets, seconds, interrupt): (_, _, fn(&Wire, Duration) -> Result<()>) =
            match case.network {
                Network::LinkDown { after_packets, seconds } => (after_packets, seconds, Wire::interrupt),
                Network::Cut { after_packets, seconds } => (after_packets, seconds, Wire::cut),
                _ => return server.finish(self, case.limit()),
            };
        server.await_under_way(&self.wire, after_packets)?;
        thread::scope(|scope| {
            let down = scope.spawn(|| interrupt(&self.wire, Duration::from_secs(seconds)));
            let counts = server.finish(self, case.limit());
            down.join().unwrap_or_else(|_| bail!("panicked while the wire was interrupted"))?;
            counts
        })
    }

    /// Runs the cases beside each other in which host 1's machine is killed, with the server's side of each or the
    /// client's. Of that host nothing is heard any more, so one that has failed lives on.
    fn run_to_the_death<'a>(
        &self,
        cases: &'a [Planned],
        peer: &mut TcpStream,
        failed: &mut Vec<&'a str>,
    ) -> Result<()> {
        let started = Instant::now();
        cases.iter().for_each(|case| println!("--- {}", case.name));
        if self.number > 0 {
            return self.die(cases, peer, failed.is_empty());
        }
        let survivors = self.survivors(cases, peer);
        peer.write_all(&[u8::from(survivors.is_ok())])?;
        let survivors = survivors?;
        // The limit begins with the death, because a busy host may take long until its servers are under way.
        peer.read_exact(&mut [0]).context("the other host was to be killed, and does not say that it is")?;
        peer.write_all(&[1])?;
        let deadline = Instant::now() + SURVIVOR_LIMIT;
        for (case, mut survivor) in cases.iter().zip(survivors) {
            let left = deadline.saturating_duration_since(Instant::now());
            self.conclude(case, survivor.finish(self, left), started, failed)?;
        }
        Ok(())
    }

    /// This host's sides of the cases, once those that serve are under way.
    fn survivors(&self, cases: &[Planned], peer: &mut TcpStream) -> Result<Vec<Side>> {
        let serve = |case: &Planned| (!case.swapped).then(|| self.serve(case)).transpose();
        let servers = cases.iter().map(serve).collect::<Result<Vec<_>>>();
        peer.write_all(&[u8::from(servers.is_ok())])?;
        let servers = servers?;
        let mut go = [0];
        peer.read_exact(&mut go)?;
        ensure!(go == [1], "a server or a client of the other host did not start");
        let both = cases.iter().zip(servers);
        let sides = both.map(|(case, server)| server.map_or_else(|| self.client(case), Ok));
        let mut sides = sides.collect::<Result<Vec<_>>>()?;
        for (case, server) in cases.iter().zip(&mut sides).filter(|(case, _)| !case.swapped) {
            server.await_under_way(&self.wire, case.network.after_packets().unwrap_or(0))?;
        }
        Ok(sides)
    }

    /// Is the host that is killed.
    fn die(&self, cases: &[Planned], peer: &mut TcpStream, sound: bool) -> Result<()> {
        let mut go = [0];
        peer.read_exact(&mut go)?;
        ensure!(go == [1], "a server did not start");
        let start = |case: &Planned| if case.swapped { self.serve(case) } else { self.client(case) };
        let sides = cases.iter().map(start).collect::<Result<Vec<_>>>();
        peer.write_all(&[u8::from(sides.is_ok())])?;
        let mut sides = sides?;
        peer.read_exact(&mut go)?;
        ensure!(go == [1] && sound, "this machine is not killed, since something had failed");
        for (case, side) in cases.iter().zip(&mut sides) {
            if case.swapped {
                side.await_under_way(&self.wire, case.network.after_packets().unwrap_or(0))?;
            }
        }
        for (case, side) in cases.iter().zip(&mut sides) {
            side.ensure_running().context(case.name.clone())?;
        }
        peer.write_all(&[1])?;
        // A byte that is lost on its way is sent again by a machine that lives, so the peer answers before the death.
        peer.read_exact(&mut go)?;
        fs::write(self.out.join(KILL), "")?;
        thread::sleep(KILL_LIMIT);
        bail!("nobody has killed this machine")
    }

    /// Prints and reports what came of a case.
    fn conclude<'a>(
        &self,
        case: &'a Planned,
        counts: Result<Counts>,
        started: Instant,
        failed: &mut Vec<&'a str>,
    ) -> Result<()> {
        let counts = counts.unwrap_or_else(|error| {
            println!("error: {error:#}");
            Counts::ONE_FAILED
        });
        let Counts { passed, failed: failures, skipped } = counts;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "--- {}: {passed} passed, {failures} failed, {skipped} skipped in {seconds:.1} s",
            case.name
        );
        if failures > 0 {
            failed.push(case.name.as_str());
        }
        self.report(&line(&case.name, counts))
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
        let disturbed = if self.hosts > 1 { self.wire.disturb(case.network)? } else { None };
        let counts = self.client(case)?.finish(self, case.limit());
        disturbed.map_or(Ok(()), |disturbed| disturbed.check(self.number)).and(counts)
    }

    fn client(&self, case: &Planned) -> Result<Side> {
        let argv = case.client.as_ref().context("a case on two hosts needs a client")?;
        Side::start(self, case, CLIENT, argv)
    }

    /// Puts in what this host knows.
    pub fn fill(&self, word: &str) -> String {
        word.replace("{device}", &self.device).replace("{self}", &self.address).replace("{peer}", &self.peer)
    }

    fn report(&self, line: &str) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.out.join(REPORT))?;
        file.write_all(line.as_bytes())?;
        Ok(())
    }
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
