//! Ranks that call different operations: every rank gets an error, and no error names an innocent rank.

use crate::common::long;
use crate::world::each_communicator;
use rdma_collective::collective::{AbortReason, CollectiveError, OperationName};
use rdma_collective::collective::{Algorithms, CommunicatorOptions};
use rdma_collective::collective::{DataType, ReduceOp};
use rdma_core::Wire;

/// A call of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Called {
    count: usize,
    data_type: DataType,
    op: ReduceOp,
}

const CALLED: Called = Called { count: 64, data_type: DataType::F32, op: ReduceOp::Sum };

impl Called {
    fn is(self, name: &OperationName) -> bool {
        name.count == self.count as u64 && name.of == format!("{} ({})", self.data_type, self.op)
    }
}

/// Rank 1 calls `odd` and the others `usual`, one after the other: all must fail before the deadline, and each error
/// names rank 1 and another, or quotes what both have really called.
fn assert_mismatch<const N: usize>(ranks: u32, odd: [Called; N], usual: [Called; N]) {
    assert_mismatch_by(Algorithms::default(), ranks, odd, usual);
    assert_mismatch_by("flat,ring".parse().unwrap(), ranks, odd, usual);
    assert_mismatch_by("tree".parse().unwrap(), ranks, odd, usual);
}

/// Asserts a mismatch when only `algorithms` are allowed.
fn assert_mismatch_by<const N: usize>(
    algorithms: Algorithms,
    ranks: u32,
    odd: [Called; N],
    usual: [Called; N],
) {
    let calls = move |rank| if rank == 1 { odd } else { usual };
    let options = CommunicatorOptions { algorithms, ..CommunicatorOptions::default() };
    let errors = each_communicator(ranks, Wire::Local, options, move |mut comm| {
        let called = calls(comm.rank());
        let mut call = |Called { count, data_type, op }| {
            comm.all_reduce_bytes(&mut vec![0; count * data_type.size()], data_type, op, long())
        };
        // Where there is nothing to reduce, a rank hears of a mistake far away later: one call for each rank between.
        (0..ranks).flat_map(|_| called).find_map(|called| call(called).err()).unwrap()
    });
    let differ = |rank: u32, peer: u32| {
        assert!((rank == 1) != (peer == 1), "innocent ones are named: {errors:?}");
    };
    let mut seen = 0;
    for (own, error) in (0..).zip(&errors) {
        match error {
            CollectiveError::Mismatch { rank, peer, ours, theirs } => {
                assert_eq!(*rank, own);
                differ(*rank, *peer);
                let at = ours.sequence as usize % N;
                assert!(calls(*rank)[at].is(ours) && calls(*peer)[at].is(theirs), "{error}");
                assert_eq!(ours.sequence, theirs.sequence, "{error}");
                seen += 1;
            }
            CollectiveError::Aborted { culprit, reporter, reason: AbortReason::Mismatch, .. } => {
                differ(*reporter, *culprit);
                let text = error.to_string();
                assert!(text.ends_with(&format!("on ranks {culprit} and {reporter}")), "{text}");
            }
            other => panic!("rank {own}: {other}"),
        }
    }
    assert!(seen > 0, "{errors:?}");
}

#[test]
fn other_counts_on_one_rank_are_an_error_on_all() {
    for (odd, usual) in [(1, 100_000), (0, 1), (0, 3_000_000), (3, 0), (3_000_000, 3_000_001)] {
        for ranks in [2, 4] {
            let [odd, usual] = [odd, usual].map(|count| Called { count, ..CALLED });
            assert_mismatch(ranks, [odd], [usual]);
        }
    }
}

#[test]
fn other_types_and_reductions_are_an_error_that_quotes_both() {
    for count in [0, 64, 1_000_000] {
        let usual = Called { count, ..CALLED };
        for ranks in [2, 4] {
            assert_mismatch(ranks, [Called { data_type: DataType::F16, ..usual }], [usual]);
            // An equal number of bytes.
            assert_mismatch(ranks, [Called { data_type: DataType::I32, ..usual }], [usual]);
            assert_mismatch(ranks, [Called { op: ReduceOp::Max, ..usual }], [usual]);
        }
    }
}

#[test]
fn another_order_of_calls_is_an_error_on_all() {
    let small = Called { count: 100, op: ReduceOp::Min, ..CALLED };
    let [large, alike] = [1_000_000, 100].map(|count| Called { count, ..CALLED });
    for ranks in [2, 4] {
        for first in [large, alike] {
            assert_mismatch(ranks, [small, first], [first, small]);
            // The mismatch follows a call in which both agree.
            assert_mismatch(ranks, [CALLED, small, first], [CALLED, first, small]);
        }
    }
}
