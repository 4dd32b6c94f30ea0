//! The seam: the calls that a backend offers, in terms of addresses and keys.
//!
//! Only the two backends in this folder implement these traits; [`dispatch`](super::dispatch) is the enum of both. The
//! caller names a queue pair by a [`Slot`] of its own choice, so no handle of one backend can reach the other.

#![expect(unsafe_code, reason = "declares the calls whose callers vouch for memory")]

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::error::{ConnectError, CreateError, PollError, QueryError, ReachError, RegisterError};
use crate::memory::{Backing, CacheHint, PeerWindow, Registration};
use crate::{
    Access, Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, Psn, QpNum, QpState, QueuePairOptions,
    RemoteMemory, RetryOptions,
};

/// The name of a queue pair of a worker. The caller chooses it, and may reuse it after `destroy_qp` returned `Ok`.
pub(crate) type Slot = u16;

/// A protection domain of an open device, which it keeps open.
pub(crate) trait ProtectionDomain: Send + Sync {
    /// Whether processes of this host may map registered memory that has a backing.
    fn shares_memory(&self) -> bool;

    /// Whether each registration pins the memory once more, so that a further key of registered memory is dear.
    fn pins(&self) -> bool;

    /// Registers `len` bytes at `addr`. If the memory can be shared, `backing` describes the memfd behind it, and the
    /// offset there of the byte at `addr`.
    ///
    /// The caller has checked `access` and `len`. An errno that may be a pinning limit becomes
    /// [`RegisterError::Refused`] with an explanation.
    ///
    /// # Safety
    ///
    /// The range stays mapped, readable and writable, until `deregister` of the result returned `Ok`.
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        backing: Option<(&Backing, u64)>,
    ) -> Result<Box<dyn Registration>, RegisterError>;

    /// Registers those parts of the memory at `addr` alone, under one key. An access must lie wholly in one part.
    ///
    /// The caller has checked `access`. The parts are sorted, not empty, and apart from each other.
    ///
    /// # Safety
    ///
    /// The memory from `addr` to the end of the last part stays as [`register`](Self::register) asks.
    unsafe fn register_parts(
        &self,
        _addr: *mut u8,
        _parts: &[Range<usize>],
        _access: Access,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        Err(RegisterError::SeveralRanges)
    }
}

/// The operation of a send-queue request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawOpcode {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

/// A request for a send queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSend {
    pub(crate) wr_id: u64,
    pub(crate) opcode: RawOpcode,
    pub(crate) signalled: bool,
    pub(crate) inline: bool,
    /// The local range. `len` 0 means no memory; `addr` and `lkey` are then meaningless.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// The remote range, as long as the local one. Meaningful for writes and reads only.
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// The immediate in host byte order. Meaningful for opcodes with an immediate only.
    pub(crate) imm: u32,
    /// A cache hint for a device that copies in the posting thread.
    pub(crate) hint: CacheHint,
}

/// A request for a receive queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecv {
    pub(crate) wr_id: u64,
    /// The local range; `len` 0 means no memory.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// An access to memory of a peer that is mapped here; carried out at once, without a work request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappedAccess {
    pub(crate) remote_addr: u64,
    /// Bytes: 4 or 8 for a flag, any number for a probe, at most `u32::MAX` otherwise.
    pub(crate) len: u64,
    pub(crate) rkey: u32,
    pub(crate) op: MappedOp,
}

/// The operation of a [`MappedAccess`]. A local range is as long as the remote one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MappedOp {
    /// Checks whether the memory could be accessed, and touches nothing.
    Probe,
    /// Copies to the peer.
    Write { from: u64, hint: CacheHint },
    /// Copies from the peer.
    Read { to: u64, hint: CacheHint },
    /// Stores a flag, with release ordering.
    Store { bits: u64 },
    /// Loads a flag, with acquire ordering.
    Load,
    /// Calls `run` on the mapped bytes. They are the bytes of the work from `begin` on.
    InPlace { run: InPlaceFn, work: *mut (), begin: usize, needs: Access },
}

/// A monomorphic [`InPlace::run`](crate::memory::InPlace::run): the work, the address of the mapped bytes, and their
/// range within the work.
pub(crate) type InPlaceFn = unsafe fn(*mut (), *mut u8, Range<usize>);

impl MappedOp {
    /// The rights that the peer must have granted.
    pub(crate) fn needs(self) -> Access {
        match self {
            Self::Probe => Access::empty(),
            Self::Write { .. } | Self::Store { .. } => Access::REMOTE_WRITE,
            Self::Read { .. } | Self::Load => Access::REMOTE_READ,
            Self::InPlace { needs, .. } => needs,
        }
    }

    pub(crate) fn is_flag(self) -> bool {
        matches!(self, Self::Store { .. } | Self::Load)
    }
}

