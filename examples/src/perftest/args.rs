//! perftest's flags and defaults, and what follows from them; no device is asked here.

use crate::sizes::parse_size;
use clap::{Args, Parser};

/// The port both sides meet on.
pub const PORT: u16 = 18515;
/// The largest message of `-a`, 2^23.
pub const ALL_SIZES_MAX: u64 = 1 << 23;
/// Sizes above this one are signalled one by one unless `-Q` says otherwise, as perftest does.
const MODERATED_SIZE_MAX: u64 = 8192;
const SIZE_MAX: u64 = (1 << 31) - 1;

/// Flags of both tests.
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

    /// Largest message that is sent inline, at most 1024 bytes
    #[arg(short = 'I', long = "inline_size", value_name = "SIZE", value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub inline_bytes: Option<u32>,

    /// Port to listen on or to connect to
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,

    /// Run sizes from 2 to 2^23
    #[arg(short = 'a', long = "all", conflicts_with = "size")]
    pub all: bool,

    /// Read for perftest's sake: no warning about CPU frequency is ever printed
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_frequency: bool,

    /// Seconds to wait for the other side at any one point
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
}

/// `write_bw`: bandwidth of RDMA write.
#[derive(Debug, Clone, Parser)]
#[command(name = "write_bw", version, about = "Bandwidth of RDMA write, after perftest's ib_write_bw", after_help = AFTER)]
pub struct BandwidthArgs {
    /// Flags of both tests.
    #[command(flatten)]
    pub common: Common,

    /// Size of a message, in bytes [default: 65536]
    #[arg(short = 's', long, value_name = "SIZE", value_parser = message_size)]
    pub size: Option<u64>,

    /// Number of messages on each queue pair, at least 5
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(5..))]
    pub iters: u32,

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

/// `write_lat`: latency of RDMA write.
#[derive(Debug, Clone, Parser)]
#[command(name = "write_lat", version, about = "Latency of RDMA write, after perftest's ib_write_lat", after_help = AFTER)]
pub struct LatencyArgs {
    /// Flags of both tests.
    #[command(flatten)]
    pub common: Common,

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

    /// Read for perftest's sake: each write is one exchange, so each one is signalled
    #[arg(short = 'Q', long = "cq-mod", value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_moderation: u32,
}

const AFTER: &str = "\
Both sides take the same -s, -n, -q, -m and -a; the server refuses a client whose differ.

Exit status:
  0  the run is complete, on both sides
  1  the run failed: the last line says why
  2  wrong flags";

/// What a test runs with, once the flags have been put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a message; the largest of them with `-a`.
    pub size: u64,
    /// True for every power of two up to [`ALL_SIZES_MAX`].
    pub all: bool,
    /// Messages on each queue pair.
    pub iters: u32,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Requests each send queue holds.
    pub tx_depth: u32,
    /// A completion every so many messages.
    pub cq_moderation: u32,
    /// Messages of at most so many bytes are sent inline.
    pub inline_bytes: u32,
}

impl BandwidthArgs {
    /// perftest's rules: no deeper than there are messages, and large messages are not moderated unasked.
    pub fn plan(&self) -> Plan {
        let size = self.common.size(self.size, 65_536);
        let tx_depth = self.tx_depth.min(self.iters);
        let unasked = if size > MODERATED_SIZE_MAX && !self.common.all { 1 } else { 100 };
        Plan {
            size,
            all: self.common.all,
            iters: self.iters,
            queue_pairs: self.queue_pairs,
            tx_depth,
            cq_moderation: self.cq_moderation.unwrap_or(unasked).min(tx_depth),
            inline_bytes: self.common.inline_bytes.unwrap_or(0),
        }
    }
}

impl LatencyArgs {
    /// One queue pair, and every write signalled.
    pub fn plan(&self) -> Plan {
        Plan {
            size: self.common.size(self.size, 2),
            all: self.common.all,
            iters: self.iters,
            queue_pairs: 1,
            tx_depth: self.tx_depth.min(self.iters),
            cq_moderation: 1,
            inline_bytes: self.common.inline_bytes.unwrap_or(220),
        }
    }
}

impl Common {
    fn size(&self, asked: Option<u64>, default: u64) -> u64 {
        if self.all { ALL_SIZES_MAX } else { asked.unwrap_or(default) }
    }
}

impl Plan {
    /// The sizes to run, smallest first.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let first = if self.all { 2 } else { self.size };
        let last = self.size;
        std::iter::successors(Some(first), |size| size.checked_mul(2)).take_while(move |&size| size <= last)
    }

    /// Messages over all queue pairs.
    pub fn messages(&self) -> u64 {
        u64::from(self.iters) * u64::from(self.queue_pairs)
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
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn bandwidth(line: &str) -> Plan {
        BandwidthArgs::try_parse_from(line.split(' ')).unwrap().plan()
    }

    #[test]
    fn help() {
        BandwidthArgs::command().debug_assert();
        LatencyArgs::command().debug_assert();
        insta::assert_snapshot!("write_bw", BandwidthArgs::command().render_long_help());
        insta::assert_snapshot!("write_lat", LatencyArgs::command().render_long_help());
    }

    #[test]
    fn the_defaults_are_perftests() {
        let large = bandwidth("write_bw");
        let expected = Plan {
            size: 65_536,
            all: false,
            iters: 5000,
            queue_pairs: 1,
            tx_depth: 128,
            cq_moderation: 1,
            inline_bytes: 0,
        };
        assert_eq!(large, expected);
        assert_eq!(bandwidth("write_bw -s 64").cq_moderation, 100);
        let latency = LatencyArgs::try_parse_from(["write_lat", "host"]).unwrap();
        assert_eq!((latency.common.port, latency.common.host.as_deref()), (18515, Some("host")));
        let plan = latency.plan();
        assert_eq!((plan.size, plan.iters, plan.inline_bytes, plan.tx_depth), (2, 1000, 220, 1));
    }

    #[test]
    fn depth_and_moderation_are_bounded_by_the_run() {
        let short = bandwidth("write_bw -s 64 -n 10");
        assert_eq!((short.tx_depth, short.cq_moderation), (10, 10));
        assert_eq!(bandwidth("write_bw -s 64K -Q 100").cq_moderation, 100);
        assert_eq!(bandwidth("write_bw -Q 1000 -t 64").cq_moderation, 64);
        assert_eq!(bandwidth("write_bw -q 4 -n 10").messages(), 40);
    }

    #[test]
    fn all_is_2_to_2_to_the_23() {
        let plan = bandwidth("write_bw -a");
        let sizes: Vec<u64> = plan.sizes().collect();
        assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 1 << 23));
        assert_eq!(plan.cq_moderation, 100);
        assert_eq!(bandwidth("write_bw -s 100").sizes().collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn what_perftest_refuses_is_refused() {
        for line in [
            "write_bw -n 4",
            "write_bw -m 1500",
            "write_bw -s 0",
            "write_bw -s 3G",
            "write_bw -Q 0",
            "write_bw -q 0",
            "write_bw -t 0",
            "write_bw -I 1025",
            "write_bw -a -s 8",
            "write_bw -p 65536",
            "write_bw -s 99999999999999999999G",
        ] {
            assert!(BandwidthArgs::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
        assert!(LatencyArgs::try_parse_from(["write_lat", "-q", "2"]).is_err());
    }
}
