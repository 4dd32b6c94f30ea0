//! Zero-copy collectives between ranks of one host, compared with plain sums. The tests also check that the protocol
//! was taken: no message goes around the ring.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rdma_core::{Deadline, Device, SoftOptions, Wire};

use crate::collective::communicator::{Communicator, CommunicatorOptions, Reach, UNIT_BYTES};
use crate::collective::execute::tests::each_client;
use crate::collective::{ReduceOp, Tensor};
use crate::engine::{Engine, EngineOptions};

/// Whether the store at the peer fails after a reduction of two ranks in place.
static REFUSES: AtomicBool = AtomicBool::new(false);
/// The number of such failures.
static REFUSED: AtomicU32 = AtomicU32::new(0);

pub(super) fn is_refused() -> bool {
    let refuses = REFUSES.load(Ordering::Relaxed);
    REFUSED.fetch_add(u32::from(refuses), Ordering::Relaxed);
    refuses
}

/// Elements of a part: not a whole number of cache lines, and more than an eager message holds.
const PART: usize = 9_001;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn each_rank(world: u32, slot_bytes: usize, body: impl Fn(Communicator) + Copy + Send + 'static) {
    each_client(world, move |_, store| {
        let wire = if world.is_multiple_of(2) { Wire::Mapped } else { Wire::Local };
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
        let engine = Engine::new(&context, EngineOptions::default()).unwrap();
        let options = CommunicatorOptions { slot_bytes, ..CommunicatorOptions::default() };
        body(Communicator::new(&engine, store, options, soon()).unwrap());
    });
}

/// Element `at` of the input of a rank.
fn element(rank: u32, at: usize) -> u32 {
    (at as u32).wrapping_mul(0x9e37_79b9).rotate_left(rank) ^ rank
}

fn sum(world: u32, at: usize) -> u32 {
    (0..world).fold(0, |sum, rank| sum.wrapping_add(element(rank, at)))
}

fn tensor(comm: &Communicator, elements: impl ExactSizeIterator<Item = u32>) -> Tensor<u32> {
    let mut tensor = comm.alloc(elements.len()).unwrap();
    tensor.iter_mut().zip(elements).for_each(|(place, element)| *place = element);
    tensor
}

fn input(comm: &Communicator, count: usize) -> Tensor<u32> {
    let rank = comm.rank();
    tensor(comm, (0..count).map(|at| element(rank, at)))
}

fn assert_is(what: &str, found: &[u32], expected: impl Fn(usize) -> u32) {
    let wrong = (0..found.len()).find(|at| found[*at] != expected(*at));
    assert_eq!(wrong, None, "{what}: {:?}", wrong.map(|at| (found[at], expected(at))));
}

/// The number of messages that have arrived from the previous rank of the ring.
fn messages(comm: &Communicator) -> u64 {
    comm.with_links(|_, links| links.table.link(links.previous).unwrap().inbox.given_back()).unwrap()
}

#[test]
fn every_collective_is_what_plain_sums_are_and_sends_nothing_around_the_ring() {
    for world in 2..=5 {
        // Small slots exclude the pipelined protocol, so a call that is not zero-copy goes around the ring.
        each_rank(world, 4096, |mut comm| {
            let (rank, world) = (comm.rank(), comm.size());
            let (all, own) = (PART * world as usize, PART * rank as usize);
            for root in 0..world {
                let before = messages(&comm);
                in_place(&mut comm, [all, own], root);
                out_of_place(&mut comm, [all, own], root);
                assert_eq!(messages(&comm), before, "it went around the ring");
            }
            // Borrowed slices do go around the ring.
            let before = messages(&comm);
            comm.all_reduce(&mut vec![1_u32; all], ReduceOp::Sum, soon()).unwrap();
            assert!(messages(&comm) > before);
            comm.close(soon()).unwrap();
        });
    }
}

#[test]
fn what_two_ranks_in_place_are_refused_once_it_is_made_is_stored_again_and_not_made_twice() {
    REFUSES.store(true, Ordering::Relaxed);
    each_rank(2, 4096, |mut comm| {
        for count in [PART, 40 * PART] {
            let data = input(&comm, count);
            let data = comm.start_all_reduce(data, ReduceOp::Sum, soon()).unwrap().wait(soon()).unwrap();
            assert_is("all-reduce", &data, |at| sum(2, at));
        }
        comm.close(soon()).unwrap();
    });
    REFUSES.store(false, Ordering::Relaxed);
    assert!(REFUSED.load(Ordering::Relaxed) > 0, "it goes another way");
}

