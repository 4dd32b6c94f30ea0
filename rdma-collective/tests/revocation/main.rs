//! Blocks that decode takes back while prefill, a process of its own, pushes into them for ever. As soon as the
//! library says that they are free, decode fills them with other bytes, and each of those stays, whether prefill runs,
//! is killed or is stopped in the middle of a write.
//!
//! A soak (`SOAK=full`) runs the full counts; otherwise a fiftieth of them runs.

#[path = "../common/mod.rs"]
mod common;
mod decode;
#[path = "../pair/mod.rs"]
mod pair;
mod pools;
mod prefill;

use std::process::Command;
use std::time::Instant;

use common::is_soak;
use decode::Decode;
use rdma_core::fault::{Planted, plant};

/// Rounds of a pool, in which some 25 prefills are stopped. The mapped wire replaces pages of a memory 64 times at
/// most.
const LIFE: u32 = 500;
/// Rounds within which the planted fault must show: some 200 stops, of which one in ten or so is in the middle of a
/// write.
const CAUGHT_WITHIN: u32 = 4000;

fn holds(device: &str, full: u32) {
    let (seed, begun) = (common::random::seed(), Instant::now());
    let mut decode = Decode::new(device, seed);
    for round in 1..=if is_soak() { full } else { full / 50 } {
        if round % LIFE == 0 {
            decode = decode.renewed();
        }
        decode.round().unwrap_or_else(|late| panic!("{late}; SOAK_SEED={seed}; {decode}"));
    }
    println!("{decode}; {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn nothing_lands_in_what_was_taken_back_on_the_mapped_wire() {
    holds("mapped", 100_000);
}

#[test]
fn nothing_lands_in_what_was_taken_back_over_tcp() {
    holds("tcp", 20_000);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn nothing_lands_in_what_was_taken_back_on_a_device() {
    holds(&std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device"), 2000);
}

/// These rounds also catch a device whose fence does not wait for writers. The fault is planted in all devices of a
/// process of its own.
#[test]
fn an_early_return_is_caught() {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["an_early_return_is_caught_here", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let [said, wrong] = [&ended.stdout, &ended.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(ended.status.success() && said.contains("1 passed"), "{said}{wrong}");
    println!("{said}");
}

#[test]
#[ignore = "alone: an_early_return_is_caught starts it"]
fn an_early_return_is_caught_here() {
    plant(Some(Planted::EarlyReturn));
    let mut decode = Decode::new("mapped", common::random::seed());
    let late = (0..CAUGHT_WITHIN).find_map(|_| decode.round().err());
    println!("{}; {decode}", late.expect("a device that does not wait"));
}
