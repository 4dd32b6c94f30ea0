//! All-reduce of few ranks that are no power of two, in `log2 n` rounds, rounded up.
//!
//! Owns which ranks exchange what they have, and when.

use super::cut::Cut;
use super::round::Round;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// The first ranks, a power of two, reduce by recursive doubling, and meanwhile the rest reduce in the same way. Then
/// each rank of one side adds what a rank of the other side has. Where the rest are fewer, each of them sends to
/// several ranks, so that this is for few ranks only.
///
/// No deadlock: a rank sends one message to another at most, and all of it [fits](Self::fits) the slots of the link, so
/// that no rank waits for room.
///
/// Both sides add the same two operands, which may change places without changing the bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merging {
    rank: u32,
    ranks: u32,
    whole: Span,
}

impl Merging {
    pub(super) fn new(operation: &Operation) -> Self {
        let Operation { rank, ranks, count, data_type, .. } = *operation;
        Self { rank, ranks, whole: Span { offset: 0, len: count * data_type.size() } }
    }

    /// Whether there are ranks beyond a power of two, and a whole buffer fits the slots of a link.
    pub(super) fn fits(operation: &Operation) -> bool {
        let Operation { ranks, count, data_type, staging, .. } = *operation;
        let size = data_type.size();
        let chunks = Cut::new(size, &staging).map_or(u64::MAX, |cut| cut.chunks(count.saturating_mul(size)));
        !ranks.is_power_of_two() && chunks <= u64::from(staging.slots)
    }

    pub(super) fn rounds(&self) -> u32 {
        rounds(self.rank, self.ranks)
    }

    pub(super) fn joins_all(&self) -> bool {
        self.whole.len > 0
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let exchange = |round| exchange(self.rank, self.ranks, round);
        let ([to, from], last) = (exchange(round), round + 1 == self.rounds());
        let has_added = (0..round).any(|before| exchange(before)[1].is_some());
        let have = Extent::of(if has_added { Buffer::Output } else { Buffer::Input }, self.whole);
        // A copy, because this rank adds to the same bytes in this round.
        let send = to.map(|to| Round::send(to, have, true)).unwrap_or_default();
        let add = |from| Round::reduce_from(from, have, Extent::output(self.whole), last);
        send.and(from.map(add).unwrap_or_default())
    }
}

/// The ranks of `ranks` that are a power of two, and the rest.
fn sides(ranks: u32) -> [u32; 2] {
    let first = 1 << ranks.ilog2();
    [first, ranks - first]
}

/// The number of exchanges of `rank` among `ranks`.
fn rounds(rank: u32, ranks: u32) -> u32 {
    let [first, rest] = sides(ranks);
    match rank.checked_sub(first) {
        None => first.ilog2() + u32::from(rest > 0),
        Some(other) => rounds(other, rest) + (first - other).div_ceil(rest),
    }
}

/// The rank that `rank` among `ranks` sends what it has to in a round, and then the rank whose it adds.
fn exchange(rank: u32, ranks: u32, round: u32) -> [Option<u32>; 2] {
    let [first, rest] = sides(ranks);
    let Some(other) = rank.checked_sub(first) else {
        if round < first.ilog2() {
            return [Some(rank ^ 1 << round); 2];
        }
        // Several ranks of this side may add what one of the rest has.
        return [(rank < rest).then_some(first + rank), Some(first + rank % rest)];
    };
    match round.checked_sub(rounds(other, rest)) {
        None => exchange(other, rest, round).map(|peer| peer.map(|peer| first + peer)),
        Some(turn) => {
            let to = other + turn * rest;
            [Some(to), (first - to <= rest).then_some(other)]
        }
    }
}
