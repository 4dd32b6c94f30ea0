//! The seam: what a backend offers, in addresses and keys.
//!
//! Sealed: the two implementations are in this folder, and [`dispatch`](super::dispatch) is
//! the enum of both. Queue pairs are named by a slot that the caller chose, so that no handle
//! of one backend can reach the other.

#![expect(unsafe_code, reason = "declares the calls whose callers vouch for memory")]

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::{ConnectError, CreateError, PollError, QueryError, ReachError, RegisterError};
use crate::memory::{Backing, CacheHint, PeerWindow, Registration};
use crate::{
    Access, AsyncEvent, Deadline, DeviceAttributes, Endpoint, GidEntry, InitOptions, PathOptions, PeerAccess,
    PortAttributes, PortNum, Psn, QpNum, QpState, QueuePairOptions, RemoteMemory, RetryOptions,
    WorkerOptions,
};

/// Names a queue pair of a worker to its backend; chosen by the caller, reused after `destroy_qp`.
pub(crate) type Slot = u16;

/// An open device.
pub(crate) trait Context: Send + Sync + Sized + 'static {
    type Pd: ProtectionDomain;
    type Worker: RawWorker<Pd = Self::Pd>;

    fn name(&self) -> &str;
    fn query_device(&self) -> Result<DeviceAttributes, QueryError>;
    fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError>;
    /// The filled entries of the port's table.
    fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError>;
    fn alloc_pd(self: &Arc<Self>) -> Result<Self::Pd, CreateError>;
    fn create_worker(self: &Arc<Self>, options: &WorkerOptions) -> Result<Self::Worker, CreateError>;
    /// The next asynchronous event, without waiting.
    fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError>;
    /// Readable when `next_event` has one.
    fn event_fd(&self) -> BorrowedFd<'_>;
}

/// A protection domain of an open device; keeps what it depends on alive.
pub(crate) trait ProtectionDomain: Send + Sync {
    /// Whether it lets processes of this host map memory that has a backing.
    fn shares_memory(&self) -> bool;

    /// Registers `len` bytes at `addr`, which begin with those of `backing` if they can be shared. `access` and `len` were checked; an errno that may be
    /// a pinning limit becomes [`RegisterError::Refused`] with its explanation.
    ///
    /// # Safety
    ///
    /// The range is mapped, readable and writable, until `deregister` of the result returned `Ok`.
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        backing: Option<&Backing>,
    ) -> Result<Box<dyn Registration>, RegisterError>;
}

/// What a send-queue request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawOpcode {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

/// One request for a send queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSend {
    pub(crate) wr_id: u64,
    pub(crate) opcode: RawOpcode,
    pub(crate) signalled: bool,
    pub(crate) inline: bool,
    /// Local range; `len` 0 means none, and then `addr` and `lkey` mean nothing.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// Only for writes and reads.
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// Only for opcodes with one; host order.
    pub(crate) imm: u32,
    /// For a device that copies in the poster's thread.
    pub(crate) hint: CacheHint,
}

/// One request for a receive queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecv {
    pub(crate) wr_id: u64,
    /// Local range; `len` 0 means none.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// Memory of a peer, and what is done to it at once, if it is mapped here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappedAccess {
    pub(crate) remote_addr: u64,
    /// Of a flag 4 or 8, of a look any, of a copy at most what goes into 32 bits.
    pub(crate) len: u64,
    pub(crate) rkey: u32,
    pub(crate) op: MappedOp,
}

/// What is done to it, with as many bytes here.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MappedOp {
    /// Nothing: whether something could be.
    Probe,
    Write {
        from: u64,
        hint: CacheHint,
    },
    Read {
        to: u64,
        hint: CacheHint,
    },
    /// Stores a flag.
    Store {
        bits: u64,
    },
    /// Loads a flag.
    Load,
    /// Has it worked on where it lies, by what is at `work`, for which these are the bytes from `begin` on.
    InPlace {
        run: InPlaceFn,
        work: *mut (),
        begin: usize,
        needs: Access,
    },
}

