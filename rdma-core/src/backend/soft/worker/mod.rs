//! The software device's worker: a completion queue, its channel and its queue pairs, behind the seam.
//!
//! Most calls take the fabric's lock and act on its [`State`](super::fabric::State). Polling avoids the lock while
//! nothing is there to take, unless one connection is all there is to look at. The step from INIT to RTR, which chooses
//! the wire, is in [`connect`].

#![expect(unsafe_code, reason = "takes the caller's word for the memory of requests")]

mod connect;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::cq::{CompletionQueue, CqRef, Hint};
use super::device::Context;
use super::engine::requester::Limits;
use super::fabric::{Fabric, FabricGuard};
use super::mr::wait_until_revoked;
use super::qp::{Carrier, QueuePair};
use super::wire::{BypassProgress, CompletionWatch, QpRef};
use super::{ProtectionDomain, clock, driver, limits};
use crate::backend::interface::{
    MappedAccess, MappedOutcome, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot,
};
use crate::error::{ConnectError, CreateError, PollError, QueryError, ReachError};
use crate::memory::PeerWindow;
use crate::{
    Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, PortNum, Psn, QpNum, QpState, QueuePairOptions,
    RemoteMemory, RetryOptions, WorkerOptions,
};

/// Empty polls between two looks beyond shared memory, for a worker with mapped peers alone.
const LOOK_EVERY: u32 = 64;
/// Empty polls before the first such look: about two microseconds. A mapped peer that has a core answers within them,
/// and a waiting poller keeps its own core until then.
const LOOK_AFTER: u32 = 256;
/// The time between two looks at the sockets, for a worker with mapped peers beside others. A look takes about as long,
/// so looking costs half of the time at most. Polls do not tell: whoever yields between them has few. A connection of
/// any worker of the process counts, because a look serves all of them.
const LOOK_PAUSE: Duration = Duration::from_micros(1);

/// A completion queue of the software device, with its channel and its queue pairs.
#[derive(Debug)]
pub(crate) struct Worker {
    fabric: &'static Fabric,
    context: Arc<Context>,
    cq: CqRef,
    hint: Arc<Hint>,
    channel: Channel,
    slots: Vec<Option<QpEntry>>,
    /// The mailboxes that mapped peers leave completions in: a copy of the list in the completion queue, so that
    /// polling needs no lock. `watched` is the change count of the copy.
    watches: Vec<CompletionWatch>,
    watched: u32,
    /// Empty polls in a row.
    idle: u32,
    /// The last look at the sockets beside mapped peers.
    looked_at: Instant,
    /// Completions have come with the last look at the sockets. The empty poll that ends taking them looks at nothing,
    /// so that their receiver acts on them first.
    drained: bool,
    /// The last poll looked at the sockets in vain.
    looked: bool,
}

/// A queue pair of the worker: its name in the fabric, and its number.
#[derive(Debug, Clone, Copy)]
struct QpEntry {
    id: QpRef,
    num: QpNum,
}

impl Worker {
    pub(crate) fn new(context: &Arc<Context>, options: &WorkerOptions) -> Result<Self, CreateError> {
        let refused = |source, mend: &str| CreateError::Refused {
            verb: "ibv_create_cq",
            source,
            mend: mend.to_owned(),
        };
        limit("max_cqe", options.max_cqe, limits::MAX_CQE)?;
        if options.max_cqe == 0 {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(refused(source, "a completion queue needs at least one entry"));
        }
        let channel =
            Channel::new().map_err(|source| refused(source, "raise the limit on open files (ulimit -n)"))?;
        let hint = Arc::new(Hint::default());
        let depth = options.max_cqe as usize;
        let queue = CompletionQueue::new(context.context, depth, channel.clone(), Arc::clone(&hint));
        let cq = context.opened.fabric.lock().cqs.insert(queue);
        Ok(Self {
            fabric: context.opened.fabric,
            context: Arc::clone(context),
            cq,
            hint,
            channel,
            slots: Vec::new(),
            watches: Vec::new(),
            watched: 0,
            idle: 0,
            looked_at: clock::now(),
            drained: false,
            looked: false,
        })
    }

