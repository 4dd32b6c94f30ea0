//! Where a writer says what it touches, so that its owner can tell when it is over.
//!
//! The writer announces a registration, and then looks whether it still stands; the owner revokes a
//! registration, and then looks whether it is announced. Between the two steps each has a fence, so that at
//! least one of them sees the other: either the writer sees that it may not, or the owner sees that it has to
//! wait. A writer holds the slot for one chunk at a time. Models of it run under `cfg(loom)`.

use super::atomic::{AtomicU64, Ordering, fence};

/// Serials of registrations begin at 1.
const NONE: u64 = 0;
/// Stands for no registration: a receive without memory is being completed.
pub(super) const NO_REGISTRATION: u64 = u64::MAX;

/// What the owner wants nobody to touch any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touching {
    /// The registration of that serial.
    Registration(u64),
    /// Anything by way of this queue pair.
    Anything,
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
    pub(super) fn enter(&self, serial: u64, (begin, end): (u64, u64), stands: impl FnOnce() -> bool) -> bool {
        self.begin.store(begin, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.active.store(serial, Ordering::Release);
        fence(Ordering::SeqCst);
        let may = stands();
        if !may {
            self.leave();
        }
        may
    }

    /// The writer touches nothing any more.
    #[inline]
    pub(super) fn leave(&self) {
        self.active.store(NONE, Ordering::Release);
    }

    /// Whether the writer touches it. For the owner, after it revoked that, and then [`revoked`].
    pub(super) fn touches(&self, what: Touching) -> bool {
        let active = self.active.load(Ordering::Acquire);
        match what {
            Touching::Registration(serial) => active == serial,
            Touching::Anything => active != NONE,
        }
    }
}

/// What the owner stored before this, to revoke a right, comes before all that it looks at afterwards.
#[inline]
pub(super) fn revoked() {
    fence(Ordering::SeqCst);
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

    impl Model {
        fn new() -> Self {
            let slot =
                WriterSlot { active: AtomicU64::new(0), begin: AtomicU64::new(0), end: AtomicU64::new(0) };
            Self { slot, standing: AtomicU64::new(1), pages: UnsafeCell::new(0) }
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

        fn deregister(&self, waits: bool, what: Touching) {
            self.standing.store(0, Ordering::Relaxed);
            revoked();
            // One look stands for all of the wait: what it does not see may happen in between.
            if !waits || !self.slot.touches(what) {
                self.pages.with_mut(|_pages| ());
            }
        }
    }

    fn model(chunks: usize, waits: bool, what: Touching) {
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
        for what in [Touching::Registration(1), Touching::Anything] {
            model(1, true, what);
            model(2, true, what);
        }
    }

    #[test]
    #[should_panic = "Causality violation"]
    fn loom_an_owner_that_does_not_wait_is_caught() {
        model(1, false, Touching::Anything);
    }
}
