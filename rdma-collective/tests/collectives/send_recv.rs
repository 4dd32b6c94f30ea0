//! Sends and receives between two ranks; the others take no part.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::links::by_links;
use crate::world::{each_communicator, each_rank_with};
use rdma_collective::collective::{AbortReason, CollectiveError, ScheduleError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{DataType, ReduceOp, Tensor};
use rdma_collective::engine::EngineOptions;
use rdma_core::fault::FaultPlan;
use rdma_core::{AckTimeout, Deadline, Device, RetryOptions, SoftOptions, Wire};

/// Lengths: nothing, one element, one slot, and several rounds of all slots.
const COUNTS: [usize; 4] = [0, 1, 5000, 1_500_000];

fn connected(mut comm: Communicator) -> Communicator {
    comm.connect(long()).unwrap();
    comm
}

fn element(from: u32, to: u32, at: usize) -> u32 {
    from * 1000 + to * 100 + (at as u32 & 0xff) * 100_000
}

fn elements(from: u32, to: u32, count: usize) -> Vec<u32> {
    (0..count).map(|at| element(from, to, at)).collect()
}

fn tensor(comm: &Communicator, data: &[u32]) -> Tensor<u32> {
    let mut tensor = comm.alloc::<u32>(data.len()).unwrap();
    tensor.copy_from_slice(data);
    tensor
}

#[test]
fn a_ring_of_ranks_sends_and_receives_at_once() {
    for wire in WIRES {
        for ranks in [1, 2, 3, 5] {
            each_communicator(ranks, wire, CommunicatorOptions::default(), move |comm| {
                let mut comm = connected(comm);
                let rank = comm.rank();
                let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                for count in COUNTS {
                    let (sent, expected) = (elements(rank, next, count), elements(previous, rank, count));
                    let mut found = vec![0; count];
                    comm.send_recv(&sent, next, &mut found, previous, long()).unwrap();
                    assert!(found == expected, "{count} from {previous} to {rank} on {wire:?}");
                    let (input, output) = (tensor(&comm, &sent), comm.alloc::<u32>(count).unwrap());
                    let pending = comm.start_send_recv(input, next, output, previous, long()).unwrap();
                    let (input, output) = pending.wait(long()).unwrap();
                    assert!(*output == *expected && *input == *sent, "{count} owned, on {wire:?}");
                    let mut data = sent.clone();
                    comm.send_recv_replace(&mut data, next, previous, long()).unwrap();
                    assert!(data == expected, "{count} in place, on {wire:?}");
                    let pending = comm.start_send_recv_replace(input, next, previous, long()).unwrap();
                    let data = pending.wait(long()).unwrap();
                    assert!(*data == *expected, "{count} owned, in place, on {wire:?}");
                }
                comm.close(long()).unwrap();
            });
        }
    }
}

#[test]
fn a_buffer_is_replaced_by_what_comes_only_after_it_was_sent_on() {
    for wire in WIRES {
        each_communicator(3, wire, CommunicatorOptions::default(), move |comm| {
            let mut comm = connected(comm);
            let (rank, next, previous) = (comm.rank(), (comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
            for count in COUNTS {
                let mut data = elements(rank, next, count);
                if rank == 0 {
                    // Nothing comes back before all of it has gone around.
                    comm.send_recv_replace(&mut data, next, previous, long()).unwrap();
                } else {
                    comm.recv(&mut data, previous, long()).unwrap();
                    comm.send(&data, next, long()).unwrap();
                }
                assert!(data == elements(0, 1, count), "{count} at {rank} on {wire:?}");
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn other_counts_go_out_than_come_in() {
    for wire in WIRES {
        each_communicator(3, wire, CommunicatorOptions::default(), |comm| {
            let mut comm = connected(comm);
            let (rank, counts) = (comm.rank(), [0_usize, 700_000, 3]);
            let (next, previous) = ((rank + 1) % 3, (rank + 2) % 3);
            for _ in 0..3 {
                let mut found = vec![0; counts[previous as usize]];
                let sent = elements(rank, next, counts[rank as usize]);
                comm.send_recv(&sent, next, &mut found, previous, long()).unwrap();
                assert!(found == elements(previous, rank, found.len()));
            }
        });
    }
}

#[test]
fn two_ranks_send_while_the_others_go_on_with_what_all_do() {
    for wire in WIRES {
        each_communicator(4, wire, CommunicatorOptions::default(), |comm| {
            let mut comm = connected(comm);
            let rank = comm.rank();
            for count in COUNTS {
                match rank {
                    1 => comm.send(&elements(1, 3, count), 3, long()).unwrap(),
                    3 => {
                        let mut found = vec![0; count];
                        comm.recv(&mut found, 1, long()).unwrap();
                        assert!(found == elements(1, 3, count));
                    }
                    _ => {}
                }
                // Through the windows, around the ring, and over the links of the sends.
                for length in [4, 40_000] {
                    let mut data = vec![1_u32; length];
                    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                    assert!(data.iter().all(|sum| *sum == 4));
                    comm.all_to_all(&mut data, long()).unwrap();
                }
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn what_is_begun_together_goes_in_its_order() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |comm| {
        let mut comm = connected(comm);
        let other = 1 - comm.rank();
        let data = |from: u32, nth: u32| elements(from, nth, 9000);
        let all: Vec<Tensor<u32>> = (0..6).map(|nth| tensor(&comm, &data(comm.rank(), nth))).collect();
        let pending: Vec<_> = (0..)
            .zip(all)
            .map(|(nth, tensor)| match (nth + comm.rank()) % 2 {
                _ if nth == 3 => comm.start_all_reduce(tensor, ReduceOp::Max, long()).unwrap(),
                0 => comm.start_send(tensor, other, long()).unwrap(),
                _ => comm.start_recv(tensor, other, long()).unwrap(),
            })
            .collect();
        for (nth, pending) in (0..).zip(pending) {
            let found = pending.wait(long()).unwrap();
            let from = match nth {
                3 => 1,
                _ if (nth + comm.rank()).is_multiple_of(2) => comm.rank(),
                _ => other,
            };
            assert!(*found == *data(from, nth), "the {nth}th");
        }
    });
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_lost() {
    each_communicator(3, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        let (own, mut data) = (comm.rank(), [7_u32; 3]);
        let to = (own + 1) % 3;
        let error = comm.send(&data, to, long()).unwrap_err();
        assert!(
            matches!(error, CollectiveError::Unconnected { rank, because: None } if rank == to),
            "{error}"
        );
        assert!(error.to_string().contains("call `connect`"), "{error}");
        let refused = comm.start_send(tensor(&comm, &data), to, long()).unwrap_err();
        assert!(matches!(refused.error, CollectiveError::Unconnected { .. }) && *refused.object == data);
        comm.send_recv(&[1_u32, 2], own, &mut data[..2], own, long()).unwrap();
        assert_eq!(data, [1, 2, 7], "what a rank sends to itself needs no link");
        let mut comm = connected(comm);
        let error = comm.send(&data, own, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::ToItself { rank } if rank == own), "{error}");
        let error = comm.recv(&mut data, 3, long()).unwrap_err();
        let no_rank = ScheduleError::RankOutOfRange { rank: 3, ranks: 3 };
        assert!(matches!(error, CollectiveError::Schedule(error) if error == no_rank), "{error}");
        let error = comm.send_bytes(&[0; 5], DataType::F32, to, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::Reduce(_)), "{error}");
        let error = comm.send_recv(&[1_u32; 4], own, &mut data, own, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::Mismatch { .. }), "{error}");
        let mut found = [0_u32];
        comm.send_recv(&[own], to, &mut found, (own + 2) % 3, long()).unwrap();
        assert_eq!((found, data), ([(own + 2) % 3], [1, 2, 7]));
        comm.connect(long()).unwrap();
        comm.close(long()).unwrap();
    });
}

type Called = fn(&mut Communicator, usize) -> Result<(), CollectiveError>;

/// Each rank calls its own with `count`, and then the barrier: rank 1 finds that rank 0 has called something else than
/// itself, and the others hear of it.
fn mismatch(count: usize, calls: [Called; 3], names: [&str; 2]) {
    let errors = each_communicator(3, Wire::Local, by_links(), move |comm| {
        let mut comm = connected(comm);
        let called = calls[comm.rank() as usize];
        called(&mut comm, count).and_then(|()| comm.barrier(long())).unwrap_err()
    });
    let text = errors[1].to_string();
    assert!(text.starts_with(&format!("rank 1 called {}, and rank 0 {};", names[0], names[1])), "{text}");
    for error in [&errors[0], &errors[2]] {
        let CollectiveError::Aborted { culprit: 0, reporter: 1, reason: AbortReason::Mismatch, .. } = error
        else {
            panic!("{error}");
        };
    }
}

#[test]
fn another_count_or_type_is_an_error_that_quotes_both() {
    for count in [0, 10, 300_000] {
        let send: Called = |comm, count| comm.send(&vec![1_i32; count], 1, long());
        let name = format!("send 0 of {count} int32 to rank 1");
        let shorter: Called = |comm, _| comm.recv(&mut [1_i32; 7], 0, long());
        mismatch(count, [send, shorter, |_, _| Ok(())], ["receive 0 of 7 int32 from rank 0", &name]);
        let other: Called = |comm, count| comm.recv(&mut vec![1.0_f32; count], 0, long());
        let own = format!("receive 0 of {count} float from rank 0");
        mismatch(count, [send, other, |_, _| Ok(())], [&own, &name]);
    }
}

#[test]
fn another_order_of_what_two_ranks_and_all_do_is_an_error_that_quotes_both() {
    let all: Called = |comm, count| comm.all_to_all(&mut vec![0_u32; 3 * count], long());
    let twice: Called = |comm, count| {
        comm.send(&[5_u8; 3], 1, long())?;
        comm.send(&[6_u8; 3], 1, long())?;
        comm.all_to_all(&mut vec![0_u32; 3 * count], long())
    };
    let once: Called = |comm, count| {
        comm.recv(&mut [0_u8; 3], 0, long())?;
        comm.all_to_all(&mut vec![0_u32; 3 * count], long())
    };
    let names = ["all-to-all 1 of 10000 uint32", "send 1 of 3 uint8 to rank 1"];
    mismatch(10_000, [twice, once, all], names);
    let names = ["receive 0 of 3 uint8 from rank 0", "all-to-all 1 of 10000 uint32"];
    mismatch(10_000, [all, |comm, _| comm.recv(&mut [0_u8; 3], 0, long()), all], names);
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline_and_its_bytes_land_nowhere() {
    for sends in [false, true] {
        let gone = AtomicU32::new(0);
        let errors = each_communicator(3, Wire::Local, CommunicatorOptions::default(), move |comm| {
            let mut comm = connected(comm);
            let soon = Deadline::after(Duration::from_millis(300));
            let mut data = vec![7_u32; 3 << 20];
            let error = match comm.rank() {
                0 if sends => comm.send(&data, 1, soon).unwrap_err(),
                0 => comm.recv(&mut data, 1, soon).unwrap_err(),
                rank => {
                    let started = Instant::now();
                    while gone.load(Ordering::Relaxed) == 0 && started.elapsed() < Duration::from_secs(30) {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let late = vec![8_u32; 3 << 20];
                    let outcome = match rank {
                        1 if sends => comm.recv(&mut data, 0, long()),
                        1 => comm.send(&late, 0, long()),
                        _ => comm.barrier(long()),
                    };
                    outcome.unwrap_err()
                }
            };
            gone.fetch_add(1, Ordering::Relaxed);
            if comm.rank() == 0 {
                let started = Instant::now();
                while gone.load(Ordering::Relaxed) < 3 && started.elapsed() < Duration::from_secs(30) {
                    thread::sleep(Duration::from_millis(5));
                }
                assert!(data.iter().all(|element| *element == 7), "it was given back");
            }
            let again = comm.barrier(long()).unwrap_err();
            assert!(matches!(again, CollectiveError::Ended { .. }), "{again}");
            error
        });
        let CollectiveError::DeadlineExceeded { rank: 1, interrupted, .. } = &errors[0] else {
            panic!("{}", errors[0]);
        };
        assert_eq!(interrupted.operation.collective, if sends { "send" } else { "receive" });
        for error in &errors[1..] {
            let CollectiveError::Aborted { culprit: 1, reason: AbortReason::DeadlineExceeded, .. } = error
            else {
                panic!("{error}");
            };
        }
    }
}

#[test]
fn a_rank_that_has_left_has_sent_what_it_sent_and_is_named_for_what_it_did_not() {
    for wire in WIRES {
        let begun = Barrier::new(2);
        each_communicator(2, wire, CommunicatorOptions::default(), move |comm| {
            let mut comm = connected(comm);
            if comm.rank() == 0 {
                comm.send(&elements(0, 1, 100), 1, long()).unwrap();
                comm.close(long()).unwrap();
                begun.wait();
                return;
            }
            begun.wait();
            let mut found = [0; 100];
            comm.recv(&mut found, 0, long()).unwrap();
            assert_eq!(found[..], elements(0, 1, 100));
            let started = Instant::now();
            let error = comm.recv(&mut found, 0, long()).unwrap_err();
            assert!(matches!(error, CollectiveError::PeerFailed { rank: 0, .. }), "{error}");
            assert!(started.elapsed() < Duration::from_secs(30));
        });
    }
}

#[test]
fn a_rank_that_dies_is_named_by_the_one_that_sends_to_it_and_by_the_others() {
    for third in [false, true] {
        let plans: [FaultPlan; 4] = std::array::from_fn(|rank| FaultPlan::seeded(rank as u64));
        let victim = plans[1].clone();
        let heartbeat = Duration::from_millis(20);
        let retry = |rank| {
            // A rank that is cut off would find a peer lost, and report that first.
            let ack_timeout = AckTimeout::new(if rank == 1 { 18 } else { 15 });
            Some(RetryOptions { ack_timeout, ..RetryOptions::default() })
        };
        let options = move |rank| EngineOptions { retry: retry(rank), heartbeat, ..EngineOptions::default() };
        let device = move |rank: u32| {
            let faults = Some(plans[rank as usize].clone());
            let options = SoftOptions {
                name: format!("soft{rank}"),
                wire: Wire::Local,
                faults,
                ..SoftOptions::default()
            };
            Device::soft(options).open().unwrap()
        };
        let ended = AtomicU32::new(0);
        let errors = each_rank_with(4, options, device, move |mut rank| {
            let mut comm = connected(rank.communicator(CommunicatorOptions::default()));
            // A rank that sends to another and receives from it dies, or a third one does.
            let other = match comm.rank() {
                0 if third => Some(2),
                2 if third => Some(0),
                0 => Some(1),
                1 if !third => Some(0),
                _ => None,
            };
            if comm.rank() == 1 {
                let faults = victim.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    faults.kill();
                });
            }
            let mut data = vec![0_u32; 100_000];
            let error = loop {
                let sent = data.clone();
                let outcome = match other {
                    Some(other) => comm.send_recv(&sent, other, &mut data, other, long()),
                    None => comm.barrier(long()),
                };
                if let Err(error) = outcome {
                    break error;
                }
            };
            ended.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            // This rank says no goodbye.
            while comm.rank() == 1
                && ended.load(Ordering::Relaxed) < 4
                && started.elapsed() < Duration::from_secs(30)
            {
                thread::sleep(Duration::from_millis(10));
            }
            error
        });
        for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 1) {
            match error {
                CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {
                }
                other => panic!("rank {rank}: {other}"),
            }
        }
    }
}
