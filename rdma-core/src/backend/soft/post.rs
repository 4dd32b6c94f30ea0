//! Posting, and carrying out what the engine wants: effects of requesters, verdicts of responders, timers.
//!
//! Everything here happens in one hold of the fabric's lock. Work for sockets is queued as a
//! [`Command`](super::fabric::Command).

#![expect(unsafe_code, reason = "reads inline data where the poster says it is")]

use std::io;
use std::time::Instant;

use super::clock;
use super::cq::CqRef;
use super::engine::effect::Effect;
use super::engine::keys::{Domain, KeyTable};
use super::engine::message::Request;
use super::engine::responder::{Responder, Verdict};
use super::fabric::{Command, State};
use super::fault::Injected;
use super::fault::planted::{self, Planted};
use super::qp::Carrier;
use super::wire::{Payload, QpRef, Right, Token};
use crate::backend::interface::{RawCompletion, RawPostError, RawRecv, RawSend};
use crate::metrics;
use crate::{AsyncEvent, EventKind, QpNum, QpState};

impl State {
    /// Posts a chain of send-queue requests, except the first `bypassed`, which are complete already.
    ///
    /// # Safety
    ///
    /// The local ranges of the chain stay valid, as
    /// [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send) asks.
    pub(super) unsafe fn post_send(
        &mut self,
        id: QpRef,
        chain: &[RawSend],
        bypassed: usize,
    ) -> Result<(), RawPostError> {
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.state.takes_sends()) else {
            return Err(refusal(bypassed, libc::EINVAL));
        };
        let mut outcome = Ok(());
        for (posted, send) in chain.iter().enumerate().skip(bypassed) {
            // SAFETY: the caller promises that each range of the chain stays valid, so this one is readable now.
            if let Err(errno) = unsafe { qp.post_send(send) } {
                outcome = Err(refusal(posted, errno));
                break;
            }
        }
        // A mapped peer has nearly always answered before this returns, so the timer never runs: the coarse clock will
        // do.
        let now = if qp.carrier == Carrier::Mapped { clock::soon() } else { clock::now() };
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
            if !planted::at(Planted::LostCredit, 2) && self.post_receive(id, *recv).is_err() {
                outcome = Err(refusal(posted, libc::ENOMEM));
                break;
            }
        }
        if self.qps.get(id).is_some_and(|qp| qp.state == QpState::ERR) {
            self.flush_receives(id);
        }
        outcome
    }

    /// Carries out the effects of the requester of `id` until it has none.
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

    /// Notes that something is due at `next`, so that the driver wakes in time.
    pub(super) fn note_due(&mut self, next: Instant) {
        if self.earliest.is_none_or(|earliest| next < earliest) {
            (self.earliest, self.due_sooner) = (Some(next), true);
        }
    }

    /// The responder of a queue pair, with the keys and the domain that it decides by.
    fn responder_and_keys(&mut self, id: QpRef) -> Option<(&mut Responder, &KeyTable, Domain)> {
        let qp = self.qps.get_mut(id)?;
        Some((&mut qp.responder, &self.devices.get(qp.device)?.keys, qp.domain))
    }

    /// Asks the responder of `to` about a request.
    pub(super) fn ask(&mut self, to: QpRef, request: &Request, injected: Injected) -> Option<Verdict> {
        self.responder_and_keys(to)
            .map(|(it, keys, domain)| it.handle_request(request, injected, keys, domain))
    }

    /// Moves `id` to ERR, because its responder refused a request, and raises `event`. A refusal without one is for a
    /// receive that does not fit, which is no fault of the peer's rights and is not counted.
    pub(super) fn refuse(&mut self, now: Instant, id: QpRef, event: Option<EventKind>) {
        if event.is_some()
            && let Some(device) = self.qps.get(id).and_then(|qp| self.devices.get_mut(qp.device))
        {
            device.refused += 1;
            metrics::request_refused();
        }
        self.raise(id, event);
        if !(planted::is(Planted::NoError) && event == Some(EventKind::QP_ACCESS_ERR)) {
            self.enter_error(now, id);
        }
    }

    /// Tells the responder of `to` that a payload is in place.
    pub(super) fn ask_placed(&mut self, to: QpRef, serial: u64) -> Option<Verdict> {
        self.responder_and_keys(to).map(|(it, keys, _)| it.placed(serial, keys))
    }

    /// Completes a receive of `id`, if there is one to complete.
    pub(super) fn receive(&mut self, id: QpRef, done: Option<RawCompletion>) {
        if let (Some(qp), Some(done)) = (self.qps.get(id), done) {
            self.complete(qp.cq, qp.num, done);
        }
    }

    /// Adds a completion to a queue; an overrun is noted for [`fail_overrun`](Self::fail_overrun).
    pub(super) fn complete(&mut self, cq: CqRef, qp_num: QpNum, done: RawCompletion) {
        if let Some(queue) = self.cqs.get_mut(cq)
            && !queue.push(RawCompletion { qp_num: qp_num.0, ..done })
        {
            self.overrun.push(cq);
        }
    }

    /// Moves the queue pairs of overrun completion queues to ERR, as verbs ask.
    pub(super) fn fail_overrun(&mut self) {
        while let Some(cq) = self.overrun.pop() {
            if let Some(context) = self.cqs.get(cq).map(|queue| queue.context)
                && let Some(events) = self.contexts.get_mut(context)
            {
                events.raise(AsyncEvent::new(EventKind::CQ_ERR, None, None));
            }
            let qps: Vec<_> = self.qps.iter().filter(|(_, qp)| qp.cq == cq).map(|(id, _)| id).collect();
            for id in qps {
                self.enter_error(clock::now(), id);
            }
        }
    }

    /// Handles the timers that are due, and finds the next one.
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
        let ports = self.devices.values().filter_map(|device| device.port_returns).min();
        self.earliest = [requesters, ports, self.next_delayed_due(), settling].into_iter().flatten().min();
    }

    /// Raises an asynchronous event about a queue pair in its context.
    pub(super) fn raise(&mut self, id: QpRef, kind: Option<EventKind>) {
        if let (Some(kind), Some(qp)) = (kind, self.qps.get(id))
            && let Some(events) = self.contexts.get_mut(qp.context)
        {
            events.raise(AsyncEvent::new(kind, None, Some(qp.num)));
        }
    }

    /// Returns the queue pair of this process that `from` is connected to, if it is connected back and both devices
    /// are up.
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

/// Whether a timer is on, and due.
pub(super) fn is_due(timeout: Option<Instant>, now: Instant) -> bool {
    timeout.is_some_and(|at| now >= at)
}

fn refusal(posted: usize, errno: i32) -> RawPostError {
    RawPostError { posted, source: io::Error::from_raw_os_error(errno) }
}
