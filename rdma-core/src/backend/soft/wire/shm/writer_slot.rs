//! The slot in which a writer announces the bytes that it is about to touch, so that the owner can tell when a
//! revocation is complete.
//!
//! The writer announces a registration and then checks that it is current. The owner revokes a registration and then
//! checks whether it is announced. Each has a full fence between its two steps (Dekker's algorithm), so that at least
//! one of them sees the other: either the writer sees that it may not go on, or the owner sees that it must wait. A
//! writer holds the slot for one chunk at a time, so that the owner never waits for a whole message. Models of this
//! run under `cfg(loom)`.
//!
//! Serials make announcements unambiguous (no ABA): no serial is ever used twice on a device, so an announced serial
//! cannot mean a later registration of the same key.

use std::ops::Range;

use super::atomic::{AtomicU64, Ordering};
use super::full_fence::full_fence;

/// Serial of "no registration": an idle slot. Serials of registrations begin at 1.
pub(super) const NO_SERIAL: u64 = 0;
/// Announces that the writer completes a receive without touching memory. The slot must be held even then, because an
/// idle slot promises the owner that no further completion arrives.
pub(super) const NO_REGISTRATION: u64 = u64::MAX;

/// The accesses that an owner revokes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessScope {
    /// Accesses to the registration of that serial.
    Registration(u64),
    /// All accesses through this queue pair, including completions without memory.
    Anything,
}

/// The bytes that a writer announces. The writer may lie, so the owner checks them before it uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) serial: u64,
    /// First byte, at the owner's address; `end` is one past the last.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// A writer's announcement, in shared memory. Zeroed memory is an idle slot.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WriterSlot {
    /// [`NO_SERIAL`], or the serial of the registration that is being touched.
    active: AtomicU64,
    /// The announced chunk, at the owner's addresses. Valid only together with `active`.
    begin: AtomicU64,
    end: AtomicU64,
}

impl WriterSlot {
    /// Announces `chunk` of the registration `serial`, and returns whether the writer may touch it because the
    /// registration `is_current`. The right lasts until [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&self, serial: u64, chunk: Range<u64>, is_current: impl FnOnce() -> bool) -> bool {
        // These stores are Release, so that an owner that reads this chunk also sees the `leave` of the chunk before:
        // then `active_chunk` cannot combine the old serial with the new chunk.
        self.begin.store(chunk.start, Ordering::Release);
        self.end.store(chunk.end, Ordering::Release);
        self.active.store(serial, Ordering::Release);
        // The announcement must be visible before the registration is checked. Release is not enough: a processor may
        // still load `is_current` before its store of `active` leaves the store buffer, and then both sides would
        // miss each other.
        full_fence();
        let may = is_current();
        if !may {
            self.leave();
        }
        may
    }

    /// Announces that the writer touches nothing any more. Release, so that an owner that sees the idle slot also
    /// sees every byte and completion that was stored before.
    #[inline]
    pub(super) fn leave(&self) {
        self.active.store(NO_SERIAL, Ordering::Release);
    }

    /// Returns the chunk that the writer announces, if any. For the owner, after it has revoked a right and called
    /// [`fence_after_revoke`]. A writer whose chunk this does not return has left it, or [`enter`](Self::enter)
    /// turned it away.
    pub(super) fn active_chunk(&self) -> Option<Chunk> {
        let serial = self.active.load(Ordering::Acquire);
        let (begin, end) = (self.begin.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        // The writer went on if `active` has changed; the chunk may then belong to another registration. A writer
        // that went on touches nothing revoked, so `None` is right.
        let still = self.active.load(Ordering::Relaxed) == serial;
        (serial != NO_SERIAL && still).then_some(Chunk { serial, begin, end })
    }

    /// Whether the writer announces one of those accesses. For the owner, after it has revoked them and called
    /// [`fence_after_revoke`].
    pub(super) fn touches(&self, what: AccessScope) -> bool {
        let active = self.active.load(Ordering::Acquire);
        match what {
            AccessScope::Registration(serial) => active == serial,
            AccessScope::Anything => active != NO_SERIAL,
        }
    }
}

/// Orders an owner's revocation (a store before this call) before its reads of the slots (after this call). The
/// counterpart of the fence in [`WriterSlot::enter`]; without either, both sides can miss each other.
#[inline]
pub(super) fn fence_after_revoke() {
    full_fence();
}

