//! Operations that only copy more than the caches of a host hold: their stores bypass the caches.

use crate::common::long;
use crate::world::each_communicator;
use rdma_collective::collective::Tensor;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_core::Wire;

/// Bytes that the ranks read and write together, from which on stores bypass the caches on every processor.
const BEYOND: usize = 16 << 20;

fn element(rank: u32, index: usize) -> u32 {
    (index as u32 ^ rank << 28).wrapping_mul(0x9e37_79b1)
}

fn input(rank: u32, count: usize) -> Vec<u32> {
    (0..count).map(|index| element(rank, index)).collect()
}

/// Element count of one of `parts` parts, which together exceed the caches; not a multiple of a line or a piece.
fn count(parts: usize) -> usize {
    BEYOND / size_of::<u32>() / parts + 4099
}

fn tensor(comm: &Communicator, elements: &[u32]) -> Tensor<u32> {
    let mut tensor = comm.alloc(elements.len()).unwrap();
    tensor.copy_from_slice(elements);
    tensor
}

fn assert_is(what: &str, found: &[u32], expected: impl Fn(usize) -> u32) {
    let wrong = found.iter().enumerate().position(|(at, element)| *element != expected(at));
    assert_eq!(wrong, None, "the first wrong element of {what}");
}

fn broadcast(comm: &mut Communicator) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let (root, own) = (ranks - 1, input(rank, count(ranks as usize)));
    let right = |at| element(root, at);

    let mut data = own.clone();
    comm.broadcast(&mut data, root, long()).unwrap();
    assert_is("broadcast", &data, right);
    let mut output = vec![0; own.len()];
    comm.broadcast_into(&own, &mut output, root, long()).unwrap();
    assert_is("broadcast_into", &output, right);
    let pending = comm.start_broadcast(tensor(comm, &own), root, long()).unwrap();
    assert_is("start_broadcast", &pending.wait(long()).unwrap(), right);
    let (data, output) = (tensor(comm, &own), comm.alloc(own.len()).unwrap());
    let pending = comm.start_broadcast_into(data, output, root, long()).unwrap();
    assert_is("start_broadcast_into", &pending.wait(long()).unwrap().1, right);
}

fn all_gather(comm: &mut Communicator) {
    let (rank, ranks) = (comm.rank(), comm.size() as usize);
    let part = count(ranks * (ranks + 1));
    let own = input(rank, part);
    let right = |at: usize| element((at / part) as u32, at % part);

    let mut output = vec![0; ranks * part];
    comm.all_gather_into(&own, &mut output, long()).unwrap();
    assert_is("all_gather_into", &output, right);
    let mut data = vec![0; ranks * part];
    data[rank as usize * part..][..part].copy_from_slice(&own);
    let all = tensor(comm, &data);
    comm.all_gather(&mut data, long()).unwrap();
    assert_is("all_gather", &data, right);
    let pending = comm.start_all_gather(all, long()).unwrap();
    assert_is("start_all_gather", &pending.wait(long()).unwrap(), right);
    let (data, output) = (tensor(comm, &own), comm.alloc(ranks * part).unwrap());
    let pending = comm.start_all_gather_into(data, output, long()).unwrap();
    assert_is("start_all_gather_into", &pending.wait(long()).unwrap().1, right);
}

fn all_to_all(comm: &mut Communicator) {
    let (rank, ranks) = (comm.rank(), comm.size() as usize);
    let part = count(2 * ranks * ranks);
    let own = input(rank, ranks * part);
    let right = |at: usize| element((at / part) as u32, rank as usize * part + at % part);

    let mut output = vec![0; own.len()];
    comm.all_to_all_into(&own, &mut output, long()).unwrap();
    assert_is("all_to_all_into", &output, right);
    let mut data = own.clone();
    comm.all_to_all(&mut data, long()).unwrap();
    assert_is("all_to_all", &data, right);
    let pending = comm.start_all_to_all(tensor(comm, &own), long()).unwrap();
    assert_is("start_all_to_all", &pending.wait(long()).unwrap(), right);
    let (data, output) = (tensor(comm, &own), comm.alloc(own.len()).unwrap());
    let pending = comm.start_all_to_all_into(data, output, long()).unwrap();
    assert_is("start_all_to_all_into", &pending.wait(long()).unwrap().1, right);
}

fn on_few(of: fn(&mut Communicator)) {
    for ranks in [2, 3, 4] {
        each_communicator(ranks, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
            of(&mut comm);
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn a_broadcast_that_no_cache_holds_is_whole_on_slices_and_on_tensors() {
    on_few(broadcast);
}

#[test]
fn an_all_gather_that_no_cache_holds_is_whole_on_slices_and_on_tensors() {
    on_few(all_gather);
}

#[test]
fn an_all_to_all_that_no_cache_holds_is_whole_on_slices_and_on_tensors() {
    on_few(all_to_all);
}
