//! Work requests, which own their local memory, and the completions that give it back.
//!
//! Posting them is [`worker`](super::worker)'s; this file only describes them.

use super::interface::RawOpcode;
use crate::memory::CacheHint;
use crate::{Failure, LocalBuf, Opcode, QpNum, RemoteKey, RemoteMemory, Success, WorkId};

/// The name of a region that a worker holds, from [`Worker::attach`](crate::Worker::attach).
///
/// Posting a range of an attached region moves no buffer and touches no atomic counter. The name is a plain value: it
/// keeps nothing alive, and each post checks that the region is still attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attached {
    pub(super) worker: u32,
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Attached {
    /// Names `len` bytes at `offset` of the region. The bounds are checked when the range is posted.
    #[inline]
    #[must_use]
    pub fn range(self, offset: usize, len: usize) -> AttachedRange {
        AttachedRange { region: self, offset, len }
    }
}

/// A range of an attached region, from [`Attached::range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttachedRange {
    pub(super) region: Attached,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// The local memory of a work request.
///
/// A part of [`Work`](crate::Work).
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Segment {
    /// No memory: a message of zero bytes, or a receive for immediates only.
    #[default]
    Empty,
    /// The view of an owned buffer. The buffer moves into the worker and comes back with the completion.
    Owned(LocalBuf),
    /// A range of an attached region, which stays with the worker.
    Attached(AttachedRange),
}

impl From<LocalBuf> for Segment {
    #[inline]
    fn from(buffer: LocalBuf) -> Self {
        Self::Owned(buffer)
    }
}

impl From<AttachedRange> for Segment {
    #[inline]
    fn from(range: AttachedRange) -> Self {
        Self::Attached(range)
    }
}

/// The operation of a [`Work`], which also decides its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// An operation of the send queue.
    Send(RawOpcode),
    /// A receive, for the receive queue.
    Recv,
}

/// The remote memory of a request that has none.
const NO_REMOTE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

/// A work request for a queue pair; posting moves its local memory into the worker.
///
/// ```
/// use rdma_core::{Opcode, RemoteKey, RemoteMemory, Segment, Work};
/// let to = RemoteMemory { addr: 0x1000, len: 0, rkey: RemoteKey(1) };
/// let work = Work::write(Segment::Empty, to).with_imm(7).unsignalled();
/// # let _ = work;
/// ```
#[doc(alias = "ibv_send_wr")]
#[doc(alias = "ibv_recv_wr")]
#[derive(Debug)]
#[must_use]
pub struct Work {
    pub(super) operation: Operation,
    pub(super) segment: Segment,
    /// Meaningful for writes and reads only.
    pub(super) remote: RemoteMemory,
    /// Meaningful for operations with an immediate only.
    pub(super) imm: u32,
    pub(super) signalled: bool,
    pub(super) inline: bool,
    pub(super) hint: CacheHint,
}

impl Work {
    #[inline]
    fn new(operation: Operation, segment: Segment, remote: RemoteMemory) -> Self {
        let (signalled, inline, hint) = (true, false, CacheHint::Cached);
        Self { operation, segment, remote, imm: 0, signalled, inline, hint }
    }

    /// Sends `segment` into a receive that the peer has posted.
    #[inline]
    pub fn send(segment: impl Into<Segment>) -> Self {
        Self::new(Operation::Send(RawOpcode::Send), segment.into(), NO_REMOTE)
    }

    /// Writes `segment` to the peer's memory; both must have the same length.
    ///
    /// The peer is not notified, unless the write carries [an immediate](Self::with_imm). Never infer from the arrival
    /// of one write that an earlier one has landed, because devices may reorder them: count immediates.
    #[inline]
    pub fn write(segment: impl Into<Segment>, to: RemoteMemory) -> Self {
        Self::new(Operation::Send(RawOpcode::Write), segment.into(), to)
    }

    /// Reads the peer's memory into `segment`; both must have the same length.
    #[inline]
    pub fn read(segment: impl Into<Segment>, from: RemoteMemory) -> Self {
        Self::new(Operation::Send(RawOpcode::Read), segment.into(), from)
    }

