//! Algorithms and protocols: each gives right results, and ranks that allow different ones get an error.

use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::tuning::Tuning;
use rdma_collective::collective::{Algorithms, Communicator, CommunicatorOptions};
use rdma_collective::collective::{ReduceOp, Tensor};
use rdma_core::Wire;

use crate::common::long;
use crate::world::{each_communicator, each_rank};

fn input(rank: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|index| index.wrapping_mul(0x9e37_79b9) ^ rank).collect()
}

/// Runs the operations on slices and on tensors.
fn all_right(comm: &mut Communicator, count: usize) -> bool {
    let (rank, ranks, root) = (comm.rank(), comm.size(), comm.size() - 1);
    let mut sum = vec![0_u32; count];
    for rank in 0..ranks {
        sum.iter_mut().zip(input(rank, count)).for_each(|(sum, of)| *sum = sum.wrapping_add(of));
    }
    let own = input(rank, count);
    let mut right = true;

    let mut data = own.clone();
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    right &= data == sum;
    let mut data = own.clone();
    comm.broadcast(&mut data, root, long()).unwrap();
    right &= data == input(root, count);
    let mut output = vec![0; count];
    comm.reduce_into(&own, &mut output, ReduceOp::Sum, root, long()).unwrap();
    right &= rank != root || output == sum;
    let mut all = vec![0; count * ranks as usize];
    comm.all_gather_into(&own, &mut all, long()).unwrap();
    right &= (0..ranks).flat_map(|rank| input(rank, count)).eq(all.iter().copied());
    comm.barrier(long()).unwrap();
    let all: Vec<u32> = (0..ranks).flat_map(|to| own.iter().map(move |of| of.wrapping_add(to))).collect();
    let mut part = vec![0; count];
    comm.reduce_scatter_into(&all, &mut part, ReduceOp::Sum, long()).unwrap();
    right &= sum.iter().map(|sum| sum.wrapping_add(rank.wrapping_mul(ranks))).eq(part.iter().copied());

    let mut tensor: Tensor<u32> = comm.alloc(count).unwrap();
    tensor.copy_from_slice(&own);
    let tensor = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap().wait(long()).unwrap();
    right && *tensor == *sum
}

/// Asserts that operations of all lengths are right on all ranks.
fn assert_all_right(ranks: u32, wire: Wire, options: CommunicatorOptions) {
    let algorithms = options.algorithms;
    let right = each_communicator(ranks, wire, options, |mut comm| {
        let right = [0, 1, 1000, 5000, 100_000].map(|count| all_right(&mut comm, count));
        comm.close(long()).unwrap();
        right
    });
    assert!(right.iter().all(|right| *right == [true; 5]), "{ranks}, {algorithms}: {right:?}");
}

#[test]
fn operations_are_right_whichever_ways_they_may_take() {
    for ranks in 1..=4 {
        for (wire, algorithms) in [
            (Wire::Mapped, "ring"),
            (Wire::Mapped, "tree"),
            (Wire::Mapped, "flat"),
            (Wire::Mapped, "pieces"),
            (Wire::Mapped, "direct"),
            (Wire::Mapped, "^ring"),
            (Wire::Tcp, "tree"),
            (Wire::Tcp, "direct"),
        ] {
            let set: Algorithms = algorithms.parse().unwrap();
            for reproducible in [false, true] {
                let options =
                    CommunicatorOptions { algorithms: set, reproducible, ..CommunicatorOptions::default() };
                assert_all_right(ranks, wire, options);
            }
        }
    }
}

#[test]
fn the_built_in_table_is_right_over_links_for_up_to_8_ranks() {
    for ranks in 1..=8 {
        assert_all_right(ranks, Wire::Tcp, CommunicatorOptions::default());
        let small = CommunicatorOptions { slots: 2, slot_bytes: 4096, ..CommunicatorOptions::default() };
        assert_all_right(ranks, Wire::Tcp, small);
    }
}

