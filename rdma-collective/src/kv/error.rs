//! Errors of pools and of transfers between pools. Errors of layouts, plans and links lie beside what raises them.

use std::sync::Arc;
use std::time::Duration;

use rdma_core::Access;
use rdma_core::error::{RangeError, RegisterError};

use super::layout::LayoutError;
use super::plan::PlanError;
use crate::engine::EngineError;
use crate::kv::{HoldKind, PoolUse, RequestId};
use crate::link::{LaneFailure, LaneName, PeerName};

/// The error of a pool that could not be made, read, written or closed.
///
/// Raised by [`Pool::allocate`](crate::kv::Pool::allocate) and the pool's other calls.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool's memory could not be registered.
    #[error("{0}")]
    Register(#[from] RegisterError),
    /// The layout has no such layer or block, or does not fit the memory.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The range of bytes reaches beyond the block.
    #[error(
        "bytes {offset} to {end} reach beyond a block of {bytes} bytes; correct the offset or the length"
    )]
    Range {
        /// First byte of the range, counted from the start of the block.
        offset: u64,
        /// End of the range, exclusive; `u64::MAX` when the sum overflows.
        end: u64,
        /// Bytes of one block in one layer.
        bytes: u64,
    },
    /// The memory is shorter than the pool's layout.
    #[error(transparent)]
    Memory(#[from] RangeError),
    /// Another number of tensors than the layout has.
    #[error(
        "{given} tensors are given for a layout of {tensors}; give each tensor, in the order of Layout::tensors"
    )]
    TensorCount {
        /// Tensors that are given.
        given: usize,
        /// Tensors of the layout.
        tensors: usize,
    },
    /// A tensor is shorter than the layout has it.
    #[error(
        "tensor {tensor} has {len} bytes, and its layers need {need}; give a longer one, or lay out fewer blocks"
    )]
    TensorTooShort {
        /// Position of the tensor.
        tensor: usize,
        /// Bytes that the layout needs.
        need: u64,
        /// Bytes that there are.
        len: u64,
    },
    /// Two tensors have bytes in common.
    #[error(
        "tensors {first} and {second} overlap in memory, or are one that is given twice; give each its own bytes"
    )]
    TensorsOverlap {
        /// Position of the first.
        first: usize,
        /// Position of the second.
        second: usize,
    },
    /// The region lacks an access right that the pool's use needs.
    #[error(
        "a {purpose:?} pool needs memory with {needed:?}, and the region has {given:?}; register the region with PoolUse::access"
    )]
    Access {
        /// The use that was asked for.
        purpose: PoolUse,
        /// The access rights which that use needs.
        needed: Access,
        /// The access rights of the region.
        given: Access,
    },
    /// The region is registered on another engine than the pool's.
    #[error(
        "the region is registered on another engine; register the region on the engine that makes the pool"
    )]
    OtherEngine,
    /// Handles, shares, link ends or transfers still use the pool.
    #[error(
        "{users} other handles, shares, link ends or transfers still use the pool; drop those, then close again"
    )]
    InUse {
        /// How many handles, shares, link ends and transfers there are.
        users: usize,
    },
    /// A transfer or a reader holds the block, so the caller may not write it.
    #[error("block {block} is {by}; wait until the block is free")]
    Held {
        /// The block.
        block: u32,
        /// How the block is held.
        by: HoldKind,
    },
}

