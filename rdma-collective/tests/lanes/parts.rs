//! Calls that bring parts from rank to rank, and those out of place that have a root.

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
