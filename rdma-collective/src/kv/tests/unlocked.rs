//! Calls that never wait for the engine's lock, because a thread that copies may hold it.

use std::sync::mpsc;

use super::*;

#[test]
fn giving_up_and_dropping_return_while_another_thread_has_the_engine() {
    let (_prefill, decode) = pair();
    let engine = decode.shared().engine.clone();
    let grants = [0, 1, 2].map(|block| decode.grant(block.into(), &[block], soon()).unwrap());
    let (told, all_returned) = mpsc::channel();
    let core = engine.lock();
    thread::spawn(move || {
        let [dropped, by_token, revoked] = grants;
        drop(dropped);
        by_token.revoke_token().revoke(soon());
        let revoking = revoked.start_revoke(soon());
        told.send((by_token, revoking)).unwrap();
    });
    let kept = all_returned.recv_timeout(Duration::from_secs(20)).expect("a call waits for the engine");
    assert!((0..3).all(|block| decode.pool().held(block).is_some()), "the peer may write them yet");
    drop(core);
    assert!(engine.next_deadline().is_some_and(|due| due <= Instant::now()), "the next drive gives them up");
    engine.drive(Instant::now(), 64).unwrap();
    assert_eq!(decode.shared().lock().revoking(), 3);
    drop(kept);
}
