//! Posting, and everything that follows from it under the same hold of the lock.

#![expect(unsafe_code, reason = "reads inline data where the poster says it is")]

use std::io;
use std::time::Instant;

use super::driver;
use super::engine::effect::Effect;
use super::engine::message::Request;
use super::engine::responder::Verdict;
use super::engine::state::State as QpStep;
use super::fabric::{Command, CqRef, State};
use super::fault::Planted;
use super::qp::Carrier;
use super::wire::{Payload, QpRef, Right, Token};
use crate::backend::interface::{RawCompletion, RawPostError, RawRecv, RawSend};
use crate::{AsyncEvent, EventKind, QpNum};

impl State {
    /// Posts a chain of sends, writes and reads, but for those that went [`ahead`](Self::post_bypass_queue).
    ///
    /// # Safety
    ///
    /// As for [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send).
    pub(super) unsafe fn post_send(
        &mut self,
        id: QpRef,
        chain: &[RawSend],
        ahead: usize,
    ) -> Result<(), RawPostError> {
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.state.takes_sends()) else {
            return Err(refusal(ahead, libc::EINVAL));
        };
        let mut outcome = Ok(());
        for (posted, send) in chain.iter().enumerate().skip(ahead) {
            // SAFETY: the caller's promise covers each range of the chain.
            if let Err(errno) = unsafe { qp.post_send(send) } {
                outcome = Err(refusal(posted, errno));
                break;
            }
        }
        // A mapped peer has nearly always answered before this returns, and the timer is off again.
        let now = if qp.carrier == Carrier::Mapped { driver::soon() } else { driver::now() };
        self.pump(now, id);
        outcome
    }

    /// Posts a chain of receives.
    pub(super) fn post_recv(&mut self, id: QpRef, chain: &[RawRecv]) -> Result<(), RawPostError> {
        if !self.qps.get(id).is_some_and(|qp| qp.state.takes_receives()) {
            return Err(refusal(0, libc::EINVAL));
        }
        let mut outcome = Ok(());
        for (posted, recv) in chain.iter().enumerate() {
            if self.post_receive(id, *recv).is_err() {
                outcome = Err(refusal(posted, libc::ENOMEM));
                break;
            }
        }
        if self.qps.get(id).is_some_and(|qp| qp.state == QpStep::Error) {
            self.flush_receives(id);
        }
        outcome
    }

    /// Carries out what the requester of `id` wants, until it wants nothing.
    pub(super) fn pump(&mut self, now: Instant, id: QpRef) {
        while let Some(qp) = self.qps.get_mut(id) {
            let Some(device) = self.devices.get(qp.device) else { return };
            let effect = qp.requester.poll_effect(now, &device.keys, qp.domain);
            let (carrier, cq, qp_num) = (qp.carrier, qp.cq, qp.num);
            match effect {
                None => break,
                Some(Effect::Complete(done)) => self.complete(cq, qp_num, done),
                Some(Effect::Rewind) if carrier == Carrier::Tcp => {
                    self.commands.push_back(Command::Reset { qp: id })
                }
                Some(Effect::Rewind) => qp.mapped.awaited_memory = None,
                Some(Effect::Transmit { request, payload }) if carrier == Carrier::Tcp => {
                    let payload = payload.map(|source| Payload {
                        token: Token { qp: id, right: Right::Requested { serial: source.serial } },
                        addr: source.addr,
                        len: source.len,
                    });
                    self.commands.push_back(Command::Request { qp: id, request, payload });
                }
                Some(Effect::Transmit { request, payload }) if carrier == Carrier::Mapped => {
                    self.carry_mapped(now, id, &request, payload)
                }
                Some(Effect::Transmit { request, payload }) => self.carry(now, id, &request, payload),
            }
        }
        let Some(qp) = self.qps.get(id) else { return };
        let (next, failed) = (qp.requester.poll_timeout(), qp.requester.is_error());
        if let Some(next) = next {
            self.note_due(next);
        }
        if failed {
            self.enter_error(now, id);
        }
    }

    /// Something is due then.
    pub(super) fn note_due(&mut self, next: Instant) {
        if self.earliest.is_none_or(|earliest| next < earliest) {
            (self.earliest, self.due_sooner) = (Some(next), true);
        }
    }

    /// Asks the responder of `to` about a request.
    pub(super) fn ask(&mut self, to: QpRef, request: &Request) -> Option<Verdict> {
        let qp = self.qps.get_mut(to)?;
        let device = self.devices.get(qp.device)?;
        Some(qp.responder.handle_request(request, &device.keys, qp.domain))
    }

    /// The same, as if it had no receive.
    pub(super) fn ask_not_ready(&mut self, to: QpRef, request: &Request) -> Option<Verdict> {
        let qp = self.qps.get_mut(to)?;
        let device = self.devices.get(qp.device)?;
        Some(qp.responder.handle_not_ready(request, &device.keys, qp.domain))
    }

    /// The responder of `id` refused a request.
    pub(super) fn refuse(&mut self, now: Instant, id: QpRef, event: Option<EventKind>) {
        self.raise(id, event);
        let device = self.qps.get(id).and_then(|qp| self.devices.get(qp.device));
        let stays = device.is_some_and(|device| device.planted == Some(Planted::NoError));
        if !(stays && event == Some(EventKind::QP_ACCESS_ERR)) {
            self.enter_error(now, id);
        }
    }

    /// Tells the responder of `to` that a payload is in place.
    pub(super) fn ask_placed(&mut self, to: QpRef, serial: u64) -> Option<Verdict> {
        let qp = self.qps.get_mut(to)?;
        let device = self.devices.get(qp.device)?;
        Some(qp.responder.placed(serial, &device.keys))
    }

    /// A receive of `id` is over.
    pub(super) fn receive(&mut self, id: QpRef, done: Option<RawCompletion>) {
        if let (Some(qp), Some(done)) = (self.qps.get(id), done) {
            self.complete(qp.cq, qp.num, done);
        }
    }

    /// Adds a completion to a queue, which may overrun.
    pub(super) fn complete(&mut self, cq: CqRef, qp_num: QpNum, done: RawCompletion) {
        if let Some(queue) = self.cqs.get_mut(cq)
            && !queue.push(RawCompletion { qp_num: qp_num.0, ..done })
        {
            self.overrun.push(cq);
        }
    }

    /// The queue pairs of completion queues that overran move to ERR.
    pub(super) fn fail_overrun(&mut self) {
        while let Some(cq) = self.overrun.pop() {
            if let Some(context) = self.cqs.get(cq).map(|queue| queue.context)
                && let Some(events) = self.contexts.get_mut(context)
            {
                events.raise(AsyncEvent::new(EventKind::CQ_ERR, None, None));
            }
            let of_it: Vec<_> = self.qps.iter().filter(|(_, qp)| qp.cq == cq).map(|(id, _)| id).collect();
            for id in of_it {
                self.enter_error(driver::now(), id);
            }
        }
    }

    /// The timers that are due.
    pub(super) fn handle_timeouts(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.due);
        due.extend(
            self.qps.iter().filter(|(_, qp)| is_due(qp.requester.poll_timeout(), now)).map(|(id, _)| id),
        );
        for id in due.drain(..) {
            if let Some(qp) = self.qps.get_mut(id) {
                qp.requester.handle_timeout(now);
            }
            self.pump(now, id);
        }
        self.due = due;
        self.return_ports(now);
        self.deliver_due(now);
        self.earliest = None;
        self.settle_mailboxes(now);
        let settling = self.earliest;
        let requesters = self.qps.values().filter_map(|qp| qp.requester.poll_timeout()).min();
        let ports = self.devices.values().filter_map(|device| device.port_returns.deadline()).min();
        self.earliest = [requesters, ports, self.next_delayed_due(), settling].into_iter().flatten().min();
    }

    /// Tells the context of `id` what happened to its queue pair.
    pub(super) fn raise(&mut self, id: QpRef, kind: Option<EventKind>) {
        if let (Some(kind), Some(qp)) = (kind, self.qps.get(id))
            && let Some(events) = self.contexts.get_mut(qp.context)
        {
            events.raise(AsyncEvent::new(kind, None, Some(qp.num)));
        }
    }

    /// The queue pair that `from` is connected to inside this process, if it answers.
    pub(super) fn peer_of(&mut self, from: QpRef) -> Option<QpRef> {
        let qp = self.qps.get(from)?;
        let peer = qp.peer?;
        let (gid, num) = (qp.gid, qp.num);
        let to = match peer.found.filter(|found| self.qps.contains_key(*found)) {
            Some(found) => found,
            None => {
                let device = self.devices.get(*self.by_gid.get(&peer.gid)?)?;
                let found = *device.qp_nums.get(&peer.qp_num.0)?;
                let qp = self.qps.get_mut(from)?;
                qp.peer = Some(super::qp::Peer { found: Some(found), ..peer });
                found
            }
        };
        let target = self.qps.get(to)?;
        let connected = target.peer.is_some_and(|back| back.gid == gid && back.qp_num == num);
        (target.state.responds() && connected && self.is_up(to) && self.is_up(from)).then_some(to)
    }
}

fn is_due(timeout: Option<Instant>, now: Instant) -> bool {
    timeout.is_some_and(|at| now >= at)
}

fn refusal(posted: usize, errno: i32) -> RawPostError {
    RawPostError { posted, source: io::Error::from_raw_os_error(errno) }
}
