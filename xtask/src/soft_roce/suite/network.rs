//! Faults that a case brings to the network between two hosts, and the proof that they came: a fault that never came
//! must not look like one that was survived.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::process;

/// A link that is up again has its port active soon after.
const UP_LIMIT: Duration = Duration::from_secs(30);

/// Packets of which some are lost, where one of a hundred is: none are, once in 20,000 times.
const SOME_ARE_LOST_OF: u64 = 1000;

/// The state of the network while a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing.
    Clean,
    /// Both hosts lose packets that they send.
    Loss {
        /// Packets lost of a thousand.
        per_mille: u32,
    },
    /// Both hosts delay packets that they send, except some, which overtake.
    Late {
        /// The delay.
        delay_ms: u32,
        /// Packets of a thousand that overtake others.
        reordered_per_mille: u32,
    },
    /// Both hosts lose packets that they send, and delay each for a time of its own, so that they overtake each other.
    Jitter {
        /// Packets lost of a thousand.
        per_mille: u32,
        /// The delay is between none and twice this.
        mean_ms: u32,
    },
    /// Host 0's link goes down, and comes back.
    LinkDown {
        /// Once so many have passed.
        after_packets: u64,
        /// For so long.
        seconds: u64,
    },
    /// Nothing passes the wire, and both links stay up: a switch between them, or the other link of a bond, comes back.
    Cut {
        /// Once so many have passed.
        after_packets: u64,
        /// For so long.
        seconds: u64,
    },
    /// Host 1's machine is killed. The cases that do it run last, and beside each other.
    PeerKilled {
        /// Once so many have passed.
        after_packets: u64,
    },
}

impl Network {
    /// The queueing discipline's options, where it takes one.
    fn netem(self) -> Option<String> {
        match self {
            Network::Loss { per_mille } => Some(format!("loss {}", percent(per_mille))),
            Network::Late { delay_ms, reordered_per_mille } => {
                Some(format!("delay {delay_ms}ms reorder {}", percent(reordered_per_mille)))
            }
            Network::Jitter { per_mille, mean_ms } => {
                Some(format!("delay {mean_ms}ms {mean_ms}ms loss {}", percent(per_mille)))
            }
            Network::Clean | Network::LinkDown { .. } | Network::Cut { .. } | Network::PeerKilled { .. } => {
                None
            }
        }
    }

    /// How many packets pass before it begins, where that is not at once.
    pub fn after_packets(self) -> Option<u64> {
        match self {
            Network::LinkDown { after_packets, .. }
            | Network::Cut { after_packets, .. }
            | Network::PeerKilled { after_packets } => Some(after_packets),
            Network::Clean | Network::Loss { .. } | Network::Late { .. } | Network::Jitter { .. } => None,
        }
    }
}

fn percent(per_mille: u32) -> String {
    format!("{}.{}%", per_mille / 10, per_mille % 10)
}

/// This host's end of the wire.
pub struct Wire {
    interface: String,
    port: PathBuf,
}

/// The device's counters.
#[derive(Debug, Clone, Copy)]
pub struct Packets {
    /// Sent and received.
    pub passed: u64,
    /// Requests that came before an earlier one, and answers for which this side asked again.
    out_of_order: u64,
}

/// A network that is not as it was; dropping it mends the network.
pub struct Disturbed<'a> {
    wire: &'a Wire,
    network: Network,
    before: Packets,
}

impl Wire {
    /// The interface under `device`.
    pub fn new(interface: String, device: &str) -> Wire {
        Wire { interface, port: PathBuf::from(format!("/sys/class/infiniband/{device}/ports/1")) }
    }

    /// Packets that have passed since the device was made.
    pub fn packets(&self) -> Result<Packets> {
        let out_of_order = self.counter("out_of_seq_request")? + self.counter("completer_retry_err")?;
        let passed = self.counter("sent_pkts")? + self.counter("rcvd_pkts")?;
        Ok(Packets { passed, out_of_order })
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let path = self.port.join("hw_counters").join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("{} is no number", path.display()))
    }

    /// Disturbs the network from now on, where it is to be disturbed all the time.
    pub fn disturb(&self, network: Network) -> Result<Option<Disturbed<'_>>> {
        let Some(netem) = network.netem() else { return Ok(None) };
        let before = self.packets()?;
        let words = ["qdisc", "replace", "dev", &self.interface, "root", "netem"];
        run("tc", words.into_iter().chain(netem.split(' ')))?;
        println!("[network] {netem}");
        Ok(Some(Disturbed { wire: self, network, before }))
    }

    /// Takes the link down for `time`, and waits until its port is active again.
    pub fn interrupt(&self, time: Duration) -> Result<()> {
        let before = self.counter("link_downed")?;
        println!("[network] down");
        run("ip", ["link", "set", self.interface.as_str(), "down"])?;
        sleep(time);
        run("ip", ["link", "set", self.interface.as_str(), "up"])?;
        let deadline = Instant::now() + UP_LIMIT;
        while !fs::read_to_string(self.port.join("state"))?.contains("ACTIVE") {
            ensure!(Instant::now() < deadline, "the link is up again, and its port is not");
            process::pause()?;
        }
        println!("[network] up");
        ensure!(self.counter("link_downed")? > before, "the device saw no link that was down");
        Ok(())
    }

    /// Lets nothing through for `time`, in either direction.
    pub fn cut(&self, time: Duration) -> Result<()> {
        // Once elsewhere and with nothing lost there, since loading modules takes seconds on an emulated machine; then
        // both ends of it by one process, since starting another takes them, too.
        let load = filtered("lo", "0%", "pass") + &whole("lo");
        batch(&[(&load, Duration::ZERO)])?;
        println!("[network] cut");
        let since = Instant::now();
        let counts = batch(&[(&cut(&self.interface), time), (&whole(&self.interface), Duration::ZERO)])?;
        println!("[network] whole after {:.1} s", since.elapsed().as_secs_f64());
        let lost = counts.lines().rfind(|line| line.contains("(dropped ")).unwrap_or_default();
        ensure!(dropped(lost)? > 0, "nobody has said anything meanwhile: {counts}");
        Ok(())
    }
}

