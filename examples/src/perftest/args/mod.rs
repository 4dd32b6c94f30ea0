//! perftest's flags and defaults, and what follows from them; no device is asked here.

mod twins;

use super::plan::{ALL_SIZES_MAX, Plan, moderation};
use super::test::Test;
use crate::metrics::Metrics;
use crate::sizes::parse_size;
use crate::wire::WireName;
use clap::{Args, Parser};
use std::path::{Path, PathBuf};

pub use twins::{ReadBw, ReadLat, SendBw, SendLat, WriteBw, WriteLat};

/// The port both sides meet on.
pub const PORT: u16 = 18515;
/// Receives of a queue pair, unless `-r` says otherwise.
const RX_DEPTH: u32 = 512;
const SIZE_MAX: u64 = (1 << 31) - 1;

/// The flags of one twin.
pub trait Flags: Parser {
    /// The twin that these flags belong to.
    const TEST: Test;

    /// Returns the flags that all twins have.
    fn common(&self) -> &Common;

    /// Returns the plan that the flags ask for.
    fn plan(&self) -> Plan;
}

/// Flags of all tests.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Server to connect to; without it, be the server and wait for a client
    pub host: Option<String>,

    /// Use device <DEV>; a device that is named is used or the run fails [default: the first usable NIC, else soft0]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    pub device: Option<String>,

    /// Use the GID with this index [default: chosen, and printed]
    #[arg(short = 'x', long = "gid-index", value_name = "INDEX")]
    pub gid_index: Option<u32>,

    /// MTU, 256 to 4096 [default: the port's]
    #[arg(short = 'm', long, value_name = "MTU", value_parser = mtu)]
    pub mtu: Option<u32>,

    /// How the software device reaches the other side
    #[arg(long, value_enum, value_name = "WIRE", default_value_t = WireName::Auto)]
    pub wire: WireName,

    /// Port to listen on or to connect to
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,

    /// Run sizes from 2 to 2^23
    #[arg(short = 'a', long = "all", conflicts_with = "size")]
    pub all: bool,

    /// Read for perftest's sake: no warning about CPU frequency is ever printed
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_frequency: bool,

    /// Files for the figures.
    #[command(flatten)]
    pub files: Files,

    /// Metrics for Prometheus.
    #[command(flatten)]
    pub metrics: Metrics,

    /// Seconds to wait for the other side at any one point
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
}

/// Files for a run's figures.
#[derive(Debug, Clone, Default, Args)]
pub struct Files {
    /// Save the run's figures, for --overlay
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw the run against message size as SVG: a point, or a curve with -a
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Draw a run that --json has saved into the same picture; may be given more than once
    #[arg(long, value_name = "RUN", requires = "plot")]
    pub overlay: Vec<PathBuf>,
}

/// Flags of tests that may send inline.
#[derive(Debug, Clone, Args)]
pub struct Inline {
    /// Largest message that is sent inline, at most 1024 bytes
    #[arg(short = 'I', long = "inline_size", value_name = "SIZE", value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub inline_bytes: Option<u32>,
}

/// Flags of tests that read.
#[derive(Debug, Clone, Args)]
pub struct Reads {
    /// Number of reads that a queue pair has outstanding on the wire [default: as many as both devices take]
    #[arg(short = 'o', long = "outs", value_name = "NUM", value_parser = clap::value_parser!(u8).range(1..))]
    pub outstanding: Option<u8>,
}

/// Flags of tests that send.
#[derive(Debug, Clone, Args)]
pub struct Receives {
    /// Size of each receive queue; the smaller of both sides' is used
    #[arg(short = 'r', long = "rx-depth", value_name = "DEPTH", default_value_t = RX_DEPTH, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub rx_depth: u32,
}

/// Flags of bandwidth tests.
#[derive(Debug, Clone, Args)]
pub struct Bandwidth {
    /// Size of a message, in bytes [default: 65536]
    #[arg(short = 's', long, value_name = "SIZE", value_parser = message_size)]
    pub size: Option<u64>,

    /// Number of queue pairs
    #[arg(short = 'q', long = "qp", value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub queue_pairs: u16,

    /// Size of each send queue
    #[arg(short = 't', long = "tx-depth", value_name = "DEPTH", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    pub tx_depth: u32,

    /// Ask for a completion only every <NUM> messages [default: 100, or 1 for messages above 8192 bytes]
    #[arg(short = 'Q', long = "cq-mod", value_name = "NUM", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_moderation: Option<u32>,
}

/// Flags of latency tests.
#[derive(Debug, Clone, Args)]
pub struct Latency {
    /// Size of a message, in bytes [default: 2]
    #[arg(short = 's', long, value_name = "SIZE", value_parser = message_size)]
    pub size: Option<u64>,

    /// Number of exchanges, at least 5
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(5..=10_000_000))]
    pub iters: u32,

    /// Size of the send queue
    #[arg(short = 't', long = "tx-depth", value_name = "DEPTH", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    pub tx_depth: u32,

    /// Number of queue pairs: latency is measured on one
    #[arg(short = 'q', long = "qp", value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1))]
    pub queue_pairs: u16,

    /// Read for perftest's sake: one message is under way at a time, so each is signalled
    #[arg(short = 'Q', long = "cq-mod", value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_moderation: u32,
}

impl Bandwidth {
    /// perftest's rules: no deeper than there are messages, and large messages are not moderated unasked.
    fn plan(&self, test: Test, common: &Common, iters: u32) -> Plan {
        let size = common.size(self.size, 65_536);
        let tx_depth = self.tx_depth.min(iters);
        Plan {
            test,
            size,
            all: common.all,
            iters,
            queue_pairs: self.queue_pairs,
            tx_depth,
            cq_moderation: moderation(self.cq_moderation, size, common.all, tx_depth),
            inline_bytes: 0,
            inline_may_shrink: true,
            reads: None,
            rx_depth: RX_DEPTH.min(iters),
        }
    }
}

impl Inline {
    fn over(&self, plan: Plan, default: u32) -> Plan {
        let asked = self.inline_bytes;
        Plan { inline_bytes: asked.unwrap_or(default), inline_may_shrink: asked.is_none(), ..plan }
    }
}

impl Receives {
    fn over(&self, plan: Plan) -> Plan {
        Plan { rx_depth: self.rx_depth.min(plan.iters), ..plan }
    }
}

impl Latency {
    /// Plans one queue pair, and every message signalled.
    fn plan(&self, test: Test, common: &Common) -> Plan {
        Plan {
            test,
            size: common.size(self.size, 2),
            all: common.all,
            iters: self.iters,
            queue_pairs: 1,
            tx_depth: self.tx_depth.min(self.iters),
            cq_moderation: 1,
            inline_bytes: 0,
            inline_may_shrink: true,
            reads: None,
            rx_depth: RX_DEPTH.min(self.iters),
        }
    }
}

impl Common {
    fn size(&self, asked: Option<u64>, default: u64) -> u64 {
        if self.all { ALL_SIZES_MAX } else { asked.unwrap_or(default) }
    }
}

impl Files {
    /// Yields the files that are written, each with its flag.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let named = [("--json", &self.json), ("--plot", &self.plot)];
        named.into_iter().filter_map(|(flag, path)| path.as_deref().map(|path| (flag, path)))
    }
}

fn message_size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(size @ 1..=SIZE_MAX) => Ok(size),
        Ok(_) => Err(format!("a message has 1 to {SIZE_MAX} bytes")),
        Err(error) => Err(error.to_string()),
    }
}

fn mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("the MTU is one of 256, 512, 1024, 2048 and 4096".to_owned()),
    }
}

#[cfg(test)]
mod tests;
