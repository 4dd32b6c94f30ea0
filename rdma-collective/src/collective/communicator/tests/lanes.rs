//! Lanes that fail under operations: because their path is cut, or because one end or both give them up.

use std::sync::Barrier;

use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::memory::CacheHint;
use rdma_core::{RemoteKey, RemoteMemory};

use super::*;
use crate::collective::communicator::link::Link;

/// A rank's communicator, and the faults of its device.
struct Rank {
    comm: Communicator,
    faults: FaultPlan,
}

/// Runs `body` on each rank of a world whose links have so many lanes, with a silent peer lost after 1 s.
fn each<T: Send + 'static>(
    (world, lanes, wire): (u32, u8, Wire),
    body: impl Fn(Rank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let token = JobToken::from_bytes([5; 16]);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, world)).unwrap();
    let (address, body) = (server.address(), Arc::new(body));
    let rank = move |rank| {
        let mut store = StoreClient::connect(Join { address, token, rank, world }, soon()).unwrap();
        let faults = FaultPlan::seeded(1);
        let device = SoftOptions { wire, faults: Some(faults.clone()), ..SoftOptions::default() };
        let engine =
            EngineOptions { heartbeat: SECOND / 5, peer_timeout: SECOND, ..EngineOptions::default() };
        let engine = Engine::new(&Device::soft(device).open().unwrap(), engine).unwrap();
        let algorithms = "ring,tree,pairs,bruck".parse().unwrap();
        let options = CommunicatorOptions { lanes, algorithms, ..CommunicatorOptions::default() };
        Rank { comm: Communicator::new(&engine, &mut store, options, soon()).unwrap(), faults }
    };
    let ranks: Vec<_> = (0..world)
        .map(|number| {
            let body = Arc::clone(&body);
            thread::spawn(move || body(rank(number)))
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// An all-reduce, an all-to-all, and a send around the ring. Returns whether each element is right.
fn is_right(comm: &mut Communicator, count: usize) -> bool {
    let (rank, world) = (comm.rank(), comm.size());
    let input = |rank: u32| (0..count as u32).map(move |at| at * 31 + rank * 1_000_003);
    let mut data: Vec<u32> = input(rank).collect();
    comm.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
    let summed = data
        .iter()
        .zip(0..)
        .all(|(sum, at)| *sum == (0..world).map(|rank| at * 31 + rank * 1_000_003).sum::<u32>());
    let part = count.min(5000);
    let mut parts: Vec<u32> = (0..world).flat_map(|to| vec![rank * 100 + to; part]).collect();
    comm.all_to_all(&mut parts, soon()).unwrap();
    let turned =
        (0..world).zip(parts.chunks(part)).all(|(from, part)| part.iter().all(|it| *it == from * 100 + rank));
    let tensor = {
        let mut tensor = comm.alloc::<u32>(count).unwrap();
        tensor.copy_from_slice(&input(rank).collect::<Vec<_>>());
        tensor
    };
    let pending = comm.start_all_reduce(tensor, ReduceOp::Max, soon()).unwrap();
    let tensor = pending.wait(soon()).unwrap();
    summed && turned && tensor.iter().copied().eq(input(world - 1))
}

/// The lanes that are left of the link to the next rank.
fn left(comm: &Communicator) -> usize {
    comm.with_links(|_, links| links.table.link(links.next).unwrap().lanes.open.len()).unwrap()
}

/// Has this end give up a lane of each link.
fn give_up(shared: &Shared, number: usize) {
    shared.engine.lock_with(|core| {
        let state = shared.lock();
        let give_up = |link: &Link| {
            if let Some(lane) = link.lanes.all.get(number).and_then(|id| core.lane(*id)) {
                lane.fail(LaneFailure::Silent { since: SECOND });
            }
        };
        state.links.iter().flat_map(|links| links.table.links()).for_each(give_up);
    });
}

#[test]
fn lanes_that_either_end_or_both_give_up_cost_no_element() {
    for round in 0..12_u64 {
        let (world, lanes) = (2 + round as u32 % 2, 2 + round as u8 % 3);
        let wire = if round % 4 < 2 { Wire::Tcp } else { Wire::Local };
        let begun = Arc::new(Barrier::new(world as usize));
        let right = each((world, lanes, wire), move |Rank { mut comm, .. }| {
            comm.connect(soon()).unwrap();
            let rank = u64::from(comm.rank());
            let shared = Arc::clone(&comm.shared);
            begun.wait();
            // Each end gives up another lane or the same one, at another moment; some ends give up none.
            let number = ((round + rank * (round / 4)) % u64::from(lanes)) as usize;
            let gives_up = rank == 0 || (round % 3 == 0 && lanes > 2);
            let given_up = thread::spawn(move || {
                thread::sleep(Duration::from_micros((round * 7919 + rank * 977) % 15_000));
                if gives_up {
                    give_up(&shared, number);
                }
            });
            let right = (0..12).all(|number| is_right(&mut comm, [50_000, 300_000, 3][number % 3]));
            given_up.join().unwrap();
            let right = right && is_right(&mut comm, 1000);
            let left = left(&comm);
            let expected = if gives_up { 1..usize::from(lanes) } else { 1..usize::from(lanes) + 1 };
            assert!(expected.contains(&left), "round {round}: {left} of {lanes} lanes are left");
            comm.close(soon()).unwrap();
            right
        });
        assert!(right.iter().all(|right| *right), "round {round}: {right:?}");
    }
}

#[test]
fn a_path_that_is_cut_costs_time_and_no_element() {
    for round in 0..4_u64 {
        let wire = if round % 2 == 0 { Wire::Tcp } else { Wire::Local };
        let begun = Arc::new(Barrier::new(2));
        let right = each((2, 2, wire), move |Rank { mut comm, faults }| {
            let lane = (round / 2) as usize;
            let id = comm.with_links(|core, links| {
                let id = links.table.link(links.next).unwrap().lanes.all[lane];
                core.lane(id).unwrap().name().qp_num
            });
            begun.wait();
            let cut = (comm.rank() == 1).then(|| {
                thread::spawn(move || {
                    thread::sleep(Duration::from_micros(round * 7919 % 5000));
                    faults.add(Rule::new(Fault::Drop).on_queue_pair(id.unwrap()));
                })
            });
            let right = (0..10).all(|_| is_right(&mut comm, 300_000));
            cut.into_iter().for_each(|cut| cut.join().unwrap());
            // The cut may have come after the last of these.
            let right = right && is_right(&mut comm, 100_000);
            assert_eq!(left(&comm), 1, "round {round}");
            comm.close(soon()).unwrap();
            right
        });
        assert!(right.iter().all(|right| *right), "round {round}: {right:?}");
    }
}

#[test]
fn a_rank_whose_last_lane_ends_is_named_with_the_last_reason() {
    let errors = each((2, 3, Wire::Tcp), |Rank { mut comm, .. }| {
        assert!(is_right(&mut comm, 1000));
        if comm.rank() == 1 {
            // Stays until the other has found out.
            return comm.barrier(soon()).unwrap_err();
        }
        (0..3).for_each(|lane| give_up(&comm.shared, lane));
        comm.barrier(soon()).unwrap_err()
    });
    let silent = |error: &CollectiveError| {
        matches!(error, CollectiveError::PeerFailed { rank: 1, cause: LaneFailure::Silent { .. }, .. })
    };
    assert!(silent(&errors[0]), "{errors:?}");
}

/// Has the device refuse a request of a lane of each link, amid those that are queued.
fn have_refused(shared: &Shared, number: usize) {
    let elsewhere = Engine::new(&Device::soft(local()).open().unwrap(), EngineOptions::default()).unwrap();
    let region = elsewhere.alloc_local(8).unwrap().into_region().unwrap();
    // Another worker has the region, so that this one does not know its name.
    let range = elsewhere.lock().attach(&region).range(0, 8).on(0);
    shared.engine.lock_with(|core| {
        let state = shared.lock();
        let refuse = |link: &Link| {
            let lane = link.lanes.all.get(number).and_then(|id| core.lane(*id));
            if let Some(lane) = lane.filter(|lane| lane.room_for_reads() > 0) {
                lane.read_range(
                    range,
                    RemoteMemory { addr: 0, len: 8, rkey: RemoteKey(0) },
                    CacheHint::Cached,
                    true,
                );
            }
        };
        state.links.iter().flat_map(|links| links.table.links()).for_each(refuse);
    });
}

#[test]
fn a_request_that_the_device_refuses_costs_a_lane_and_no_element() {
    for round in 0..6_u64 {
        let (world, lanes) = (2 + round as u32 % 2, 2 + round as u8 % 2);
        let wire = if round % 3 == 2 { Wire::Local } else { Wire::Tcp };
        let begun = Arc::new(Barrier::new(world as usize));
        let right = each((world, lanes, wire), move |Rank { mut comm, .. }| {
            comm.connect(soon()).unwrap();
            let shared = Arc::clone(&comm.shared);
            let refuses = comm.rank() == 0;
            begun.wait();
            let refused = thread::spawn(move || {
                thread::sleep(Duration::from_micros(round * 7919 % 15_000));
                if refuses {
                    have_refused(&shared, (round % u64::from(lanes)) as usize);
                }
            });
            let right = (0..9).all(|number| is_right(&mut comm, [50_000, 300_000, 3][number % 3]));
            refused.join().unwrap();
            let right = right && is_right(&mut comm, 1000);
            let (left, lost) = (left(&comm), comm.lost_lanes());
            assert!(!refuses || left == usize::from(lanes) - 1, "round {round}: {left} of {lanes} are left");
            assert!(
                !refuses || lost.iter().all(|lost| lost.reason.contains("not attached")),
                "round {round}: {lost:?}"
            );
            comm.close(soon()).unwrap();
            right
        });
        assert!(right.iter().all(|right| *right), "round {round}: {right:?}");
    }
}