/// Tells `tc` one thing after the other, each with the time until the next; what it says.
fn batch(lines: &[(&str, Duration)]) -> Result<String> {
    let mut tc = Command::new("tc");
    tc.args(["-s", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tc = tc.spawn().context("cannot start `tc`")?;
    let mut input = tc.stdin.take().context("`tc` has no input")?;
    for (line, pause) in lines {
        input.write_all(line.as_bytes())?;
        // The pause is from when it is read: it may have to be loaded first.
        let deadline = Instant::now() + UP_LIMIT;
        while rustix::io::ioctl_fionread(&input)? > 0 {
            ensure!(Instant::now() < deadline, "`tc` does not listen");
            process::pause()?;
        }
        sleep(*pause);
    }
    drop(input);
    let output = tc.wait_with_output()?;
    ensure!(output.status.success(), "`tc` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Commands to `tc` by which nothing passes an interface. A device that hears of each packet it loses would try again
/// at once, and do nothing else: netem does not tell.
fn cut(interface: &str) -> String {
    filtered(interface, "100%", "drop")
}

/// Commands to `tc` by which an interface loses `lost` of what leaves, and does `arriving` with what arrives.
fn filtered(interface: &str, lost: &str, arriving: &str) -> String {
    format!(
        "qdisc add dev {interface} root netem loss {lost}\nqdisc add dev {interface} ingress\n\
         filter add dev {interface} ingress matchall action {arriving}\n"
    )
}

/// Commands to `tc` by which everything passes again.
fn whole(interface: &str) -> String {
    format!(
        "qdisc show dev {interface} root\nqdisc del dev {interface} ingress\nqdisc del dev {interface} root\n"
    )
}

impl Disturbed<'_> {
    /// Checks that the network was disturbed: where the data comes from, packets were lost; where they go, some came
    /// out of order.
    pub fn check(self, host: u8) -> Result<()> {
        let output =
            Command::new("tc").args(["-s", "qdisc", "show", "dev", &self.wire.interface]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        println!("[network] {}", said.lines().map(str::trim).collect::<Vec<_>>().join("; "));
        ensure!(said.contains("netem"), "the network was left alone: {said}");
        let late = self.wire.packets()?.out_of_order - self.before.out_of_order;
        match self.network {
            Network::Loss { .. } if host == 1 => ensure!(dropped(&said)? > 0, "no packet was lost: {said}"),
            // A program may send few packets from one of the hosts, of which none may be lost.
            Network::Jitter { .. } => {
                ensure!(dropped(&said)? > 0 || sent(&said)? < SOME_ARE_LOST_OF, "no packet was lost: {said}");
            }
            Network::Late { .. } if host == 0 => ensure!(late > 0, "no packet came out of order: {said}"),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        if let Err(error) = run("tc", ["qdisc", "del", "dev", self.wire.interface.as_str(), "root"]) {
            println!("[network] it cannot be mended: {error:#}");
        }
    }
}

/// Packets that the queueing discipline has lost.
fn dropped(said: &str) -> Result<u64> {
    let count = said.split_once("(dropped ").and_then(|(_, rest)| rest.split(',').next());
    count
        .and_then(|count| count.parse().ok())
        .with_context(|| format!("tc does not say what it dropped: {said}"))
}

/// Packets that the queueing discipline has sent.
fn sent(said: &str) -> Result<u64> {
    let words = || said.split_whitespace();
    let count = words().zip(words().skip(1)).find(|(_, unit)| *unit == "pkt").map(|(count, _)| count);
    count
        .and_then(|count| count.parse().ok())
        .with_context(|| format!("tc does not say what it sent: {said}"))
}

fn run<'a>(program: &str, args: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args: Vec<&str> = args.into_iter().collect();
    let output = Command::new(program).args(&args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{program}`"))?;
    if !output.status.success() {
        bail!("`{program} {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_netem() {
        assert_eq!(Network::Loss { per_mille: 5 }.netem().as_deref(), Some("loss 0.5%"));
        let late = Network::Late { delay_ms: 20, reordered_per_mille: 10 };
        assert_eq!(late.netem().as_deref(), Some("delay 20ms reorder 1.0%"));
        let jitter = Network::Jitter { per_mille: 10, mean_ms: 5 };
        assert_eq!(jitter.netem().as_deref(), Some("delay 5ms 5ms loss 1.0%"));
        assert_eq!(Network::LinkDown { after_packets: 1, seconds: 5 }.netem(), None);
    }

    #[test]
    fn what_was_dropped_is_read_from_tc() {
        let said = "qdisc netem 8001: root refcnt 2 limit 1000 loss 0.5%\n Sent 70665820 bytes 17707 pkt \
            (dropped 86, overlimits 0 requeues 0)\n backlog 0b 0p requeues 0\n";
        assert_eq!((dropped(said).ok(), sent(said).ok()), (Some(86), Some(17707)));
        let said = "qdisc noqueue 0: root refcnt 2\n";
        assert!(dropped(said).is_err() && sent(said).is_err());
    }
}
