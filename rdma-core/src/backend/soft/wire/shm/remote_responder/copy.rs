//! Moving the bytes of a request, chunk by chunk, and telling the peer what came of its receive.
//!
//! The last chunk and what is told of it are one hold of the slot: a queue pair whose slot is idle after its end
//! has been told of every receive that was filled.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use std::ptr::NonNull;

use super::super::atomic::Ordering;
use super::super::key_table::Found;
use super::super::layout::{OF_WRITE, WITH_IMM};
use super::super::writer_slot::{NO_REGISTRATION, NONE};
use super::check::takes_receive;
use super::{Local, RemoteResponder};
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
    pub(crate) begun: CopyProgress,
    /// Bytes after which the rest is left for another time, at the end of a chunk.
    pub(crate) most: u32,
}

impl CopyBudget {
    pub(crate) const WHOLE: Self = Self { begun: CopyProgress { serial: NONE, done: 0 }, most: u32::MAX };
}

/// Where a message is here, and where the peer has it, each at the address of its own process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) local: Local,
    pub(super) remote: u64,
}

/// What came of moving the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// They are all there, and what follows is done; the peer sleeps over its completion if the bell is to `ring`.
    All { ring: bool },
    /// So many as were to be moved at once.
    Part(CopyProgress),
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
    pub(super) unsafe fn fill(
        &self,
        found: &Found<'_>,
        request: &Request,
        pair: Pair,
        injected: Injected,
    ) -> Moved {
        let Some(target) = self.locate(found, pair.remote, request.len, true) else { return Moved::Unmapped };
        let source = std::ptr::with_exposed_provenance::<u8>(pair.local.addr as usize);
        let hint = pair.local.hint.or(CacheHint::of_total(request.len as usize));
        if hint == CacheHint::Cached {
            claim_ends(target, request.len);
        }
        let copy = |done: u32, count: u32| {
            // SAFETY: the chunk is within the source, readable by the caller's promise, and within the target,
            // which was found in a mapping that is kept. Who uses either at the same time does so as with a device.
            unsafe {
                let (from, to) = (source.add(done as usize), target.as_ptr().add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.move_chunks(found, (pair.remote, request.len), pair.local.pace, copy, || {
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
    pub(super) unsafe fn fetch(&self, found: &Found<'_>, request: &Request, local: Local) -> Moved {
        let remote = request.remote_addr;
        let Some(source) = self.locate(found, remote, request.len, false) else { return Moved::Unmapped };
        let target = std::ptr::with_exposed_provenance_mut::<u8>(local.addr as usize);
        let hint = local.hint.or(CacheHint::of_total(request.len as usize));
        let copy = |done: u32, count: u32| {
            // SAFETY: as in `fill`, with the roles exchanged.
            unsafe {
                let (from, to) = (source.as_ptr().add(done as usize), target.add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.move_chunks(found, (remote, request.len), local.pace, copy, || false)
    }

    /// Where that range of a registration is mapped here.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        found: &Found<'_>,
        remote: u64,
        len: u32,
        written: bool,
    ) -> Option<NonNull<u8>> {
        let exposed = &found.exposed;
        let offset = remote.wrapping_sub(exposed.registered.addr).checked_add(exposed.offset)?;
        self.memories.locate((exposed.memory, exposed.version), offset, len, written)
    }

    /// Has `copy` move (from, count) after (from, count), and then `finish` say whether to ring the bell.
    #[inline(always)]
    pub(super) fn move_chunks(
        &self,
        found: &Found<'_>,
        (remote, len): (u64, u32),
        pace: CopyBudget,
        copy: impl Fn(u32, u32),
        finish: impl FnOnce() -> bool,
    ) -> Moved {
        let (slot, serial) = (&self.header.writer.slot, found.exposed.registered.serial);
        let goes_on = pace.begun.serial == serial && pace.begun.done < len;
        let mut done = if goes_on { pace.begun.done } else { 0 };
        let enough = done.saturating_add(pace.most);
        loop {
            let count = (len - done).min(CHUNK);
            let begin = remote.wrapping_add(done.into());
            let range = (begin, begin.wrapping_add(count.into()));
            let mut open = true;
            let may = slot.enter(serial, range, || {
                open = self.is_open();
                open && found.stands()
            });
            if !may {
                return if open { Moved::Revoked } else { Moved::Closed };
            }
            copy(done, count);
            done += count;
            if done == len {
                // Of pages that were replaced meanwhile the peer may see nothing of this.
                if !found.stands() {
                    slot.leave();
                    return Moved::Revoked;
                }
                let ring = finish();
                slot.leave();
                return Moved::All { ring };
            }
            slot.leave();
            if done >= enough {
                return Moved::Part(CopyProgress { serial, done });
            }
        }
    }

    /// Does what a request without memory comes to. One that `takes_receive` holds the slot meanwhile.
    pub(super) fn without_memory(&self, takes_receive: bool, finish: impl FnOnce() -> bool) -> Moved {
        let slot = &self.header.writer.slot;
        if !takes_receive {
            return Moved::All { ring: finish() };
        }
        if !slot.enter(NO_REGISTRATION, (0, 0), || self.is_open()) {
            return Moved::Closed;
        }
        let ring = finish();
        slot.leave();
        Moved::All { ring }
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
        self.tell(CompletionStatus::SUCCESS, request.len, imm, flags)
    }

    /// Tells that a receive failed. Whether to ring the bell.
    pub(super) fn spoil_receive(&self, status: CompletionStatus) -> bool {
        self.tell(status, 0, 0, 0)
    }

    /// Counts a request as carried out.
    #[inline]
    pub(super) fn expect_next(&self) {
        let expected = &self.header.writer.expected;
        expected.store(sequence::add(expected.load(Ordering::Relaxed), 1), Ordering::Relaxed);
    }

    fn tell(&self, status: CompletionStatus, byte_len: u32, imm: u32, flags: u32) -> bool {
        let consumed = &self.header.writer.consumed;
        let taken = consumed.load(Ordering::Relaxed);
        let next = taken.wrapping_add(1);
        let receive = self.ring.of_ring(taken);
        if receive.sequence.load(Ordering::Relaxed) != next {
            // A planted fault lets a request pass without a receive.
            return false;
        }
        consumed.store(next, Ordering::Relaxed);
        let entry = self.completions.of_ring(taken);
        entry.status.store(status.0, Ordering::Relaxed);
        entry.byte_len.store(byte_len, Ordering::Relaxed);
        entry.imm.store(imm, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
        entry.sequence.store(next, Ordering::Release);
        // It is in the owner's cache, and the next request should not have to wait for it.
        prefetch(std::ptr::from_ref(self.ring.of_ring(next)).addr() as u64);
        self.header.bell.doorbell.rings()
    }
}

/// Has the first and the last line of a target come from the caches of a peer that waits for a message by looking there:
/// that takes as long as all else that is done for a short one, and begins only after the fence otherwise.
#[inline]
pub(super) fn claim_ends(target: NonNull<u8>, len: u32) {
    let begin = target.addr().get() as u64;
    prefetch_for_write(begin);
    prefetch_for_write(begin + u64::from(len) - 1);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::super::super::key_table::PAUSED;
    use super::super::super::tests::{BASE, Rig, terms};
    use super::super::super::writer_slot::AccessScope;
    use super::*;

    const BYTES: u32 = 3 * CHUNK;

    /// Moves three chunks, doing `meanwhile` once in that one; what came of it, how many chunks were moved, and whether
    /// it was finished.
    fn interrupted(rig: &mut Rig, chunk: u32, meanwhile: impl Fn(&mut Rig)) -> (Moved, u32, bool) {
        let (chunks, finished) = (Cell::new(0), Cell::new(false));
        // The port looks at the shared words alone, so it can stand beside its owner.
        let (port, writer) = (rig.another_port(), rig.mailbox.writer());
        let owner = Cell::new(Some(rig));
        let found = port.keys.find(1).unwrap();
        let serial = found.exposed.registered.serial;
        let moved = port.move_chunks(
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
        assert_eq!(interrupted(&mut rig, 2, |_| ()), (Moved::All { ring: false }, 3, true));
        assert_eq!(interrupted(&mut rig, 2, |rig| rig.keys.remove(1, 1)), (Moved::Revoked, 2, false));
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
        rig.expose(1, 2);
        assert_eq!(interrupted(&mut rig, 2, |rig| rig.mailbox.close()), (Moved::Closed, 2, false));
        assert!(rig.mailbox.is_settled());
    }

    #[test]
    fn a_message_into_pages_that_were_replaced_is_not_told_as_done() {
        let mut rig = Rig::new(BYTES as usize, terms(1, None));
        rig.expose(1, 1);
        assert_eq!(interrupted(&mut rig, 3, |rig| rig.reexpose(1, 2, 1)), (Moved::Revoked, 3, false));
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
            let (port, moved) = (rig.another_port(), Cell::new((BYTES, 0)));
            let found = port.keys.find(1).unwrap();
            let copy = |from: u32, count| {
                moved.update(|(first, end): (u32, u32)| (first.min(from), end.max(from + count)))
            };
            let came =
                port.move_chunks(&found, (BASE, BYTES), CopyBudget { begun, most: CHUNK + 1 }, copy, || true);
            assert!(!rig.mailbox.writer().touches(AccessScope::Anything), "others wait for it in between");
            (came, moved.get())
        };
        let (came, moved) = part(&mut rig, CopyProgress::default());
        let Moved::Part(begun) = came else { panic!("{came:?}") };
        assert_eq!((begun, moved), (CopyProgress { serial: 1, done: 2 * CHUNK }, (0, 2 * CHUNK)));
        assert_eq!(part(&mut rig, begun), (Moved::All { ring: true }, (2 * CHUNK, BYTES)));
        rig.keys.remove(1, 1);
        rig.expose(1, 2);
        assert_eq!(part(&mut rig, begun), (Moved::Part(CopyProgress { serial: 2, ..begun }), (0, 2 * CHUNK)));
    }

    #[test]
    fn what_was_found_before_pages_are_replaced_is_not_touched() {
        let mut rig = Rig::new(1, terms(1, None));
        rig.expose(1, 1);
        let port = rig.another_port();
        let found = port.keys.find(1).unwrap();
        let touch =
            || port.move_chunks(&found, (BASE, 1), CopyBudget::WHOLE, |_, _| panic!("touched"), || panic!("told"));
        rig.reexpose(1, 2, PAUSED);
        assert_eq!((touch(), port.has_moved(&found)), (Moved::Revoked, true));
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
        rig.keys.remove(1, 2);
        assert_eq!((touch(), port.has_moved(&found)), (Moved::Revoked, false));
    }

    #[test]
    fn what_holds_no_memory_holds_the_slot() {
        let mut rig = Rig::new(1, terms(1, None));
        let port = rig.another_port();
        let moved = port.without_memory(true, || {
            rig.mailbox.close();
            assert!(!rig.mailbox.is_settled(), "the end does not wait for a receive that is being told");
            true
        });
        assert_eq!(moved, Moved::All { ring: true });
        assert!(rig.mailbox.is_settled());
        assert_eq!(port.without_memory(true, || panic!("after the end")), Moved::Closed);
    }
}
