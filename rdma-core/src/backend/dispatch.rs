//! Dispatch: the enum of both backends, which passes every call of [`interface`](super::interface) on.
//!
//! An enum rather than `dyn`, so that posting is monomorphic and inlined down to the backend.

#![expect(unsafe_code, reason = "passes on the calls whose callers vouch for memory")]

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::interface::{
    MappedAccess, MappedOutcome, ProtectionDomain, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker,
    Slot,
};
use super::{ibverbs, soft};
use crate::error::{ConnectError, CreateError, OpenError, PollError, QueryError, ReachError, RegisterError};
use crate::memory::{Backing, PeerWindow, Registration};
use crate::{
    Access, AsyncEvent, Deadline, DeviceAttributes, DeviceDetails, Endpoint, GidEntry, InitOptions,
    PathOptions, PeerAccess, PortAttributes, PortDetails, PortNum, Psn, QpNum, QpState, QueuePairOptions,
    RemoteMemory, RetryOptions, SoftOptions, WorkerOptions,
};

/// A device of either backend, not opened yet.
#[derive(Debug, Clone)]
pub(crate) enum AnyDevice {
    Ibverbs(ibverbs::Device),
    Soft(soft::Device),
}

/// An open device of either backend.
#[derive(Clone)]
pub(crate) enum AnyContext {
    Ibverbs(Arc<ibverbs::Context>),
    Soft(Arc<soft::Context>),
}

/// A protection domain of either backend.
pub(crate) enum AnyPd {
    Ibverbs(ibverbs::ProtectionDomain),
    Soft(soft::ProtectionDomain),
}

/// A completion queue and its queue pairs, of either backend.
pub(crate) enum AnyWorker {
    Ibverbs(ibverbs::Worker),
    Soft(soft::Worker),
}

macro_rules! each {
    ($kind:ident, $self:expr, $inner:ident => $call:expr) => {
        match $self {
            $kind::Ibverbs($inner) => $call,
            $kind::Soft($inner) => $call,
        }
    };
}

/// Lists the devices of libibverbs. Software devices are made, not listed.
pub(crate) fn list_devices() -> Result<Vec<AnyDevice>, OpenError> {
    Ok(ibverbs::Device::list()?.into_iter().map(AnyDevice::Ibverbs).collect())
}

impl AnyDevice {
    pub(crate) fn soft(options: SoftOptions) -> Self {
        Self::Soft(soft::Device::new(options))
    }

    pub(crate) fn name(&self) -> &str {
        each!(AnyDevice, self, it => it.name())
    }

    pub(crate) fn is_soft(&self) -> bool {
        matches!(self, Self::Soft(_))
    }

    pub(crate) fn open(&self) -> Result<AnyContext, OpenError> {
        Ok(match self {
            Self::Ibverbs(it) => AnyContext::Ibverbs(Arc::new(it.open()?)),
            Self::Soft(it) => AnyContext::Soft(Arc::new(it.open()?)),
        })
    }
}

impl AnyContext {
    pub(crate) fn name(&self) -> &str {
        each!(AnyContext, self, it => it.name())
    }

    pub(crate) fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        each!(AnyContext, self, it => it.query_device())
    }

    pub(crate) fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        each!(AnyContext, self, it => it.query_port(port))
    }

    pub(crate) fn device_details(&self) -> Result<DeviceDetails, QueryError> {
        each!(AnyContext, self, it => it.device_details())
    }

    pub(crate) fn port_details(&self, port: PortNum) -> Result<PortDetails, QueryError> {
        each!(AnyContext, self, it => it.port_details(port))
    }

    /// The filled entries of the GID table of a port.
    pub(crate) fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        each!(AnyContext, self, it => it.gid_table(port))
    }

    pub(crate) fn alloc_pd(&self) -> Result<AnyPd, CreateError> {
        Ok(match self {
            Self::Ibverbs(it) => AnyPd::Ibverbs(ibverbs::ProtectionDomain::new(it)?),
            Self::Soft(it) => AnyPd::Soft(soft::ProtectionDomain::new(Arc::clone(it))?),
        })
    }

    pub(crate) fn create_worker(&self, options: &WorkerOptions) -> Result<AnyWorker, CreateError> {
        Ok(match self {
            Self::Ibverbs(it) => AnyWorker::Ibverbs(ibverbs::Worker::new(it, options)?),
            Self::Soft(it) => AnyWorker::Soft(soft::Worker::new(it, options)?),
        })
    }

    /// Takes the next asynchronous event; never waits.
    pub(crate) fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        each!(AnyContext, self, it => it.next_event())
    }

    /// The number of requests of peers that were refused; `None` where the device does not tell.
    pub(crate) fn refused_requests(&self) -> Option<u64> {
        match self {
            Self::Ibverbs(_) => None,
            Self::Soft(it) => Some(it.refused_requests()),
        }
    }

    /// A descriptor that is readable while `next_event` has an event.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        each!(AnyContext, self, it => it.event_fd())
    }
}

