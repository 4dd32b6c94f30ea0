//! Ranks that call something else, die, or do not come; and bytes that are altered.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Algorithms, CommunicatorOptions};
use rdma_collective::collective::{DataType, ReduceOp};
use rdma_collective::engine::EngineOptions;
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{AckTimeout, Context, Deadline, Device, RetryOptions, SoftOptions, Wire};

use crate::call::{CALL, Call, KINDS, Kind, Place};
use crate::common::{WIRES, long};
use crate::world::{each_communicator, each_rank_on, each_rank_with};

/// Rank 1 calls `odd` and the others `usual`: all must fail long before the deadline, and each error names rank 1 and
/// another, or quotes what both have really called.
fn assert_mismatch(ranks: u32, odd: Call, usual: Call) {
    assert_mismatch_by(Algorithms::default(), ranks, odd, usual);
    assert_mismatch_by("flat,ring".parse().unwrap(), ranks, odd, usual);
    assert_mismatch_by("tree".parse().unwrap(), ranks, odd, usual);
}

/// As above, when only `algorithms` are allowed.
fn assert_mismatch_by(algorithms: Algorithms, ranks: u32, odd: Call, usual: Call) {
    let called = move |rank| if rank == 1 { odd } else { usual };
    let options = CommunicatorOptions { algorithms, ..CommunicatorOptions::default() };
    let errors = each_communicator(ranks, Wire::Local, options, move |mut comm| {
        let call = called(comm.rank());
        let mut buffers = call.zeros(ranks);
        // A rank that has sent everything and waits for nobody hears of the mismatch in a later operation.
        (0..64).find_map(|_| call.call(&mut comm, &mut buffers, long()).err()).unwrap()
    });
    let differ = |rank: u32, peer: u32| {
        assert!((rank == 1) != (peer == 1), "innocent ones are named: {errors:?}");
    };
    let mut seen = 0;
    for (own, error) in (0..).zip(&errors) {
        match error {
            CollectiveError::Mismatch { rank, peer, ours, theirs } => {
                assert_eq!(*rank, own);
                differ(*rank, *peer);
                assert!(called(*rank).is(ours) && called(*peer).is(theirs), "{error}");
                seen += 1;
            }
            CollectiveError::Aborted { culprit, reporter, reason: AbortReason::Mismatch, .. } => {
                differ(*reporter, *culprit);
            }
            other => panic!("rank {own} of {odd:?} for {usual:?}: {other}"),
        }
    }
    assert!(seen > 0, "{errors:?}");
}

#[test]
fn other_collectives_counts_types_reductions_and_roots_are_an_error_that_quotes_both() {
    for count in [0, 64, 300_000] {
        for ranks in [2, 4] {
            for kind in KINDS {
                let usual = Call { kind, count, root: ranks - 1, ..CALL };
                for other in [Kind::AllReduce].into_iter().chain(KINDS) {
                    if other != kind {
                        assert_mismatch(ranks, Call { kind: other, ..usual }, usual);
                    }
                }
                assert_mismatch(ranks, Call { count: count + 1, ..usual }, usual);
                assert_mismatch(ranks, Call { data_type: DataType::I32, ..usual }, usual);
                if matches!(kind, Kind::ReduceScatter | Kind::Reduce) {
                    assert_mismatch(ranks, Call { op: ReduceOp::Max, ..usual }, usual);
                }
                if kind.has_root() {
                    assert_mismatch(ranks, Call { root: 0, ..usual }, usual);
                }
            }
        }
    }
}

/// Devices that give up within some tenths of a second, each with a plan of what shall go wrong.
fn faulty(
    wire: Wire,
    faults: impl Fn(u32) -> FaultPlan + Send + Sync + 'static,
) -> (EngineOptions, impl Fn(u32) -> Context + Send + Sync + 'static) {
    let retry = RetryOptions { ack_timeout: AckTimeout::new(15), ..RetryOptions::default() };
    let heartbeat = Duration::from_millis(20);
    let device = move |rank| {
        let name = format!("soft{rank}");
        let options = SoftOptions { name, wire, faults: Some(faults(rank)), ..SoftOptions::default() };
        Device::soft(options).open().unwrap()
    };
    (EngineOptions { retry: Some(retry), heartbeat, ..EngineOptions::default() }, device)
}

#[test]
fn a_rank_that_dies_in_the_midst_is_named_on_all_others_long_before_the_deadline() {
    for (at, kind) in (0..).zip(KINDS) {
        // The wires beside each other, because most of the time all ranks wait for one that is silent.
        thread::scope(|scope| {
            for (wire, root) in WIRES.into_iter().zip([0, 2, 3]) {
                scope.spawn(move || assert_dead_is_named(at, kind, wire, root));
            }
        });
    }
}

