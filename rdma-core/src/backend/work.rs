//! Work requests with the memory that they own, and their completions.

use super::interface::RawOpcode;
use crate::error::RangeError;
use crate::memory::CacheHint;
use crate::{Failure, LocalBuf, Opcode, QpNum, RemoteKey, RemoteMemory, Success, WorkId};

/// A region that a worker holds, so that posting a range of it moves nothing and counts nothing atomically.
///
/// Made by [`Worker::attach`](crate::Worker::attach); a plain name, checked at every post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attached {
    pub(super) worker: u32,
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl Attached {
    /// `len` bytes at `offset` of the region. Checked when it is posted.
    #[inline]
    #[must_use]
    pub fn range(self, offset: usize, len: usize) -> AttachedRange {
        AttachedRange { region: self, offset, len }
    }
}

/// A range of an attached region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttachedRange {
    pub(super) region: Attached,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// The local memory of a work request.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Segment {
    /// None: a message of zero bytes, or a receive that takes immediates only.
    #[default]
    Empty,
    /// The view of an owned buffer, which moves into the worker.
    Owned(LocalBuf),
    /// A range of a region that the worker holds.
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

/// What a [`Work`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// What that says, by way of the send queue.
    Send(RawOpcode),
    Recv,
}

/// Of a request that names none.
const NO_REMOTE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

/// One work request, to be posted to a queue pair.
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
    /// Only for writes and reads.
    pub(super) remote: RemoteMemory,
    /// Only for operations with one.
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
    /// The peer learns nothing of it, unless an immediate goes with it. Do not infer that a
    /// write has landed from the arrival of another: count immediates.
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

    /// With an immediate, which takes a receive at the peer. Of no effect on reads and receives.
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

    /// Without a completion of its own: it is told when a later request of the queue pair
    /// completes. Signal at least one in every `max_send_wr`, or the queue never frees.
    #[inline]
    pub fn unsignalled(mut self) -> Self {
        self.signalled = false;
        self
    }

    /// The device takes the bytes while posting, which spares it a read of memory; for small
    /// sends and writes, up to `max_inline_data`.
    #[inline]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Says where its bytes are expected to be, for a device that copies them while posting (the software device, between
    /// processes of one host): for one of many that move more than the caches hold, [`CacheHint::of_total`] of all their
    /// bytes. It then leaves the caches to others, and takes two thirds of the time. For a few, it would take longer.
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

    /// All of it; what is left has no memory.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::recv(Segment::Empty))
    }

    /// The buffer that it owns, given back.
    #[inline]
    pub(super) fn into_buffer(self) -> Option<LocalBuf> {
        match self.segment {
            Segment::Owned(buffer) => Some(buffer),
            Segment::Attached(_) | Segment::Empty => None,
        }
    }

    /// The local memory, given back.
    #[inline]
    #[must_use]
    pub fn into_segment(self) -> Segment {
        self.segment
    }
}

/// What became of one work request; every posted request has exactly one, signalled or not.
///
/// Completions of one queue come in the order of posting. A request that was posted
/// unsignalled is told when a later one of its queue completes.
#[doc(alias = "ibv_wc")]
#[derive(Debug)]
#[must_use]
pub struct Completion {
    /// What posting it returned.
    pub id: WorkId,
    /// The queue pair it was posted to.
    pub qp_num: QpNum,
    /// The owned buffer that was posted, given back.
    pub buffer: Option<LocalBuf>,
    /// Done, or why not.
    pub result: Result<Success, Failure>,
}

/// The longest message of a reliable connection, by the InfiniBand specification.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// Whether `offset..offset + len` lies within `bound`.
pub(super) fn check_range(range: &AttachedRange, bound: usize) -> Result<(), RangeError> {
    RangeError::check(range.offset as u64, range.len as u64, bound as u64)
}
