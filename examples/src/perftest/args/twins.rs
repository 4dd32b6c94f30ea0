//! The flags of each twin: those that all have, those of what it measures, and those of the verb that it measures.

use super::{Bandwidth, Common, Flags, Inline, Latency, Reads, Receives};
use crate::perftest::plan::Plan;
use crate::perftest::test::Test;
use clap::Parser;

const AFTER: &str = "\
Both sides take the same -s, -n, -q, -m and -a; the server refuses a client whose differ.

Exit status:
  0  the run is complete, on both sides
  1  the run failed: the last line says why
  2  wrong flags";

/// perftest's default of `-I` for latency of writes.
const INLINE_WRITE: u32 = 220;
/// Inline bytes for the latency of sends.
const INLINE_SEND: u32 = 236;

/// `write_bw`: bandwidth of RDMA write.
#[derive(Debug, Clone, Parser)]
#[command(name = "write_bw", version, about = "Bandwidth of RDMA write, after perftest's ib_write_bw", after_help = AFTER)]
pub struct WriteBw {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of bandwidth tests.
    #[command(flatten)]
    pub bandwidth: Bandwidth,

    /// Number of messages on each queue pair, at least 5
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(5..))]
    pub iters: u32,

    /// Flags of tests that may send inline.
    #[command(flatten)]
    pub inline: Inline,
}

/// `write_lat`: latency of RDMA write.
#[derive(Debug, Clone, Parser)]
#[command(name = "write_lat", version, about = "Latency of RDMA write, after perftest's ib_write_lat", after_help = AFTER)]
pub struct WriteLat {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of latency tests.
    #[command(flatten)]
    pub latency: Latency,

    /// Flags of tests that may send inline.
    #[command(flatten)]
    pub inline: Inline,
}

/// `read_bw`: bandwidth of RDMA read.
#[derive(Debug, Clone, Parser)]
#[command(name = "read_bw", version, about = "Bandwidth of RDMA read, after perftest's ib_read_bw", after_help = AFTER)]
pub struct ReadBw {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of bandwidth tests.
    #[command(flatten)]
    pub bandwidth: Bandwidth,

    /// Number of messages on each queue pair, at least 5
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(5..))]
    pub iters: u32,

    /// Flags of tests that read.
    #[command(flatten)]
    pub reads: Reads,
}

/// `read_lat`: latency of RDMA read.
#[derive(Debug, Clone, Parser)]
#[command(name = "read_lat", version, about = "Latency of RDMA read, after perftest's ib_read_lat", after_help = AFTER)]
pub struct ReadLat {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of latency tests.
    #[command(flatten)]
    pub latency: Latency,

    /// Flags of tests that read.
    #[command(flatten)]
    pub reads: Reads,
}

/// `send_bw`: bandwidth of send and receive.
#[derive(Debug, Clone, Parser)]
#[command(name = "send_bw", version, about = "Bandwidth of send and receive, after perftest's ib_send_bw", after_help = AFTER)]
pub struct SendBw {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of bandwidth tests.
    #[command(flatten)]
    pub bandwidth: Bandwidth,

    /// Number of messages on each queue pair, at least 5
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(5..))]
    pub iters: u32,

    /// Flags of tests that send.
    #[command(flatten)]
    pub receives: Receives,

    /// Flags of tests that may send inline.
    #[command(flatten)]
    pub inline: Inline,
}

/// `send_lat`: latency of send and receive.
#[derive(Debug, Clone, Parser)]
#[command(name = "send_lat", version, about = "Latency of send and receive, after perftest's ib_send_lat", after_help = AFTER)]
pub struct SendLat {
    /// Flags of all tests.
    #[command(flatten)]
    pub common: Common,

    /// Flags of latency tests.
    #[command(flatten)]
    pub latency: Latency,

    /// Flags of tests that send.
    #[command(flatten)]
    pub receives: Receives,

    /// Flags of tests that may send inline.
    #[command(flatten)]
    pub inline: Inline,
}

impl Flags for WriteBw {
    const TEST: Test = Test::WriteBw;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        self.inline.over(self.bandwidth.plan(Self::TEST, &self.common, self.iters), 0)
    }
}

impl Flags for WriteLat {
    const TEST: Test = Test::WriteLat;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        self.inline.over(self.latency.plan(Self::TEST, &self.common), INLINE_WRITE)
    }
}

impl Flags for ReadBw {
    const TEST: Test = Test::ReadBw;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let plan = self.bandwidth.plan(Self::TEST, &self.common, self.iters);
        Plan { reads: self.reads.outstanding, ..plan }
    }
}

impl Flags for ReadLat {
    const TEST: Test = Test::ReadLat;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan { reads: self.reads.outstanding, ..self.latency.plan(Self::TEST, &self.common) }
    }
}

impl Flags for SendBw {
    const TEST: Test = Test::SendBw;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let plan = self.bandwidth.plan(Self::TEST, &self.common, self.iters);
        self.inline.over(self.receives.over(plan), 0)
    }
}

impl Flags for SendLat {
    const TEST: Test = Test::SendLat;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let plan = self.latency.plan(Self::TEST, &self.common);
        self.inline.over(self.receives.over(plan), INLINE_SEND)
    }
}
