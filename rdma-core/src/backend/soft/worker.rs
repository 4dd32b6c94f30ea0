//! A completion queue, its channel and its queue pairs, as the worker's core drives them.

#![expect(unsafe_code, reason = "takes the caller's word for the memory of requests")]

mod connect;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::channel::Channel;
use super::cq::{CompletionQueue, Hint};
use super::device::Context;
use super::engine::requester::Limits;
use super::engine::state::Step;
use super::fabric::{CqRef, Fabric, FabricGuard};
use super::mr::wait_until_revoked;
use super::qp::{Carrier, Owner, QueuePair};
use super::wire::{BypassProgress, CompletionWatch, QpRef};
use super::{ProtectionDomain, driver, port};
use crate::backend::interface::{
    MappedAccess, MappedOutcome, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot,
};
use crate::error::{ConnectError, CreateError, PollError, QueryError, ReachError};
use crate::memory::{PeerWindow, fork};
use crate::{
    Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, PortNum, Psn, QpNum, QpState, QueuePairOptions,
    RemoteMemory, RetryOptions, WorkerOptions,
};

/// A thread that waits for a peer of the same host looks at sockets, and lets the peer have the core, once in so many
/// polls: that takes as long as all of the others.
const LOOK_EVERY: u32 = 64;
/// Polls before the first time: some two microseconds, in which a peer that has a core has answered.
const LOOK_AFTER: u32 = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    fabric: &'static Fabric,
    context: Arc<Context>,
    cq: CqRef,
    hint: Arc<Hint>,
    channel: Channel,
    slots: Vec<Option<QpEntry>>,
    /// Where peers leave completions, as of the change `watched`.
    watches: Vec<CompletionWatch>,
    watched: u32,
    /// Polls in a row that found nothing.
    idle: u32,
}

/// A queue pair of the worker.
#[derive(Debug, Clone, Copy)]
struct QpEntry {
    id: QpRef,
    num: QpNum,
}

impl Worker {
    pub(super) fn new(context: &Arc<Context>, options: &WorkerOptions) -> Result<Self, CreateError> {
        let refused = |source, mend: &str| CreateError::Refused {
            verb: "ibv_create_cq",
            source,
            mend: mend.to_owned(),
        };
        limit("max_cqe", options.max_cqe, port::MAX_CQE)?;
        if options.max_cqe == 0 {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(refused(source, "a completion queue needs at least one entry"));
        }
        let channel =
            Channel::new().map_err(|source| refused(source, "raise the limit on open files (ulimit -n)"))?;
        let hint = Arc::new(Hint::default());
        let depth = options.max_cqe as usize;
        let mut guard = context.opened.lock();
        let planted = guard.devices.get(context.opened.device).and_then(|device| device.planted);
        let queue = CompletionQueue::new(context.context, depth, channel.clone(), Arc::clone(&hint), planted);
        let cq = guard.cqs.insert(queue);
        drop(guard);
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
        })
    }

    /// An error in a forked child.
    #[inline]
    fn stay_off() -> io::Result<()> {
        if fork::is_child() {
            return Err(io::Error::other("this process was forked from one that uses a software device"));
        }
        Ok(())
    }

    fn fabric(&self) -> &'static Fabric {
        self.fabric
    }

    fn place(&self, slot: Slot) -> io::Result<QpEntry> {
        Self::stay_off()?;
        self.usable(slot).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// The queue pair in `slot`, unless a forked child asks.
    #[inline]
    fn usable(&self, slot: Slot) -> Option<QpEntry> {
        let place = self.slots.get(usize::from(slot)).copied().flatten();
        place.filter(|_| !fork::is_child())
    }

    /// Why nothing is posted to what is not [`usable`](Self::usable).
    #[cold]
    fn unusable(&self, slot: Slot) -> RawPostError {
        let source = self.place(slot).err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL));
        RawPostError { posted: 0, source }
    }

    /// Runs a transition under the lock.
    fn modify(
        &self,
        slot: Slot,
        to: QpState,
        mend: &str,
        step: impl FnOnce(&mut FabricGuard<'_>, QpRef) -> Result<(), i32>,
    ) -> Result<(), ConnectError> {
        let refused = |qp_num, source| ConnectError::Refused { qp_num, to, source, mend: mend.to_owned() };
        let place = self.place(slot).map_err(|source| refused(QpNum(0), source))?;
        let mut guard = self.fabric().lock();
        step(&mut guard, place.id).map_err(|errno| refused(place.num, io::Error::from_raw_os_error(errno)))
    }

    /// Whether polling would tell something.
    fn has_news(&self) -> bool {
        self.hint.is_raised()
            || self.hint.watches() != self.watched
            || self.watches.iter().any(CompletionWatch::pending)
    }
}

