//! A completion queue, its channel and its queue pairs, as the worker's core drives them.

#![expect(unsafe_code, reason = "takes the caller's word for the memory of requests")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::channel::Channel;
use super::cq::{CompletionQueue, Hint};
use super::device::Context;
use super::engine::requester::Limits;
use super::engine::state::Step;
use super::fabric::{Command, CqRef, Fabric, Hold};
use super::options::Wire;
use super::qp::{Carrier, Owner, Peer, QueuePair};
use super::wire::QpRef;
use super::{ProtectionDomain, driver, gid, port};
use crate::backend::interface::{RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot};
use crate::error::{ConnectError, CreateError, PollError, QueryError};
use crate::{
    Endpoint, Gid, InitOptions, PathOptions, PeerAccess, PortNum, Psn, QpNum, QpState, QueuePairOptions,
    RetryOptions, WorkerOptions,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    context: Arc<Context>,
    cq: CqRef,
    hint: Arc<Hint>,
    channel: Channel,
    slots: Vec<Option<Place>>,
}

/// A queue pair of the worker.
#[derive(Debug, Clone, Copy)]
struct Place {
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
        let mut hold = context.opened.lock();
        let planted = hold.devices.get(context.opened.device).and_then(|device| device.planted);
        let queue = CompletionQueue::new(context.context, depth, channel.clone(), Arc::clone(&hint), planted);
        let cq = hold.cqs.insert(queue);
        drop(hold);
        Ok(Self { context: Arc::clone(context), cq, hint, channel, slots: Vec::new() })
    }

    fn fabric(&self) -> &'static Fabric {
        self.context.opened.fabric
    }

    fn place(&self, slot: Slot) -> io::Result<Place> {
        let place = self.slots.get(usize::from(slot)).copied().flatten();
        place.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Runs a transition under the lock.
    fn modify(
        &self,
        slot: Slot,
        to: QpState,
        mend: &str,
        step: impl FnOnce(&mut Hold<'_>, QpRef) -> Result<(), i32>,
    ) -> Result<(), ConnectError> {
        let refused = |qp_num, source| ConnectError::Refused { qp_num, to, source, mend: mend.to_owned() };
        let place = self.place(slot).map_err(|source| refused(QpNum(0), source))?;
        let mut hold = self.fabric().lock();
        step(&mut hold, place.id).map_err(|errno| refused(place.num, io::Error::from_raw_os_error(errno)))
    }

    /// Which wire reaches `peer`.
    fn carrier(&self, hold: &Hold<'_>, num: QpNum, peer: Gid) -> Result<Carrier, ConnectError> {
        let wire = hold.devices.get(self.context.opened.device).map_or(Wire::Local, |device| device.wire);
        let here = hold.by_gid.contains_key(&peer);
        let refused = |errno, mend: &str| {
            Err(ConnectError::Refused {
                qp_num: num,
                to: QpState::RTR,
                source: io::Error::from_raw_os_error(errno),
                mend: mend.to_owned(),
            })
        };
        match wire {
            Wire::Auto | Wire::Local if here => Ok(Carrier::Local),
            Wire::Local => refused(
                libc::ENETUNREACH,
                "the peer's GID is of no open device of this process, and the wire is Local: use Wire::Auto",
            ),
            Wire::Auto | Wire::Tcp if gid::listens_at(peer).is_some() => Ok(Carrier::Tcp),
            Wire::Auto | Wire::Tcp => refused(
                libc::ENETUNREACH,
                "the peer's GID is not that of a software device that listens: exchange the GID at index 1, \
                 and let the peer open its device with another wire than Local",
            ),
        }
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
        let mut hold = self.fabric().lock();
        let (num, planted) = {
            let device = hold.devices.get(opened.device);
            let taken = device.map_or(0, |device| device.qp_nums.len());
            limit("queue pairs of the device", taken as u32 + 1, port::MAX_QP)?;
            let num = draw_number(|num| device.is_some_and(|device| device.qp_nums.contains_key(&num)))?;
            (num, device.and_then(|device| device.planted))
        };
        let id = hold.qps.insert(QueuePair::new(num, owner, options, planted));
        if let Some(device) = hold.devices.get_mut(opened.device) {
            device.qp_nums.insert(num.0, id);
        }
        drop(hold);
        let index = usize::from(slot);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(Place { id, num });
        Ok(num)
    }

    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError> {
        let mend = "the device has port 1 and partition key index 0, and the queue pair must be in RESET";
        self.modify(slot, QpState::INIT, mend, |hold, id| {
            if options.port != PortNum(1) || options.pkey_index != 0 {
                return Err(libc::EINVAL);
            }
            let qp = hold.qps.get_mut(id).ok_or(libc::EINVAL)?;
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
        let opened = &self.context.opened;
        let num = self.place(slot).map_or(QpNum(0), |place| place.num);
        let (own, carrier) = {
            let hold = self.fabric().lock();
            let table = hold.devices.get(opened.device).map_or_else(Vec::new, |device| device.gids.clone());
            let carrier = self.carrier(&hold, num, peer.gid)?;
            match table.iter().find(|entry| entry.index == options.gid_index) {
                Some(entry) => (entry.gid, carrier),
                None => {
                    let (device, index) = (opened.name.clone(), options.gid_index);
                    return Err(ConnectError::NoSuchGid { device, port: PortNum(1), index, table });
                }
            }
        };
        let mend = "the queue pair must be in INIT, and the path MTU one that verbs defines";
        self.modify(slot, QpState::RTR, mend, |hold, id| {
            if options.mtu.is_some_and(|mtu| mtu.bytes().is_none()) {
                return Err(libc::EINVAL);
            }
            let qp = hold.qps.get_mut(id).ok_or(libc::EINVAL)?;
            let peer_here = Peer { gid: peer.gid, qp_num: peer.qp_num, found: None };
            qp.receive_from(own, peer_here, peer.psn.value(), carrier, options.min_rnr_timer.code())?;
            // From now on the wire may hear the peer, too.
            let hello = qp.hello().filter(|_| qp.carrier == Carrier::Tcp);
            if let Some(hello) = hello {
                hold.commands.push_back(Command::Connect { qp: id, hello });
            }
            Ok(())
        })
    }

    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError> {
        let limits = Limits::new(options, port::MAX_QP_RD_ATOM);
        self.modify(slot, QpState::RTS, "the queue pair must be in RTR", |hold, id| {
            let qp = hold.qps.get_mut(id).ok_or(libc::EINVAL)?;
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
        let hold = self.fabric().lock();
        let qp = hold.qps.get(place.id);
        qp.map(|qp| qp.state.number()).ok_or_else(|| refused(io::Error::from_raw_os_error(libc::EINVAL)))
    }

    fn peer_access(&self, slot: Slot) -> PeerAccess {
        let Ok(place) = self.place(slot) else { return PeerAccess::Stream };
        match self.fabric().lock().qps.get(place.id).map(|qp| qp.carrier) {
            Some(Carrier::Local) => PeerAccess::Mapped,
            Some(Carrier::Tcp) | None => PeerAccess::Stream,
        }
    }

    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        let place = self.place(slot).map_err(|source| RawPostError { posted: 0, source })?;
        self.fabric().driver.count_call();
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.fabric().lock().post_send(driver::now(), place.id, chain) }
    }

    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        let place = self.place(slot).map_err(|source| RawPostError { posted: 0, source })?;
        self.fabric().lock().post_recv(place.id, chain)
    }

    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        self.fabric().driver.count_call();
        if !self.hint.is_raised() {
            driver::poll_sockets(self.fabric());
            if !self.hint.is_raised() {
                return Ok(0);
            }
        }
        match self.fabric().lock().cqs.get_mut(self.cq) {
            Some(queue) => queue.take(out).ok_or(PollError::Overrun),
            None => Ok(0),
        }
    }

    fn request_notify(&mut self) -> Result<(), PollError> {
        if let Some(queue) = self.fabric().lock().cqs.get_mut(self.cq) {
            queue.arm();
        }
        self.fabric().driver.attend();
        Ok(())
    }

    fn channel_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn consume_events(&mut self) -> Result<(), PollError> {
        self.channel.consume().map_err(|source| PollError::Refused { verb: "ibv_get_cq_event", source })
    }

    fn destroy_qp(&mut self, slot: Slot) -> io::Result<()> {
        let place = self.place(slot)?;
        if !self.fabric().is_foreign() {
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
        let mut hold = self.fabric().lock();
        for place in self.slots.iter().flatten() {
            hold.destroy(place.id);
        }
        hold.cqs.remove(self.cq);
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
