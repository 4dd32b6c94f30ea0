//! Where a writer says what it touches, so that its owner can tell when it is over.
//!
//! The writer announces a registration, and then looks whether it still stands; the owner revokes a
//! registration, and then looks whether it is announced. Between the two steps each has a fence, so that at
//! least one of them sees the other: either the writer sees that it may not, or the owner sees that it has to
//! wait. A writer holds the slot for one chunk at a time. Models of it run under `cfg(loom)`.

use super::atomic::{AtomicU64, Ordering};
use super::full_fence::full_fence;

/// Serials of registrations begin at 1.
pub(super) const NO_SERIAL: u64 = 0;
/// Stands for no registration: a receive without memory is being completed.
pub(super) const NO_REGISTRATION: u64 = u64::MAX;

/// What the owner wants nobody to touch any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessScope {
    /// The registration of that serial.
    Registration(u64),
    /// Anything by way of this queue pair.
    Anything,
}

/// What a writer says that it is at; it may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) serial: u64,
    /// At the owner's addresses.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// See the module. Zeroed memory is an idle one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WriterSlot {
    /// 0, or the serial of the registration that is being touched.
    active: AtomicU64,
    /// The chunk, at the owner's addresses.
    begin: AtomicU64,
    end: AtomicU64,
}

impl WriterSlot {
    /// The writer is about to touch `begin..end` of the registration `serial`; whether it may, since it `stands`.
    /// It may until [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(
        &self,
        serial: u64,
        (begin, end): (u64, u64),
        is_current: impl FnOnce() -> bool,
    ) -> bool {
        // After what was done to the chunk before.
        self.begin.store(begin, Ordering::Release);
        self.end.store(end, Ordering::Release);
        self.active.store(serial, Ordering::Release);
        full_fence();
        let may = is_current();
        if !may {
            self.leave();
        }
        may
    }

    /// The writer touches nothing any more.
    #[inline]
    pub(super) fn leave(&self) {
        self.active.store(NO_SERIAL, Ordering::Release);
    }

    /// What the writer is at, if at anything. For the owner, after it revoked that, and then [`fence_after_revoke`]: of what has been
    /// revoked since it looked, this tells the chunk that the writer may be at still, if there is one.
    pub(super) fn active_chunk(&self) -> Option<Chunk> {
        let serial = self.active.load(Ordering::Acquire);
        let (begin, end) = (self.begin.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        // One that has gone on meanwhile is at nothing that was revoked, and the chunk may be another registration's.
        let still = self.active.load(Ordering::Relaxed) == serial;
        (serial != NO_SERIAL && still).then_some(Chunk { serial, begin, end })
    }

    /// Whether the writer touches it. For the owner, after it revoked that, and then [`fence_after_revoke`].
    pub(super) fn touches(&self, what: AccessScope) -> bool {
        let active = self.active.load(Ordering::Acquire);
        match what {
            AccessScope::Registration(serial) => active == serial,
            AccessScope::Anything => active != NO_SERIAL,
        }
    }
}

/// What the owner stored before this, to revoke a right, comes before all that it looks at afterwards.
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

    /// An owner, whose pages are given away once nobody touches them, and its writer.
    struct Model {
        slot: WriterSlot,
        /// Of the registration in place; 0 when there is none.
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
            let may = self.slot.enter(1, (0, 8), || self.standing.load(Ordering::Relaxed) == 1);
            if may {
                // A model of its own tells when anybody else has the pages at this moment.
                self.pages.with_mut(|_pages| ());
                self.slot.leave();
            }
            may
        }

        fn deregister(&self, waits: bool, what: AccessScope) {
            self.standing.store(0, Ordering::Relaxed);
            fence_after_revoke();
            // One look stands for all of the wait: what it does not see may happen in between.
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
            assert!(shared.enter(1, (1, 1), || true));
            let writer = {
                let slot = Arc::clone(&shared);
                thread::spawn(move || {
                    slot.leave();
                    slot.enter(2, (2, 2), || true)
                })
            };
            if let Some(Chunk { serial, begin, end }) = shared.active_chunk() {
                assert_eq!((begin, end), (serial, serial), "another registration's chunk");
            }
            assert!(writer.join().unwrap());
        });
    }

    /// An owner that does not wait: what its writer is at gets other pages.
    struct Replacing {
        slot: WriterSlot,
        standing: AtomicU64,
        /// The first ones, and those that take their place.
        pages: [[AtomicU64; 2]; 2],
        /// The writer has had its time. Not of the model, which knows none: what was stored before is seen by all after it.
        waited: std::sync::atomic::AtomicBool,
    }

    const WRITTEN: u64 = 7;

    impl Replacing {
        /// Writes both words by the first registration; whether that is told as done.
        fn write(&self) -> bool {
            let serial = self.standing.load(Ordering::Acquire);
            // Whoever comes later is let in to what is there then.
            if serial != 1 {
                return false;
            }
            let is_current = || self.standing.load(Ordering::Relaxed) == serial;
            if !self.slot.enter(serial, (0, 8), is_current) {
                return false;
            }
            self.pages[0].iter().for_each(|word| word.store(WRITTEN, Ordering::Relaxed));
            let waited = self.waited.load(std::sync::atomic::Ordering::Relaxed);
            let told =
                if waited { self.standing.fetch_add(0, Ordering::Relaxed) == serial } else { is_current() };
            self.slot.leave();
            told
        }

        /// Which pages are there from then on. An owner has to enter the registration again first.
        fn replace(&self, reenters: bool) -> usize {
            if reenters {
                // Nobody has the pages of this one.
                self.standing.store(PAUSED_SERIAL, Ordering::Relaxed);
                fence_after_revoke();
            }
            if self.slot.active_chunk().is_none() {
                return 0;
            }
            self.waited.store(true, std::sync::atomic::Ordering::Relaxed);
            for (old, new) in self.pages[0].iter().zip(&self.pages[1]) {
                // Which reads the last that was written.
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
            // By then the owner has said that nothing lands any more.
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
