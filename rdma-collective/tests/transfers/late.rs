//! Deadlines that pass in the middle of a transfer: no byte lands in a block, or is read from one, that was used again.

use std::thread;
use std::time::Duration;

use crate::common::WIRES;
use crate::pair::{CANARY, Pair, SHAPE, Setup, source_byte};
use rdma_collective::kv::{LinkOptions, Pool};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{Deadline, Wire};

/// The byte that a later user of a block writes to it.
const AGAIN: u8 = 0x5a;
/// Long beside the delays of what may be under way.
const AFTERWARDS: Duration = Duration::from_millis(60);

/// A link over which small writes come late and out of step.
fn slow(wire: Wire, seed: u64) -> Pair {
    let plan = || {
        let late = Rule::new(Fault::Delay(Duration::from_millis(3))).with_probability(0.2);
        Some(FaultPlan::seeded(seed).with(late))
    };
    let options = LinkOptions { write_bytes_max: 32, max_send_wr: 16, ..LinkOptions::default() };
    Setup { wire, options, faults: [plan(), plan()], ..Setup::default() }.connect()
}

fn blocks() -> Vec<u32> {
    (0..SHAPE.blocks).collect()
}

fn use_again(pool: &Pool) {
    let bytes = vec![AGAIN; pool.layout().layer_block_bytes() as usize];
    for layer in 0..SHAPE.layers {
        for block in 0..SHAPE.blocks {
            assert_eq!(pool.held(block), None);
            pool.write(layer, block, 0, &bytes).unwrap();
        }
    }
}

/// Every byte of a pool, with its place.
fn each_byte(pool: &Pool, mut look: impl FnMut(u32, u32, u64, u8)) {
    let mut bytes = vec![0; pool.layout().layer_block_bytes() as usize];
    for layer in 0..SHAPE.layers {
        for block in 0..SHAPE.blocks {
            pool.read(layer, block, 0, &mut bytes).unwrap();
            (0..).zip(&bytes).for_each(|(at, byte)| look(layer, block, at, *byte));
        }
    }
}

/// Twelve rounds on each wire, all wires at once, as most of it is waiting. `is_in_the_middle` says whether the
/// deadline of a round passed in the middle of its transfer.
fn each_round(is_in_the_middle: impl Fn(&Pair, u64) -> bool + Sync) {
    let count = |wire| (0..12).filter(|round| is_in_the_middle(&slow(wire, *round), *round)).count();
    let counts = thread::scope(|scope| {
        WIRES.map(|wire| scope.spawn(move || count(wire))).map(|counts| counts.join().unwrap())
    });
    assert!(!counts.contains(&0), "every transfer was over, or had not begun: {counts:?} over {WIRES:?}");
}

#[test]
fn no_byte_lands_in_blocks_that_were_used_again_after_the_deadline_of_their_grant() {
    each_round(|pair, round| {
        thread::scope(|scope| {
            // The push may wait for another grant, if this one was over before the push learned of it.
            let later = Deadline::after(Duration::from_secs(5));
            scope.spawn(move || pair.prefill.push(1, &blocks(), later).and_then(|push| push.wait()));
            let soon = Deadline::after(Duration::from_millis(2 + 4 * round));
            let Err(error) = pair.decode.grant(1, &blocks(), soon).unwrap().wait() else { return false };
            let mut landed = 0;
            each_byte(&pair.destination, |_, _, _, byte| landed += u32::from(byte != CANARY));
            use_again(&pair.destination);
            thread::sleep(AFTERWARDS);
            each_byte(&pair.destination, |layer, block, at, byte| {
                assert_eq!(byte, AGAIN, "byte {at} of block {block} in layer {layer}");
            });
            landed > 0 && !error.verdicts.all_valid()
        })
    });
}

#[test]
fn no_byte_is_read_from_blocks_that_were_used_again_after_the_deadline_of_their_push() {
    each_round(|pair, round| {
        thread::scope(|scope| {
            // Far beyond the push's; it is waited for only when the push did not meet it.
            let later = Deadline::after(Duration::from_secs(5));
            let granted = scope.spawn(move || pair.decode.grant(1, &blocks(), later).unwrap().wait());
            let soon = Deadline::after(Duration::from_millis(2 + 4 * round));
            let pushed = pair.prefill.push(1, &blocks(), soon).unwrap().wait();
            if pushed.is_err() {
                use_again(&pair.source);
            }
            // The grant does not wait for its own deadline, and knows which blocks are whole.
            let granted = granted.join().unwrap();
            if pushed.is_ok() {
                return false;
            }
            let mut landed = 0;
            each_byte(&pair.destination, |layer, block, at, byte| {
                let whole = source_byte(layer, block, at);
                assert!(byte == whole || byte == CANARY, "byte {at} of block {block} in layer {layer}");
                landed += u32::from(byte != CANARY);
            });
            landed > 0 && granted.is_err()
        })
    });
}
