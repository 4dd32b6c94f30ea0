//! Devices that die under an operation, and ranks that do.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rdma_collective::collective::{CollectiveError, ReduceOp};
use rdma_core::Wire;
use rdma_core::fault::{Fault, FaultPlan, Rule};

use crate::common::{is_soak, long};
use crate::devices::{Devices, each_over};
use crate::{Call, KINDS};

/// Longer than any test.
const EVER: Duration = Duration::from_secs(3600);

/// How often.
fn rounds() -> u64 {
    if is_soak() { 100 } else { 5 }
}

#[test]
fn a_device_that_dies_costs_time_and_no_element() {
    for round in 0..rounds() {
        let (ranks, dies) = (2 + round as u32 % 2, (round / 2) as usize % 2);
        let at = (round as u32 / 4) % ranks;
        // Ranks of this process reach each other's memory, and a device that dies is seen by what it no longer says.
        let wire = if round % 4 == 3 { Wire::Local } else { Wire::Tcp };
        let devices = Devices::new(ranks, 2, wire).with_faults();
        let plan = devices.faults[at as usize][dies].clone();
        let begun = Arc::new(Barrier::new(ranks as usize + 1));
        let (ready, kill) = (Arc::clone(&begun), round % 3 == 2);
        let dying = thread::spawn(move || {
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
        let lost = each_over(devices, move |mut comm| {
            begun.wait();
            for number in 0..5 {
                // Each kind once in five rounds, and then with another fate.
                let kind = (round * 5 + round / 5 + number) as u8 % KINDS;
                let call = Call { kind, count: 700_001, root: 1 };
                assert!(call.is_right(&mut comm), "round {round}: {call:?} on rank {}", comm.rank());
            }
            begun.wait();
            // The device may have died after that; then the next operation finds out.
            for kind in [0, 1, 16] {
                let call = Call { kind, count: 400_000, root: 0 };
                assert!(call.is_right(&mut comm), "round {round}: {call:?} on rank {}", comm.rank());
            }
            assert!(Call { kind: 0, count: 5, root: 0 }.is_right(&mut comm), "round {round}");
            let lost = comm.lost_lanes();
            comm.close(long()).unwrap();
            lost
        });
        dying.join().unwrap();
        for (rank, lost) in (0..).zip(&lost) {
            assert!(lost.iter().all(|lost| lost.lane == dies), "round {round}, rank {rank}: {lost:?}");
            let device = format!("rank{rank}device{dies}");
            assert!(lost.iter().all(|lost| lost.device == device), "round {round}: {lost:?}");
            assert!(lost.iter().all(|lost| rank == at || lost.rank == at), "round {round}: {lost:?}");
        }
        assert!(!lost[at as usize].is_empty(), "round {round}: {lost:?}");
    }
}

/// How many of so many worlds lost a device, each at another message, while they made such calls and no element was
/// wrong.
fn struck_at_each_message(messages: u64, kinds: [u8; 4], ranks: u32) -> u64 {
    let worlds = (1..=messages).map(|message| {
        thread::spawn(move || {
            let devices = Devices::new(ranks, 2, Wire::Tcp).with_faults();
            let struck = devices.faults[1][1].clone();
            struck.add(Rule::new(Fault::Kill).nth(message));
            each_over(devices, move |mut comm| {
                for kind in kinds {
                    let call = Call { kind, count: 64, root: message as u32 };
                    assert!(call.is_right(&mut comm), "message {message}, {call:?} on rank {}", comm.rank());
                }
                // A rank that only drops its communicator does not wait until it has found out that a device is dead.
                comm.close(long()).unwrap();
            });
            struck.counts().killed
        })
    });
    let worlds: Vec<_> = worlds.collect();
    worlds.into_iter().map(|world| world.join().unwrap()).sum()
}

/// At some of these one rank has the result already, and the other has not.
#[test]
fn whichever_message_a_device_dies_at_no_element_is_wrong() {
    let struck = struck_at_each_message(16, [0; 4], 2);
    assert!(struck > 4, "{struck} of 16 have died");
}

/// At some of these the links beyond the ring are just being made, and at others a rank that only gives has gone on.
#[test]
fn whichever_message_of_parts_a_device_dies_at_no_part_is_wrong() {
    for kinds in [[8, 10, 12, 8], [10, 12, 17, 18]] {
        let struck = struck_at_each_message(16, kinds, 3);
        assert!(struck > 4, "{struck} of 16 have died");
    }
}

#[test]
fn a_port_that_is_back_soon_costs_no_element() {
    let devices = Devices::new(2, 2, Wire::Tcp).with_faults();
    let plan = devices.faults[1][1].clone();
    let wrong = each_over(devices, move |mut comm| {
        (0..20).any(|number| {
            if comm.rank() == 1 && number == 10 {
                plan.flap_port(Duration::from_millis(50));
            }
            !Call { kind: 0, count: 300_000, root: 0 }.is_right(&mut comm)
        })
    });
    assert_eq!(wrong, [false; 2]);
}

#[test]
fn a_rank_whose_devices_all_die_is_named() {
    let devices = Devices::new(2, 2, Wire::Tcp).with_faults();
    let die = devices.faults[1].clone();
    let errors = each_over(devices, move |mut comm| {
        if comm.rank() == 1 {
            die.iter().for_each(FaultPlan::kill);
        }
        let mut data = vec![1_i32; 1 << 20];
        let error = comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err();
        let again = comm.all_reduce(&mut data[..1], ReduceOp::Sum, long()).unwrap_err();
        assert!(again.to_string().contains(&error.to_string()), "{again}");
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
