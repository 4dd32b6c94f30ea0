//! Ranks of several hosts, which only their names tell apart here. Ranks of one host share memory, others use TCP,
//! and a hierarchical all-reduce reduces inside the hosts first.

use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::{Algorithm, Communicator, CommunicatorOptions};
use rdma_collective::collective::{ReduceOp, Tensor};
use rdma_core::{Deadline, PeerAccess, Wire};

use crate::common::long;
use crate::world::each_rank;

/// Runs `body` on as many ranks as `hosts` has numbers, each on the host of that number.
fn on_hosts<T: Send + 'static>(
    hosts: &[u32],
    options: CommunicatorOptions,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let of = hosts.to_vec();
    each_rank(hosts.len() as u32, Wire::Auto, move |mut rank| {
        let host_id = Some(format!("host-{}", of[rank.rank as usize]));
        body(rank.communicator(CommunicatorOptions { host_id, ..options.clone() }))
    })
}

fn hierarchical() -> CommunicatorOptions {
    CommunicatorOptions { algorithms: "hierarchical".parse().unwrap(), ..CommunicatorOptions::default() }
}

fn input(rank: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|index| index.wrapping_mul(0x9e37_79b9) ^ rank).collect()
}

/// Reduces slices, in place and out of place, and tensors. Returns the bits of the floats, which only have to be
/// alike on all ranks.
fn is_right(comm: &mut Communicator, count: usize) -> (bool, Vec<u32>) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let mut sum = vec![0_u32; count];
    for rank in 0..ranks {
        sum.iter_mut().zip(input(rank, count)).for_each(|(sum, of)| *sum = sum.wrapping_add(of));
    }
    let own = input(rank, count);
    let mut data = own.clone();
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    let mut right = data == sum;
    let mut output = vec![7; count];
    comm.all_reduce_into(&own, &mut output, ReduceOp::Sum, long()).unwrap();
    right &= output == sum && own == input(rank, count);
    let mut tensor: Tensor<u32> = comm.alloc(count).unwrap();
    tensor.copy_from_slice(&own);
    let pending = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap();
    // Another operation waits behind this one.
    let mut ones = vec![1.0_f64; count];
    comm.all_reduce(&mut ones, ReduceOp::Avg, long()).unwrap();
    right &= ones.iter().all(|one| *one == 1.0);
    right &= *pending.wait(long()).unwrap() == *sum;
    let mut floats: Vec<f32> = own.iter().map(|of| *of as f32 / 3.0).collect();
    comm.all_reduce(&mut floats, ReduceOp::Sum, long()).unwrap();
    (right, floats.into_iter().map(f32::to_bits).collect())
}

fn assert_right(hosts: &[u32], count: usize, options: CommunicatorOptions) {
    let all = on_hosts(hosts, options, move |mut comm| {
        let right = is_right(&mut comm, count);
        comm.close(long()).unwrap();
        right
    });
    assert!(all.iter().all(|(right, _)| *right), "{hosts:?}, {count}");
    assert!(all.iter().all(|(_, bits)| *bits == all[0].1), "{hosts:?}, {count}: bits differ");
}

#[test]
fn all_reduce_is_right_on_hosts_of_any_shape() {
    for hosts in [
        &[0, 0, 1, 1][..],
        &[0, 1, 0, 1],
        &[0, 0, 0, 1, 1, 1],
        &[0, 0, 1, 1, 2, 2, 3, 3],
        &[0, 0, 1],
        &[0, 1, 1, 1, 2, 2],
    ] {
        for count in [0, 1, 5, 1000, 300_000] {
            assert_right(hosts, count, hierarchical());
        }
    }
}

#[test]
fn it_is_taken_where_it_is_asked_for_and_ranks_are_together_on_several_hosts() {
    for hosts in [&[0, 0, 1, 1][..], &[0, 0, 0, 1], &[0, 1, 2], &[0, 0, 0]] {
        let several = *hosts != [0, 1, 2] && *hosts != [0, 0, 0];
        let options =
            CommunicatorOptions { algorithms: "hierarchical,ring".parse().unwrap(), ..hierarchical() };
        let table = "rdma-collective tuning 1\nall-reduce 2- links any hierarchical\nend\n";
        let options = CommunicatorOptions { tuning: table.parse().unwrap(), ..options };
        let linked = on_hosts(hosts, options, |mut comm| {
            let can = comm.can(Algorithm::Hierarchical);
            let linked = is_linked_by_an_all_reduce(&mut comm, 100_000);
            comm.close(long()).unwrap();
            (can, linked)
        });
        assert!(linked.iter().all(|linked| *linked == (several, several)), "{hosts:?}: {linked:?}");
    }
}