/// An option within what the device has.
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
        limit("max_send_wr", options.max_send_wr, port::MAX_QP_WR)?;
        limit("max_recv_wr", options.max_recv_wr, port::MAX_QP_WR)?;
        limit("max_inline_data", options.max_inline_data, port::MAX_INLINE_DATA)?;
        let owner =
            Owner { device: opened.device, context: self.context.context, cq: self.cq, domain: pd.domain };
        let mut guard = self.fabric().lock();
        let (num, planted) = {
            let device = guard.devices.get(opened.device);
            let taken = device.map_or(0, |device| device.qp_nums.len());
            limit("queue pairs of the device", taken as u32 + 1, port::MAX_QP)?;
            let num = draw_number(|num| device.is_some_and(|device| device.qp_nums.contains_key(&num)))?;
            (num, device.and_then(|device| device.planted))
        };
        let id = guard.qps.insert(QueuePair::new(num, owner, options, planted));
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
            qp.step(Step::ToInit)
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
        let limits = Limits::new(options, port::MAX_QP_RD_ATOM);
        self.modify(slot, QpState::RTS, "the queue pair must be in RTR", |guard, id| {
            let qp = guard.qps.get_mut(id).ok_or(libc::EINVAL)?;
            qp.send_from(psn.value(), limits)
        })
    }

    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()> {
        let place = self.place(slot)?;
        self.fabric().lock().enter_error(driver::now(), place.id);
        Ok(())
    }

    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError> {
        let device = || self.context.opened.name.clone();
        let refused = |source| QueryError::Refused { verb: "ibv_query_qp", device: device(), source };
        let place = self.place(slot).map_err(refused)?;
        let mut guard = self.fabric().lock();
        // A peer that runs the responder may have refused a request.
        guard.drain_mailbox(driver::now(), place.id);
        let qp = guard.qps.get(place.id);
        qp.map(|qp| qp.state.number()).ok_or_else(|| refused(io::Error::from_raw_os_error(libc::EINVAL)))
    }

    fn peer_access(&self, slot: Slot) -> PeerAccess {
        let Ok(place) = self.place(slot) else { return PeerAccess::Stream };
        match self.fabric().lock().qps.get(place.id).map(|qp| qp.carrier) {
            Some(Carrier::Local | Carrier::Mapped) => PeerAccess::Mapped,
            Some(Carrier::Tcp) | None => PeerAccess::Stream,
        }
    }

    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        let Some(place) = self.usable(slot) else { return Err(self.unusable(slot)) };
        self.fabric().driver.count_call();
        let mut guard = self.fabric().lock();
        // SAFETY: the caller's promise is progress on unchanged.
        let count = unsafe { guard.post_small_inline(place.id, chain) };
        if count == chain.len() {
            return Ok(());
        }
        let mut progress = BypassProgress::after(count);
        // SAFETY: the same.
        while unsafe { guard.post_bypass_queue(place.id, chain, &mut progress) } {
            guard.yield_lock();
        }
        if progress.count == chain.len() {
            return Ok(());
        }
        // SAFETY: the same.
        unsafe { guard.post_send(place.id, chain, progress.count) }
    }

    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        let Some(place) = self.usable(slot) else { return Err(self.unusable(slot)) };
        self.fabric().lock().post_recv(place.id, chain)
    }

    unsafe fn access_mapped(
        &mut self,
        slot: Slot,
        access: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        let place = self.place(slot).map_err(ReachError::Refused)?;
        // SAFETY: the caller's promise is progress on unchanged.
        unsafe { self.fabric().lock().access_mapped(place.id, access) }
    }

    fn window(&mut self, slot: Slot, memory: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        let place = self.place(slot).map_err(ReachError::Refused)?;
        self.fabric().lock().window(place.id, memory)
    }

    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        Self::stay_off().map_err(|source| PollError::Refused { verb: "ibv_poll_cq", source })?;
        let has_news = self.has_news();
        if !has_news {
            self.idle = self.idle.wrapping_add(1);
            if !self.watches.is_empty() && (self.idle < LOOK_AFTER || !self.idle.is_multiple_of(LOOK_EVERY)) {
                return Ok(0);
            }
        }
        self.fabric().driver.count_call();
        if !has_news && (!driver::poll_sockets(self.fabric()) || !self.has_news()) {
            if !self.watches.is_empty() {
                std::thread::yield_now();
            }
            return Ok(0);
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
        Self::stay_off().map_err(|source| PollError::Refused { verb: "ibv_req_notify_cq", source })?;
        let mut guard = self.fabric().lock();
        if let Some(queue) = guard.cqs.get_mut(self.cq) {
            queue.arm();
        }
        guard.arm_mailboxes(self.cq);
        drop(guard);
        self.fabric().driver.drain_mailbox();
        Ok(())
    }

    fn channel_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn consume_events(&mut self) -> Result<(), PollError> {
        self.channel.consume().map_err(|source| PollError::Refused { verb: "ibv_get_cq_event", source })
    }

    fn destroy_qp(&mut self, slot: Slot, deadline: Deadline) -> io::Result<()> {
        if !self.fabric().is_foreign() {
            let place = self.place(slot)?;
            let active_writers = self.fabric().lock().revoke_qp(driver::now(), place.id);
            if !active_writers.wait(deadline) {
                wait_until_revoked(deadline, |now| {
                    self.fabric().lock().advance_qp_revoke(now, place.id, deadline)
                })?;
            }
            self.fabric().lock().destroy(place.id);
        }
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = None;
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.fabric().is_foreign() {
            return;
        }
        let mut guard = self.fabric().lock();
        for place in self.slots.iter().flatten() {
            guard.destroy(place.id);
        }
        guard.cqs.remove(self.cq);
    }
}

/// A queue pair number that is not taken.
fn draw_number(taken: impl Fn(u32) -> bool) -> Result<QpNum, CreateError> {
    loop {
        let drawn = getrandom::u32().map_err(|error| CreateError::Refused {
            verb: "ibv_create_qp",
            source: error.into(),
            mend: "let the process use getrandom(2)".to_owned(),
        })?;
        // 0 and 1 are special on every fabric.
        let num = drawn & 0x00ff_ffff;
        if num > 1 && !taken(num) {
            return Ok(QpNum(num));
        }
    }
}
