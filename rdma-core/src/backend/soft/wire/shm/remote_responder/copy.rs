//! Moving the bytes of a request, chunk by chunk, and telling the peer what came of its receive.
//!
//! The last chunk and what is told of it are one hold of the slot: a queue pair whose slot is idle after its end
//! has been told of every receive that was filled.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use std::ptr::NonNull;

use super::super::atomic::Ordering;
use super::super::key_table::FoundKey;
use super::super::layout::{OF_WRITE, WITH_IMM};
use super::super::writer_slot::{NO_REGISTRATION, NO_SERIAL};
use super::check::takes_receive;
use super::{LocalBuffer, RemoteResponder};
use crate::CompletionStatus;
use crate::backend::soft::engine::message::{Request, RequestOp};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::{Injected, Planted, byte_of, flip};
use crate::backend::soft::wire::HOLD_BYTES_MAX;
use crate::memory::{CacheHint, copy_shared_hinted, prefetch, prefetch_for_write};

/// Bytes that are moved in one hold of the slot: as long as a deregistration may have to wait.
pub(super) const CHUNK: u32 = HOLD_BYTES_MAX as u32;

/// How far a message has come that is carried out in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CopyProgress {
    /// The registration that it goes to. In another one it begins anew.
    serial: u64,
    done: u32,
}

impl CopyProgress {
    pub(crate) fn is_after(self, before: Self) -> bool {
        self.done > before.done
    }
}

/// How much of a message is carried out at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyBudget {
    /// How far it has come.
    pub(crate) resume: CopyProgress,
    /// Bytes after which the rest is left for another time, at the end of a chunk.
    pub(crate) max_bytes: u32,
}

impl CopyBudget {
    pub(crate) const WHOLE: Self =
        Self { resume: CopyProgress { serial: NO_SERIAL, done: 0 }, max_bytes: u32::MAX };
}

/// Where a message is here, and where the peer has it, each at the address of its own process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoints {
    pub(super) local: LocalBuffer,
    pub(super) remote: u64,
}

/// What came of moving the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyResult {
    /// They are all there, and what follows is done; the peer sleeps over its completion if the bell is to `ring`.
    All { ring: bool },
    /// So many as were to be moved at once.
    Partial(CopyProgress),
    /// The registration is gone; some may be there.
    Revoked,
    /// The queue pair answers no more; some may be there.
    Closed,
    /// It is not known where to.
    Unmapped,
}