    /// Returns the queue pair in `slot`.
    #[inline]
    fn entry(&self, slot: Slot) -> io::Result<QpEntry> {
        let entry = self.slots.get(usize::from(slot)).copied().flatten();
        entry.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Runs a state transition under the lock; `step` returns an errno when it is refused.
    fn modify(
        &self,
        slot: Slot,
        to: QpState,
        mend: &str,
        step: impl FnOnce(&mut FabricGuard<'_>, QpRef) -> Result<(), i32>,
    ) -> Result<(), ConnectError> {
        let refused = |qp_num, source| ConnectError::Refused { qp_num, to, source, mend: mend.to_owned() };
        let entry = self.entry(slot).map_err(|source| refused(QpNum(0), source))?;
        let mut guard = self.fabric.lock();
        step(&mut guard, entry.id).map_err(|errno| refused(entry.num, io::Error::from_raw_os_error(errno)))
    }

    /// Whether an empty poll looks for more than the messages of mapped peers.
    fn looks_beyond_shared_memory(&mut self) -> bool {
        if !self.fabric.driver.is_connected() {
            return self.idle >= LOOK_AFTER && self.idle.is_multiple_of(LOOK_EVERY);
        }
        let now = clock::now();
        let looks = now.duration_since(self.looked_at) >= LOOK_PAUSE;
        if looks {
            self.looked_at = now;
        }
        looks
    }

    /// Whether polling may return a completion. Without the lock; never wrongly `false` for long.
    fn has_news(&self) -> bool {
        self.hint.is_raised()
            || self.hint.watches() != self.watched
            || self.watches.iter().any(CompletionWatch::pending)
    }
}

/// Checks an option against the limit of the device.
fn limit(option: &'static str, asked: u32, limit: u32) -> Result<(), CreateError> {
    if asked <= limit {
        return Ok(());
    }
    Err(CreateError::BeyondLimit { option, asked: asked.into(), limit: limit.into() })
}

impl RawWorker for Worker {
    type Pd = ProtectionDomain;

    fn create_qp(
        &mut self,
        slot: Slot,
        pd: &ProtectionDomain,
        options: &QueuePairOptions,
    ) -> Result<QpNum, CreateError> {
        let opened = &self.context.opened;
        if !Arc::ptr_eq(&pd.context, &self.context) {
            return Err(CreateError::ForeignProtectionDomain);
        }
        limit("max_send_wr", options.max_send_wr, limits::MAX_QP_WR)?;
        limit("max_recv_wr", options.max_recv_wr, limits::MAX_QP_WR)?;
        limit("max_inline_data", options.max_inline_data, limits::MAX_INLINE_DATA)?;
        let mut guard = self.fabric.lock();
        let device = guard.devices.get(opened.device);
        let taken = device.map_or(0, |device| device.qp_nums.len());
        limit("queue pairs of the device", taken as u32 + 1, limits::MAX_QP)?;
        let num = draw_number(|num| device.is_some_and(|device| device.qp_nums.contains_key(&num)))?;
        let id = guard.qps.insert(QueuePair::new(
            num,
            (opened.device, pd.domain),
            (self.context.context, self.cq),
            options,
        ));
        if let Some(device) = guard.devices.get_mut(opened.device) {
            device.qp_nums.insert(num.0, id);
        }
        drop(guard);
        let index = usize::from(slot);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(QpEntry { id, num });
        Ok(num)
    }

    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError> {
        let mend = "the device has port 1 and partition key index 0, and the queue pair must be in RESET";
        self.modify(slot, QpState::INIT, mend, |guard, id| {
            if options.port != PortNum(1) || options.pkey_index != 0 {
                return Err(libc::EINVAL);
            }
            let qp = guard.qps.get_mut(id).ok_or(libc::EINVAL)?;
            qp.access = options.access;
            qp.step(QpState::INIT)
        })
    }

    fn modify_to_rtr(
        &mut self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        self.receive_from(slot, peer, options)
    }

    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError> {
        let limits = Limits::new(options, limits::MAX_QP_RD_ATOM);
        self.modify(slot, QpState::RTS, "the queue pair must be in RTR", |guard, id| {
            let qp = guard.qps.get_mut(id).ok_or(libc::EINVAL)?;
            qp.step(QpState::RTS)?;
            qp.requester.start(psn.value(), limits);
            Ok(())
        })
    }

    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()> {
        let entry = self.entry(slot)?;
        self.fabric.lock().enter_error(clock::now(), entry.id);
        Ok(())
    }

    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError> {
        let device = || self.context.opened.name.clone();
        let refused = |source| QueryError::Refused { verb: "ibv_query_qp", device: device(), source };
        let entry = self.entry(slot).map_err(refused)?;
        let mut guard = self.fabric.lock();
        // A mapped peer runs our responder: it may have refused a request, which moves this end to ERR.
        guard.drain_mailbox(clock::now(), entry.id);
        let qp = guard.qps.get(entry.id);
        qp.map(|qp| qp.state).ok_or_else(|| refused(io::Error::from_raw_os_error(libc::EINVAL)))
    }

    fn peer_access(&self, slot: Slot) -> PeerAccess {
        let Ok(entry) = self.entry(slot) else { return PeerAccess::Stream };
        match self.fabric.lock().qps.get(entry.id).map(|qp| qp.carrier) {
            Some(Carrier::Local | Carrier::Mapped) => PeerAccess::Mapped,
            Some(Carrier::Tcp) | None => PeerAccess::Stream,
        }
    }

    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        let entry = self.entry(slot).map_err(|source| RawPostError { posted: 0, source })?;
        self.fabric.driver.count_call();
        let mut guard = self.fabric.lock();
        // Three paths, the cheapest first; each goes on where the one before stopped. A short chain of small requests
        // to a mapped peer is carried out at once. Larger ones bypass the empty send queue, at most 256 KiB a hold of
        // the lock. Whatever is left, and everything on other wires, enters the send queue.
        // SAFETY: the caller keeps the local ranges valid, as the trait asks; only the first `count` requests are
        // posted here.
        let count = unsafe { guard.post_small_inline(entry.id, chain) };
        if count == chain.len() {
            return Ok(());
        }
        let mut progress = BypassProgress::after(count);
        // SAFETY: the caller keeps the local ranges valid; `progress` starts behind the requests that are posted
        // already, so none is posted twice.
        while unsafe { guard.post_bypass_queue(entry.id, chain, &mut progress) } {
            guard.yield_lock();
        }
        if progress.count == chain.len() {
            return Ok(());
        }
        // SAFETY: the caller keeps the local ranges valid; `post_send` starts behind the requests that `progress`
        // counts, so none is posted twice.
        unsafe { guard.post_send(entry.id, chain, progress.count) }
    }

    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        let entry = self.entry(slot).map_err(|source| RawPostError { posted: 0, source })?;
        self.fabric.lock().post_recv(entry.id, chain)
    }

