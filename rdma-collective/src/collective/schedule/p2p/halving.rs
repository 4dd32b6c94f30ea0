//! All-reduce between partners at distances that double, for any number of ranks: recursive doubling, halving and
//! doubling, and all algorithms between them.
//!
//! Owns which span a rank exchanges with which partner in a round. The cut of a message into chunks is `cut`'s.

use super::round::Round;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// Partners exchange and reduce in each round, nearest first. In the first `halvings` rounds each of them keeps half of
/// the span; in the others both reduce all of it. The first rounds, from the last to the first, then spread the halves.
///
/// Without halvings this is recursive doubling, which has the fewest rounds. With as many halvings as doublings it is
/// Rabenseifner's algorithm, which sends the fewest bytes. Near partners come first, so that ranks in blocks on hosts
/// send most bytes inside their hosts.
///
/// Both partners reduce the same two operands, which may change places without changing the bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halving {
    fold: Fold,
    halvings: u32,
    count: usize,
    element: usize,
}

impl Halving {
    /// At most as many `halvings` as there are doublings.
    pub(super) fn new(operation: &Operation, halvings: u32) -> Self {
        let Operation { rank, ranks, count, data_type, .. } = *operation;
        let fold = Fold::new(rank, ranks);
        Self { fold, halvings: halvings.min(fold.bits), count, element: data_type.size() }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.fold.bits + self.halvings + 2
    }

    /// Whether the messages join all ranks: no half is without an element.
    pub(super) fn joins_all(&self) -> bool {
        self.count >> self.halvings > 0
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let Self { fold, halvings, .. } = *self;
        let whole = |buffer| Extent::of(buffer, self.half(0, 0));
        if round == 0 {
            return fold.before(whole(Buffer::Input), whole(Buffer::Output));
        }
        if round + 1 == self.rounds() {
            return fold.after(whole(Buffer::Output));
        }
        let (exchange, worker) = (round - 1, fold.rank);
        if worker >= fold.workers() {
            return Round::default();
        }
        let spreads = exchange >= fold.bits;
        let bit = if spreads { fold.bits + halvings - 1 - exchange } else { exchange };
        let (partner, depth) = (worker ^ 1 << bit, (bit + 1).min(halvings));
        let (mine, theirs) = (self.half(worker, depth), self.half(partner, depth));
        let output = |span| Extent::of(Buffer::Output, span);
        if spreads {
            return Round::send(partner, output(mine), false).and(Round::copy_from(partner, output(theirs)));
        }
        let have = if exchange == 0 && !fold.has_taken() { Buffer::Input } else { Buffer::Output };
        let (sent, operand) = (Extent::of(have, theirs), Extent::of(have, mine));
        // The partner overwrites a half that was sent only by what it returns after its use. A whole span is
        // overwritten in this round, so that the message must be a copy.
        let copied = bit >= halvings;
        let last = exchange + 1 == fold.bits;
        Round::send(partner, sent, copied).and(Round::reduce_from(partner, operand, output(mine), last))
    }

    /// The span that a worker still has to reduce after `depth` halvings.
    fn half(&self, worker: u32, depth: u32) -> Span {
        let (mut start, mut len) = (0, self.count);
        for bit in 0..depth {
            let (behind, half) = split(len, 2, (worker >> bit & 1) as usize);
            (start, len) = (start + behind, half);
        }
        Span { offset: start * self.element, len: len * self.element }
    }
}

/// The role of a rank where the number of ranks is not a power of two: the first ranks, a power of two, are workers.
///
/// Each of the other ranks gives its input to a worker before the work, and receives the result from it after the work.
/// The two are at a distance of a power of two, too.
#[derive(Clone, Copy, Debug)]
struct Fold {
    rank: u32,
    ranks: u32,
    /// There are `1 << bits` workers.
    bits: u32,
}

impl Fold {
    fn new(rank: u32, ranks: u32) -> Self {
        Self { rank, ranks, bits: ranks.ilog2() }
    }

    fn workers(&self) -> u32 {
        1 << self.bits
    }

    /// Whether another rank's input is folded into this worker.
    fn has_taken(&self) -> bool {
        self.rank < self.ranks - self.workers()
    }

    /// The round before the work, in which inputs are folded.
    fn before(&self, input: Extent, output: Extent) -> Round {
        match self.rank.checked_sub(self.workers()) {
            Some(worker) => Round::send(worker, input, false),
            None if self.has_taken() => Round::reduce_from(self.rank + self.workers(), input, output, false),
            None => Round::default(),
        }
    }

    /// The round after the work, in which the folded ranks receive the result.
    fn after(&self, output: Extent) -> Round {
        match self.rank.checked_sub(self.workers()) {
            Some(worker) => Round::copy_from(worker, output),
            None if self.has_taken() => Round::send(self.rank + self.workers(), output, false),
            None => Round::default(),
        }
    }
}
