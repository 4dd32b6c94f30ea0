//! Rails that die under an operation, and ranks that do.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::{Rails, RailsOptions, ReduceOp};
use rdma_core::Wire;
use rdma_core::fault::{Fault, FaultPlan, Rule};

use crate::common::{is_soak, long};
use crate::setup::{Setup, each_railed};
use crate::{Call, KINDS, element, sum};

/// Longer than any test.
const EVER: Duration = Duration::from_secs(3600);

fn plans(ranks: u32, rails: usize) -> Vec<Vec<FaultPlan>> {
    (0..ranks).map(|_| (0..rails).map(|_| FaultPlan::seeded(1)).collect()).collect()
}

/// How often.
fn rounds() -> u64 {
    if is_soak() { 100 } else { 4 }
}

#[test]
fn a_rail_that_dies_costs_time_and_no_element() {
    for round in 0..rounds() {
        let (ranks, dies) = (2 + round as u32 % 2, (round / 2) as usize % 2);
        let at = (round as u32 / 4) % ranks;
        let faults = plans(ranks, 2);
        let plan = faults[at as usize][dies].clone();
        let begun = Arc::new(Barrier::new(ranks as usize + 1));
        let (ready, kill) = (Arc::clone(&begun), round % 3 == 2);
        let flapping = thread::spawn(move || {
            ready.wait();
            // At every moment of the first operations, by chance of the machine too.
            thread::sleep(Duration::from_micros(round * 7919 % 20_000));
            if kill {
                plan.kill()
            } else {
                plan.flap_port(EVER)
            }
            ready.wait();
        });
        let options = RailsOptions { piece_bytes: 512 * 1024, ..RailsOptions::default() };
        // Without the wire ranks of one host reach each other's memory, and a device that dies is seen by what it no
        // longer says.
        let wire = if round % 4 == 3 { Wire::Local } else { Wire::Tcp };
        let setup = Setup { ranks, rails: 2, wire, options, faults };
        let failed = each_railed(setup, move |mut rails| {
            begun.wait();
            for number in 0..4 {
                // Each kind once in four rounds, and then with another fate.
                let kind = (round * 4 + round / 4 + number) as u8 % KINDS;
                let call = Call { kind, count: 700_001, root: 1 };
                assert!(call.is_right(&mut rails), "round {round}: {call:?} on rank {}", rails.rank());
            }
            begun.wait();
            // The rail may have died after that; then the next operation finds out.
            for kind in 0..2 {
                assert!(Call { kind, count: 400_000, root: 0 }.is_right(&mut rails), "round {round}");
            }
            let small = Call { kind: 0, count: 5, root: 0 };
            assert!(small.is_right(&mut rails), "round {round}");
            let failed: Vec<_> = rails.failed().map(|(rail, _)| rail).collect();
            rails.close(long()).unwrap();
            failed
        });
        flapping.join().unwrap();
        assert_eq!(failed, vec![vec![dies]; ranks as usize], "round {round}");
    }
}

/// How many of so many worlds lost a rail, each at another message, while it made such calls and no element was wrong.
fn struck_at_each_message(messages: u64, kinds: [u8; 4], ranks: u32, stripe_bytes_min: usize) -> u64 {
    let worlds = (1..=messages).map(|message| {
        thread::spawn(move || {
            let faults = plans(ranks, 2);
            faults[1][1].add(Rule::new(Fault::Kill).nth(message));
            let options = RailsOptions { stripe_bytes_min, ..RailsOptions::default() };
            let struck = faults[1][1].clone();
            each_railed(Setup { faults, options, ..Setup::of(ranks, 2, Wire::Tcp) }, move |mut rails| {
                for kind in kinds {
                    let call = Call { kind, count: 64, root: message as u32 };
                    assert!(
                        call.is_right(&mut rails),
                        "message {message}, {call:?} on rank {}",
                        rails.rank()
                    );
                }
            });
            struck.counts().killed
        })
    });
    let worlds: Vec<_> = worlds.collect();
    worlds.into_iter().map(|world| world.join().unwrap()).sum()
}

/// At some of these one rank has the result already, and the other has not.
#[test]
fn whichever_message_a_rail_dies_at_no_element_is_wrong() {
    let struck = struck_at_each_message(24, [0; 4], 2, 0);
    assert!(struck > 12, "{struck} of 24 have died");
}

/// At some of these the links beyond the ring are just being made, and at others who only gives has gone on.
#[test]
fn whichever_message_of_parts_a_rail_dies_at_no_part_is_wrong() {
    for (kinds, stripe_bytes_min) in [([8, 10, 12, 8], 0), ([10, 12, 10, 8], usize::MAX)] {
        let struck = struck_at_each_message(16, kinds, 3, stripe_bytes_min);
        assert!(struck > 8, "{struck} of 16 have died");
    }
}

