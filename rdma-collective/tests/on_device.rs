//! Tests of the software device repeated on the RDMA device of the machine: soft-RoCE will do.
//!
//! Each test is ignored by default, and run by `cargo xtask soft-roce`. One runs at a time, since one reads the
//! device's books.

mod common;
mod pair;

use std::collections::BTreeMap;
use std::fs::read_dir;
use std::thread;
use std::time::{Duration, Instant};

use common::{long, rdma_books};
use pair::{CANARY, SHAPE, TOKEN, assert_moved, fill, link, pool, source_byte, transfer};
use rdma_collective::bootstrap::{Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::{Context, DeviceList, Memory};

/// In a soak; a tenth otherwise.
const ROUNDS: u32 = 200;

fn device() -> Context {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device");
    DeviceList::probe().find(&name).unwrap().open().unwrap()
}

fn engine() -> Engine {
    Engine::new(&device(), EngineOptions::default()).unwrap()
}

/// The kernel's counts for the process and for the RDMA subsystem, by name.
fn books() -> BTreeMap<String, usize> {
    let mut books = rdma_books();
    for (name, path) in [("descriptors", "/proc/self/fd"), ("threads", "/proc/self/task")] {
        books.insert(name.to_owned(), read_dir(path).unwrap().count());
    }
    books
}

/// Asserts that rounds leak nothing: the counts at the end are at most those after the first rounds. Less is no fault:
/// what one round held may be given back, by an engine's thread, after the first reading.
fn leaves_nothing(mut round: impl FnMut(u32)) {
    let rounds = if common::is_soak() { ROUNDS } else { ROUNDS / 10 };
    (0..5).for_each(&mut round);
    let before = settled();
    (5..5 + rounds).for_each(round);
    let more = |now: &BTreeMap<String, usize>| now.iter().any(|(name, count)| *count > before[name]);
    let patience = Instant::now() + Duration::from_secs(30);
    while more(&books()) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(50));
    }
    let after = books();
    assert!(!more(&after), "after {rounds} rounds {after:?}, before them {before:?}");
    println!("device {}: after {rounds} rounds as before: {after:?}", device().name());
}

/// The books once nothing has changed in them for a second, and at the latest after 30.
fn settled() -> BTreeMap<String, usize> {
    let began = Instant::now();
    let mut last = (books(), began);
    while last.1.elapsed() < Duration::from_secs(1) && began.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(50));
        let now = books();
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}