/// Whether the communicator has links to all ranks, so that any two can send to each other.
fn is_linked_by_an_all_reduce(comm: &mut Communicator, bytes: usize) -> bool {
    let mut data = vec![comm.rank() as u8; bytes];
    comm.all_reduce(&mut data, ReduceOp::Max, long()).unwrap();
    assert!(data.iter().all(|most| u32::from(*most) + 1 == comm.size()));
    let (rank, mut got) = (comm.rank(), [0_u8]);
    let (next, previous) = ((rank + 1) % comm.size(), (rank + comm.size() - 1) % comm.size());
    let linked = comm.send_recv(&data[..1], next, &mut got, previous, long());
    assert_eq!(linked.is_err(), matches!(linked, Err(CollectiveError::Unconnected { .. })));
    linked.is_ok()
}

#[test]
fn none_takes_it_that_is_not_asked_for() {
    let linked = on_hosts(&[0, 0, 0, 0, 1, 1, 1, 1], CommunicatorOptions::default(), |mut comm| {
        let linked = is_linked_by_an_all_reduce(&mut comm, 1000);
        comm.close(long()).unwrap();
        linked
    });
    assert_eq!(linked, [false; 8]);
}

#[test]
fn ranks_of_other_hosts_share_no_memory_and_those_of_one_do() {
    let hosts = [0, 0, 1, 1];
    let near = on_hosts(&hosts, CommunicatorOptions::default(), |comm| {
        let near: Vec<_> = comm.neighbours().collect();
        (comm.rank(), near)
    });
    for (rank, neighbours) in near {
        for (peer, access) in neighbours {
            let together = hosts[rank as usize] == hosts[peer as usize];
            let expected = if together { PeerAccess::Mapped } else { PeerAccess::Stream };
            assert_eq!(access, expected, "{rank} and {peer}");
        }
    }
}

#[test]
fn in_the_order_of_ranks_it_is_the_same_as_on_one_host() {
    let options = || CommunicatorOptions { reproducible: true, ..hierarchical() };
    let bits = [&[0, 0, 1, 1][..], &[0, 0, 0, 0]].map(|hosts| {
        on_hosts(hosts, options(), |mut comm| {
            assert!(!comm.can(Algorithm::Hierarchical));
            let right = is_right(&mut comm, 50_000);
            comm.close(long()).unwrap();
            right
        })
    });
    assert!(bits[0].iter().all(|(right, _)| *right) && bits[0] == bits[1]);
}

#[test]
fn a_rank_that_calls_another_count_is_named() {
    let errors = on_hosts(&[0, 0, 1, 1], hierarchical(), |mut comm| {
        let count = if comm.rank() == 2 { 99_999 } else { 100_000 };
        let mut data = vec![1.0_f32; count];
        let error = comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err();
        (comm.rank(), error.to_string())
    });
    for (rank, error) in errors {
        // The error names that rank and the one that found it, or quotes both counts.
        let pair = error.contains("called different operations") && error.contains('2');
        assert!(error.contains("99999") || pair, "{rank}: {error}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline_and_one_that_leaves_at_once() {
    let errors = on_hosts(&[0, 0, 1, 1], hierarchical(), |mut comm| {
        let mut data = vec![1.0_f32; 100_000];
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        if comm.rank() == 3 {
            thread::sleep(Duration::from_secs(2));
            return (3, String::from("rank 3"));
        }
        let error = comm.all_reduce(&mut data, ReduceOp::Sum, Deadline::after(Duration::from_secs(1)));
        (comm.rank(), error.unwrap_err().to_string())
    });
    for (rank, error) in errors {
        assert!(error.contains("rank 3"), "{rank}: {error}");
    }
    let errors = on_hosts(&[0, 0, 1, 1], hierarchical(), |mut comm| {
        let mut data = vec![1.0_f32; 100_000];
        if comm.rank() == 1 {
            comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
            comm.aborter().abort();
            return (1, String::from("rank 1"));
        }
        // This rank may still be in the first call, in which it needs nothing more of rank 1.
        let mut call = || comm.all_reduce(&mut data, ReduceOp::Sum, long());
        let error = call().and_then(|()| call()).unwrap_err();
        (comm.rank(), error.to_string())
    });
    for (rank, error) in errors {
        assert!(error.contains("rank 1"), "{rank}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_hosts_counts_and_slots_give_what_they_must(
        hosts in prop::collection::vec(0_u32..4, 1..=8),
        slots in 1_u16..9,
        // The count is small enough for a slow machine to send them in time.
        (slot_bytes, count) in prop::sample::select(vec![64_usize, 4096, 60_000])
            .prop_flat_map(|bytes| (Just(bytes), 0..40_000.min(bytes * 50))),
    ) {
        assert_right(&hosts, count, CommunicatorOptions { slots, slot_bytes, ..hierarchical() });
    }
}
