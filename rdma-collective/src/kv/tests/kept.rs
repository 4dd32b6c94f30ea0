//! Deadlines that are kept alive, by a clock of the test: no drive reads another one.

use super::*;
use crate::kv::{Grant, Request};

/// Far less than three heartbeats of 500 ms, which is the shortest period that counts.
const SHORT: Duration = Duration::from_millis(300);

/// A link, the time at which it was set up, and the cap on its transfers.
struct Kept {
    prefill: Prefill,
    decode: Decode,
    start: Instant,
}

impl Kept {
    fn new(cap: Duration) -> Self {
        let options = LinkOptions { keep_alive: Some(cap), ..LinkOptions::default() };
        let (prefill, decode) = pair_of(SHAPE, options);
        Self { prefill, decode, start: Instant::now() }
    }

    /// Drives decode, and prefill if it lives, up to a time in milliseconds.
    fn run(&self, lives: bool, span: std::ops::Range<u64>) {
        for at in span.step_by(50) {
            let now = self.start + Duration::from_millis(at);
            if lives {
                self.prefill.shared().engine.drive(now, 64).unwrap();
            }
            self.decode.shared().engine.drive(now, 64).unwrap();
        }
    }

    fn grant(&self, request: impl Into<Request>) -> Grant {
        self.decode.grant(request, &[1], Deadline::after(SHORT)).unwrap()
    }

    fn is_granted(&self) -> bool {
        self.decode.pool().held(1).is_some()
    }
}

#[test]
fn every_transfer_of_a_peer_that_is_heard_lives_on_up_to_the_cap() {
    let kept = Kept::new(Duration::from_secs(5));
    let (short, source) = (Deadline::after(SHORT), kept.prefill.shared());
    let _grant = kept.grant(1);
    let _pull = kept.decode.pull(2, &[2], short).unwrap();
    let _push = kept.prefill.push(3, &[1], short).unwrap();
    let _offer = kept.prefill.offer(4, &[2], short).unwrap();
    let held = || {
        let at_prefill = [1, 2].map(|block| source.lock().held(block).is_some());
        [1, 2].map(|block| kept.decode.pool().held(block).is_some()) == [true; 2] && at_prefill == [true; 2]
    };
    kept.run(true, 0..4800);
    assert!(held(), "a transfer has ended though its peer is heard");
    kept.run(true, 4800..6000);
    let free =
        |block: &u32| source.lock().held(*block).is_none() && kept.decode.pool().held(*block).is_none();
    assert!([1, 2].iter().all(free), "a transfer lives beyond the cap");
    assert!(source.lock().link.ended.is_none(), "the link goes on");
}

#[test]
fn what_a_silent_peer_was_granted_is_free_soon_after_three_heartbeats() {
    let kept = Kept::new(Duration::from_secs(60));
    let grant = kept.grant(1);
    kept.run(true, 0..2000);
    assert!(kept.is_granted());
    // The peer was last heard at 1.5 s or later. Three heartbeats later it is asked to stop, which it does not.
    kept.run(false, 2000..2900);
    assert!(kept.is_granted());
    kept.run(false, 2900..4200);
    assert!(!kept.is_granted(), "the peer is silent");
    assert!(matches!(*grant.wait().unwrap_err().cause, KvError::GrantExpired { .. }));
}

#[test]
fn a_transfer_that_is_kept_alive_can_be_revoked_and_a_request_may_keep_none() {
    let kept = Kept::new(Duration::from_secs(60));
    let grant = kept.grant(1);
    kept.run(true, 0..2000);
    assert!(kept.is_granted());
    drop(grant.start_revoke(soon()));
    kept.run(true, 2000..2500);
    assert!(!kept.is_granted(), "it was revoked");
    // A deadline by the clock of this test.
    let deadline = Deadline::at(kept.start + Duration::from_millis(2800));
    let request = Request::new(2).keep_alive(Duration::ZERO);
    let _grant = kept.decode.grant(request, &[1], deadline).unwrap();
    kept.run(true, 2500..2750);
    assert!(kept.is_granted());
    kept.run(true, 2750..3500);
    assert!(!kept.is_granted(), "nothing keeps it alive");
}
