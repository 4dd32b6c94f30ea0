//! Transfers beside one that is given up: it alone ends, whenever the peer runs.

use std::thread;
use std::time::Duration;

use crate::common::{WIRES, long};
use crate::pair::{CANARY, Pair, SHAPE, link, pool, source_byte};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::{BlockVerdict, LinkOptions, PoolUse};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

fn after_ms(ms: u64) -> Deadline {
    Deadline::after(Duration::from_millis(ms))
}

/// Each write is late, and few are under way: all blocks take a second and more.
fn slow_options() -> LinkOptions {
    LinkOptions { write_bytes_max: 24, max_send_wr: 16, ..LinkOptions::default() }
}

/// A link whose devices are as patient as by default, over which prefill is told late of what has arrived.
fn slow_pair(wire: Wire) -> Pair {
    let late = Rule::new(Fault::Delay(Duration::from_millis(12)));
    let faults = [Some(FaultPlan::seeded(3).with(late)), None];
    let [at_prefill, at_decode] = faults.map(|faults| {
        let device = Device::soft(SoftOptions { wire, faults, ..SoftOptions::default() });
        let heartbeat = Duration::from_millis(50);
        let engine = EngineOptions { heartbeat, ..EngineOptions::default() };
        Engine::new(&device.open().unwrap(), engine).unwrap()
    });
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &slow_options());
    Pair { prefill, decode, source, destination }
}

fn but(blocks: &[u32]) -> Vec<u32> {
    (0..SHAPE.blocks).filter(|block| !blocks.contains(block)).collect()
}

#[test]
fn a_grant_is_revoked_beside_a_large_push_that_goes_on() {
    for wire in WIRES {
        let pair = slow_pair(wire);
        let large = pair.decode.grant(1, &but(&[0, 1]), long()).unwrap();
        let small = pair.decode.grant(2, &[0, 1], long()).unwrap();
        let streamed = pair.prefill.push_layers(2, &[0, 1], long()).unwrap();
        streamed.layer_ready(0).unwrap();
        while small.progress().writes == 0 {
            thread::yield_now();
        }
        let pushed = pair.prefill.push(1, &but(&[0, 1]), long()).unwrap();
        while large.progress().writes_arrived == 0 {
            thread::yield_now();
        }
        let verdicts = small.revoke(long()).unwrap();
        assert_eq!(verdicts.count(BlockVerdict::Missing), 4, "the first layer had been announced");
        let progress = large.progress();
        assert!(progress.bytes_arrived < progress.bytes, "nothing was beside it");
        assert!(large.wait().unwrap().verdicts.all_valid());
        pushed.wait().unwrap();
        streamed.wait().unwrap_err();
    }
}

#[test]
fn an_offer_is_taken_back_beside_a_large_push_that_goes_on() {
    for wire in WIRES {
        let pair = slow_pair(wire);
        let (prefill, decode) = (&pair.prefill, &pair.decode);
        let offer = prefill.offer(2, &[0, 1], long()).unwrap();
        let large = decode.grant(1, &but(&[0, 1]), long()).unwrap();
        let pushed = prefill.push(1, &but(&[0, 1]), long()).unwrap();
        while large.progress().writes_arrived == 0 {
            thread::yield_now();
        }
        offer.revoke(long()).unwrap();
        let progress = large.progress();
        assert!(progress.bytes_arrived < progress.bytes, "nothing was beside it");
        assert!(large.wait().unwrap().verdicts.all_valid());
        pushed.wait().unwrap();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Push,
    Stream,
    Pull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GiveUp {
    Decode,
    Prefill,
    DecodesDeadline,
    PrefillsDeadline,
}

/// A large push goes on whatever becomes of what is beside it.
fn assert_goes_on_beside(way: Way, wire: Wire, give_up: GiveUp) {
    let pair = slow_pair(wire);
    let (prefill, decode, blocks) = (&pair.prefill, &pair.decode, but(&[0, 1]));
    let until = |late| if give_up == late { after_ms(100) } else { long() };
    let (at_prefill, at_decode) = (until(GiveUp::PrefillsDeadline), until(GiveUp::DecodesDeadline));
    let large = decode.grant(1, &blocks, long()).unwrap();
    let pushed = prefill.push(1, &blocks, long()).unwrap();
    let what = format!("{way:?} {wire:?} {give_up:?}");
    if way == Way::Pull {
        let offer = prefill.offer(2, &[0, 1], at_prefill).unwrap();
        let pulling = decode.pull(2, &[0, 1], at_decode).unwrap();
        match give_up {
            GiveUp::Decode => drop(pulling.revoke(after_ms(300)).expect(&what)),
            GiveUp::Prefill => offer.revoke(after_ms(300)).expect(&what),
            GiveUp::DecodesDeadline => drop(pulling.wait()),
            GiveUp::PrefillsDeadline => drop(offer.wait()),
        }
    } else {
        let grant = decode.grant(2, &[0, 1], at_decode).unwrap();
        let push = match way {
            Way::Stream => prefill.push_layers(2, &[0, 1], at_prefill).unwrap(),
            _ => prefill.push(2, &[0, 1], at_prefill).unwrap(),
        };
        thread::sleep(Duration::from_millis(30));
        match give_up {
            GiveUp::Decode => drop(grant.revoke(after_ms(300)).expect(&what)),
            GiveUp::Prefill => push.revoke(after_ms(300)).expect(&what),
            GiveUp::DecodesDeadline => drop(grant.wait()),
            GiveUp::PrefillsDeadline => drop(push.wait()),
        }
    }
    assert!(large.wait().expect(&what).verdicts.all_valid());
    pushed.wait().expect(&what);
}

fn assert_each_way_of_giving_up_is_outlived(way: Way) {
    use GiveUp::{Decode, DecodesDeadline, Prefill, PrefillsDeadline};
    let cases = [Decode, Prefill, DecodesDeadline, PrefillsDeadline];
    thread::scope(|scope| {
        for (at, give_up) in cases.into_iter().enumerate() {
            let wire = WIRES[(at + way as usize) % WIRES.len()];
            scope.spawn(move || assert_goes_on_beside(way, wire, give_up));
        }
    });
}

#[test]
fn a_push_goes_on_beside_a_push_that_is_given_up() {
    assert_each_way_of_giving_up_is_outlived(Way::Push);
}

#[test]
fn a_push_goes_on_beside_a_stream_that_is_given_up() {
    assert_each_way_of_giving_up_is_outlived(Way::Stream);
}

#[test]
fn a_push_goes_on_beside_a_pull_that_is_given_up() {
    assert_each_way_of_giving_up_is_outlived(Way::Pull);
}
