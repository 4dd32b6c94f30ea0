//! Requests that are carried out before they enter the send queue, since nothing is before them there.
//!
//! That is the way of nearly all. When the peer does not say that it is done, the request is entered after all, and what
//! was said handed over, as if it had been handed out.

#![expect(unsafe_code, reason = "hands the memory of requests to the port")]

use super::super::super::driver;
use super::super::super::engine::effect::Effect;
use super::super::super::fabric::State;
use super::super::super::fault::Injected;
use super::super::super::qp::Carrier;
use super::super::QpRef;
use super::super::shm::{Executed, Local};
use super::carry::ring;
use crate::backend::interface::{RawCompletion, RawSend};
use crate::memory::Expect;

impl State {
    /// Carries out the first of `chain`, as far as this way leads, and tells how many they are.
    ///
    /// # Safety
    ///
    /// As for [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send).
    pub(in super::super::super) unsafe fn post_ahead(&mut self, id: QpRef, chain: &[RawSend]) -> usize {
        if self.qps.get(id).is_none_or(|qp| qp.mapped.here && self.neighbour_has_faults(id)) {
            return 0;
        }
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.state.takes_sends()) else { return 0 };
        let (Some(outgoing), None, Carrier::Mapped) = (&mut qp.mapped.outgoing, qp.mapped.awaits, qp.carrier)
        else {
            return 0;
        };
        let device = self.devices.get(qp.device).filter(|device| device.is_up() && device.faults.is_none());
        let Some(device) = device else { return 0 };
        let expect = match chain {
            // Its length alone decides.
            [_] => Expect::Cached,
            _ => Expect::of_total(chain.iter().map(|send| send.len as usize).sum()),
        };
        for (count, send) in chain.iter().enumerate() {
            let taken = !send.inline || send.len <= qp.max_inline_data;
            let request = qp.requester.ahead(send, &device.keys, qp.domain).filter(|_| taken);
            let Some(request) = request else { return count };
            let local = Local { addr: send.addr, expect: send.expect.or(expect) };
            // SAFETY: the caller's promise covers the range, which was checked against a registration, or is inline.
            let executed = unsafe { outgoing.port.execute(&request, local, Injected::Deliver) };
            if !executed.is_done(&request) {
                // SAFETY: the caller's promise.
                let entered = unsafe { self.enter(id, send, executed) };
                return count + usize::from(entered);
            }
            if executed.ring {
                ring(&outgoing.doorbell);
            }
            if let Some(done) = qp.requester.pass(send)
                && let Some(queue) = self.cqs.get_mut(qp.cq)
                && !queue.push(RawCompletion { qp_num: qp.num.0, ..done })
            {
                self.overrun.push(qp.cq);
            }
        }
        chain.len()
    }

    /// Whether faults are injected at the peer of `id`, which is of this process.
    #[cold]
    fn neighbour_has_faults(&self, id: QpRef) -> bool {
        let peer = self.neighbour(id).and_then(|to| self.qps.get(to));
        let device = peer.and_then(|qp| self.devices.get(qp.device));
        device.is_some_and(|device| device.faults.is_some())
    }

    /// Enters a request that the peer has been asked about, and hands over what it said. `false` when it cannot be entered.
    ///
    /// # Safety
    ///
    /// As for [`post_ahead`](Self::post_ahead).
    #[cold]
    unsafe fn enter(&mut self, id: QpRef, send: &RawSend, executed: Executed) -> bool {
        let now = driver::soon();
        let Some(qp) = self.qps.get_mut(id) else { return false };
        let Some(device) = self.devices.get(qp.device) else { return false };
        // SAFETY: the caller's promise.
        if unsafe { qp.post_send(send) }.is_err() {
            return false;
        }
        let handed_out = qp.requester.poll_effect(now, &device.keys, qp.domain);
        debug_assert!(matches!(handed_out, Some(Effect::Transmit { .. })), "{handed_out:?}");
        self.conclude_carried(now, id, send.addr, executed);
        self.pump(now, id);
        true
    }
}
