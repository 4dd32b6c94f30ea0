//! Blocks that decode reads from prefill: every byte, and every lease that has ended.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, engine, engine_driven, link, pool, source_byte};
use rdma_collective::engine::{Driver, Engine, EngineOptions};
use rdma_collective::kv::{BlockVerdict, KvError, LinkOptions, PlanError, Pool, PoolUse};
use rdma_core::fault::{Fault, FaultPlan, Messages, Rule};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

/// The byte that a later user of a block writes to it.
const AGAIN: u8 = 0x5a;

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(40))
}

/// A link whose source can be read, with what goes wrong at both ends.
fn connect(wire: Wire, options: &LinkOptions, faults: [Option<FaultPlan>; 2], decode: Driver) -> Pair {
    let [at_prefill, at_decode] = faults;
    let (at_prefill, at_decode) = (engine(wire, at_prefill), engine_driven(wire, at_decode, decode));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), options);
    Pair { prefill, decode, source, destination }
}

fn sound() -> Pair {
    connect(Wire::Local, &LinkOptions::default(), [None, None], Driver::Thread)
}

fn pull(pair: &Pair, request: u64, pairs: &[(u32, u32)]) {
    let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let offer = pair.prefill.offer(request, &sources, long()).unwrap();
    let received = pair.decode.pull(request, &destinations, long()).unwrap().wait().unwrap();
    assert!(received.verdicts.all_valid());
    let pulled = offer.wait().unwrap();
    assert_eq!((pulled.bytes, pulled.writes, pulled.corrupt), (received.bytes, received.writes, 0));
    assert!(sources.iter().all(|block| pair.source.held(*block).is_none()));
    assert!(destinations.iter().all(|block| pair.destination.held(*block).is_none()));
}

fn use_again(pool: &Pool, blocks: &[u32]) {
    let bytes = vec![AGAIN; pool.layout().layer_block_bytes() as usize];
    for layer in 0..SHAPE.layers {
        blocks.iter().for_each(|block| pool.write(layer, *block, 0, &bytes).unwrap());
    }
}

#[test]
fn a_pull_from_blocks_that_were_freed() {
    let pair = sound();
    let offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
    // Decode hears of no offer that was taken back before it was sent.
    thread::sleep(Duration::from_millis(50));
    offer.revoke(long()).unwrap();
    use_again(&pair.source, &[0, 1]);
    let error = pair.decode.pull(1, &[3, 4], long()).unwrap_err();
    assert!(matches!(error, KvError::LeaseExpired { request, .. } if request == 1.into()), "{error}");
    pull(&pair, 2, &[(2, 3), (5, 4)]);
    pair.assert_moved(&[(2, 3), (5, 4)]);
}

#[test]
fn a_pull_of_an_expired_lease() {
    let pair = sound();
    let error = pair.prefill.offer(1, &[0, 1], soon()).unwrap().wait().unwrap_err();
    assert!(matches!(error, KvError::LeaseExpired { request, .. } if request == 1.into()), "{error}");
    assert_eq!(pair.source.held(0), None);
    let error = pair.decode.pull(1, &[3, 4], long()).unwrap_err();
    assert!(matches!(error, KvError::LeaseExpired { request, .. } if request == 1.into()), "{error}");
    pull(&pair, 1, &[(0, 3), (1, 4)]);
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn a_pull_that_nobody_offered_for_ends_at_its_deadline_alone() {
    let pair = sound();
    let error = pair.decode.pull(1, &[3, 4], soon()).unwrap().wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::NotOffered { request, .. } if request == 1.into()), "{error}");
    assert_eq!(error.verdicts.count(BlockVerdict::Missing), 6);
    assert_eq!(pair.destination.held(3), None);
    pull(&pair, 1, &[(0, 3), (1, 4)]);
    pair.transfer(2, &[(2, 5)]);
    pair.assert_moved(&[(0, 3), (1, 4), (2, 5)]);
}

#[test]
fn other_numbers_of_blocks_and_pools_that_cannot_be_read_are_refused() {
    let pair = sound();
    let offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
    let error = pair.decode.pull(1, &[3], long()).unwrap().wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::BlockCounts { source_blocks: 2, granted: 1, .. }), "{error}");
    assert!(matches!(offer.wait(), Err(KvError::PeerRevoked { request, .. }) if request == 1.into()));
    pull(&pair, 1, &[(0, 3)]);
    let pushes_only = crate::pair::Setup::default().connect();
    assert!(matches!(pushes_only.prefill.offer(1, &[0], long()), Err(KvError::NotReadable)));
    assert!(matches!(pushes_only.decode.pull(1, &[0], long()), Err(KvError::NotReadable)));
}

#[test]
fn a_reader_that_does_not_answer_a_revocation_is_fenced_at_its_deadline() {
    let pair = connect(Wire::Local, &LinkOptions::default(), [None, None], Driver::Caller);
    let mut offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
    // An offer that was not sent yet would end at once.
    assert!(offer.poll().is_pending());
    let started = Instant::now();
    offer.revoke(soon()).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(39), "it had time to answer");
    assert_eq!(pair.source.held(0), None);
    assert!(matches!(pair.prefill.offer(1, &[0], long()), Err(KvError::LinkEnded { .. })));
}

