//! `doctor --peer` and `--listen`: a pair of queue pairs between two doctors, in steps, so that the first one that
//! fails says where the path ends.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use serde::Serialize;

use crate::cli::{Cli, Command, Doctor, Pingpong};
use crate::output::in_a_line;
use crate::pingpong::meeting::Meeting;
use crate::pingpong::side::Side;

/// Messages each way: enough that each receive of the queue is used.
const MESSAGES: &str = "600";

/// Steps in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// Opens the device, registers a buffer, and makes a queue pair.
    Device,
    /// Connects to the other doctor over TCP.
    Meet,
    /// Tells it the address of the queue pair, and hears its own.
    Addresses,
    /// Connects the queue pair.
    Connect,
    /// Sends messages in turns.
    Messages,
    /// Compares the bytes that arrived.
    Bytes,
}

const STEPS: [Step; 6] =
    [Step::Device, Step::Meet, Step::Addresses, Step::Connect, Step::Messages, Step::Bytes];

/// The steps that were done, and why the next one was not.
#[derive(Debug, Default, Serialize)]
pub struct Pair {
    done: Vec<Step>,
    failed: Option<Step>,
    error: Option<String>,
}

/// The end of the other doctor.
enum End {
    /// Listens at this address.
    Peer(String, u16),
    /// Comes to this port.
    Listen(u16),
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Self::Device => "open the device, register a buffer, create a queue pair",
            Self::Meet => "meet the other doctor over TCP",
            Self::Addresses => "exchange the addresses of the queue pairs",
            Self::Connect => "connect the queue pair to the other one",
            Self::Messages => "send messages in turns",
            Self::Bytes => "compare the bytes that arrived",
        }
    }

    /// The places where this step usually ends.
    fn advice(self) -> &'static str {
        match self {
            Self::Device => "the findings of this host say more",
            Self::Meet => {
                "the path of TCP is at fault, not RDMA: name, port, firewall, or no doctor with --listen"
            }
            Self::Addresses => "the other doctor's own message says more",
            Self::Connect => {
                "the addresses do not fit: both hosts need a RoCE v2 GID of one network, or one subnet of InfiniBand"
            }
            Self::Messages => {
                "packets do not arrive: look for UDP port 4791 in firewalls, the MTU on the way, VLANs, and the routes of \
                 both GIDs"
            }
            Self::Bytes => "the path spoils data",
        }
    }

    fn number(self) -> usize {
        STEPS.iter().position(|step| *step == self).map_or(0, |index| index + 1)
    }
}

impl Pair {
    /// Opens the pair that the flags ask for; `None` where they ask for none.
    pub fn open(flags: &Doctor) -> anyhow::Result<Option<Self>> {
        let end = match (&flags.peer, flags.listen) {
            (Some(peer), _) => {
                let (host, port) = peer.rsplit_once(':').context("--peer is HOST:PORT")?;
                let port = port.parse().with_context(|| format!("--peer {peer} has no port"))?;
                End::Peer(host.trim_matches(['[', ']']).to_owned(), port)
            }
            (None, Some(port)) => End::Listen(port),
            (None, None) => return Ok(None),
        };
        let mut pair = Self::default();
        if let Err(error) = pair.walk(&pingpong(flags, &end)?, &end) {
            pair.failed = STEPS.get(pair.done.len()).copied();
            pair.error = Some(in_a_line(&error));
        }
        Ok(Some(pair))
    }

    fn walk(&mut self, flags: &Pingpong, end: &End) -> anyhow::Result<()> {
        let within = Duration::from_secs(flags.timeout_s);
        let side = Side::create(flags)?;
        self.done.push(Step::Device);
        let mut meeting = match end {
            End::Peer(host, port) => Meeting::connect(host, *port, within)?,
            End::Listen(port) => Meeting::accept(*port, within)?,
        };
        self.done.push(Step::Meet);
        meeting.tell(&side.address)?;
        let peer = meeting.hear()?;
        self.done.push(Step::Addresses);
        let mut connected = side.connect(flags, &peer)?;
        // Neither side sends before the other one can receive.
        meeting.say_done()?;
        meeting.await_done()?;
        self.done.push(Step::Connect);
        connected.play(flags)?;
        self.done.push(Step::Messages);
        let wrong = connected.check()?;
        ensure!(wrong.is_empty(), "{} of the pages that arrived have wrong bytes", wrong.len());
        self.done.push(Step::Bytes);
        Ok(())
    }

    /// Returns a line for each step that was done.
    pub fn text(&self) -> String {
        let line =
            |step: &Step| format!("step {} of {}: {}: done\n", step.number(), STEPS.len(), step.text());
        self.done.iter().map(line).collect()
    }

    /// Says at which step the pair ended.
    ///
    /// # Errors
    ///
    /// When that is not the last one.
    pub fn end(&self) -> anyhow::Result<()> {
        let (Some(step), Some(error)) = (self.failed, &self.error) else { return Ok(()) };
        bail!("step {} of {}: {}: {error} ({})", step.number(), STEPS.len(), step.text(), step.advice())
    }
}

/// Returns the flags of a `pingpong` with the same device.
fn pingpong(flags: &Doctor, end: &End) -> anyhow::Result<Pingpong> {
    let timeout = flags.timeout_s.to_string();
    let [port, gid_index] =
        [flags.port.map(u32::from), flags.gid_index].map(|number| number.map(|number| number.to_string()));
    let mut line = vec!["rdma-tools", "pingpong", "-c", "-n", MESSAGES, "--timeout", &timeout];
    if let Some(device) = &flags.device {
        line.extend(["-d", device]);
    }
    if let Some(port) = &port {
        line.extend(["-i", port]);
    }
    if let Some(index) = &gid_index {
        line.extend(["-g", index]);
    }
    if let End::Peer(host, _) = end {
        line.extend(["--", host]);
    }
    match Cli::try_parse_from(line)?.command {
        Command::Pingpong(pingpong) => Ok(Pingpong { soft: flags.common.soft.clone(), ..pingpong }),
        _ => bail!("no flags of pingpong"),
    }
}
