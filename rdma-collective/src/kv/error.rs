//! Errors of pools and of transfers between them.

use std::sync::Arc;
use std::time::Duration;

use rdma_core::Access;
use rdma_core::error::{RangeError, RegisterError};

use super::layout::LayoutError;
use super::plan::PlanError;
use crate::engine::EngineError;
use crate::kv::{HoldKind, PoolUse, Verdicts};
use crate::link::{LaneFailure, LaneName, PeerName};

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
    /// The region lacks a right.
    #[error("a {purpose:?} pool needs memory with {needed:?}, and the region has {given:?}; register it so")]
    Access {
        /// What the pool is for.
        purpose: PoolUse,
        /// The rights it needs.
        needed: Access,
        /// Those of the region.
        given: Access,
    },
    /// The region is registered elsewhere.
    #[error("the region was registered by another engine; register it on the one that uses it")]
    OtherEngine,
    /// Something still uses the pool.
    #[error(
        "{users} others still use the pool; drop its other handles, and the ends of links that were made with it"
    )]
    InUse {
        /// Handles, ends of links and transfers.
        users: usize,
    },
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
        "request {request} takes more writes than {max}, which can be told apart; split it, or raise write_bytes_max"
    )]
    TooManyWrites {
        /// The request.
        request: u64,
        /// The bound.
        max: u32,
    },
    /// Layers are announced in order, each once.
    #[error(
        "layer {layer} of request {request} was announced before layer {expected}; announce layers in order"
    )]
    LayerOutOfOrder {
        /// The request.
        request: u64,
        /// The layer announced.
        layer: u32,
        /// The next one in order.
        expected: u32,
    },
    /// The layer was announced before, or the push has all layers from the beginning.
    #[error("layer {layer} of request {request} was announced already; announce each layer once")]
    LayerRepeated {
        /// The request.
        request: u64,
        /// The layer announced.
        layer: u32,
    },
    /// A layer had not arrived when its wait was over; the transfer goes on.
    #[error(
        "layer {layer} of request {request} has not arrived yet, and the transfer goes on; wait again, or longer"
    )]
    LayerLate {
        /// The request.
        request: u64,
        /// The layer waited for.
        layer: u32,
    },
    /// The blocks that were offered for a request are not to be read any more.
    #[error(
        "the offer of request {request} has ended: its time was up, or it was revoked, and its blocks may hold something \
         else; offer them anew, for longer"
    )]
    LeaseExpired {
        /// The request.
        request: u64,
    },
    /// No offer came for a pull.
    #[error(
        "nobody offered blocks of request {request} before the deadline of its pull; see whether prefill has it"
    )]
    NotOffered {
        /// The request.
        request: u64,
    },
    /// The source pool's memory exports no right to read it.
    #[error(
        "blocks can only be pulled from a pool that peers may read; make prefill's with PoolUse::SourceToPull"
    )]
    NotReadable,
    /// There is nothing to move again.
    #[error("every block of request {request} is valid; there is nothing to grant again")]
    NothingMissing {
        /// The request.
        request: u64,
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
    /// This side gave the transfer up.
    #[error(
        "request {request} was revoked on this side; nothing of it moves any more, and it can be begun anew"
    )]
    Revoked {
        /// The request.
        request: u64,
    },
    /// The peer gave the transfer up.
    #[error(
        "the peer gave up request {request}, which was revoked or late there; see its error, or begin anew"
    )]
    PeerRevoked {
        /// The request.
        request: u64,
    },
    /// The device did not end a lane over which blocks may still be read or written.
    #[error(
        "the device did not end the lane of request {request} ({peer}, {lane}), and its blocks are quarantined; \
         make a new pool, and see the device's log"
    )]
    Quarantined {
        /// The request.
        request: u64,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
    },
    /// Not all had happened at the deadline.
    #[error(
        "request {request} was not done at its deadline, {waited:.1?} after it began, with {bytes_outstanding} bytes \
         outstanding and the last progress {last_progress:.1?} ago ({peer}, {lane}); see whether the peer runs, and whether it has this request"
    )]
    DeadlineExceeded {
        /// The request.
        request: u64,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
        /// Bytes not known to have arrived.
        bytes_outstanding: u64,
        /// How long ago the link moved anything, or the request began.
        last_progress: Duration,
        /// How long it was under way.
        waited: Duration,
    },
    /// The link to the peer failed.
    #[error(
        "the peer at {peer} is lost in request {request}, with {bytes_outstanding} bytes outstanding and the last \
         progress {last_progress:.1?} ago ({lane}: {cause}); see why its process or its network ended, and connect anew"
    )]
    PeerFailed {
        /// The request.
        request: u64,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
        /// What became of the lane.
        cause: LaneFailure,
        /// Bytes not known to have arrived.
        bytes_outstanding: u64,
        /// How long ago the link moved anything, or the request began.
        last_progress: Duration,
    },
    /// The link has ended.
    #[error("the link to {peer} has ended ({cause}); connect anew")]
    LinkEnded {
        /// The peer.
        peer: PeerName,
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