/// The outcome of a [`MappedAccess`] that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappedOutcome {
    /// The access is complete; the number is the loaded flag, 0 for other operations.
    Done(u64),
    /// The memory is not mapped yet, or the peer is silent for now: try again later.
    NotYet,
}

/// An entry of a completion queue.
///
/// A failed completion defines only `wr_id`, `status`, `vendor_error` and `qp_num`: read `status` first. A successful
/// one also defines `write_imm` and `imm` for a receive, and `byte_len` for a receive or read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) vendor_error: u32,
    pub(crate) qp_num: u32,
    pub(crate) byte_len: u32,
    /// The receive took the immediate of a write, rather than a send.
    pub(crate) write_imm: bool,
    pub(crate) imm: Option<u32>,
}

/// A partial post: the device took the first `posted` requests of the chain, and none of the others.
#[derive(Debug)]
pub(crate) struct RawPostError {
    pub(crate) posted: usize,
    pub(crate) source: io::Error,
}

/// Receives that the fence posts for itself; each queue pair has room for them beyond `max_recv_wr`.
pub(crate) const SENTINELS: u32 = 1;

/// A completion queue with its channel and its queue pairs; used by one thread at a time.
///
/// Only once `destroy_qp` returned `Ok` does the device touch no memory of that queue pair's requests any more. Moving
/// to ERR or taking a flushed completion proves nothing. Dropping the worker destroys the remaining queue pairs, and
/// leaks and logs those that cannot be destroyed.
pub(crate) trait RawWorker: Send {
    type Pd: ProtectionDomain;

    /// Creates a reliable-connection queue pair in RESET.
    ///
    /// The queues are at least as deep as `options` asks, and hold [`SENTINELS`] more receives unless the device
    /// cannot.
    fn create_qp(
        &mut self,
        slot: Slot,
        pd: &Self::Pd,
        options: &QueuePairOptions,
    ) -> Result<QpNum, CreateError>;
    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError>;
    /// Connects the queue pair to `peer`, whose requests it answers from now on.
    fn modify_to_rtr(
        &mut self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError>;
    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError>;
    /// Moves to ERR, from any state; may be repeated. The device flushes every outstanding request.
    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()>;
    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError>;
    /// How the peer of the queue pair is reached; meaningful from RTR on.
    fn peer_access(&self, slot: Slot) -> PeerAccess;

    /// Posts a chain with one doorbell. May complete requests before it returns; allocates nothing.
    ///
    /// # Safety
    ///
    /// Each local range stays mapped until its request completed or `destroy_qp` returned `Ok`, and nobody else
    /// writes it until then, nor reads it if the request writes it. The chain is no longer than the free part of
    /// `max_send_wr`.
    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError>;

    /// Posts a chain of receives with one doorbell; allocates nothing.
    ///
    /// # Safety
    ///
    /// The local ranges stay as [`post_send`](Self::post_send) asks. The chain is no longer than the free part of
    /// `max_recv_wr` and [`SENTINELS`] together.
    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError>;

    /// Accesses memory of the peer that is mapped here; never waits.
    ///
    /// # Safety
    ///
    /// The local range of the operation is mapped for the whole call, and writable for a read. No reference to it
    /// exists but one that nobody else uses meanwhile. A flag is aligned to its length. The `work` of an in-place
    /// operation is alive and has the type that `run` expects.
    unsafe fn access_mapped(&mut self, slot: Slot, _: &MappedAccess) -> Result<MappedOutcome, ReachError> {
        Err(ReachError::NotMapped { access: self.peer_access(slot) })
    }

    /// Returns a window of the peer once it is mapped here, `None` before; never waits.
    fn window(&mut self, slot: Slot, _: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        Err(ReachError::NotMapped { access: self.peer_access(slot) })
    }

    /// Takes completions, oldest first, and returns their number; never waits, allocates nothing.
    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError>;
    /// Whether the last poll looked in vain for what a peer on this host may need this core to send.
    fn should_yield(&self) -> bool {
        false
    }
    /// Makes the next completion raise an event on the channel.
    fn request_notify(&mut self) -> Result<(), PollError>;
    /// A descriptor that is readable once an event was raised.
    fn channel_fd(&self) -> BorrowedFd<'_>;
    /// Takes and acknowledges the events raised so far; never waits.
    fn consume_events(&mut self) -> Result<(), PollError>;

    /// Destroys the queue pair. Fails, and changes nothing for the memory in flight, when the device refuses.
    ///
    /// A backend whose peers access memory themselves waits for a peer in the middle of an access until `deadline` at
    /// most; afterwards it revokes the access another way, or fails.
    fn destroy_qp(&mut self, slot: Slot, deadline: Deadline) -> io::Result<()>;
}