#[test]
fn a_port_that_is_back_soon_costs_no_element() {
    let faults = plans(2, 2);
    let plan = faults[1][1].clone();
    let wrong = each_railed(Setup { faults, ..Setup::of(2, 2, Wire::Tcp) }, move |mut rails| {
        (0..20).any(|number| {
            if rails.rank() == 1 && number == 10 {
                plan.flap_port(Duration::from_millis(50));
            }
            !Call { kind: 0, count: 300_000, root: 0 }.is_right(&mut rails)
        })
    });
    assert_eq!(wrong, [false; 2]);
}

#[test]
fn a_rank_whose_rails_all_die_is_named() {
    let faults = plans(2, 2);
    let die = faults[1].clone();
    let errors = each_railed(Setup { faults, ..Setup::of(2, 2, Wire::Tcp) }, move |mut rails| {
        let rank = rails.rank();
        if rank == 1 {
            die.iter().for_each(FaultPlan::kill);
        }
        let mut data = vec![1_i32; 1 << 20];
        let error = rails.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err();
        let again = rails.all_reduce(&mut data[..1], ReduceOp::Sum, long()).unwrap_err();
        assert_eq!(error.to_string(), again.to_string());
        assert_eq!(rails.failed().count(), 2);
        error
    });
    // A device that no longer hears is heard still: the other end may have it from there that it is the one who is
    // lost.
    let named = |error: &CollectiveError, other| match error {
        CollectiveError::PeerFailed { rank, .. } => *rank == other,
        error => matches!(error, CollectiveError::Fenced { .. }),
    };
    assert!(named(&errors[0], 1) && named(&errors[1], 0), "{errors:?}");
}

#[test]
fn ranks_that_call_different_counts_are_told() {
    for counts in [[1000, 1001], [3, 4], [100_000, 5]] {
        let errors = each_railed(Setup::of(2, 2, Wire::Local), move |mut rails| {
            let mut data = vec![1_i32; counts[rails.rank() as usize]];
            rails.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err()
        });
        let mismatch = |error: &CollectiveError| matches!(error, CollectiveError::Mismatch { .. });
        assert!(errors.iter().any(mismatch), "{errors:?}");
    }
}

#[test]
fn what_cannot_be_called_loses_nothing() {
    each_railed(Setup::of(2, 2, Wire::Local), |mut rails| {
        let (rank, ranks) = (rails.rank(), rails.size());
        let mut data = crate::input(rank, 3);
        let lengths = rails.all_reduce_into(&data, &mut [0; 2], ReduceOp::Sum, long());
        assert!(matches!(lengths, Err(CollectiveError::LengthsDiffer { .. })), "{lengths:?}");
        let parts = rails.all_gather(&mut data, long());
        assert!(matches!(parts, Err(CollectiveError::Indivisible { .. })), "{parts:?}");
        for len in [3, 1 << 20] {
            let root = rails.broadcast(&mut vec![0_i32; len], 9, long());
            assert!(matches!(root, Err(CollectiveError::Schedule(_))), "{root:?}");
        }
        rails.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        assert!(data.iter().enumerate().all(|(at, value)| *value == sum(ranks, at)));
        assert_eq!(rails.failed().count(), 0);
        assert_eq!(element(0, 0), 0);
        rails.close(long()).unwrap();
    });
}

#[test]
fn ranks_with_other_rails_are_told() {
    let errors = crate::world::each_rank(2, Wire::Local, |mut rank| {
        let engines = vec![rank.engine.clone(); 1 + rank.rank as usize];
        Rails::new(&engines, &mut rank.store, RailsOptions::default(), long()).unwrap_err().to_string()
    });
    for (error, [ours, theirs]) in errors.iter().zip([["1 rails", "2 rails"], ["2 rails", "1 rails"]]) {
        assert!(error.contains(ours) && error.contains(theirs), "{error}");
    }
}

#[test]
fn without_a_device_or_with_too_many_there_are_no_rails() {
    let token = JobToken::random().unwrap();
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, 1)).unwrap();
    let join = Join { address: server.address(), token, rank: 0, world: 1 };
    let mut store = StoreClient::connect(join, long()).unwrap();
    let none = Rails::new(&[], &mut store, RailsOptions::default(), long()).unwrap_err();
    assert!(matches!(none, CommunicatorError::Rails { count: 0, .. }), "{none}");
}
