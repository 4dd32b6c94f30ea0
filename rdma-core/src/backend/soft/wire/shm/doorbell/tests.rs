//! Model of an owner that goes to sleep while a completion arrives.

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
