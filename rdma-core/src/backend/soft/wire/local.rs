//! The wire inside a process: the peer's responder runs at once, and bytes are copied once.

#![expect(unsafe_code, reason = "copies between the memory of two requests")]

use std::time::Instant;

use super::super::engine::effect::Source;
use super::super::engine::message::{Reply, Request};
use super::super::engine::requester::Landing;
use super::super::engine::responder::Verdict;
use super::super::fabric::State;
use super::QpRef;

impl State {
    /// Carries a request of `from` to its peer, and the reply back. A peer that is not there
    /// does not answer.
    pub(in super::super) fn carry(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Source>,
    ) {
        let Some(to) = self.peer_of(from) else { return };
        let Some(mut verdict) = self.ask(to, request) else { return };
        if let Verdict::Place { addr, len, serial } = verdict {
            let Some(source) = payload.filter(|source| source.len == len) else { return };
            // SAFETY: the poster of the request keeps its memory until the completion, which
            // comes later; the target was checked against a registration or a receive in this
            // same hold of the lock, and stays until a deregistration, a completion or a
            // destruction, all of which need the lock.
            unsafe { copy(source.addr, addr, len) };
            match self.ask_placed(to, serial) {
                Some(next) => verdict = next,
                None => return,
            }
        }
        match verdict {
            Verdict::Silence | Verdict::Place { .. } => {}
            Verdict::Answer(reply) => self.carry_back(now, from, &reply, None),
            Verdict::Serve { reply, addr, .. } => self.carry_back(now, from, &reply, Some(addr)),
            Verdict::Done(outcome) => {
                self.receive(to, outcome.receive);
                self.carry_back(now, from, &outcome.reply, None);
            }
            Verdict::Refuse { outcome, event } => {
                self.receive(to, outcome.receive);
                self.carry_back(now, from, &outcome.reply, None);
                self.raise(to, event);
                self.enter_error(now, to);
            }
        }
    }

    /// Hands a reply, whose data is at `data`, to the requester of `to`.
    fn carry_back(&mut self, now: Instant, to: QpRef, reply: &Reply, data: Option<u64>) {
        let Some(qp) = self.qps.get_mut(to) else { return };
        let landing = qp.requester.handle_reply(now, reply);
        if let (Landing::At { addr, len, serial }, Some(data)) = (landing, data) {
            // SAFETY: the data was checked against a registration in this same hold of the
            // lock, and the target is that of a read that has not completed.
            unsafe { copy(data, addr, len) };
            qp.requester.landed(now, serial);
        }
    }
}

/// Copies `len` bytes between addresses that may overlap.
///
/// # Safety
///
/// Both ranges are mapped, the target writable; no reference to either exists.
unsafe fn copy(from: u64, to: u64, len: u32) {
    let (from, to) = (from as usize as *const u8, to as usize as *mut u8);
    // SAFETY: the ranges are valid by the caller's promise. Threads and peers may use shared
    // memory at the same time, as with a device: bytes are torn then, and nothing is assumed of them.
    unsafe { std::ptr::copy(from, to, len as usize) };
}