#[test]
fn a_byte_that_is_flipped_while_it_is_read_makes_its_block_corrupt() {
    for wire in WIRES {
        let plan = FaultPlan::seeded(5).with(Rule::new(Fault::Corrupt).nth(20));
        let options = LinkOptions { checksums: true, write_bytes_max: 64, ..LinkOptions::default() };
        let pair = connect(wire, &options, [Some(plan.clone()), Some(plan)], Driver::Thread);
        let pairs: Vec<_> = (0..24).map(|block| (block, 23 - block)).collect();
        let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let _offer = pair.prefill.offer(1, &sources, long()).unwrap();
        match pair.decode.pull(1, &destinations, long()).unwrap().wait() {
            Ok(received) => pair.assert_true(&pairs, &received.verdicts),
            // A message between the ends, rather than a block.
            Err(error) => pair.assert_true(&pairs, &error.verdicts),
        }
    }
}

#[test]
fn an_offer_is_taken_back_though_nobody_has_checked_what_was_read() {
    let options = LinkOptions { checksums: true, ..LinkOptions::default() };
    let pair = connect(Wire::Local, &options, [None, None], Driver::Thread);
    let offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
    let pulling = pair.decode.pull(1, &[3, 4], long()).unwrap();
    while pulling.progress().writes == 0 || pulling.progress().writes_arrived < pulling.progress().writes {
        thread::yield_now();
    }
    // The sums come as well, and nobody looks at them.
    thread::sleep(Duration::from_millis(30));
    offer.revoke(long()).unwrap();
    use_again(&pair.source, &[0, 1]);
    match pulling.wait() {
        Ok(received) => assert!(received.verdicts.all_valid()),
        // The checksums of the block had not come yet.
        Err(error) => assert!(
            matches!(*error.cause, KvError::PeerRevoked { request, .. } if request == 1.into()),
            "{error}"
        ),
    }
    pull(&pair, 2, &[(2, 3), (5, 4)]);
}

/// A link whose devices are as patient as by default, with what goes wrong at decode.
fn patient(options: &LinkOptions, engine: &EngineOptions, at_decode: &FaultPlan) -> Pair {
    let engine = |faults| {
        let device = SoftOptions { wire: Wire::Tcp, faults, ..SoftOptions::default() };
        Engine::new(&Device::soft(device).open().unwrap(), engine.clone()).unwrap()
    };
    let (at_prefill, at_decode) = (engine(None), engine(Some(at_decode.clone())));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), options);
    Pair { prefill, decode, source, destination }
}

#[test]
fn reads_that_take_a_second_are_waited_for_when_their_offer_is_taken_back_and_the_link_goes_on() {
    let plan = FaultPlan::seeded(5);
    let pair = patient(&LinkOptions::default(), &EngineOptions::default(), &plan);
    plan.add(Rule::new(Fault::Delay(Duration::from_millis(800))).on(Messages::Replies));
    let offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
    let pulling = pair.decode.pull(1, &[3, 4], long()).unwrap();
    while pulling.progress().writes == 0 {
        thread::yield_now();
    }
    offer.revoke(long()).unwrap();
    plan.clear();
    let error = pulling.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
    pull(&pair, 2, &[(2, 3), (5, 4)]);
}

#[test]
fn a_pull_may_take_longer_than_a_peer_may_be_silent() {
    let late = Rule::new(Fault::Delay(Duration::from_millis(8))).on(Messages::Replies);
    let plan = FaultPlan::seeded(5).with(late);
    let (heartbeat, peer_timeout) = (Duration::from_millis(20), Duration::from_secs(1));
    let engine = EngineOptions { heartbeat, peer_timeout, ..EngineOptions::default() };
    let options = LinkOptions { write_bytes_max: 24, max_send_wr: 8, ..LinkOptions::default() };
    let pair = patient(&options, &engine, &plan);
    let started = Instant::now();
    let all: Vec<_> = (0..SHAPE.blocks).map(|block| (block, block)).collect();
    pull(&pair, 1, &all);
    assert!(started.elapsed() > peer_timeout, "{:?}", started.elapsed());
}

