//! The driver leaves the sockets to threads that poll, unless one of them is about to sleep: who of the two comes second
//! sees the other, without a lock. Sleeping and waking are `driver`'s.
//!
//! Both change `napping` in one step, so that the second of them reads what the first has written, and with it all that
//! was before: no stronger order is needed. A model of it runs under `cfg(loom)`.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
pub(super) struct Naps {
    /// Counts threads that were about to sleep until a completion.
    arms: AtomicU64,
    /// Whether the driver leaves the sockets to others.
    napping: AtomicBool,
}

impl Naps {
    pub(super) fn new() -> Self {
        Self { arms: AtomicU64::new(0), napping: AtomicBool::new(false) }
    }

    /// A thread is about to sleep; whether the driver naps, and has to be woken.
    pub(super) fn drain_mailbox(&self) -> bool {
        self.arms.fetch_add(1, Ordering::Relaxed);
        self.napping.swap(false, Ordering::AcqRel)
    }

    /// Threads that were about to sleep, so far.
    pub(super) fn arms(&self) -> u64 {
        self.arms.load(Ordering::Relaxed)
    }

    /// The driver is about to nap; whether it may, since no thread went to sleep since it has counted `arms`.
    pub(super) fn begin(&self, arms: u64) -> bool {
        self.napping.swap(true, Ordering::AcqRel);
        self.arms() == arms
    }

    /// It naps no more.
    pub(super) fn end(&self) {
        self.napping.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Each of `threads` goes to sleep once, while the driver naps for the last of `naps` times and goes on napping.
    fn model(threads: usize, naps: usize) {
        loom::model(move || {
            let shared = Arc::new(Naps::new());
            let sleepers: Vec<_> = (0..threads)
                .map(|_| {
                    let naps = Arc::clone(&shared);
                    thread::spawn(move || naps.drain_mailbox())
                })
                .collect();
            let mut arms = 0;
            for _ in 1..naps {
                arms = shared.arms();
                shared.begin(arms);
                shared.end();
            }
            let naps_on = shared.begin(arms);
            let woken = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap());
            let woken = woken.fold(false, |any, one| any | one);
            let all_asleep_before = arms == threads as u64;
            assert!(
                !naps_on || woken || all_asleep_before,
                "a thread sleeps, and the driver leaves the sockets to it"
            );
        });
    }

    #[test]
    fn loom_no_thread_goes_to_sleep_unseen() {
        model(1, 1);
        model(2, 1);
        model(1, 2);
    }
}
