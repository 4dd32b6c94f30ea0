//! Prefills and decodes, each a process of its own, come and go while requests run: they join, leave, are killed and
//! come again under their names. No byte is wrong, whoever stays is not disturbed, and nothing stays of those that
//! went.
//!
//! A soak (`SOAK=full`) has 8 prefills, 8 decodes and 200 events; otherwise there are 3, 3 and 20.

mod process;
mod town;

use std::thread;
use std::time::{Duration, Instant};

use crate::common::is_soak;
use crate::common::random::seed;
use town::Town;

/// The variables that name a process, and its device.
const NAME: &str = "STORM_NAME";
const DEVICE: &str = "STORM_DEVICE";

/// Processes of each role that stay.
const ELDERS: usize = 2;
/// The longest pause between two events.
const PAUSE_MS: u64 = 150;
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn storm(device: &str) {
    let (each, events) = if is_soak() { (8, 200) } else { (3, 20) };
    let (seed, begun) = (seed(), Instant::now());
    let mut town = Town::new(device, each, seed);
    let elders: Vec<usize> = (0..ELDERS).flat_map(|at| [at, each + at]).collect();
    let others: Vec<usize> = (0..2 * each).filter(|slot| !elders.contains(slot)).collect();
    // The first to come and go fill what is kept for ever.
    elders.iter().chain(&others[..1]).for_each(|slot| town.start(*slot));
    town.all_move_one();
    town.leave(others[0]);
    town.settle(elders.len());
    town.all_move_one();
    // Threads of links that have ended end a little later.
    thread::sleep(Duration::from_secs(1));
    let before: Vec<String> = elders.iter().map(|slot| town.books(*slot)).collect();

    others.iter().for_each(|slot| town.start(*slot));
    town.ask();
    for _ in 0..events {
        let pause = town.random.below(PAUSE_MS);
        town.carry_on(Duration::from_millis(pause));
        let slot = town.random.pick(&others);
        match (town.is_there(slot), town.random.below(3)) {
            (true, 0) => town.leave(slot),
            (true, 1) => town.kill(slot),
            (is_there, _) => {
                if is_there {
                    town.kill(slot);
                }
                town.start(slot);
            }
        }
    }
    town.quiet();
    town.all_move_one();
    for slot in others {
        if town.random.is_one_in(2) { town.kill(slot) } else { town.leave(slot) }
    }
    town.settle(elders.len());
    for (slot, before) in elders.iter().zip(before) {
        town.assert_books(*slot, &before);
    }
    println!("device {device}: {town}; {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn peers_come_and_go_and_nothing_stays_of_them_on_the_mapped_wire() {
    storm("mapped");
}

#[test]
fn peers_come_and_go_and_nothing_stays_of_them_over_tcp() {
    storm("tcp");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn peers_come_and_go_and_nothing_stays_of_them_on_a_device() {
    storm(&std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device"));
}