#[cfg(all(test, loom))]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    /// An owner that gives its pages away once no writer touches them, and its writer.
    struct Model {
        slot: WriterSlot,
        /// Serial of the current registration; 0 when there is none.
        standing: AtomicU64,
        pages: UnsafeCell<u64>,
    }

    fn slot() -> WriterSlot {
        WriterSlot { active: AtomicU64::new(0), begin: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    impl Model {
        fn new() -> Self {
            Self { slot: slot(), standing: AtomicU64::new(1), pages: UnsafeCell::new(0) }
        }

        fn write(&self) -> bool {
            let may = self.slot.enter(1, 0..8, || self.standing.load(Ordering::Relaxed) == 1);
            if may {
                // Loom's `UnsafeCell` fails the model if the owner has the pages at this moment.
                self.pages.with_mut(|_pages| ());
                self.slot.leave();
            }
            may
        }

        fn deregister(&self, waits: bool, what: AccessScope) {
            self.standing.store(0, Ordering::Relaxed);
            fence_after_revoke();
            // A single look stands for the whole wait: loom explores every moment at which it may happen.
            if !waits || !self.slot.touches(what) {
                self.pages.with_mut(|_pages| ());
            }
        }
    }

    fn model(chunks: usize, waits: bool, what: AccessScope) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(4);
        builder.check(move || {
            let shared = Arc::new(Model::new());
            let writer = {
                let model = Arc::clone(&shared);
                thread::spawn(move || (0..chunks).filter(|_| model.write()).count())
            };
            shared.deregister(waits, what);
            writer.join().unwrap();
            assert!(!shared.write(), "a registration that is gone was written");
        });
    }

    #[test]
    fn loom_pages_are_given_away_only_once_no_writer_touches_them() {
        for what in [AccessScope::Registration(1), AccessScope::Anything] {
            model(1, true, what);
            model(2, true, what);
        }
    }

    #[test]
    #[should_panic = "Causality violation"]
    fn loom_an_owner_that_does_not_wait_is_caught() {
        model(1, false, AccessScope::Anything);
    }

    #[test]
    fn loom_a_chunk_is_of_the_registration_that_it_is_told_with() {
        loom::model(|| {
            let shared = Arc::new(slot());
            assert!(shared.enter(1, 1..1, || true));
            let writer = {
                let slot = Arc::clone(&shared);
                thread::spawn(move || {
                    slot.leave();
                    slot.enter(2, 2..2, || true)
                })
            };
            if let Some(Chunk { serial, begin, end }) = shared.active_chunk() {
                assert_eq!((begin, end), (serial, serial), "another registration's chunk");
            }
            assert!(writer.join().unwrap());
        });
    }

    /// An owner that does not wait, and replaces the pages that its writer announces.
    struct Replacing {
        slot: WriterSlot,
        standing: AtomicU64,
        /// The first pages, and their replacement.
        pages: [[AtomicU64; 2]; 2],
        /// The writer has had its 250 ms. A plain atomic of `std`, because loom has no time: in reality every store
        /// made before is visible after such a wait.
        waited: std::sync::atomic::AtomicBool,
    }

    const WRITTEN: u64 = 7;

    impl Replacing {
        /// Writes both words under the first registration; returns whether the writer would report them as written.
        fn write(&self) -> bool {
            let serial = self.standing.load(Ordering::Acquire);
            // A writer that comes later is admitted to the pages that are current by then.
            if serial != 1 {
                return false;
            }
            let is_current = || self.standing.load(Ordering::Relaxed) == serial;
            if !self.slot.enter(serial, 0..8, is_current) {
                return false;
            }
            self.pages[0].iter().for_each(|word| word.store(WRITTEN, Ordering::Relaxed));
            let waited = self.waited.load(std::sync::atomic::Ordering::Relaxed);
            let told =
                if waited { self.standing.fetch_add(0, Ordering::Relaxed) == serial } else { is_current() };
            self.slot.leave();
            told
        }

        /// Returns the index of the pages that are current afterwards. A correct owner renews the registration first.
        fn replace(&self, reenters: bool) -> usize {
            if reenters {
                // The serial of paused pages, which no writer has mapped.
                self.standing.store(PAUSED_SERIAL, Ordering::Relaxed);
                fence_after_revoke();
            }
            if self.slot.active_chunk().is_none() {
                return 0;
            }
            self.waited.store(true, std::sync::atomic::Ordering::Relaxed);
            for (old, new) in self.pages[0].iter().zip(&self.pages[1]) {
                // A read-modify-write reads the last value that was written, which a plain load may not.
                new.store(old.fetch_add(0, Ordering::Relaxed), Ordering::Relaxed);
            }
            1
        }
    }

    const PAUSED_SERIAL: u64 = 99;

    fn model_of_replacement(reenters: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(4);
        builder.check(move || {
            let pages = || [AtomicU64::new(0), AtomicU64::new(0)];
            let shared = Arc::new(Replacing {
                slot: slot(),
                standing: AtomicU64::new(1),
                pages: [pages(), pages()],
                waited: std::sync::atomic::AtomicBool::new(false),
            });
            let writer = {
                let model = Arc::clone(&shared);
                thread::spawn(move || model.write())
            };
            let now = shared.replace(reenters);
            // The owner has promised by now that no further byte lands.
            let seen = shared.pages[now].each_ref().map(|word| word.fetch_add(0, Ordering::Relaxed));
            let told = writer.join().unwrap();
            let last = shared.pages[now].each_ref().map(|word| word.load(Ordering::Relaxed));
            assert_eq!(seen, last, "wrong pages: a word landed late");
            assert!(!told || last == [WRITTEN; 2], "wrong pages: what was told is not there");
        });
    }

    #[test]
    fn loom_pages_that_were_replaced_take_nothing_late_and_lose_nothing_that_is_told() {
        model_of_replacement(true);
    }

    #[test]
    #[should_panic = "wrong pages"]
    fn loom_an_owner_that_replaces_pages_and_keeps_the_registration_is_caught() {
        model_of_replacement(false);
    }
}