/// Runs `body` as each of two ranks.
fn two(body: impl Fn(u32, &mut StoreClient) + Sync) {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 2)).unwrap();
    let address = server.address();
    let body = |rank| {
        let join = Join { address, token: TOKEN, rank, world: 2 };
        body(rank, &mut StoreClient::connect(join, long()).unwrap());
    };
    thread::scope(|scope| {
        scope.spawn(|| body(1));
        body(0);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn links_and_pools_leave_nothing_on_the_device() {
    let (at_prefill, at_decode) = (engine(), engine());
    leaves_nothing(|round| {
        let source = pool(&at_prefill, SHAPE, PoolUse::Source, source_byte);
        let room = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
        let ends = ((&at_prefill, &source), (&at_decode, &room));
        let (prefill, decode) = link(ends.0, ends.1, &LinkOptions::default());
        transfer(&prefill, &decode, round.into(), &[(3, 4), (5, 6)]);
        if round == 0 {
            let held = books();
            assert!(held["mr"] >= 2 && held["qp"] >= 2, "the books have it: {held:?}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn engines_and_communicators_leave_nothing_on_the_device() {
    leaves_nothing(|_| {
        two(|_, store| {
            let mut comm =
                Communicator::new(&engine(), store, CommunicatorOptions::default(), long()).unwrap();
            let mut data = vec![1.5_f32; 100];
            comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
            assert!(data.iter().all(|sum| *sum == 3.0));
            let mut parts = vec![comm.rank(); 20_000];
            comm.all_to_all(&mut parts, long()).unwrap();
            assert!(parts.chunks(10_000).zip(0..).all(|(part, rank)| part == [rank; 10_000]));
            comm.close(long()).unwrap();
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn blocks_are_pushed_between_vectors_of_the_callers() {
    let (at_prefill, at_decode) = (engine(), engine());
    let layout = Layout::new(SHAPE).unwrap();
    let vector = || Memory::from(vec![CANARY; layout.bytes() as usize]);
    let source = Pool::register(&at_prefill, vector(), &layout, PoolUse::Source).unwrap();
    let room = Pool::register(&at_decode, vector(), &layout, PoolUse::Destination).unwrap();
    fill(&source, source_byte);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &room), &LinkOptions::default());
    let pairs = [(0, 23), (23, 0), (7, 8)];
    transfer(&prefill, &decode, 1, &pairs);
    assert_moved(&room, &pairs);
    drop((prefill, decode));
    let back = room.close(long()).unwrap().remove(0).deregister().unwrap().into_owner::<Vec<u8>>().unwrap();
    assert_eq!(back.len() as u64, layout.bytes());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn blocks_are_pulled_under_a_lease() {
    let (at_prefill, at_decode) = (engine(), engine());
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let room = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions { checksums: true, ..LinkOptions::default() };
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &room), &options);
    let all: Vec<(u32, u32)> = (0..SHAPE.blocks).map(|block| (block, SHAPE.blocks - 1 - block)).collect();
    let (sources, rooms): (Vec<u32>, Vec<u32>) = all.iter().copied().unzip();
    for request in 0..20 {
        let offer = prefill.offer(request, &sources, long()).unwrap();
        let received = decode.pull(request, &rooms, long()).unwrap().wait().unwrap();
        assert!(received.verdicts.all_valid());
        assert_eq!(offer.wait().unwrap().corrupt, 0);
    }
    assert_moved(&room, &all);
}

/// Whichever end connects first, the other's first words are not lost.
#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn ends_that_exchange_blobs_connect_in_either_order() {
    let (at_prefill, at_decode) = (engine(), engine());
    let source = pool(&at_prefill, SHAPE, PoolUse::Source, source_byte);
    let room = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions::default();
    // Only the software device has keys of single grants.
    let strict = Decode::prepare(&at_decode, &room, &TOKEN, &LinkOptions { strict: true, ..options.clone() });
    let refused = matches!(strict, Err(rdma_collective::kv::LinkError::NotStrict));
    assert_eq!(refused, !at_decode.context().is_soft());
    drop(strict);
    for request in 0..10 {
        let mut prefill = Prefill::prepare(&at_prefill, &source, &TOKEN, &options).unwrap();
        let mut decode = Decode::prepare(&at_decode, &room, &TOKEN, &options).unwrap();
        let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
        let wait = |first| thread::sleep(Duration::from_millis(if first { 0 } else { 100 }));
        let (prefill, decode) = thread::scope(|scope| {
            let prefill = scope.spawn(move || {
                wait(request % 2 == 0);
                prefill.connect(&to_prefill, long()).unwrap()
            });
            wait(request % 2 != 0);
            let decode = decode.connect(&to_decode, long()).unwrap();
            (prefill.join().unwrap(), decode)
        });
        // Keys of their own would pin the pools once more for each link.
        assert_eq!(decode.has_own_keys(), at_decode.context().is_soft());
        transfer(&prefill, &decode, request, &[(3, 4), (5, 6)]);
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn tensors_are_reduced_where_they_lie() {
    two(|rank, store| {
        let mut comm = Communicator::new(&engine(), store, CommunicatorOptions::default(), long()).unwrap();
        for count in [1, 1000, 1 << 20] {
            let mut tensor = comm.alloc::<f32>(count).unwrap();
            tensor.fill(rank as f32 + 1.0);
            let sum = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap().wait(long()).unwrap();
            assert!(sum.iter().all(|sum| *sum == 3.0), "{count} elements on rank {rank}");
        }
        comm.close(long()).unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn tensors_are_gathered_scattered_and_broadcast_where_they_lie() {
    two(|rank, store| {
        let mut comm = Communicator::new(&engine(), store, CommunicatorOptions::default(), long()).unwrap();
        let (own, sum) = (rank as i32 + 1, ReduceOp::Sum);
        for count in [1, 1000, 1 << 19] {
            let tensor = |count| {
                let mut tensor = comm.alloc::<i32>(count).unwrap();
                tensor.fill(own);
                tensor
            };
            let [part, all] = [tensor(count), tensor(2 * count)];
            let (part, mut all) =
                comm.start_all_gather_into(part, all, long()).unwrap().wait(long()).unwrap();
            assert!(all.iter().enumerate().all(|(at, got)| *got == if at < count { 1 } else { 2 }));
            all.fill(own);
            let scattered = comm.start_reduce_scatter_into(all, part, sum, long()).unwrap().wait(long());
            let (all, part) = scattered.unwrap();
            assert!(part.iter().all(|got| *got == 3));
            let all = comm.start_broadcast(all, 1, long()).unwrap().wait(long()).unwrap();
            assert!(all.iter().all(|got| *got == 2));
            let all = comm.start_reduce(all, sum, 0, long()).unwrap().wait(long()).unwrap();
            let expected = if rank == 0 { 4 } else { 2 };
            assert!(all.iter().all(|got| *got == expected), "{count} elements on rank {rank}");
        }
        comm.close(long()).unwrap();
    });
}
