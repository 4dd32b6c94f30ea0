//! Models of a writer and an owner: deregistration, and pages that are replaced.

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