/// All ranks have the same bits of sums that round, although each reduces for itself.
#[test]
fn all_ranks_have_the_same_bits_over_links() {
    for ranks in 2..=8 {
        let bits = each_communicator(ranks, Wire::Tcp, CommunicatorOptions::default(), |mut comm| {
            let bits = [1, 7, 1000, 40_000, 300_000].map(|count| {
                let mut data: Vec<f32> =
                    input(comm.rank(), count).iter().map(|of| *of as f32 / 3.0).collect();
                comm.all_reduce(&mut data, ReduceOp::Avg, long()).unwrap();
                data.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            comm.close(long()).unwrap();
            bits
        });
        assert!(bits.iter().all(|of| *of == bits[0]), "{ranks}");
    }
}

#[test]
fn ranks_that_ask_for_other_ways_are_told_when_they_meet() {
    let errors = each_rank(3, Wire::Mapped, |mut rank| {
        let asked = if rank.rank == 1 { "Tree" } else { "ring,direct" };
        let options =
            CommunicatorOptions { algorithms: asked.parse().unwrap(), ..CommunicatorOptions::default() };
        Communicator::new(&rank.engine, &mut rank.store, options, long()).unwrap_err()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let text = error.to_string();
        let CommunicatorError::Differs { field: "algorithms", .. } = error else { panic!("{rank}: {text}") };
        assert!(text.contains("tree") && text.contains("ring,direct"), "{text}");
    }
}

/// All-to-all, which has algorithms of its own.
fn is_right_all_to_all(comm: &mut Communicator, count: usize) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let own = input(rank, count * ranks as usize);
    let mut all = vec![0; own.len()];
    comm.all_to_all_into(&own, &mut all, long()).unwrap();
    let part = rank as usize * count..(rank as usize + 1) * count;
    (0..ranks).flat_map(|from| input(from, count * ranks as usize)[part.clone()].to_vec()).eq(all)
}

#[test]
fn all_to_all_is_right_by_others_and_in_pairs_whatever_its_length() {
    for (wire, algorithm) in
        [(Wire::Mapped, "bruck"), (Wire::Mapped, "pairs"), (Wire::Tcp, "bruck"), (Wire::Mapped, "tree")]
    {
        for ranks in [2, 3, 6] {
            let options = CommunicatorOptions {
                algorithms: algorithm.parse().unwrap(),
                ..CommunicatorOptions::default()
            };
            let right = each_communicator(ranks, wire, options, |mut comm| {
                let right = [0, 1, 64, 3000, 70_000].map(|count| is_right_all_to_all(&mut comm, count));
                comm.close(long()).unwrap();
                right
            });
            assert!(right.iter().all(|right| *right == [true; 5]), "{ranks}, {algorithm}: {right:?}");
        }
    }
}

/// A rank can send to any other only after an operation has made links to all ranks.
fn is_linked(comm: &mut Communicator) -> bool {
    let (next, mut got) = ((comm.rank() + 1) % comm.size(), [0_u8]);
    let previous = (comm.rank() + comm.size() - 1) % comm.size();
    match comm.send_recv(&[1], next, &mut got, previous, long()) {
        Ok(()) => true,
        Err(CollectiveError::Unconnected { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn all_to_all_makes_no_links_unless_pieces_may_not_be_taken_and_links_may() {
    for (algorithms, expected) in [
        ("^tree", false),
        ("direct", false),
        ("direct,flat", false),
        ("direct,pieces,pairs", false),
        ("^pieces", true),
        ("direct,pairs", true),
        ("^pieces;all-to-all:direct,pieces", false),
        ("pieces;all-to-all:pairs", true),
    ] {
        let options =
            CommunicatorOptions { algorithms: algorithms.parse().unwrap(), ..CommunicatorOptions::default() };
        let linked = each_communicator(3, Wire::Mapped, options, |mut comm| {
            assert!(is_right_all_to_all(&mut comm, 20_000));
            // An operation on tensors only, and one on a tensor beside slices of the others.
            for borrows in [3, 0] {
                let (rank, mut data) = (comm.rank(), input(comm.rank(), 3 * 20_000));
                if rank == borrows {
                    comm.all_to_all(&mut data, long()).unwrap();
                } else {
                    let mut tensor = comm.alloc(data.len()).unwrap();
                    tensor.copy_from_slice(&data);
                    let pending = comm.start_all_to_all(tensor, long()).unwrap();
                    data.copy_from_slice(&pending.wait(long()).unwrap());
                }
                let part = rank as usize * 20_000..(rank as usize + 1) * 20_000;
                assert!((0..3).flat_map(|from| input(from, 3 * 20_000)[part.clone()].to_vec()).eq(data));
            }
            let linked = is_linked(&mut comm);
            comm.close(long()).unwrap();
            linked
        });
        assert_eq!(linked, [expected; 3], "{algorithms}");
    }
}

/// A tuning table with another algorithm for each size; some of them are impossible here.
pub const MIXED: &str = "rdma-collective tuning 1
all-reduce 2- mapped 2K direct,flat
all-reduce 2- mapped 8K tree,direct
all-reduce 2- mapped 64K direct,tree
all-reduce 2- mapped any pieces,flat
broadcast 2-3 mapped 8K pieces
broadcast 2-3 mapped any tree
reduce 2- mapped any flat
all-gather 3 mapped any ring
barrier 2- mapped any ring
all-reduce 2- links 8K tree
end
";

#[test]
fn operations_are_right_whatever_a_table_says() {
    let tuning: Tuning = MIXED.parse().unwrap();
    for (ranks, wire) in
        [(1, Wire::Mapped), (2, Wire::Mapped), (3, Wire::Mapped), (4, Wire::Mapped), (3, Wire::Tcp)]
    {
        for (algorithms, reproducible) in [("^tree", false), ("^ring", true), ("^flat", false)] {
            let algorithms: Algorithms = algorithms.parse().unwrap();
            let tuning = tuning.clone();
            let options =
                CommunicatorOptions { algorithms, reproducible, tuning, ..CommunicatorOptions::default() };
            assert_all_right(ranks, wire, options);
        }
    }
}

#[test]
fn ranks_whose_tables_differ_are_told_of_both_when_they_meet() {
    let errors = each_rank(3, Wire::Mapped, |mut rank| {
        let tuning = if rank.rank == 1 { MIXED.parse().unwrap() } else { Tuning::default() };
        let options = CommunicatorOptions { tuning, ..CommunicatorOptions::default() };
        Communicator::new(&rank.engine, &mut rank.store, options, long()).unwrap_err()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let text = error.to_string();
        let CommunicatorError::Differs { field: "tuning", .. } = error else { panic!("{rank}: {text}") };
        assert!(text.contains("built in (") && text.contains("given by the program ("), "{text}");
    }
}