#[test]
fn an_all_to_all_is_right_wherever_the_memory_of_each_rank_is_and_opens_no_links() {
    for world in 2..=5 {
        // Two bits for each rank: whether its buffers are registered, and whether it works in place.
        for mixed in
            [0b00_00_00_00_00, 0b11_11_11_11_11, 0b01_11_01_01_11, 0b01_01_11_10_01, 0b00_01_11_11_01]
        {
            each_rank(world, UNIT_BYTES, move |mut comm| {
                let (owned, in_place) =
                    (mixed >> (2 * comm.rank()) & 1 == 1, mixed >> (2 * comm.rank()) & 2 == 2);
                for part in [0, 1, 15, PART, 5 * PART] {
                    exchange(&mut comm, part, owned, in_place);
                    exchange(&mut comm, part, true, in_place);
                }
                assert!(!comm.is_linked(Reach::Doublings), "links were opened");
                assert_eq!(messages(&comm), 0, "links were used");
                comm.close(soon()).unwrap();
            });
        }
        each_rank(world, UNIT_BYTES - 1, |mut comm| {
            let owned = comm.rank() == 0;
            exchange(&mut comm, PART, owned, false);
            assert!(comm.is_linked(Reach::All) && messages(&comm) > 0, "it has no memory for pieces");
            comm.close(soon()).unwrap();
        });
    }
}

fn exchange(comm: &mut Communicator, part: usize, owned: bool, in_place: bool) {
    let (rank, all) = (comm.rank(), part * comm.size() as usize);
    let (data, mut out) = (input(comm, all), comm.alloc(all).unwrap());
    let (data, out) = match (owned, in_place) {
        (true, true) => (None, comm.start_all_to_all(data, soon()).unwrap().wait(soon()).unwrap()),
        (true, false) => {
            let (data, out) = comm.start_all_to_all_into(data, out, soon()).unwrap().wait(soon()).unwrap();
            (Some(data), out)
        }
        (false, true) => {
            out.copy_from_slice(&data);
            comm.all_to_all(&mut out, soon()).unwrap();
            (None, out)
        }
        (false, false) => {
            comm.all_to_all_into(&data, &mut out, soon()).unwrap();
            (Some(data), out)
        }
    };
    data.iter().for_each(|data| assert_is("an input", data, |at| element(rank, at)));
    assert_is("all-to-all", &out, |at| element((at / part) as u32, rank as usize * part + at % part));
}

fn in_place(comm: &mut Communicator, [all, own]: [usize; 2], root: u32) {
    let (rank, world) = (comm.rank(), comm.size());
    let data = input(comm, all);
    let data = comm.start_reduce_scatter(data, ReduceOp::Sum, soon()).unwrap().wait(soon()).unwrap();
    assert_is("reduce-scatter", &data[own..own + PART], |at| sum(world, own + at));
    let data =
        tensor(comm, (0..all).map(|at| if at / PART == rank as usize { element(rank, at) } else { 7 }));
    let data = comm.start_all_gather(data, soon()).unwrap().wait(soon()).unwrap();
    assert_is("all-gather", &data, |at| element((at / PART) as u32, at));
    let data = input(comm, all);
    let data = comm.start_broadcast(data, root, soon()).unwrap().wait(soon()).unwrap();
    assert_is("broadcast", &data, |at| element(root, at));
    let data = input(comm, all);
    let data = comm.start_reduce(data, ReduceOp::Sum, root, soon()).unwrap().wait(soon()).unwrap();
    if rank == root {
        assert_is("reduce", &data, |at| sum(world, at));
    }
    let data = input(comm, all);
    let data = comm.start_all_reduce(data, ReduceOp::Sum, soon()).unwrap().wait(soon()).unwrap();
    assert_is("all-reduce", &data, |at| sum(world, at));
}

/// Runs the collectives out of place, and checks that the inputs do not change.
fn out_of_place(comm: &mut Communicator, [all, own]: [usize; 2], root: u32) {
    let (rank, world) = (comm.rank(), comm.size());
    let is_input = |data: &Tensor<u32>| assert_is("an input", data, |at| element(rank, at));
    let (data, out) = (input(comm, all), comm.alloc(PART).unwrap());
    let pending = comm.start_reduce_scatter_into(data, out, ReduceOp::Sum, soon()).unwrap();
    let (data, out) = pending.wait(soon()).unwrap();
    is_input(&data);
    assert_is("reduce-scatter", &out, |at| sum(world, own + at));
    let (data, out) = (input(comm, PART), comm.alloc(all).unwrap());
    let (data, out) = comm.start_all_gather_into(data, out, soon()).unwrap().wait(soon()).unwrap();
    is_input(&data);
    assert_is("all-gather", &out, |at| element((at / PART) as u32, at % PART));
    let (data, out) = (input(comm, all), comm.alloc(all).unwrap());
    let (data, out) = comm.start_broadcast_into(data, out, root, soon()).unwrap().wait(soon()).unwrap();
    is_input(&data);
    assert_is("broadcast", &out, |at| element(root, at));
    let (data, out) = (input(comm, all), comm.alloc(all).unwrap());
    let pending = comm.start_reduce_into(data, out, ReduceOp::Sum, root, soon()).unwrap();
    let (data, out) = pending.wait(soon()).unwrap();
    is_input(&data);
    if rank == root {
        assert_is("reduce", &out, |at| sum(world, at));
    }
}