/// The reason why blocks were not moved. Unless the text says that the link has ended, later transfers on the link
/// are not affected.
///
/// Raised by [`Decode::grant`](crate::kv::Decode::grant), [`Prefill::push`](crate::kv::Prefill::push) and their
/// sisters.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The list of blocks is empty, out of range or repeats a block, or the layouts differ.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The id of the request has no byte, or too many.
    #[error("a request id of {bytes} bytes; give each request an id of 1 to 64 bytes")]
    RequestIdLength {
        /// Bytes of the id.
        bytes: usize,
    },
    /// The note of a request is too long.
    #[error("a note of {bytes} bytes; a note has at most 65536: send the rest by other means")]
    NoteLength {
        /// Bytes of the note.
        bytes: usize,
    },
    /// A note was promised for a transfer that is no push.
    #[error("request {request} promises a note, which only a push can; give the note by Request::note")]
    NotePromised {
        /// The request.
        request: RequestId,
    },
    /// The note of a push was not promised, or is set already.
    #[error(
        "no note of request {request} is due, because none was promised or it is set already; \
         begin the push with Request::note_later, and set its note once"
    )]
    NoteNotDue {
        /// The request.
        request: RequestId,
    },
    /// All blocks of a push were sent by its deadline, but the note that it promised was not set.
    #[error(
        "request {request} was not done at its deadline, because the note that its push promised was not set; \
         call Push::set_note, with no bytes if there is nothing to say"
    )]
    NoteMissing {
        /// The request.
        request: RequestId,
    },
    /// Another transfer, or a reader, holds one of the blocks.
    #[error("block {block} is {by}; wait until the block is free, or use another one")]
    Held {
        /// The block.
        block: u32,
        /// How the block is held.
        by: HoldKind,
    },
    /// A transfer of this request is under way on this link end.
    #[error("request {request} is under way on this link already; give each request an id of its own")]
    RequestRepeated {
        /// The request.
        request: RequestId,
    },
    /// The link carries as many transfers as it can; a finished one counts until its outcome was taken.
    #[error(
        "{max} transfers are under way on this link, which carries no more; wait for one of them, or open another link"
    )]
    TooManyTransfers {
        /// Most transfers of one link.
        max: usize,
    },
    /// The plan has more writes than the immediate of a write can number.
    #[error(
        "request {request} takes more than {max} writes, which is all that one transfer can number; split the request, or raise write_bytes_max"
    )]
    TooManyWrites {
        /// The request.
        request: RequestId,
        /// Most writes of one transfer.
        max: u32,
    },
    /// The layer was announced before, or the push has all layers from the beginning.
    #[error("layer {layer} of request {request} was announced already; announce each layer once")]
    LayerRepeated {
        /// The request.
        request: RequestId,
        /// The layer announced.
        layer: u32,
    },
    /// A layer had not arrived, or at prefill was not sent, when the wait for it was over; the transfer goes on.
    #[error(
        "layer {layer} of request {request} is still under way, and the transfer goes on; wait for the layer again, or longer"
    )]
    LayerLate {
        /// The request.
        request: RequestId,
        /// The layer waited for.
        layer: u32,
    },
    /// Decode had granted no blocks when the wait for the grant was over; the push goes on.
    #[error(
        "decode has granted no blocks to request {request} yet, and the push goes on; wait for the grant again, or longer"
    )]
    GrantLate {
        /// The request.
        request: RequestId,
    },
    /// The offer of the request has ended, so its source blocks must not be read any more.
    #[error(
        "the offer of request {request} has ended by its deadline or by a revocation ({peer}), and its blocks may hold something \
         else; offer the blocks again under another request id, with a later deadline"
    )]
    LeaseExpired {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// No offer came before the deadline of the pull.
    #[error(
        "{peer} offered no blocks of request {request} before the deadline of the pull; see whether that prefill has the request"
    )]
    NotOffered {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// The source pool is registered without the right to be read by peers.
    #[error(
        "blocks can only be pulled from a pool that peers may read; make the pool of prefill with PoolUse::SourceToPull"
    )]
    NotReadable,
    /// Prefill sums up its blocks before it knows how they go over, so a pull is checked only between pools whose
    /// blocks have the same bytes in the same order, and only whole blocks.
    #[error(
        "pulled blocks can only be checked whole, and between pools of one layout: turn LinkOptions::checksums off, or \
         push"
    )]
    ChecksumsOfPull,
    /// The link brings a part of each block alone, and the rest comes from other ranks.
    #[error(
        "the source at {peer} brings only a part of each block, and not head {head} of layer {layer}: make kv::Sources \
         of the links to all ranks, and begin the transfer there"
    )]
    PartOfBlocks {
        /// The source.
        peer: PeerName,
        /// The first layer that lacks something, by its number in the model.
        layer: u32,
        /// The first head there that the source does not bring.
        head: u32,
    },
    /// A transfer has ended well, so that its deadline cannot be moved any more.
    #[error("request {request} has ended already, and its deadline with it; take its outcome")]
    AlreadyEnded {
        /// The request.
        request: RequestId,
    },
    /// The outcome of a transfer is there once, and was taken.
    #[error("the outcome of request {request} was taken already; keep what the first poll returned")]
    OutcomeTaken {
        /// The request.
        request: RequestId,
    },
    /// A source, of several, did not bring its part.
    #[error("the source at {peer} did not bring its part: {cause}")]
    OfSource {
        /// The source.
        peer: PeerName,
        /// The reason why its transfer ended.
        #[source]
        cause: Arc<Self>,
    },
    /// Source and destination list different numbers of blocks.
    #[error(
        "request {request} has {source_blocks} source blocks and {granted} granted ones ({peer}); give both sides the same number"
    )]
    BlockCounts {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
        /// Blocks at prefill.
        source_blocks: u32,
        /// Blocks at decode.
        granted: u32,
    },
    /// The ends of a request name different token ranges.
    #[error(
        "the ends of request {request} name ranges of different numbers of tokens, or one end names none ({peer}); name as many \
         tokens at both ends, or none"
    )]
    TokenRanges {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// The grant had expired before a push met it.
    #[error(
        "the grant of request {request} ({peer}) expired before a push met it; grant with a later deadline, or push earlier"
    )]
    GrantExpired {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// The peer could not make a plan for the grant.
    #[error("{peer} refused the grant of request {request}; see the error of the push there")]
    GrantRefused {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// This side revoked the transfer.
    #[error(
        "request {request} was revoked on this side, and none of its bytes move any more; begin the request again if it is still wanted"
    )]
    Revoked {
        /// The request.
        request: RequestId,
    },
    /// The peer revoked the transfer, or missed its own deadline.
    #[error(
        "{peer} gave up request {request}, which was revoked or late there; see its error, or begin again"
    )]
    PeerRevoked {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
    },
    /// The device did not end a lane over which blocks may still be read or written. The blocks stay quarantined
    /// until their pool is closed.
    #[error(
        "the device did not end the lane of request {request} ({peer}, {lane}), and the blocks are quarantined; \
         make a new pool, and see the device's log"
    )]
    Quarantined {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
    },
    /// The device gave no key for the blocks of a grant of a [strict](crate::kv::LinkOptions::strict) link. No block is
    /// granted.
    #[error("the blocks of request {request} get no key of their own: {cause}")]
    NoKey {
        /// The request.
        request: RequestId,
        /// The error of the device.
        cause: Arc<RegisterError>,
    },
    /// The transfer was not complete at its deadline.
    #[error(
        "request {request} was not done at its deadline, {waited:.1?} after it began, with {bytes_outstanding} bytes \
         outstanding and the last progress {last_progress:.1?} ago ({peer}, {lane}); see whether the peer runs, and whether it has this request"
    )]
    DeadlineExceeded {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
        /// Bytes that are not known to have arrived.
        bytes_outstanding: u64,
        /// Time since the link last moved a byte, or since the request began if that is later.
        last_progress: Duration,
        /// Time since the request began.
        waited: Duration,
    },
    /// The link failed while the transfer was under way.
    #[error(
        "{peer} is lost in request {request}, with {bytes_outstanding} bytes outstanding and the last \
         progress {last_progress:.1?} ago ({lane}: {cause}); see why its process or its network ended, and connect anew"
    )]
    PeerFailed {
        /// The request.
        request: RequestId,
        /// The peer.
        peer: PeerName,
        /// The lane to it.
        lane: LaneName,
        /// The reason why the lane ended.
        cause: LaneFailure,
        /// Bytes that are not known to have arrived.
        bytes_outstanding: u64,
        /// Time since the link last moved a byte, or since the request began if that is later.
        last_progress: Duration,
    },
    /// The link has ended, so it begins no transfer.
    #[error("the link to {peer} has ended ({cause}); connect anew")]
    LinkEnded {
        /// The peer.
        peer: PeerName,
        /// The reason why its lane ended.
        cause: LaneFailure,
    },
    /// The engine's device failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