impl ProtectionDomain for AnyPd {
    fn shares_memory(&self) -> bool {
        each!(AnyPd, self, it => it.shares_memory())
    }

    fn pins(&self) -> bool {
        each!(AnyPd, self, it => it.pins())
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        backing: Option<(&Backing, u64)>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        // SAFETY: the caller promises that the range stays mapped; the backend asks for exactly that, since both have
        // the contract of the trait.
        each!(AnyPd, self, it => unsafe { it.register(addr, len, access, backing) })
    }

    unsafe fn register_parts(
        &self,
        addr: *mut u8,
        parts: &[Range<usize>],
        access: Access,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        // SAFETY: the caller promises that the memory stays mapped; the backend asks for exactly that, since both have
        // the contract of the trait.
        each!(AnyPd, self, it => unsafe { it.register_parts(addr, parts, access) })
    }
}

impl RawWorker for AnyWorker {
    type Pd = AnyPd;

    fn create_qp(
        &mut self,
        slot: Slot,
        pd: &AnyPd,
        options: &QueuePairOptions,
    ) -> Result<QpNum, CreateError> {
        match (self, pd) {
            (Self::Ibverbs(it), AnyPd::Ibverbs(pd)) => it.create_qp(slot, pd, options),
            (Self::Soft(it), AnyPd::Soft(pd)) => it.create_qp(slot, pd, options),
            _ => Err(CreateError::ForeignProtectionDomain),
        }
    }

    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError> {
        each!(AnyWorker, self, it => it.modify_to_init(slot, options))
    }

    fn modify_to_rtr(
        &mut self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        each!(AnyWorker, self, it => it.modify_to_rtr(slot, peer, options))
    }

    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError> {
        each!(AnyWorker, self, it => it.modify_to_rts(slot, psn, options))
    }

    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()> {
        each!(AnyWorker, self, it => it.modify_to_err(slot))
    }

    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError> {
        each!(AnyWorker, self, it => it.query_state(slot))
    }

    fn peer_access(&self, slot: Slot) -> PeerAccess {
        each!(AnyWorker, self, it => it.peer_access(slot))
    }

    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        // SAFETY: the caller vouches for the local ranges, as the trait asks; the backend's contract is the trait's,
        // so it holds.
        each!(AnyWorker, self, it => unsafe { it.post_send(slot, chain) })
    }

    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        // SAFETY: the caller vouches for the local ranges, as the trait asks; the backend's contract is the trait's,
        // so it holds.
        each!(AnyWorker, self, it => unsafe { it.post_recv(slot, chain) })
    }

    unsafe fn access_mapped(
        &mut self,
        slot: Slot,
        access: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        // SAFETY: the caller vouches for the local range, as the trait asks; the backend's contract is the trait's, so
        // it holds.
        each!(AnyWorker, self, it => unsafe { it.access_mapped(slot, access) })
    }

    fn window(&mut self, slot: Slot, memory: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        each!(AnyWorker, self, it => it.window(slot, memory))
    }

    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        each!(AnyWorker, self, it => it.poll(out))
    }

    fn should_yield(&self) -> bool {
        each!(AnyWorker, self, it => it.should_yield())
    }

    fn request_notify(&mut self) -> Result<(), PollError> {
        each!(AnyWorker, self, it => it.request_notify())
    }

    fn channel_fd(&self) -> BorrowedFd<'_> {
        each!(AnyWorker, self, it => it.channel_fd())
    }

    fn consume_events(&mut self) -> Result<(), PollError> {
        each!(AnyWorker, self, it => it.consume_events())
    }

    fn destroy_qp(&mut self, slot: Slot, deadline: Deadline) -> io::Result<()> {
        each!(AnyWorker, self, it => it.destroy_qp(slot, deadline))
    }
}
