//! Calls that bring parts from rank to rank, those out of place that have a root, and those on memory of the library.

use rdma_collective::collective::{Communicator, ReduceOp};

use crate::common::long;
use crate::{Call, input, sum};

/// Makes it, and says whether every element of the output is what it must be.
pub fn is_right(call: Call, comm: &mut Communicator) -> bool {
    let root = call.root % comm.size();
    match call.kind {
        8 | 9 => all_to_all(call, comm),
        10 | 11 => gather(call, root, comm),
        12 | 13 => scatter(call, root, comm),
        16 => on_tensors(call, comm),
        17 => around(call, comm),
        18 => uneven(call, comm),
        19 => on_a_tensor_from(call, root, comm),
        20 => {
            comm.barrier(long()).unwrap();
            true
        }
        _ => rooted_out_of_place(call, root, comm),
    }
}

/// The part of `rank` in a buffer with one of `count` elements for each.
fn part(data: &[i32], rank: u32, count: usize) -> &[i32] {
    &data[rank as usize * count..][..count]
}

fn all_to_all(Call { kind, count, .. }: Call, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let whole = count * ranks as usize;
    let expected: Vec<i32> =
        (0..ranks).flat_map(|from| part(&input(from, whole), rank, count).to_vec()).collect();
    let mut data = input(rank, whole);
    if kind == 8 {
        comm.all_to_all(&mut data, long()).unwrap();
        return data == expected;
    }
    let mut output = vec![0; whole];
    comm.all_to_all_into(&data, &mut output, long()).unwrap();
    output == expected && data == input(rank, whole)
}

fn gather(Call { kind, count, .. }: Call, root: u32, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let whole = count * ranks as usize;
    let gathered: Vec<i32> = (0..ranks).flat_map(|from| input(from, count)).collect();
    if kind == 10 {
        let mut data = vec![0; whole];
        data[rank as usize * count..][..count].copy_from_slice(&input(rank, count));
        let before = data.clone();
        comm.gather(&mut data, root, long()).unwrap();
        return data == if rank == root { gathered } else { before };
    }
    let mut output = vec![0; if rank == root { whole } else { 0 }];
    comm.gather_into(&input(rank, count), &mut output, root, long()).unwrap();
    rank != root || output == gathered
}

fn scatter(Call { kind, count, .. }: Call, root: u32, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let whole = count * ranks as usize;
    let given = input(root, whole);
    let own = part(&given, rank, count);
    if kind == 12 {
        let mut data = input(rank, whole);
        let mut expected = data.clone();
        expected[rank as usize * count..][..count].copy_from_slice(own);
        comm.scatter(&mut data, root, long()).unwrap();
        return data == expected;
    }
    let data = if rank == root { given.clone() } else { Vec::new() };
    let mut output = vec![0; count];
    comm.scatter_into(&data, &mut output, root, long()).unwrap();
    output == own
}

/// Calls with a root, out of place; the other ranks leave out the buffer that only the root has.
fn rooted_out_of_place(Call { kind, count, .. }: Call, root: u32, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    if kind == 14 {
        let data = input(rank, if rank == root { count } else { 0 });
        let mut output = vec![0; count];
        comm.broadcast_into(&data, &mut output, root, long()).unwrap();
        return output == input(root, count);
    }
    let mut output = vec![0; if rank == root { count } else { 0 }];
    comm.reduce_into(&input(rank, count), &mut output, ReduceOp::Sum, root, long()).unwrap();
    output.iter().enumerate().all(|(at, value)| *value == sum(ranks, at))
}

/// An all-reduce from tensor to tensor, beside one in place.
fn on_tensors(Call { count, .. }: Call, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let given = |comm: &Communicator| {
        let mut tensor = comm.alloc::<i32>(count).unwrap();
        tensor.copy_from_slice(&input(rank, count));
        tensor
    };
    let (source, both, target) = (given(comm), given(comm), comm.alloc(count).unwrap());
    let apart = comm.start_all_reduce_into(source, target, ReduceOp::Sum, long()).unwrap();
    let together = comm.start_all_reduce(both, ReduceOp::Sum, long()).unwrap();
    let ((source, target), both) = (apart.wait(long()).unwrap(), together.wait(long()).unwrap());
    let is_sum = |data: &[i32]| data.iter().enumerate().all(|(at, value)| *value == sum(ranks, at));
    source[..] == input(rank, count)[..] && is_sum(&target) && is_sum(&both)
}

/// A message to the next rank, and one from the previous.
fn around(Call { count, .. }: Call, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    if ranks == 1 {
        return true;
    }
    comm.connect(long()).unwrap();
    let mut output = vec![0; count];
    comm.send_recv(&input(rank, count), next, &mut output, previous, long()).unwrap();
    output == input(previous, count)
}

/// Parts of other lengths on each rank.
fn uneven(Call { count, .. }: Call, comm: &mut Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..ranks as usize).map(|rank| rank * count / 3).collect();
    let mut output = vec![0; counts.iter().sum()];
    comm.all_gather_v(&input(rank, counts[rank as usize]), &mut output, &counts, long()).unwrap();
    let expected: Vec<i32> = (0..).zip(&counts).flat_map(|(rank, count)| input(rank, *count)).collect();
    output == expected
}

fn on_a_tensor_from(Call { count, .. }: Call, root: u32, comm: &mut Communicator) -> bool {
    let mut tensor = comm.alloc::<i32>(count).unwrap();
    tensor.copy_from_slice(&input(comm.rank(), count));
    let tensor = comm.start_broadcast(tensor, root, long()).unwrap().wait(long()).unwrap();
    tensor[..] == input(root, count)[..]
}