#[test]
fn a_pull_is_resumed_and_reads_what_is_missing_alone() {
    for checksums in [false, true] {
        let options = LinkOptions { checksums, ..LinkOptions::default() };
        let pair = connect(Wire::Local, &options, [None, None], Driver::Thread);
        pull(&pair, 1, &[(0, 3), (1, 4)]);
        let again = [(2, 5), (7, 3), (8, 6)];
        let (sources, destinations): (Vec<u32>, Vec<u32>) = again.iter().copied().unzip();
        let offer = pair.prefill.offer(2, &sources, long()).unwrap();
        let verdicts = pair.decode.pull(2, &destinations, long()).unwrap().wait().unwrap().verdicts;
        offer.wait().unwrap();
        let offer = pair.prefill.offer(4, &sources, long()).unwrap();
        let none = pair.decode.pull_missing(4, &verdicts, long()).unwrap().wait().unwrap();
        assert_eq!((none.bytes, offer.wait().unwrap().bytes), (0, 0));
        let verdicts = none.verdicts;
        pair.destination.write(1, 3, 0, &[AGAIN; 8]).unwrap();
        let offer = pair.prefill.offer(3, &sources, long()).unwrap();
        let received = pair.decode.pull_missing(3, &verdicts, long()).unwrap().wait().unwrap();
        let pulled = offer.wait().unwrap();
        let block_bytes = pair.destination.layout().block_bytes();
        assert!(received.verdicts.all_valid());
        assert_eq!((received.bytes, pulled.bytes), (block_bytes, block_bytes));
        pair.assert_moved(&[(2, 5), (7, 3), (8, 6), (1, 4)]);
    }
}

#[test]
fn an_offer_has_all_its_layers_from_the_beginning() {
    let pair = sound();
    let offer = pair.prefill.offer(1, &[0], long()).unwrap();
    assert!(
        matches!(offer.layer_ready(0), Err(KvError::LayerRepeated { request, layer: 0 }) if request == 1.into())
    );
    assert!(matches!(offer.layer_ready(99), Err(KvError::Plan(PlanError::Layout(_)))));
    let bytes = pair.source.layout().block_bytes();
    assert_eq!((offer.progress().bytes_arrived, offer.progress().bytes), (0, bytes));
    let received = pair.decode.pull(1, &[3], long()).unwrap().wait().unwrap();
    while pair.source.held(0).is_some() {
        thread::yield_now();
    }
    let progress = offer.progress();
    assert_eq!((progress.bytes_arrived, progress.bytes), (bytes, bytes));
    assert_eq!((progress.writes_arrived, progress.writes), (received.writes, received.writes));
    offer.wait().unwrap();
}

/// Decode drives only while it polls, and has room for few reads at a time: the first layers are there while the last
/// ones are not even asked for.
#[test]
fn pulled_layers_are_there_while_the_next_ones_are_read() {
    for (wire, checksums) in WIRES.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
        let options =
            LinkOptions { checksums, write_bytes_max: 64, max_send_wr: 16, ..LinkOptions::default() };
        let pair = connect(wire, &options, [None, None], Driver::Caller);
        let pairs: Vec<_> = (0..SHAPE.blocks).map(|block| (block, SHAPE.blocks - 1 - block)).collect();
        let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let pulling = pair.decode.pull_layers(1, &destinations, long()).unwrap();
        assert!(pulling.poll_layer(0).is_pending());
        let offer = pair.prefill.offer(1, &sources, long()).unwrap();
        for layer in 0..SHAPE.layers {
            let verdicts = loop {
                if let Poll::Ready(verdicts) = pulling.poll_layer(layer) {
                    break verdicts.unwrap();
                }
            };
            assert_eq!(verdicts, [BlockVerdict::Valid; SHAPE.blocks as usize]);
            let progress = pulling.progress();
            let all = progress.writes_arrived == progress.writes;
            assert!(checksums || all == (layer + 1 == SHAPE.layers), "{wire:?}, layer {layer}: {progress:?}");
            let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
            for (source, destination) in &pairs {
                pair.destination.read(layer, *destination, 0, &mut bytes).unwrap();
                let expected = (0..bytes.len() as u64).map(|at| source_byte(layer, *source, at));
                assert!(bytes.iter().copied().eq(expected), "{wire:?}: block {destination} of layer {layer}");
            }
        }
        assert!(pulling.wait().unwrap().verdicts.all_valid());
        offer.wait().unwrap();
        pair.assert_moved(&pairs);
    }
}

#[test]
fn pulled_layers_are_awaited_and_a_pull_that_is_given_up_keeps_those_that_were_read() {
    for wire in WIRES {
        let pair = connect(wire, &LinkOptions::default(), [None, None], Driver::Thread);
        let pulling = pair.decode.pull_layers(1, &[3, 4], long()).unwrap();
        let offer = pair.prefill.offer(1, &[0, 1], long()).unwrap();
        for layer in 0..SHAPE.layers {
            assert_eq!(block_on(pulling.layer(layer)).unwrap(), [BlockVerdict::Valid; 2]);
        }
        let verdicts = pulling.revoke(long()).unwrap();
        assert!(verdicts.all_valid(), "{verdicts:?}");
        offer.wait().unwrap();
        let none = pair.decode.pull_layers(2, &[5], long()).unwrap();
        let error = block_on(none.layer(SHAPE.layers)).unwrap_err();
        assert!(matches!(&*error.cause, KvError::Plan(PlanError::Layout(_))), "{error}");
        assert_eq!(none.revoke(long()).unwrap().count(BlockVerdict::Missing), 3);
        pair.assert_moved(&[(0, 3), (1, 4)]);
    }
}
