//! Whether the owner sleeps until a completion, and wants to be woken.
//!
//! The owner says that it will sleep, and then looks for completions once more; the writer leaves a completion,
//! and then looks whether the owner sleeps. Each has a fence in between, so that at least one of them sees the
//! other. A model of it runs under `cfg(loom)`.

use super::atomic::{AtomicU32, Ordering};
use super::full_fence::full_fence;

/// See the module. Zeroed memory is one of an owner that is awake.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Doorbell {
    armed: AtomicU32,
}

impl Doorbell {
    /// The owner will sleep, unless it finds something now.
    pub(super) fn arm(&self) {
        self.armed.store(1, Ordering::Relaxed);
        full_fence();
    }

    /// Whether it said so, and was not woken since.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// The writer left something; whether it has to wake the owner. Once, for every time that the owner armed.
    #[inline]
    pub(super) fn rings(&self) -> bool {
        full_fence();
        self.armed.load(Ordering::Relaxed) != 0 && self.armed.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_no_owner_sleeps_over_a_completion() {
        loom::model(|| {
            let shared = Arc::new((Doorbell { armed: AtomicU32::new(0) }, AtomicU64::new(0)));
            let writer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut rung = 0;
                    for sequence in 1..=2 {
                        shared.1.store(sequence, Ordering::Release);
                        rung += u32::from(shared.0.rings());
                    }
                    rung
                })
            };
            shared.0.arm();
            let seen = shared.1.load(Ordering::Acquire);
            let rung = writer.join().unwrap();
            assert!(seen == 2 || rung == 1, "the owner sleeps over a completion");
            assert!(rung <= 1, "the owner is woken more often than it fell asleep");
        });
    }
}