/// Lets rank 2 of 4 die a little after an operation of `kind` has begun, later for each `at`.
fn assert_dead_is_named(at: u64, kind: Kind, wire: Wire, root: u32) {
    let plans: [FaultPlan; 4] = std::array::from_fn(|rank| FaultPlan::seeded(rank as u64));
    let own = plans.clone();
    let (options, device) = faulty(wire, move |rank| plans[rank as usize].clone());
    let patient = Some(RetryOptions { ack_timeout: AckTimeout::new(18), ..RetryOptions::default() });
    let options = move |rank| match rank {
        // Cut off, it would find a neighbour lost, and be the first to say so.
        2 => EngineOptions { retry: patient.clone(), ..options.clone() },
        _ => options.clone(),
    };
    let call = Call { kind, count: 100_000, root, ..CALL };
    let ended = AtomicU32::new(0);
    let outcomes = each_rank_with(4, options, device, move |mut rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let mut buffers = call.zeros(4);
        call.call(&mut comm, &mut buffers, long()).unwrap();
        let faults = own[2].clone();
        if comm.rank() == 2 {
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(3000 + 700 * at));
                faults.kill();
            });
        }
        let started = Instant::now();
        let error = loop {
            if let Err(error) = call.call(&mut comm, &mut buffers, long()) {
                break error;
            }
        };
        assert!(started.elapsed() < Duration::from_secs(20), "{error}");
        ended.fetch_add(1, Ordering::Relaxed);
        // This rank says no goodbye, and keeps its memory while the others find out.
        while comm.rank() == 2
            && ended.load(Ordering::Relaxed) < 4
            && started.elapsed() < Duration::from_secs(30)
        {
            thread::sleep(Duration::from_millis(10));
        }
        error
    });
    for (rank, error) in outcomes.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        match error {
            CollectiveError::PeerFailed { rank: culprit, .. } | CollectiveError::Aborted { culprit, .. } => {
                assert_eq!(*culprit, 2, "{call:?} on {wire:?}, rank {rank}: {error}");
            }
            other => panic!("{call:?} on {wire:?}, rank {rank}: {other}"),
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named_at_the_deadline() {
    let at_the_deadline = |kind| {
        let (present, ended) = (Barrier::new(2), AtomicU32::new(0));
        let outcomes = each_communicator(3, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
            if comm.rank() == 2 {
                // Alive, and late for ever.
                let started = Instant::now();
                while ended.load(Ordering::Relaxed) < 2 && started.elapsed() < Duration::from_secs(30) {
                    thread::sleep(Duration::from_millis(10));
                }
                return None;
            }
            // So much that the root of a broadcast cannot put all of it, and the result of the others is rank 2's or
            // passes it.
            let call = Call { kind, count: 1 << 20, ..CALL };
            let mut buffers = call.zeros(3);
            present.wait();
            let outcome = call.call(&mut comm, &mut buffers, Deadline::after(Duration::from_secs(2)));
            ended.fetch_add(1, Ordering::Relaxed);
            outcome.err()
        });
        assert_eq!(outcomes.iter().flatten().count(), 2, "{kind:?}");
        for error in outcomes.iter().flatten() {
            match error {
                CollectiveError::DeadlineExceeded { rank: 2, .. } => {}
                CollectiveError::Aborted { culprit: 2, reason: AbortReason::DeadlineExceeded, .. } => {}
                other => panic!("{kind:?}: {other}"),
            }
        }
    };
    // The kinds beside each other, because all ranks wait for the deadline.
    thread::scope(|scope| KINDS.iter().for_each(|kind| drop(scope.spawn(|| at_the_deadline(*kind)))));
}

#[test]
fn a_byte_that_is_flipped_on_its_way_is_in_the_result() {
    for kind in [Kind::AllGather, Kind::ReduceScatter, Kind::Broadcast, Kind::Reduce] {
        // The tenth payload that rank 1 gets is in the middle of the data, though some of them are words of the
        // protocol.
        let plan = |rank| match rank {
            1 => FaultPlan::seeded(1).with(Rule::new(Fault::Corrupt).nth(10)),
            _ => FaultPlan::seeded(0),
        };
        let (_, device) = faulty(Wire::Tcp, plan);
        // Nobody says meanwhile that it waits or lives, however slow the machine is.
        let (heartbeat, peer_timeout) = (Duration::from_secs(30), Duration::from_secs(60));
        let options = EngineOptions { heartbeat, peer_timeout, ..EngineOptions::default() };
        let right = each_rank_on(2, options, device, move |mut rank| {
            let mut comm = rank.communicator(CommunicatorOptions::default());
            let root = if kind == Kind::Reduce { 1 } else { 0 };
            let call = Call { kind, count: 1 << 20, data_type: DataType::I32, root, ..CALL };
            call.is_right(&mut comm, Place::Slices)
        });
        assert!(!right[1], "the oracle finds it in {kind:?}");
    }
}

/// Ranks 2, 3 and 4 are done with a broadcast that the others wait in for rank 5, and wait for all of them in the next
/// operation. Rank 3, which gives up first, is a neighbour of none of those. Around a ring: ranks of one host begin
/// each operation together.
#[test]
fn whom_others_wait_for_in_an_earlier_operation_is_named_in_a_later_one() {
    let ended = AtomicU32::new(0);
    let options =
        CommunicatorOptions { algorithms: "^tree".parse().unwrap(), ..CommunicatorOptions::default() };
    let errors = each_communicator(6, Wire::Tcp, options, move |mut comm| {
        if comm.rank() == 5 {
            let started = Instant::now();
            while ended.load(Ordering::Relaxed) < 5 && started.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(5));
            }
            return None;
        }
        let first = Deadline::after(Duration::from_secs(6));
        let left = if comm.rank() == 3 { Deadline::after(Duration::from_secs(3)) } else { long() };
        let told = comm.broadcast(&mut [7_u8; 16 * 1024], 2, first);
        let error = told.and_then(|()| comm.all_reduce(&mut [1.0_f32; 3], ReduceOp::Sum, left)).unwrap_err();
        ended.fetch_add(1, Ordering::Relaxed);
        Some(error)
    });
    for (rank, error) in errors.into_iter().enumerate().filter_map(|(rank, error)| Some((rank, error?))) {
        match error {
            CollectiveError::DeadlineExceeded { rank: 5, interrupted, .. } => {
                assert_eq!(interrupted.operation.sequence, u64::from(rank == 3));
            }
            CollectiveError::Aborted { culprit: 5, reason: AbortReason::DeadlineExceeded, .. } => {}
            other => panic!("rank {rank}: {other}"),
        }
    }
}
