//! Collectives whose ranks have parts of any length, against what each rank must have.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::world::each_communicator;
use proptest::prelude::*;
use rdma_collective::collective::{AbortReason, CollectiveError, ScheduleError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{DataType, ReduceOp, Tensor};
use rdma_core::{Deadline, Wire};

/// Elements that go from each rank to each, by both.
type Counts = Vec<Vec<usize>>;

fn element(from: usize, to: usize, at: usize) -> u32 {
    from as u32 * 1000 + to as u32 * 100 + (at as u32 & 0xffff) * 10_000
}

fn elements(from: usize, to: usize, count: usize) -> impl Iterator<Item = u32> {
    (0..count).map(move |at| element(from, to, at))
}

/// The elements that `rank` sends to all and those that it must receive, in the order of ranks; and the counts.
struct Expected {
    sent: Vec<u32>,
    received: Vec<u32>,
    send_counts: Vec<usize>,
    receive_counts: Vec<usize>,
}

fn all_to_all(counts: &Counts, rank: usize) -> Expected {
    let all = 0..counts.len();
    let (send_counts, receive_counts): (Vec<_>, Vec<_>) =
        all.clone().map(|other| (counts[rank][other], counts[other][rank])).unzip();
    let sent = all.clone().flat_map(|to| elements(rank, to, send_counts[to])).collect();
    let received = all.flat_map(|from| elements(from, rank, receive_counts[from])).collect();
    Expected { sent, received, send_counts, receive_counts }
}

/// For one count a rank, which is the first row: the part of `rank`, the parts of all, and the counts.
fn of_each(counts: &Counts, rank: usize) -> (Vec<u32>, Vec<u32>, Vec<usize>) {
    let counts = counts[0].clone();
    let own = elements(rank, 0, counts[rank]).collect();
    let all = (0..counts.len()).flat_map(|from| elements(from, 0, counts[from])).collect();
    (own, all, counts)
}

fn tensor(comm: &Communicator, data: &[u32]) -> Tensor<u32> {
    let mut tensor = comm.alloc::<u32>(data.len()).unwrap();
    tensor.copy_from_slice(data);
    tensor
}

/// All of them on slices and, as handles, on tensors, of which some ranks have the one and some the other.
fn assert_right(comm: &mut Communicator, counts: &Counts, root: u32, owned: bool) {
    let rank = comm.rank() as usize;
    let Expected { sent, received, send_counts, receive_counts } = all_to_all(counts, rank);
    let (own, all, of_each) = of_each(counts, rank);
    let is_root = rank == root as usize;
    let (at_root, counts_of_root) = if is_root { (&all[..], &of_each[..]) } else { (&[][..], &[][..]) };
    if owned {
        let output = |comm: &Communicator, len| tensor(comm, &vec![7; len]);
        let mut pending = Vec::new();
        let (input, result) = (tensor(comm, &sent), output(comm, received.len()));
        let begun = comm.start_all_to_all_v(input, &send_counts, result, &receive_counts, long());
        pending.push((begun.unwrap(), sent, received));
        let (input, result) = (tensor(comm, &own), output(comm, at_root.len()));
        let begun = comm.start_gather_v(input, result, counts_of_root, root, long());
        pending.push((begun.unwrap(), own.clone(), at_root.to_vec()));
        let (input, result) = (tensor(comm, at_root), output(comm, own.len()));
        let begun = comm.start_scatter_v(input, counts_of_root, result, root, long());
        pending.push((begun.unwrap(), at_root.to_vec(), own_of(&all, &of_each, rank)));
        let (input, result) = (tensor(comm, &own), output(comm, all.len()));
        let begun = comm.start_all_gather_v(input, result, &of_each, long());
        pending.push((begun.unwrap(), own, all));
        for (pending, input, expected) in pending {
            let (unchanged, output) = pending.wait(long()).unwrap();
            assert!(*unchanged == *input && *output == *expected, "rank {rank}, root {root}: {counts:?}");
        }
        return;
    }
    let mut output = vec![7; received.len()];
    comm.all_to_all_v(&sent, &send_counts, &mut output, &receive_counts, long()).unwrap();
    assert!(output == received, "all-to-all-v, rank {rank}: {counts:?}");
    let mut output = vec![7; at_root.len()];
    comm.gather_v(&own, &mut output, counts_of_root, root, long()).unwrap();
    assert!(output == at_root, "gather-v, rank {rank}, root {root}: {counts:?}");
    let mut output = vec![7; own.len()];
    comm.scatter_v(at_root, counts_of_root, &mut output, root, long()).unwrap();
    assert!(output == own_of(&all, &of_each, rank), "scatter-v, rank {rank}, root {root}: {counts:?}");
    let mut output = vec![7; all.len()];
    comm.all_gather_v(&own, &mut output, &of_each, long()).unwrap();
    assert!(output == all, "all-gather-v, rank {rank}: {counts:?}");
}

fn assert_reduced(comm: &mut Communicator, counts: &Counts) {
    let rank = comm.rank() as usize;
    let (own, all, of_each) = of_each(counts, rank);
    let mut output = vec![7; own.len()];
    comm.reduce_scatter_v(&all, &mut output, &of_each, ReduceOp::Sum, long()).unwrap();
    let sums = own_of(&all, &of_each, rank).into_iter().map(|element| element.wrapping_mul(comm.size()));
    assert!(output.into_iter().eq(sums), "reduce-scatter-v, rank {rank}: {counts:?}");
}

fn own_of(all: &[u32], counts: &[usize], rank: usize) -> Vec<u32> {
    let begin: usize = counts[..rank].iter().sum();
    all[begin..begin + counts[rank]].to_vec()
}

fn counts() -> impl Strategy<Value = Counts> {
    // Nothing, what fits a slot, and what takes several rounds of all slots.
    let count =
        prop_oneof![3 => Just(0_usize), 4 => 1..40_usize, 3 => 1..5000_usize, 1 => 60_000..120_000_usize];
    (1_usize..9)
        .prop_flat_map(move |ranks| prop::collection::vec(prop::collection::vec(count.clone(), ranks), ranks))
}

fn options() -> impl Strategy<Value = CommunicatorOptions> {
    let small = (1_u16..6, 500_usize..1000, 0_usize..64).prop_map(|(slots, elements, chunk_bytes_min)| {
        let slot_bytes = elements * 8;
        CommunicatorOptions { slots, slot_bytes, chunk_bytes_min, ..CommunicatorOptions::default() }
    });
    prop_oneof![Just(CommunicatorOptions::default()), small]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_counts_come_where_they_must(
        counts in counts(),
        options in options(),
        wire in prop::sample::select(&WIRES),
        root in 0_u32..8,
        owned in prop::collection::vec(any::<bool>(), 8),
    ) {
        let ranks = counts.len() as u32;
        each_communicator(ranks, wire, options, move |mut comm| {
            let own = comm.rank() as usize;
            assert_right(&mut comm, &counts, root % ranks, owned[own]);
            assert_reduced(&mut comm, &counts);
            assert_right(&mut comm, &counts, (root + 1) % ranks, !owned[own]);
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn they_go_on_among_others_and_nothing_at_all_may_be_sent() {
    for wire in WIRES {
        each_communicator(4, wire, CommunicatorOptions::default(), |mut comm| {
            let nothing = vec![vec![0; 4]; 4];
            let alone: Counts =
                (0..4).map(|from| (0..4).map(|to| if from == to { 9 } else { 0 }).collect()).collect();
            for counts in [&nothing, &alone, &nothing] {
                assert_right(&mut comm, counts, 2, false);
                assert_reduced(&mut comm, counts);
                let mut data = [1_u64; 4];
                comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                assert_eq!(data, [4; 4]);
                comm.all_to_all(&mut data, long()).unwrap();
                comm.barrier(long()).unwrap();
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn counts_that_do_not_fit_are_refused_and_nothing_is_lost() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        let (own, mut output) = (comm.rank(), [7_u32; 3]);
        let error = comm.all_to_all_v(&[1_u32, 2], &[1, 2], &mut output, &[1, 2], long()).unwrap_err();
        let CollectiveError::CountsDoNotFit { buffer: "input", elements: 2, counts: 2, sum: 3, ranks: 2 } =
            error
        else {
            panic!("{error}");
        };
        for counts in [&[3][..], &[1, 1, 1], &[1, 1], &[usize::MAX, 4]] {
            let error = comm.all_gather_v(&[1_u32], &mut output, counts, long()).unwrap_err();
            assert!(matches!(error, CollectiveError::CountsDoNotFit { buffer: "output", .. }), "{error}");
        }
        let counts = if own == 0 { [1, 2] } else { [2, 1] };
        let error = comm.all_gather_v(&[1_u32, 2, 3], &mut output, &counts, long()).unwrap_err();
        let CollectiveError::CountsDiffer { rank, peer, expected: 1, sent: 3 } = error else {
            panic!("{error}")
        };
        assert_eq!([rank, peer], [own; 2]);
        let error = comm.gather_v(&[1_u32], &mut output, &[1, 2], 2, long()).unwrap_err();
        assert!(matches!(
            error,
            CollectiveError::Schedule(ScheduleError::RankOutOfRange { rank: 2, ranks: 2 })
        ));
        let error = comm.scatter_v_bytes(&[0; 5], &[1, 0], &mut [], 0, DataType::F32, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::Reduce(_)), "{error}");
        let counts = if own == 0 { [1, 2] } else { [2, 1] };
        let error =
            comm.reduce_scatter_v(&[1_u32; 3], &mut output, &counts, ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::CountsDiffer { expected: 3, sent: 1, .. }), "{error}");
        let (input, result) = (tensor(&comm, &[1]), tensor(&comm, &[2]));
        let refused = comm.start_all_to_all_v(input, &[1], result, &[1], long()).unwrap_err();
        assert!(matches!(refused.error, CollectiveError::CountsDoNotFit { .. }));
        assert_eq!([refused.object.0[0], refused.object.1[0]], [1, 2]);
        assert_eq!(output, [7; 3]);
        assert_right(&mut comm, &vec![vec![1, 2], vec![3, 4]], 1, false);
    });
}

/// The errors of three ranks, of which rank 0 sends rank 1 `sent` elements where that expects `expected`.
fn differ(sent: usize, expected: usize, wire: Wire) -> Vec<CollectiveError> {
    let gone = Barrier::new(3);
    each_communicator(3, wire, CommunicatorOptions::default(), move |mut comm| {
        let (mut send_counts, mut receive_counts) = ([5; 3], [5; 3]);
        match comm.rank() {
            0 => send_counts[1] = sent,
            1 => receive_counts[0] = expected,
            _ => {}
        }
        let [mut guarded, input] =
            [&receive_counts, &send_counts].map(|counts| vec![7_u32; counts.iter().sum::<usize>()]);
        guarded.extend([9; 100]);
        let (output, beyond) = guarded.split_at_mut(receive_counts.iter().sum());
        let error = comm
            .all_to_all_v(&input, &send_counts, output, &receive_counts, long())
            .and_then(|()| comm.barrier(long()))
            .unwrap_err();
        gone.wait();
        assert!(beyond.iter().all(|element| *element == 9));
        error
    })
}

#[test]
fn other_counts_on_the_two_sides_are_an_error_that_names_both() {
    for wire in [Wire::Local, Wire::Mapped] {
        for (sent, expected) in [(5, 6), (0, 1), (1, 0), (300_000, 3), (3, 1_000_000)] {
            let errors = differ(sent, expected, wire);
            let CollectiveError::CountsDiffer { rank: 1, peer: 0, expected: e, sent: s } = errors[1] else {
                panic!("{}", errors[1]);
            };
            assert_eq!([s, e], [sent as u64, expected as u64]);
            let text = errors[1].to_string();
            assert!(text.contains(&format!("rank 0 sends {sent} elements to rank 1")), "{text}");
            for error in [&errors[0], &errors[2]] {
                let CollectiveError::Aborted {
                    culprit: 0, reporter: 1, reason: AbortReason::Mismatch, ..
                } = error
                else {
                    panic!("{error}");
                };
            }
        }
    }
}

#[test]
fn another_collective_or_type_is_an_error_that_quotes_both() {
    type Called = fn(&mut Communicator) -> Result<(), CollectiveError>;
    let usual: Called = |comm| comm.all_to_all_v(&[1_u32; 3], &[1; 3], &mut [0; 3], &[1; 3], long());
    let others: [(Called, &str); 4] = [
        (|comm| comm.barrier(long()), "barrier 0 of 0 uint8"),
        (|comm| comm.all_to_all(&mut [0_u32; 3], long()), "all-to-all 0 of 1 uint32"),
        (|comm| comm.gather_v(&[1_u32], &mut [], &[], 0, long()), "gather-v 0 of uint32 to rank 0"),
        (
            |comm| comm.all_to_all_v(&[1_f32; 3], &[1; 3], &mut [0.0; 3], &[1; 3], long()),
            "all-to-all-v 0 of float",
        ),
    ];
    for (other, name) in others {
        let errors = each_communicator(3, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
            let called = if comm.rank() == 1 { other } else { usual };
            called(&mut comm).and_then(|()| comm.barrier(long())).unwrap_err()
        });
        let quoted = errors.iter().filter(|error| matches!(error, CollectiveError::Mismatch { .. }));
        let texts: Vec<_> = quoted.map(ToString::to_string).collect();
        assert!(!texts.is_empty(), "{errors:?}");
        let usual = "all-to-all-v 0 of uint32";
        assert!(texts.iter().all(|text| text.contains(name) && text.contains(usual)), "{texts:?}");
        for error in &errors {
            let known = matches!(
                error,
                CollectiveError::Mismatch { .. }
                    | CollectiveError::Aborted { reason: AbortReason::Mismatch, .. }
            );
            assert!(known, "{error}");
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline() {
    let named = AtomicU32::new(0);
    each_communicator(3, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
        comm.connect(long()).unwrap();
        comm.barrier(long()).unwrap();
        if comm.rank() != 1 {
            let soon = Deadline::after(Duration::from_secs(2));
            let error = comm.all_to_all_v(&[1_u32; 3], &[1; 3], &mut [0; 3], &[1; 3], soon).unwrap_err();
            match error {
                CollectiveError::DeadlineExceeded { rank: 1, .. }
                | CollectiveError::Aborted { culprit: 1, reason: AbortReason::DeadlineExceeded, .. } => {}
                other => panic!("{other}"),
            }
            named.fetch_add(1, Ordering::Relaxed);
        }
        let started = Instant::now();
        while named.load(Ordering::Relaxed) < 2 && started.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(5));
        }
    });
}
