//! Model of the driver and a thread that polls: none goes to sleep while the other counts on it.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// Runs `threads` threads that each go to sleep once, while the driver naps `naps` times and stays in the last nap.
fn model(threads: usize, naps: usize) {
    loom::model(move || {
        let shared = Arc::new(Naps::new());
        let sleepers: Vec<_> = (0..threads)
            .map(|_| {
                let naps = Arc::clone(&shared);
                thread::spawn(move || naps.announce_sleep())
            })
            .collect();
        let mut sleeps = 0;
        for _ in 1..naps {
            sleeps = shared.sleeps();
            shared.begin(sleeps);
            shared.end();
        }
        let naps_on = shared.begin(sleeps);
        let woken = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap());
        let woken = woken.fold(false, |any, one| any | one);
        let all_asleep_before = sleeps == threads as u64;
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
