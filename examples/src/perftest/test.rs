//! The twins: which of them runs, and its name.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A twin of a program of perftest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// `write_bw`.
    WriteBw,
    /// `write_lat`.
    WriteLat,
    /// `read_bw`.
    ReadBw,
    /// `read_lat`.
    ReadLat,
    /// `send_bw`.
    SendBw,
    /// `send_lat`.
    SendLat,
}

/// By what a twin moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// RDMA write: the peer's device places them.
    Write,
    /// RDMA read: the peer's device hands them out.
    Read,
    /// Send: they land where the peer has posted a receive.
    Send,
}

/// The quantity that a twin measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Bytes and messages a second.
    Bandwidth,
    /// Time a message.
    Latency,
}

impl Test {
    /// By what it moves bytes.
    pub fn verb(self) -> Verb {
        match self {
            Self::WriteBw | Self::WriteLat => Verb::Write,
            Self::ReadBw | Self::ReadLat => Verb::Read,
            Self::SendBw | Self::SendLat => Verb::Send,
        }
    }

    /// Returns the quantity that the twin measures.
    pub fn measure(self) -> Measure {
        match self {
            Self::WriteBw | Self::ReadBw | Self::SendBw => Measure::Bandwidth,
            Self::WriteLat | Self::ReadLat | Self::SendLat => Measure::Latency,
        }
    }

    /// Returns perftest's title above its table.
    pub fn title(self) -> &'static str {
        match self {
            Self::WriteBw => "RDMA_Write BW Test",
            Self::WriteLat => "RDMA_Write Latency Test",
            Self::ReadBw => "RDMA_Read BW Test",
            Self::ReadLat => "RDMA_Read Latency Test",
            Self::SendBw => "Send BW Test",
            Self::SendLat => "Send Latency Test",
        }
    }

    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write_bw",
            Self::WriteLat => "write_lat",
            Self::ReadBw => "read_bw",
            Self::ReadLat => "read_lat",
            Self::SendBw => "send_bw",
            Self::SendLat => "send_lat",
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
        })
    }
}
