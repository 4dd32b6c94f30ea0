//! Calls that never wait for the engine's lock, because a thread that copies may hold it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::*;

/// Runs `call` in another thread while this one has the engine of `end`.
fn returns_meanwhile<T: Send + 'static>(engine: &Engine, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, returned) = mpsc::channel();
    let core = engine.lock();
    thread::spawn(move || told.send(call()));
    let result = returned.recv_timeout(Duration::from_secs(20)).expect("the call waits for the engine");
    drop(core);
    result
}

#[test]
fn transfers_begin_and_are_polled_while_another_thread_has_the_engine() {
    let (prefill, decode) = pair();
    let [at_prefill, at_decode] = [&prefill.shared().engine, &decode.shared().engine].map(Engine::clone);
    let (decode, grant, pull) = returns_meanwhile(&at_decode, || {
        let (mut grant, pull) =
            (decode.grant(1, &[0], soon()).unwrap(), decode.pull(2, &[1], soon()).unwrap());
        assert!(grant.poll().is_pending() && grant.poll_layer(0).is_pending());
        (decode, grant, pull)
    });
    let (prefill, push, offer) = returns_meanwhile(&at_prefill, || {
        let push = prefill.push_layers(1, &[0], soon()).unwrap();
        (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
        let offer = prefill.offer(2, &[1], soon()).unwrap();
        (prefill, push, offer)
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            push.wait().unwrap();
            offer.wait().unwrap();
        });
        assert!(grant.wait().unwrap().verdicts.all_valid());
        assert!(pull.wait().unwrap().verdicts.all_valid());
    });
    drop((prefill, decode));
}

#[test]
fn giving_up_and_dropping_return_while_another_thread_has_the_engine() {
    let (_prefill, decode) = pair();
    let engine = decode.shared().engine.clone();
    let grants = [0, 1, 2].map(|block| decode.grant(block, &[block], soon()).unwrap());
    let kept = returns_meanwhile(&engine, move || {
        let [dropped, by_token, revoked] = grants;
        drop(dropped);
        by_token.revoke_token().revoke(soon());
        (revoked.start_revoke(soon()), by_token)
    });
    assert!((0..3).all(|block| decode.pool().held(block).is_some()), "the peer may write them yet");
    assert!(engine.next_deadline().is_some_and(|due| due <= Instant::now()), "the next drive gives them up");
    engine.drive(Instant::now(), 64).unwrap();
    assert_eq!(decode.shared().lock().revoking(), 3);
    drop(kept);
}

/// A thread that has the engine finds requests that are not posted yet: whoever copies lets others in between.
#[test]
fn a_thread_that_copies_releases_the_engine_between_slices() {
    let attention = Attention::Grouped { kv_heads: 8, head_dim: 128 };
    let shape = Shape { blocks: 32, block_tokens: 128, attention, ..SHAPE };
    let (prefill, decode) = pair_of(shape, LinkOptions { checksums: false, ..LinkOptions::default() });
    let blocks: Vec<u32> = (0..shape.blocks).collect();
    let mut found = 0;
    for request in 0..50 {
        let push = prefill.push(request, &blocks, soon()).unwrap();
        let grant = decode.grant(request, &blocks, soon()).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| grant.wait().unwrap());
            scope.spawn(|| {
                push.wait().unwrap();
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let mut core = prefill.shared().engine.lock();
                let shared = prefill.shared().lock();
                found += usize::from(shared.link.lane(&mut core).is_some_and(|lane| lane.queued_bytes() > 0));
            }
        });
        if found > 0 {
            return;
        }
    }
    panic!("nobody is let in");
}

/// The caller of an engine without a thread computes for longer than a wait goes on beyond the deadline.
#[test]
fn giving_up_keeps_the_link_though_nobody_drives_until_long_after_the_deadline() {
    let (prefill, decode) = pair();
    let grant = decode.grant(1, &[0], soon()).unwrap();
    let push = prefill.push_layers(1, &[0], soon()).unwrap();
    let offer = prefill.offer(2, &[1], soon()).unwrap();
    let brief = || Deadline::after(Duration::from_millis(20));
    let (grant, offer) = (grant.start_revoke(brief()), offer.start_revoke(brief()));
    let drive = |engine: &Engine| (0..20).for_each(|_| _ = engine.drive(Instant::now(), 64).unwrap());
    // Each end answers, and neither hears the other before its deadline has long passed.
    drive(&decode.shared().engine);
    drive(&prefill.shared().engine);
    thread::sleep(Duration::from_millis(2300));
    assert_eq!(grant.wait().unwrap().count(crate::kv::BlockVerdict::Valid), 0);
    thread::scope(|scope| {
        scope.spawn(|| offer.wait().unwrap());
        let error = push.wait().unwrap_err();
        assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
    });
    assert_goes_on(&prefill, &decode, 3);
}