/// [`InPlace::run`](crate::memory::InPlace::run) of what is there: what works, where the bytes are, from where on and to where.
pub(crate) type InPlaceFn = unsafe fn(*mut (), *mut u8, Range<usize>);

impl MappedOp {
    /// What the peer must allow.
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

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappedOutcome {
    /// It is done; of a load, what was there.
    Done(u64),
    /// The memory is not mapped yet, or the peer does not answer for now: to be tried again.
    NotYet,
}

/// One entry of a completion queue. All but `wr_id`, `status`, `vendor_error` and `qp_num` is
/// meaningful only when `status` is 0, and `write_imm`, `byte_len` and `imm` only for a receive
/// (`byte_len` also for a read).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) vendor_error: u32,
    pub(crate) qp_num: u32,
    pub(crate) byte_len: u32,
    /// The receive took the immediate of a write, not a send.
    pub(crate) write_imm: bool,
    pub(crate) imm: Option<u32>,
}

/// A chain was posted in part: the first `posted` requests were, the rest were not.
#[derive(Debug)]
pub(crate) struct RawPostError {
    pub(crate) posted: usize,
    pub(crate) source: io::Error,
}

/// Receives of the fence's own, for which a queue pair has room beyond `max_recv_wr`.
pub(crate) const SENTINELS: u32 = 1;

/// A completion queue with its channel and its queue pairs; used by one thread at a time.
///
/// After a call named `destroy_qp` returned `Ok`, and only then, the device touches no memory
/// of the queue pair's requests any more. Dropping the worker destroys what is left; what
/// cannot be destroyed is leaked and logged.
pub(crate) trait RawWorker: Send {
    type Pd: ProtectionDomain;

    /// Creates a reliable-connection queue pair in RESET. The limits in `options` are met or exceeded, and
    /// [`SENTINELS`] more receives fit in, unless the device has no more.
    fn create_qp(
        &mut self,
        slot: Slot,
        pd: &Self::Pd,
        options: &QueuePairOptions,
    ) -> Result<QpNum, CreateError>;
    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError>;
    /// `mtu` of `options` is filled in.
    fn modify_to_rtr(
        &mut self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError>;
    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError>;
    /// From any state; may be repeated. Every request outstanding is flushed.
    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()>;
    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError>;
    /// Meaningful from RTR on.
    fn peer_access(&self, slot: Slot) -> PeerAccess;

    /// Posts the chain with one doorbell. May finish requests before it returns; allocates nothing.
    ///
    /// # Safety
    ///
    /// Each local range stays mapped, and is read or written by no one else, until the request
    /// completed or `destroy_qp` returned `Ok`. The chain is no longer than what is free of
    /// `max_send_wr`.
    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError>;

    /// Posts the chain of receives.
    ///
    /// # Safety
    ///
    /// As for [`post_send`](Self::post_send), with `max_recv_wr` and [`SENTINELS`].
    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError>;

    /// Reaches into memory of the peer that is mapped here; never waits.
    ///
    /// # Safety
    ///
    /// What `reach` has here is mapped for the whole call, writable for a read, and no reference to it is used but one that
    /// nobody else has. A flag is aligned.
    unsafe fn access_mapped(&mut self, slot: Slot, _: &MappedAccess) -> Result<MappedOutcome, ReachError> {
        Err(ReachError::NotMapped { access: self.peer_access(slot) })
    }

    /// A window of the peer, once it is mapped here; never waits.
    fn window(&mut self, slot: Slot, _: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        Err(ReachError::NotMapped { access: self.peer_access(slot) })
    }

    /// Takes completions, oldest first, and tells how many; never waits, allocates nothing.
    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError>;
    /// Makes the next completion raise an event on the channel.
    fn request_notify(&mut self) -> Result<(), PollError>;
    /// Readable when an event was raised.
    fn channel_fd(&self) -> BorrowedFd<'_>;
    /// Takes and acknowledges the events raised so far, without waiting.
    fn consume_events(&mut self) -> Result<(), PollError>;

    /// A peer that is in the midst of an access is waited for no longer than until `deadline`, whatever is done about it then.
    fn destroy_qp(&mut self, slot: Slot, deadline: Deadline) -> io::Result<()>;
}
