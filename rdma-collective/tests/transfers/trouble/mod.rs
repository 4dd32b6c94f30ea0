//! A single transfer of either direction with trouble at both ends; the outcome is compared with every byte.

mod case;
mod ends;
mod transfer;

use std::time::Duration;

use rdma_collective::engine::Driver;
use rdma_collective::kv::KvError;
use rdma_collective::kv::layout::Shape;
use rdma_collective::kv::{BlockVerdict, LinkOptions, Pool, PoolUse, Verdicts};
use rdma_core::fault::{FaultCounts, FaultPlan};

use crate::common::long;
use crate::pair::{CANARY, Pair, SHAPE, engine_driven, link, pool, source_byte};
pub use case::{Case, GiveUp, Trouble, Way, cases};
pub use ends::{Got, Sent};
use ends::{Receiving, Sending};
use transfer::Transfer;

/// The outcome of a case.
#[derive(Debug)]
pub struct Outcome {
    pub sent: Sent,
    pub got: Got,
    /// The faults that struck at prefill and at decode.
    pub counts: [FaultCounts; 2],
}

fn connect(case: &Case, plans: [Option<FaultPlan>; 2]) -> Pair {
    let shape = Shape { order: case.order, ..SHAPE };
    let purpose = if case.way == Way::Pull { PoolUse::SourceToPull } else { PoolUse::Source };
    let [at_prefill, at_decode] = plans.map(|plan| engine_driven(case.wire, plan, Driver::Thread));
    let source = pool(&at_prefill, shape, purpose, source_byte);
    let destination = pool(&at_decode, shape, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions {
        write_bytes_max: case.write_bytes_max,
        max_send_wr: case.max_send_wr,
        checksums: case.checksums,
        linger: Duration::from_millis(50),
        ..LinkOptions::default()
    };
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
    Pair { prefill, decode, source, destination }
}

fn each_block(pool: &Pool) -> impl Iterator<Item = (u32, u32)> + use<> {
    let shape = *pool.layout().shape();
    (0..shape.layers).flat_map(move |layer| (0..shape.blocks).map(move |block| (layer, block)))
}

fn block(pool: &Pool, layer: u32, block: u32) -> Vec<u8> {
    let mut bytes = vec![0; pool.layout().layer_block_bytes() as usize];
    pool.read(layer, block, 0, &mut bytes).unwrap();
    bytes
}

/// Writes to blocks, which have to be free.
fn use_again(pool: &Pool, blocks: impl Iterator<Item = u32>, byte: u8) {
    let bytes = vec![byte; pool.layout().layer_block_bytes() as usize];
    for block in blocks {
        assert_eq!(pool.held(block), None, "block {block} is still held");
        (0..pool.layout().shape().layers).for_each(|layer| pool.write(layer, block, 0, &bytes).unwrap());
    }
}

fn source_block(pool: &Pool, layer: u32, block: u32) -> Vec<u8> {
    (0..pool.layout().layer_block_bytes()).map(|at| source_byte(layer, block, at)).collect()
}

/// Asserts that every verdict agrees with the bytes, and that blocks that were not granted are unchanged.
fn assert_true(pair: &Pair, case: &Case, verdicts: Option<&Verdicts>) {
    for (layer, destination) in each_block(&pair.destination) {
        let found = block(&pair.destination, layer, destination);
        let place = case.pairs.iter().position(|(_, granted)| *granted == destination);
        let Some((place, verdicts)) = place.zip(verdicts) else {
            let untouched = found.iter().all(|byte| *byte == CANARY);
            assert!(untouched, "block {destination} in layer {layer} was not granted, and was written");
            continue;
        };
        let whole = found == source_block(&pair.source, layer, case.pairs[place].0);
        match verdicts.get(layer, place).unwrap() {
            BlockVerdict::Valid => assert!(whole, "block {destination} in layer {layer} is not valid"),
            BlockVerdict::Corrupt => assert!(!whole, "block {destination} in layer {layer} is not corrupt"),
            BlockVerdict::Missing => {}
        }
    }
}

/// Runs a case, and moves what it left afterwards: over the same link when that has to go on.
pub fn run(case: &Case) -> Outcome {
    let plans = [case.seed, !case.seed].map(FaultPlan::seeded);
    let pair = connect(case, plans.clone().map(Some));
    for (plan, troubles) in plans.iter().zip(&case.troubles) {
        troubles.iter().for_each(|trouble| trouble.add_to(plan));
    }
    let (sent, got) = Transfer::begin(&pair, case).run();
    let counts = plans.each_ref().map(FaultPlan::counts);
    plans.iter().for_each(FaultPlan::clear);
    match (&sent, &got) {
        (Sent::Well(bytes, corrupt), Got::Well(received)) => {
            assert_eq!(
                (*bytes, *corrupt as usize),
                (received.bytes, received.verdicts.count(BlockVerdict::Corrupt))
            );
        }
        (Sent::Well(..), Got::GivenUp(verdicts)) => assert_eq!(verdicts.count(BlockVerdict::Missing), 0),
        (Sent::Well(..), got) => panic!("sent, and {got:?}"),
        _ => {}
    }
    for error in [sent.error(), got.error()].into_iter().flatten() {
        let late = matches!(
            error,
            KvError::DeadlineExceeded { .. }
                | KvError::GrantExpired { .. }
                | KvError::LeaseExpired { .. }
                | KvError::NotOffered { .. }
        );
        assert!(!late || matches!(case.give_up, GiveUp::Deadline { .. }), "before any deadline: {error}");
    }
    let survived = case.troubles.iter().flatten().all(|trouble| trouble.is_survived());
    if survived && case.give_up == GiveUp::Never {
        let well =
            matches!((&sent, &got), (Sent::Well(..), Got::Well(received)) if received.verdicts.all_valid());
        assert!(well, "{sent:?} and {got:?}");
    }
    if survived && !matches!(case.give_up, GiveUp::Deadline { .. }) {
        resume(&pair, case, (got.verdicts(), !case.is_used_again()));
    } else {
        let again = connect(case, [None, None]);
        for (layer, at) in each_block(&again.destination) {
            again.destination.write(layer, at, 0, &block(&pair.destination, layer, at)).unwrap();
        }
        drop(pair);
        resume(&again, case, (got.verdicts(), false));
    }
    Outcome { sent, got, counts }
}

/// Moves what is not valid, and nothing else where the verdicts hold still; all is there then.
fn resume(pair: &Pair, case: &Case, (verdicts, hold): (Option<&Verdicts>, bool)) {
    let (sources, destinations): (Vec<u32>, Vec<u32>) = case.pairs.iter().copied().unzip();
    for &source in &sources {
        for layer in 0..SHAPE.layers {
            pair.source.write(layer, source, 0, &source_block(&pair.source, layer, source)).unwrap();
        }
    }
    let sending = match case.way {
        Way::Push => pair.prefill.push(2, &sources, long()).unwrap(),
        Way::Stream => pair.prefill.push_layers(2, &sources, long()).unwrap(),
        Way::Pull => pair.prefill.offer(2, &sources, long()).unwrap(),
    };
    if case.way == Way::Stream {
        (0..SHAPE.layers).for_each(|layer| sending.layer_ready(layer).unwrap());
    }
    let received = match verdicts {
        Some(verdicts) if case.way == Way::Pull => {
            pair.decode.pull_missing(2, verdicts, long()).unwrap().wait().unwrap()
        }
        Some(verdicts) => pair.decode.grant_missing(2, verdicts, long()).unwrap().wait().unwrap(),
        None if case.way == Way::Pull => pair.decode.pull(2, &destinations, long()).unwrap().wait().unwrap(),
        None => pair.decode.grant(2, &destinations, long()).unwrap().wait().unwrap(),
    };
    assert!(received.verdicts.all_valid());
    let parts = verdicts
        .filter(|_| hold)
        .map_or(SHAPE.layers as usize * sources.len(), |verdicts| verdicts.invalid().count());
    let bytes = pair.destination.layout().layer_block_bytes() * parts as u64;
    assert_eq!(received.bytes, bytes);
    assert_eq!(sending.wait().unwrap().bytes, bytes);
    pair.assert_moved(&case.pairs);
}
