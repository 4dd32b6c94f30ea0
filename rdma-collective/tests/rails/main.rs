//! Operations over several devices a rank: every element, whatever becomes of a device.

#[path = "../common/mod.rs"]
mod common;
mod dying;
mod parts;
mod setup;
#[path = "../world/mod.rs"]
mod world;

use common::{WIRES, long};
use proptest::prelude::*;
use rdma_collective::collective::{Rails, RailsOptions, ReduceOp};
use rdma_core::Wire;
use setup::{Setup, each_railed};

/// A call: the collective, the elements of a part, and the root.
#[derive(Debug, Clone, Copy)]
struct Call {
    kind: u8,
    count: usize,
    root: u32,
}

/// The element at index `at` of `rank`.
fn element(rank: u32, at: usize) -> i32 {
    at as i32 * 31 + rank as i32 * 1_000_003
}

fn input(rank: u32, len: usize) -> Vec<i32> {
    (0..len).map(|at| element(rank, at)).collect()
}

/// The sum of all ranks' elements at that index.
fn sum(ranks: u32, at: usize) -> i32 {
    (0..ranks).map(|rank| element(rank, at)).sum()
}

/// How many kinds of them there are.
const KINDS: u8 = 16;

impl Call {
    /// Makes it, and says whether every element of the output is what it must be.
    fn is_right(self, rails: &mut Rails) -> bool {
        if self.kind < 8 { self.reduces_or_spreads(rails) } else { parts::is_right(self, rails) }
    }

    fn reduces_or_spreads(self, rails: &mut Rails) -> bool {
        let (rank, ranks) = (rails.rank(), rails.size());
        let Self { kind, count, root } = self;
        let (root, whole) = (root % ranks, count * ranks as usize);
        let own = rank as usize * count..(rank as usize + 1) * count;
        let mut data = input(rank, count);
        let mut all = input(rank, whole);
        let op = ReduceOp::Sum;
        let is_sum = |data: &[i32], first: usize| {
            data.iter().enumerate().all(|(at, value)| *value == sum(ranks, first + at))
        };
        let gathered: Vec<i32> = (0..ranks).flat_map(|rank| input(rank, count)).collect();
        match kind {
            0 => {
                rails.all_reduce(&mut data, op, long()).unwrap();
                is_sum(&data, 0)
            }
            1 => {
                let mut output = vec![0; count];
                rails.all_reduce_into(&data, &mut output, op, long()).unwrap();
                is_sum(&output, 0) && data == input(rank, count)
            }
            2 => {
                all.fill(0);
                all[own].copy_from_slice(&data);
                rails.all_gather(&mut all, long()).unwrap();
                all == gathered
            }
            3 => {
                rails.all_gather_into(&data, &mut all, long()).unwrap();
                all == gathered
            }
            4 => {
                rails.reduce_scatter(&mut all, op, long()).unwrap();
                let (before, after) = (&all[..own.start], &all[own.end..]);
                let rest = input(rank, whole);
                is_sum(&all[own.clone()], own.start)
                    && before == &rest[..own.start]
                    && after == &rest[own.end..]
            }
            5 => {
                rails.reduce_scatter_into(&all, &mut data, op, long()).unwrap();
                is_sum(&data, own.start)
            }
            6 => {
                rails.broadcast(&mut data, root, long()).unwrap();
                data == input(root, count)
            }
            _ => {
                rails.reduce(&mut data, op, root, long()).unwrap();
                if rank == root { is_sum(&data, 0) } else { data == input(rank, count) }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_right_whatever_is_cut(
        ranks in 1_u32..5,
        rails in 1_usize..4,
        wire in prop::sample::select(&WIRES),
        stripe_bytes_min in prop_oneof![Just(0_usize), 1_usize..4000],
        piece_bytes in prop_oneof![Just(0_usize), 1000_usize..20_000],
        calls in prop::collection::vec((0..KINDS, 0_usize..3000, 0_u32..4), 1..8),
    ) {
        let options = RailsOptions { stripe_bytes_min, piece_bytes, ..RailsOptions::default() };
        let calls: Vec<_> = calls.into_iter().map(|(kind, count, root)| {
            // In pieces of an element each a round takes a message for every one.
            Call { kind, count: if piece_bytes == 0 { count % 40 } else { count }, root }
        }).collect();
        let shared = calls.clone();
        let wrong = each_railed(Setup { ranks, rails, wire, options, faults: Vec::new() }, move |mut rails| {
            let wrong = shared.iter().position(|call| !call.is_right(&mut rails));
            rails.close(long()).unwrap();
            wrong
        });
        for (rank, wrong) in wrong.iter().enumerate() {
            prop_assert!(wrong.is_none(), "rank {} of {:?}", rank, wrong.map(|wrong| calls[wrong]));
        }
    }
}

#[test]
fn large_ones_of_every_kind_go_over_all_rails() {
    each_railed(Setup::of(2, 2, Wire::Local), |mut rails| {
        for kind in 0..KINDS {
            let call = Call { kind, count: 3_000_001, root: 1 };
            assert!(call.is_right(&mut rails), "{call:?}");
        }
        rails.close(long()).unwrap();
    });
}