    /// Receives one send of the peer, or the immediate of one write.
    #[inline]
    pub fn recv(segment: impl Into<Segment>) -> Self {
        Self::new(Operation::Recv, segment.into(), NO_REMOTE)
    }

    /// Adds an immediate, which consumes one receive at the peer.
    ///
    /// Reads and receives have none: on them this has no effect.
    #[inline]
    pub fn with_imm(mut self, value: u32) -> Self {
        let opcode = match self.operation {
            Operation::Send(RawOpcode::Send | RawOpcode::SendImm) => RawOpcode::SendImm,
            Operation::Send(RawOpcode::Write | RawOpcode::WriteImm) => RawOpcode::WriteImm,
            Operation::Send(RawOpcode::Read) | Operation::Recv => return self,
        };
        (self.operation, self.imm) = (Operation::Send(opcode), value);
        self
    }

    /// Asks the device for no completion of this request.
    ///
    /// The worker still reports one, when a later signalled request of the same queue completes. Signal at least one
    /// request in every `max_send_wr`, otherwise the queue fills up and never frees.
    #[inline]
    pub fn unsignalled(mut self) -> Self {
        self.signalled = false;
        self
    }

    /// Lets the device copy the bytes while posting, which saves it a read of memory.
    ///
    /// For sends and writes of up to [`max_inline_data`](crate::QueuePairOptions::max_inline_data) bytes; posting
    /// longer ones fails. Reads and receives ignore it.
    #[inline]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Says whether the bytes fit the caches, for a device that copies them while posting (the software device, between
    /// processes of one host).
    ///
    /// Give each of many requests `CacheHint::of_total` of all their bytes. If these are more than the caches hold, the
    /// copies go around the caches, in two thirds of the time. A few bytes would take longer that way.
    ///
    /// ```
    /// use rdma_core::memory::CacheHint;
    /// use rdma_core::{RemoteKey, RemoteMemory, Segment, Work};
    /// let blocks: Vec<RemoteMemory> = vec![];
    /// let total = blocks.iter().map(|block| block.len as usize).sum();
    /// for block in blocks {
    ///     let work = Work::write(Segment::Empty, block).with_cache_hint(CacheHint::of_total(total));
    ///     # let _ = work;
    /// }
    /// ```
    #[inline]
    pub fn with_cache_hint(mut self, hint: CacheHint) -> Self {
        self.hint = hint;
        self
    }

    #[inline]
    pub(super) fn opcode(&self) -> Opcode {
        match self.operation {
            Operation::Send(RawOpcode::Send | RawOpcode::SendImm) => Opcode::Send,
            Operation::Send(RawOpcode::Write | RawOpcode::WriteImm) => Opcode::Write,
            Operation::Send(RawOpcode::Read) => Opcode::Read,
            Operation::Recv => Opcode::Recv,
        }
    }

    /// Moves the request out, and leaves an empty receive, which owns nothing.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::recv(Segment::Empty))
    }

    /// Returns the owned buffer, if there is one.
    #[inline]
    pub(super) fn into_buffer(self) -> Option<LocalBuf> {
        match self.segment {
            Segment::Owned(buffer) => Some(buffer),
            Segment::Attached(_) | Segment::Empty => None,
        }
    }

    /// Returns the local memory of the request, such as that of a refused one.
    #[inline]
    #[must_use]
    pub fn into_segment(self) -> Segment {
        self.segment
    }
}

/// The outcome of one work request. Every posted request has exactly one completion, signalled or not.
///
/// Completions of one queue come in the order of posting. An unsignalled request is reported when a later signalled one
/// of its queue completes, or when its queue pair is [fenced](crate::Worker::fence).
#[doc(alias = "ibv_wc")]
#[derive(Debug)]
#[must_use]
pub struct Completion {
    /// The id that posting the request returned.
    pub id: WorkId,
    /// The queue pair that the request was posted to.
    pub qp_num: QpNum,
    /// The owned buffer of the request, given back.
    pub buffer: Option<LocalBuf>,
    /// The success, or the status of the failure. After a failure the contents of a receive or read buffer are
    /// unspecified.
    pub result: Result<Success, Failure>,
}

/// Bytes of the longest message of a reliable connection, by the InfiniBand specification: 2 GiB.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 31;
