//! The wire inside a process: the peer's responder runs at once, and the bytes are copied once.

#![expect(unsafe_code, reason = "copies between the memory of two requests")]

use std::time::Instant;

use super::super::engine::effect::Buffer;
use super::super::engine::message::{Reply, Request};
use super::super::engine::responder::Verdict;
use super::super::fabric::State;
use super::super::fault::{Injected, Message};
use super::QpRef;
use crate::memory::copy_shared;

impl State {
    /// Carries a request of `from` to its peer, and the reply back. A peer that does not exist does not answer.
    pub(in super::super) fn carry(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Buffer>,
    ) {
        let Some(to) = self.peer_of(from) else { return };
        let message = Message::Request(*request);
        let data = payload.map(|payload| payload.addr);
        if let Ok(injected) = self.admit(now, Some(from), to, &message, data) {
            self.hand_over(now, (from, to), request, payload, injected);
            self.overtaken(now, to, &message);
        }
    }

    /// Delivers a request to its responder.
    pub(in super::super) fn hand_over(
        &mut self,
        now: Instant,
        (from, to): (QpRef, QpRef),
        request: &Request,
        payload: Option<Buffer>,
        injected: Injected,
    ) {
        let Some(verdict) = self.settle(to, request, payload, injected) else { return };
        match verdict {
            Verdict::Silence | Verdict::Place { .. } => {}
            Verdict::Serve { reply, addr, .. } => self.carry_back(now, from, &reply, Some(addr)),
            Verdict::Answer { reply, receive, refused } => {
                self.receive(to, receive);
                self.carry_back(now, from, &reply, None);
                if let Some(refusal) = refused {
                    self.refuse(now, to, refusal.event());
                }
            }
        }
    }

    /// Asks the responder of `to` about a request, and copies its payload to where the responder says. `None` when
    /// there is no responder, or when the payload is not what the request says.
    pub(in super::super) fn settle(
        &mut self,
        to: QpRef,
        request: &Request,
        payload: Option<Buffer>,
        injected: Injected,
    ) -> Option<Verdict> {
        let verdict = self.ask(to, request, injected)?;
        let Verdict::Place { addr, len, serial } = verdict else { return Some(verdict) };
        let source = payload.filter(|source| source.len == len)?;
        // SAFETY: the poster keeps the payload until the completion, which comes later, or it is a copy that the caller
        // keeps. The target was checked against a registration or a receive in this same hold of the lock, and stays
        // until a deregistration, a completion or a destruction, because all of these need the lock.
        unsafe { copy(source.addr, addr, len) };
        // SAFETY: the bytes were written just now, and the lock was held since, so they are still ours to write.
        unsafe { injected.corrupt(addr, len) };
        self.ask_placed(to, serial)
    }

    /// Carries a reply, with its data at `data`, to the requester of `to`.
    pub(super) fn carry_back(&mut self, now: Instant, to: QpRef, reply: &Reply, data: Option<u64>) {
        let message = Message::Reply(*reply);
        if let Ok(injected) = self.admit(now, None, to, &message, data) {
            self.hand_back(now, to, reply, data, injected);
            self.overtaken(now, to, &message);
        }
    }

    /// Delivers a reply to its requester.
    pub(in super::super) fn hand_back(
        &mut self,
        now: Instant,
        to: QpRef,
        reply: &Reply,
        data: Option<u64>,
        injected: Injected,
    ) {
        let Some(qp) = self.qps.get_mut(to) else { return };
        let landing = qp.requester.handle_reply(now, reply);
        if let (Some(Buffer { addr, len, serial }), Some(data)) = (landing, data) {
            // A read from a peer's process was copied to its target as it was carried out.
            if data != addr {
                // SAFETY: the data was checked against a registration in this same hold of the lock, or is a copy
                // that the state owns. The target is that of a read that has not completed, so its poster keeps it.
                unsafe { copy(data, addr, len) };
            }
            // SAFETY: the bytes were written just now, and the lock was held since, so they are still ours to write.
            unsafe { injected.corrupt(addr, len) };
            qp.requester.landed(now, serial);
        }
    }
}

/// Copies `len` bytes between addresses that may overlap.
///
/// # Safety
///
/// Both ranges are mapped, the target writable; no reference to either exists.
pub(in super::super) unsafe fn copy(from: u64, to: u64, len: u32) {
    let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: both ranges are valid by the caller's promise. Threads and peers may access shared memory
    // meanwhile, so `copy_shared` copies as a device would, without references.
    unsafe { copy_shared(from, to, len as usize) };
}