impl RemoteResponder {
    /// Puts the payload into the memory of the peer, and completes the request.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `pair.local.addr` are readable for the whole call.
    #[inline(always)]
    pub(super) unsafe fn write_payload(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        pair: Endpoints,
        injected: Injected,
    ) -> CopyResult {
        let Some(target) = self.locate(found, pair.remote, request.len, true) else {
            return CopyResult::Unmapped;
        };
        let source = std::ptr::with_exposed_provenance::<u8>(pair.local.addr as usize);
        let hint = pair.local.hint.or(CacheHint::of_total(request.len as usize));
        if hint == CacheHint::Cached {
            prefetch_ends(target, request.len);
        }
        let copy = |done: u32, count: u32| {
            // SAFETY: the chunk is within the source, readable by the caller's promise, and within the target,
            // which was found in a mapping that is kept. Who uses either at the same time does so as with a device.
            unsafe {
                let (from, to) = (source.add(done as usize), target.as_ptr().add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.copy_chunks(found, (pair.remote, request.len), pair.local.budget, copy, || {
            if let Injected::Corrupt(chance) = injected {
                let target = target.as_ptr().expose_provenance() as u64;
                // SAFETY: inside of what was just written, in the same hold of the slot.
                unsafe { flip(byte_of(target, request.len, chance)) };
            }
            self.complete(request)
        })
    }

    /// Gets what a read asks for out of the memory of the peer.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `local.addr` are writable for the whole call, and no reference to them exists.
    pub(super) unsafe fn read_payload(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        local: LocalBuffer,
    ) -> CopyResult {
        let remote = request.remote_addr;
        let Some(source) = self.locate(found, remote, request.len, false) else {
            return CopyResult::Unmapped;
        };
        let target = std::ptr::with_exposed_provenance_mut::<u8>(local.addr as usize);
        let hint = local.hint.or(CacheHint::of_total(request.len as usize));
        let copy = |done: u32, count: u32| {
            // SAFETY: as in `fill`, with the roles exchanged.
            unsafe {
                let (from, to) = (source.as_ptr().add(done as usize), target.add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.copy_chunks(found, (remote, request.len), local.budget, copy, || false)
    }

    /// Where that range of a registration is mapped here.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        found: &FoundKey<'_>,
        remote: u64,
        len: u32,
        written: bool,
    ) -> Option<NonNull<u8>> {
        let export = &found.export;
        let offset = remote.wrapping_sub(export.registered.addr).checked_add(export.offset)?;
        self.memories.locate((export.memory, export.version), offset, len, written)
    }

    /// Has `copy` move (from, count) after (from, count), and then `finish` say whether to ring the bell.
    #[inline(always)]
    pub(super) fn copy_chunks(
        &self,
        found: &FoundKey<'_>,
        (remote, len): (u64, u32),
        budget: CopyBudget,
        copy: impl Fn(u32, u32),
        finish: impl FnOnce() -> bool,
    ) -> CopyResult {
        let (slot, serial) = (&self.header.writer.slot, found.export.registered.serial);
        let goes_on = budget.resume.serial == serial && budget.resume.done < len;
        let mut done = if goes_on { budget.resume.done } else { 0 };
        let stop_at = done.saturating_add(budget.max_bytes);
        loop {
            let count = (len - done).min(CHUNK);
            let begin = remote.wrapping_add(done.into());
            let range = (begin, begin.wrapping_add(count.into()));
            let mut open = true;
            let may = slot.enter(serial, range, || {
                open = self.is_open();
                open && found.is_current()
            });
            if !may {
                return if open { CopyResult::Revoked } else { CopyResult::Closed };
            }
            copy(done, count);
            done += count;
            if done == len {
                // Of pages that were replaced meanwhile the peer may see nothing of this.
                if !found.is_current() {
                    slot.leave();
                    return CopyResult::Revoked;
                }
                let ring = finish();
                slot.leave();
                return CopyResult::All { ring };
            }
            slot.leave();
            if done >= stop_at {
                return CopyResult::Partial(CopyProgress { serial, done });
            }
        }
    }

    /// Does what a request without memory comes to. One that `takes_receive` holds the slot meanwhile.
    pub(super) fn finish_without_memory(
        &self,
        takes_receive: bool,
        finish: impl FnOnce() -> bool,
    ) -> CopyResult {
        let slot = &self.header.writer.slot;
        if !takes_receive {
            return CopyResult::All { ring: finish() };
        }
        if !slot.enter(NO_REGISTRATION, (0, 0), || self.is_open()) {
            return CopyResult::Closed;
        }
        let ring = finish();
        slot.leave();
        CopyResult::All { ring }
    }

    /// Counts a request as carried out, and tells of the receive it takes, if there is one. Whether to ring the bell.
    #[inline(always)]
    pub(super) fn complete(&self, request: &Request) -> bool {
        self.expect_next();
        if !takes_receive(request) {
            return false;
        }
        let wrong = u32::from(self.peer.planted == Some(Planted::WrongImmediate));
        let of_write = if request.op == RequestOp::Write { OF_WRITE } else { 0 };
        let flags = of_write | if request.imm.is_some() { WITH_IMM } else { 0 };
        let imm = request.imm.map_or(0, |imm| imm ^ wrong);
        self.push_completion(CompletionStatus::SUCCESS, request.len, imm, flags)
    }

    /// Tells that a receive failed. Whether to ring the bell.
    pub(super) fn fail_receive(&self, status: CompletionStatus) -> bool {
        self.push_completion(status, 0, 0, 0)
    }

    /// Counts a request as carried out.
    #[inline]
    pub(super) fn expect_next(&self) {
        let expected = &self.header.writer.expected;
        expected.store(sequence::add(expected.load(Ordering::Relaxed), 1), Ordering::Relaxed);
    }

    fn push_completion(&self, status: CompletionStatus, byte_len: u32, imm: u32, flags: u32) -> bool {
        let consumed = &self.header.writer.consumed;
        let taken = consumed.load(Ordering::Relaxed);
        let next = taken.wrapping_add(1);
        let receive = self.ring.ring_entry(taken);
        if receive.sequence.load(Ordering::Relaxed) != next {
            // A planted fault lets a request pass without a receive.
            return false;
        }
        consumed.store(next, Ordering::Relaxed);
        let entry = self.completions.ring_entry(taken);
        entry.status.store(status.0, Ordering::Relaxed);
        entry.byte_len.store(byte_len, Ordering::Relaxed);
        entry.imm.store(imm, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
        entry.sequence.store(next, Ordering::Release);
        // It is in the owner's cache, and the next request should not have to wait for it.
        prefetch(std::ptr::from_ref(self.ring.ring_entry(next)).addr() as u64);
        self.header.bell.doorbell.rings()
    }
}

/// Has the first and the last line of a target come from the caches of a peer that waits for a message by looking there:
/// that takes as long as all else that is done for a short one, and begins only after the fence otherwise.
#[inline]
pub(super) fn prefetch_ends(target: NonNull<u8>, len: u32) {
    let begin = target.addr().get() as u64;
    prefetch_for_write(begin);
    prefetch_for_write(begin + u64::from(len) - 1);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::super::super::key_table::PAUSED_VERSION;
    use super::super::super::tests::{BASE, Rig, terms};
    use super::super::super::writer_slot::AccessScope;
    use super::*;

    const BYTES: u32 = 3 * CHUNK;

    /// Moves three chunks, doing `meanwhile` once in that one; what came of it, how many chunks were moved, and whether
    /// it was finished.
    fn interrupted(rig: &mut Rig, chunk: u32, meanwhile: impl Fn(&mut Rig)) -> (CopyResult, u32, bool) {
        let (chunks, finished) = (Cell::new(0), Cell::new(false));
        // The port looks at the shared words alone, so it can stand beside its owner.
        let (responder, writer) = (rig.another_responder(), rig.mailbox.writer());
        let owner = Cell::new(Some(rig));
        let found = responder.keys.find(1).unwrap();
        let serial = found.export.registered.serial;
        let moved = responder.copy_chunks(
            &found,
            (BASE, BYTES),
            CopyBudget::WHOLE,
            |_, _| {
                chunks.set(chunks.get() + 1);
                if chunks.get() == chunk
                    && let Some(rig) = owner.take()
                {
                    assert!(writer.touches(AccessScope::Registration(serial)));
                    assert!(writer.touches(AccessScope::Anything));
                    assert!(!writer.touches(AccessScope::Registration(serial + 1)));
                    meanwhile(rig);
                }
            },
            || {
                assert!(writer.touches(AccessScope::Anything), "what is told comes after the slot");
                finished.set(true);
                false
            },
        );
        (moved, chunks.get(), finished.get())
    }

    #[test]
    fn a_message_ends_with_the_chunk_in_which_its_right_did() {
        let mut rig = Rig::new(BYTES as usize, terms(1, None));
        rig.expose(1, 1);
        assert_eq!(interrupted(&mut rig, 2, |_| ()), (CopyResult::All { ring: false }, 3, true));
        assert_eq!(interrupted(&mut rig, 2, |rig| rig.keys.remove(1, 1)), (CopyResult::Revoked, 2, false));
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
        rig.expose(1, 2);
        assert_eq!(interrupted(&mut rig, 2, |rig| rig.mailbox.close()), (CopyResult::Closed, 2, false));
        assert!(rig.mailbox.is_settled());
    }

    #[test]
    fn a_message_into_pages_that_were_replaced_is_not_told_as_done() {
        let mut rig = Rig::new(BYTES as usize, terms(1, None));
        rig.expose(1, 1);
        assert_eq!(interrupted(&mut rig, 3, |rig| rig.reexpose(1, 2, 1)), (CopyResult::Revoked, 3, false));
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
        // What was filled before its queue pair's end is told.
        rig.reexpose(1, 3, 0);
        assert!(interrupted(&mut rig, 3, |rig| rig.mailbox.close()).2);
    }

    #[test]
    fn a_message_in_parts_goes_on_where_it_was_and_in_another_registration_begins_anew() {
        let mut rig = Rig::new(BYTES as usize, terms(1, None));
        rig.expose(1, 1);
        let part = |rig: &mut Rig, begun| {
            let (responder, moved) = (rig.another_responder(), Cell::new((BYTES, 0)));
            let found = responder.keys.find(1).unwrap();
            let copy = |from: u32, count| {
                moved.update(|(first, end): (u32, u32)| (first.min(from), end.max(from + count)))
            };
            let came = responder.copy_chunks(
                &found,
                (BASE, BYTES),
                CopyBudget { resume: begun, max_bytes: CHUNK + 1 },
                copy,
                || true,
            );
            assert!(!rig.mailbox.writer().touches(AccessScope::Anything), "others wait for it in between");
            (came, moved.get())
        };
        let (came, moved) = part(&mut rig, CopyProgress::default());
        let CopyResult::Partial(begun) = came else { panic!("{came:?}") };
        assert_eq!((begun, moved), (CopyProgress { serial: 1, done: 2 * CHUNK }, (0, 2 * CHUNK)));
        assert_eq!(part(&mut rig, begun), (CopyResult::All { ring: true }, (2 * CHUNK, BYTES)));
        rig.keys.remove(1, 1);
        rig.expose(1, 2);
        assert_eq!(
            part(&mut rig, begun),
            (CopyResult::Partial(CopyProgress { serial: 2, ..begun }), (0, 2 * CHUNK))
        );
    }

    #[test]
    fn what_was_found_before_pages_are_replaced_is_not_touched() {
        let mut rig = Rig::new(1, terms(1, None));
        rig.expose(1, 1);
        let responder = rig.another_responder();
        let found = responder.keys.find(1).unwrap();
        let touch = || {
            responder.copy_chunks(
                &found,
                (BASE, 1),
                CopyBudget::WHOLE,
                |_, _| panic!("touched"),
                || panic!("told"),
            )
        };
        rig.reexpose(1, 2, PAUSED_VERSION);
        assert_eq!((touch(), responder.pages_were_replaced(&found)), (CopyResult::Revoked, true));
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
        rig.keys.remove(1, 2);
        assert_eq!((touch(), responder.pages_were_replaced(&found)), (CopyResult::Revoked, false));
    }

    #[test]
    fn what_holds_no_memory_holds_the_slot() {
        let mut rig = Rig::new(1, terms(1, None));
        let responder = rig.another_responder();
        let moved = responder.finish_without_memory(true, || {
            rig.mailbox.close();
            assert!(!rig.mailbox.is_settled(), "the end does not wait for a receive that is being told");
            true
        });
        assert_eq!(moved, CopyResult::All { ring: true });
        assert!(rig.mailbox.is_settled());
        assert_eq!(responder.finish_without_memory(true, || panic!("after the end")), CopyResult::Closed);
    }
}
