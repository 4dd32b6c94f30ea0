//! The way of nearly all small messages: what [`check`](super::check) and [`place`](super::place) do of a write or send of
//! which nothing is unusual.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use super::super::atomic::Ordering;
use super::super::key_table::FoundKey;
use super::RemoteResponder;
use super::copy::{CHUNK, prefetch_ends};
use crate::Access;
use crate::backend::soft::engine::message::{Request, RequestOp};
use crate::memory::{CacheHint, copy_shared_hinted};

impl RemoteResponder {
    /// Carries out a small write or send, whose payload is at `local`, if nothing about it is unusual; whether to ring the bell
    /// then. Else it is `None`, nothing was told, and [`execute`](Self::execute) says what becomes of it: that this agrees with
    /// it is tested, step by step.
    ///
    /// It becomes a part of the caller. Nearly all of what a small message takes is here.
    ///
    /// # Safety
    ///
    /// `request.len` bytes at `local` are readable for the whole call.
    #[inline(always)]
    pub(crate) unsafe fn try_execute_small(&self, request: &Request, local: u64) -> Option<bool> {
        let writer = &self.header.writer;
        let in_order = writer.expected.load(Ordering::Relaxed) == request.psn;
        if !in_order || !self.is_open() || self.is_refused() || request.len == 0 || request.len > CHUNK {
            return None;
        }
        let (key, remote, needs) = match request.op {
            RequestOp::Send => {
                let recv = self.next_receive().filter(|recv| request.len <= recv.len)?;
                (recv.lkey, recv.addr, Access::LOCAL_WRITE)
            }
            RequestOp::Write => {
                let is_ready = request.imm.is_none() || self.next_receive().is_some();
                if !is_ready || !self.peer.access.contains(Access::REMOTE_WRITE) {
                    return None;
                }
                (request.rkey, request.remote_addr, Access::REMOTE_WRITE)
            }
            RequestOp::Read => return None,
        };
        let found = self.keys.find(key)?;
        found.export.registered.check(self.peer.domain, remote, request.len, needs).ok()?;
        // SAFETY: the caller's promise.
        unsafe { self.write_small(&found, request, (local, remote)) }
    }

    /// Puts a payload of at most a chunk there, from `local` to `remote`, and completes the request; whether to ring the bell.
    /// `None` when the right to do so is gone: some may be there, and nothing was told.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `local` are readable for the whole call.
    #[inline(always)]
    unsafe fn write_small(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        (local, remote): (u64, u64),
    ) -> Option<bool> {
        let target = self.locate(found, remote, request.len, true)?;
        prefetch_ends(target, request.len);
        let writer = &self.header.writer;
        let range = (remote, remote.wrapping_add(request.len.into()));
        let is_current = || self.is_open() && found.is_current();
        if !writer.slot.enter(found.export.registered.serial, range, is_current) {
            return None;
        }
        let source = std::ptr::with_exposed_provenance::<u8>(local as usize);
        // SAFETY: readable by the caller's promise; and found in a mapping that is kept, as in `fill`.
        unsafe { copy_shared_hinted(source, target.as_ptr(), request.len as usize, CacheHint::Cached) };
        // Of pages that were replaced meanwhile the peer may see nothing of this.
        let ring = found.is_current().then(|| {
            writer.awaiting.store(0, Ordering::Relaxed);
            self.complete(request)
        });
        writer.slot.leave();
        ring
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::super::tests::{BASE, Rig, execute, terms, try_execute_small};
    use super::super::{Executed, Outcome};
    use super::*;
    use crate::backend::soft::engine::message::{Nak, Reply, ReplyKind};
    use crate::backend::soft::engine::sequence;
    use crate::backend::soft::fault::Injected;

    #[test]
    fn what_was_told_to_wait_and_then_came_at_once_is_waited_for_no_more() {
        let mut rig = Rig::new(8, terms(1, None));
        rig.expose(1, 1);
        let send = rig.next(RequestOp::Send, 0, 0, 8);
        assert!(try_execute_small(&mut rig.responder, &send, &mut [7; 8]).is_none(), "there is no receive");
        let executed = execute(&mut rig.responder, &send, &mut [7; 8], Injected::Deliver);
        assert!(matches!(executed.outcome, Outcome::Reply(Reply { kind: ReplyKind::Rnr { .. }, .. })));
        rig.post(1, BASE, 8, 1);
        assert!(try_execute_small(&mut rig.responder, &send, &mut [7; 8]).is_some());
        // One that is missing is asked for once a wait: this is a new one.
        let missing = rig.next(RequestOp::Write, 1, BASE, 8).psn;
        let beyond = Request { psn: sequence::add(missing, 1), ..send };
        let Executed { outcome, .. } = execute(&mut rig.responder, &beyond, &mut [7; 8], Injected::Deliver);
        let kind = ReplyKind::Nak(Nak::Sequence);
        assert_eq!(outcome, Outcome::Reply(Reply { psn: missing, kind, len: 0 }));
    }
}
