//! Tests of the eager plan: sent ranges against the ranges that each rank uses, and the order of reductions against the
//! ring's.

use proptest::prelude::*;

use super::*;
use crate::collective::call::Request;
use crate::collective::schedule::{Operation, Ring, Staging};

fn calls(count: usize, ranks: u32) -> Vec<Call> {
    let roots = (0..ranks).flat_map(|root| {
        let reduce = Collective::Reduce.by(ReduceOp::Prod).at(root);
        [Collective::Broadcast.at(root), reduce, Collective::Gather.at(root), Collective::Scatter.at(root)]
    });
    let rest = [ReduceOp::Sum, ReduceOp::Max]
        .into_iter()
        .flat_map(|op| [Collective::AllReduce.by(op), Collective::ReduceScatter.by(op)]);
    let collectives =
        roots.chain(rest).chain([Collective::AllGather, Collective::AllToAll].map(Request::from));
    let call =
        |request: Request| [DataType::F32, DataType::I16].map(|data_type| request.of(count, data_type));
    collectives.flat_map(call).collect()
}

/// The range of its output that a rank must write.
fn output(call: &Call, rank: u32, ranks: u32) -> Span {
    let len = call.bytes();
    match call.collective {
        Collective::AllGather | Collective::AllToAll => Span { offset: 0, len: len * ranks as usize },
        Collective::Gather if call.root == rank => Span { offset: 0, len: len * ranks as usize },
        Collective::Gather => Span { offset: 0, len: 0 },
        Collective::ReduceScatter | Collective::Scatter => Span { offset: len * rank as usize, len },
        Collective::Reduce if call.root != rank => Span { offset: 0, len: 0 },
        _ => Span { offset: 0, len },
    }
}

#[test]
fn every_byte_is_made_once_of_what_all_ranks_send() {
    for ranks in 2..7 {
        for count in [0, 1, 2, 3, 7, 40] {
            for call in calls(count, ranks) {
                for rank in 0..ranks {
                    let options = CommunicatorOptions::default();
                    let part = |rank| EagerPlan::new(call, RankOf { rank, size: ranks }, &options).unwrap();
                    let own = part(rank);
                    let mut at = output(&call, rank, ranks);
                    // In the elements of the operation a message lies where it is used.
                    let copied = own.copied().map(|Copied { span, from }| (span, from..from + 1, span.len));
                    let reduced =
                        own.reduced().map(|Reduced { span, at, .. }| (span, 0..ranks, at + span.len));
                    for (span, from, end) in copied.chain(reduced) {
                        assert_eq!(span.offset, at.offset, "{call:?} on {rank} of {ranks}");
                        at = Span { offset: at.offset + span.len, len: at.len - span.len };
                        for from in from {
                            let sent = part(from).sent(rank);
                            assert!(end <= sent.len && sent.len == own.received(from), "{call:?}");
                        }
                    }
                    assert_eq!(at.len, 0, "{call:?} on {rank} of {ranks}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn sums_of_floats_begin_where_those_of_the_ring_do(ranks in 3_u32..9, count in 0_usize..1000, chunk_bytes_min in 0_usize..300) {
        let options = CommunicatorOptions { chunk_bytes_min, ..CommunicatorOptions::default() };
        let call = Collective::AllReduce.by(ReduceOp::Sum).of(count, DataType::F32);
        let mut first = vec![u32::MAX; count];
        for rank in 0..ranks {
            let staging = Staging { chunk_bytes_min, ..Staging::default() };
            let operation = Operation { rank, ranks, count, data_type: DataType::F32, staging };
            for step in Ring::all_reduce(operation).unwrap() {
                // The rank that sends an element from its input is the first one of that element's sum.
                for span in step.put_from_input() {
                    first[span.offset / 4..span.range().end / 4].fill(rank);
                }
            }
        }
        let exchange = EagerPlan::new(call, RankOf { rank: 0, size: ranks }, &options).unwrap();
        prop_assert_eq!(exchange.copied().count(), 0);
        for Reduced { span, first: from, .. } in exchange.reduced() {
            prop_assert!(first[span.offset / 4..span.range().end / 4].iter().all(|first| *first == from));
        }
    }
}

#[test]
fn what_is_long_goes_another_way_and_what_the_ring_refuses_is_the_rings() {
    let call = |count| Collective::AllReduce.by(ReduceOp::Sum).of(count, DataType::F64);
    let options = CommunicatorOptions::default();
    for ranks in [2, 4, 5, 16] {
        let (is_flat, most) = (
            |call| EagerPlan::new(call, RankOf { rank: 0, size: ranks }, &options).is_some(),
            message_bytes_max(ranks) / 8,
        );
        assert!(is_flat(call(most)) && !is_flat(call(most + 1)), "{ranks}");
    }
    let is_flat = |call, options: &_| EagerPlan::new(call, RankOf { rank: 0, size: 2 }, options).is_some();
    assert!(!is_flat(call(usize::MAX), &options));
    let small = CommunicatorOptions { slot_bytes: 16, ..options.clone() };
    assert!(is_flat(call(2), &small) && !is_flat(call(3), &small));
    let none = CommunicatorOptions { slot_bytes: 4, ..options.clone() };
    assert!(!is_flat(call(0), &none), "the schedule says why");
    let nobody = Collective::Broadcast.at(2).of(1, DataType::F64);
    assert!(!is_flat(nobody, &options));
}