    unsafe fn access_mapped(
        &mut self,
        slot: Slot,
        access: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        let entry = self.entry(slot).map_err(|_| ReachError::PeerGone)?;
        // SAFETY: the caller vouches for the local range of the access, as the trait asks, so the fabric may use it.
        unsafe { self.fabric.lock().access_mapped(entry.id, access) }
    }

    fn window(&mut self, slot: Slot, memory: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        let entry = self.entry(slot).map_err(|_| ReachError::PeerGone)?;
        self.fabric.lock().window(entry.id, memory)
    }

    fn should_yield(&self) -> bool {
        self.looked
    }

    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        let has_news = self.has_news();
        self.looked = false;
        if !has_news {
            self.idle = self.idle.wrapping_add(1);
            if self.watches.is_empty() {
                if std::mem::take(&mut self.drained) {
                    return Ok(0);
                }
            } else if !self.looks_beyond_shared_memory() {
                return Ok(0);
            }
        }
        self.fabric.driver.count_call();
        if !has_news {
            let served = driver::poll_sockets(self.fabric);
            if served != Some(true) || !self.has_news() {
                self.looked = served == Some(false) || !self.watches.is_empty();
                return Ok(0);
            }
            self.drained = true;
        }
        self.idle = 0;
        let mut guard = self.fabric.lock();
        if self.hint.watches() != self.watched {
            self.watched = self.hint.watches();
            self.watches.clear();
            let watches = guard.cqs.get(self.cq).map_or(&[][..], CompletionQueue::watches);
            self.watches.extend(watches.iter().map(|(_, watch)| watch.clone()));
        }
        if !self.watches.is_empty() {
            guard.collect_mailboxes(self.cq, true);
        }
        match guard.cqs.get_mut(self.cq) {
            Some(queue) => queue.take(out).ok_or(PollError::Overrun),
            None => Ok(0),
        }
    }

    fn request_notify(&mut self) -> Result<(), PollError> {
        let mut guard = self.fabric.lock();
        if let Some(queue) = guard.cqs.get_mut(self.cq) {
            queue.armed = true;
        }
        guard.arm_mailboxes(self.cq);
        if self.fabric.driver.held_acks.any() {
            guard.send_held_acks();
        }
        drop(guard);
        self.fabric.driver.before_sleep();
        Ok(())
    }

    fn channel_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn consume_events(&mut self) -> Result<(), PollError> {
        self.channel.consume().map_err(|source| PollError::Refused { verb: "ibv_get_cq_event", source })
    }

    fn destroy_qp(&mut self, slot: Slot, deadline: Deadline) -> io::Result<()> {
        let entry = self.entry(slot)?;
        let active_writers = self.fabric.lock().revoke_qp(clock::now(), entry.id);
        if !active_writers.wait(deadline) {
            wait_until_revoked(deadline, |now| {
                self.fabric.lock().advance_qp_revoke(now, entry.id, deadline)
            })?;
        }
        self.fabric.lock().destroy(entry.id);
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = None;
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut guard = self.fabric.lock();
        for entry in self.slots.iter().flatten() {
            guard.destroy(entry.id);
        }
        guard.cqs.remove(self.cq);
    }
}

/// Draws a random queue pair number that is not taken. Random, so that a peer of a destroyed queue pair does not reach
/// its successor by chance.
fn draw_number(taken: impl Fn(u32) -> bool) -> Result<QpNum, CreateError> {
    loop {
        let drawn = getrandom::u32().map_err(|error| CreateError::Refused {
            verb: "ibv_create_qp",
            source: error.into(),
            mend: "let the process use getrandom(2)".to_owned(),
        })?;
        // InfiniBand reserves numbers 0 and 1 for management.
        let num = drawn & 0x00ff_ffff;
        if num > 1 && !taken(num) {
            return Ok(QpNum(num));
        }
    }
}
