//! Errors of pools and of transfers between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::error::{RangeError, RegisterError};

use super::{EngineError, LaneFailure, LaneName, LayoutError, PlanError};
use crate::kv::{HoldKind, Verdicts};

/// A pool could not be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Its memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no such layer or block.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The bytes are not all in the block.
    #[error("bytes {offset} to {end} are not all in a block of {bytes}; mend the offset or the length")]
    Range {
        /// Where they begin.
        offset: u64,
        /// Where they end.
        end: u64,
        /// Bytes of the block.
        bytes: u64,
    },
    /// The memory is shorter than its layout.
    #[error(transparent)]
    Memory(#[from] RangeError),
    /// A transfer holds the block.
    #[error("block {block} is {by}; wait until the transfer has ended")]
    Held {
        /// The block.
        block: u32,
        /// How.
        by: HoldKind,
    },
}

/// Why blocks were not moved. Unless it says that the link has ended, later transfers are not affected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The list of blocks is not sound.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Another transfer holds a block.
    #[error("block {block} is {by}; wait until that transfer has ended, or use another block")]
    Held {
        /// The block.
        block: u32,
        /// How.
        by: HoldKind,
    },
    /// A transfer of that request is under way.
    #[error("request {request} is under way already; give each request its own number")]
    RequestRepeated {
        /// The request.
        request: u64,
    },
    /// As many transfers are under way as a link carries.
    #[error("{max} transfers are under way on this link; wait for one of them")]
    TooManyTransfers {
        /// The bound.
        max: usize,
    },
    /// More writes than can be told apart.
    #[error(
        "the request takes {writes} writes, and {max} can be told apart; split it, or raise write_bytes_max"
    )]
    TooManyWrites {
        /// What it takes.
        writes: u64,
        /// The bound.
        max: u32,
    },
    /// Source and destination have different numbers of blocks.
    #[error(
        "request {request} has {source_blocks} source blocks and {granted} granted ones; give both sides the same number"
    )]
    BlockCounts {
        /// The request.
        request: u64,
        /// Blocks at prefill.
        source_blocks: u32,
        /// Blocks at decode.
        granted: u32,
    },
    /// The grant came too late to be begun.
    #[error("the grant of request {request} has expired; give it a later deadline, or push earlier")]
    GrantExpired {
        /// The request.
        request: u64,
    },
    /// The peer could not use the grant.
    #[error("the peer refused the grant of request {request}; see its error")]
    GrantRefused {
        /// The request.
        request: u64,
    },
    /// Not all had happened at the deadline.
    #[error(
        "request {request} was not done at its deadline, {waited:.1?} after it began, with {bytes_outstanding} bytes \
         outstanding ({peer}, {lane}); see whether the peer runs, and whether it has this request"
    )]
    DeadlineExceeded {
        /// The request.
        request: u64,
        /// The peer.
        peer: SocketAddr,
        /// The lane to it.
        lane: LaneName,
        /// Bytes not known to have arrived.
        bytes_outstanding: u64,
        /// How long it was under way.
        waited: Duration,
    },
    /// The link to the peer failed.
    #[error(
        "the peer at {peer} is lost in request {request} with {bytes_outstanding} bytes outstanding ({lane}: {cause}); \
         see why its process or its network ended, and connect anew"
    )]
    PeerFailed {
        /// The request.
        request: u64,
        /// The peer.
        peer: SocketAddr,
        /// The lane to it.
        lane: LaneName,
        /// What became of the lane.
        cause: LaneFailure,
        /// Bytes not known to have arrived.
        bytes_outstanding: u64,
    },
    /// The link has ended.
    #[error("the link to {peer} has ended ({cause}); connect anew")]
    LinkEnded {
        /// The peer.
        peer: SocketAddr,
        /// What became of its lane.
        cause: LaneFailure,
    },
    /// The engine cannot go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A transfer that did not complete, with what is known of each block. No byte of it lands any more.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}")]
pub struct TransferError {
    /// Why.
    #[source]
    pub cause: Arc<KvError>,
    /// What has arrived all the same.
    pub verdicts: Verdicts,
}
