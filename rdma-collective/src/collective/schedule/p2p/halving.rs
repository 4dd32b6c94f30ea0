//! All-reduce between partners at distances that double: halving and doubling, for any number of ranks.
//!
//! Owns which span a rank exchanges with which partner in a round. The cut of a message into chunks is `cut`'s.

use super::round::Round;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// Halving and doubling (Rabenseifner's algorithm): in each round partners exchange halves of the span that they
/// still have to reduce, until each has reduced its own segment. The same rounds, from the last to the first, then
/// spread the segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halving {
    fold: Fold,
    count: usize,
    element: usize,
}

impl Halving {
    pub(super) fn new(operation: &Operation) -> Self {
        let Operation { rank, ranks, count, data_type, .. } = *operation;
        Self { fold: Fold::new(rank, ranks), count, element: data_type.size() }
    }

    pub(super) fn rounds(&self) -> u32 {
        2 * self.fold.bits + 2
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let all = |buffer| Extent::of(buffer, self.half(0, 0));
        let (bits, output) = (self.fold.bits, all(Buffer::Output));
        if round == 0 {
            return self.fold.before(all(Buffer::Input), output);
        }
        if round > 2 * bits {
            return self.fold.after(output);
        }
        let Some(worker) = self.fold.worker() else { return Round::default() };
        // How often the span that the partners exchange has been halved.
        let depth = if round <= bits { round } else { 2 * bits + 1 - round };
        let other = worker ^ 1 << (bits - depth);
        let partner = self.fold.rank_of(other);
        let (mine, theirs) = (self.half(worker, depth), self.half(other, depth));
        let output = |span| Extent::of(Buffer::Output, span);
        if round > bits {
            return Round::send(partner, output(mine), false).and(Round::copy_from(partner, output(theirs)));
        }
        let have = if round == 1 { self.fold.first() } else { Buffer::Output };
        let (sent, operand) = (Extent::of(have, theirs), Extent::of(have, mine));
        // No copy: the sent half is overwritten only by the message with which the partner returns it, after its use.
        Round::send(partner, sent, false).and(Round::reduce_from(
            partner,
            operand,
            output(mine),
            round == bits,
        ))
    }

    /// The span that a worker still has to reduce after `depth` halvings.
    fn half(&self, worker: u32, depth: u32) -> Span {
        let (mut start, mut len) = (0, self.count);
        for bit in (self.fold.bits - depth..self.fold.bits).rev() {
            let (behind, half) = split(len, 2, (worker >> bit & 1) as usize);
            (start, len) = (start + behind, half);
        }
        Span { offset: start * self.element, len: len * self.element }
    }
}

/// The role of a rank where the number of ranks is not a power of two: a power of two of them are workers.
///
/// Each even rank below `2 * extra` gives its input to the rank after it before the work, and receives the result
/// from that rank after the work.
#[derive(Clone, Copy, Debug)]
struct Fold {
    rank: u32,
    extra: u32,
    /// There are `1 << bits` workers.
    bits: u32,
}

impl Fold {
    fn new(rank: u32, ranks: u32) -> Self {
        let bits = ranks.ilog2();
        Self { rank, extra: ranks - (1 << bits), bits }
    }

    /// This rank's number among the workers; `None` if its input is folded into another rank.
    fn worker(&self) -> Option<u32> {
        match self.rank {
            rank if rank >= 2 * self.extra => Some(rank - self.extra),
            rank if rank % 2 == 1 => Some(rank / 2),
            _ => None,
        }
    }

    /// The rank of a worker.
    fn rank_of(&self, worker: u32) -> u32 {
        if worker < self.extra { 2 * worker + 1 } else { worker + self.extra }
    }

    /// Whether another rank's input is folded into this rank.
    fn has_taken(&self) -> bool {
        self.worker().is_some_and(|worker| worker < self.extra)
    }

    /// The buffer with which a worker begins: the output if it already holds a sum of two inputs.
    fn first(&self) -> Buffer {
        if self.has_taken() { Buffer::Output } else { Buffer::Input }
    }

    /// The round before the work, in which inputs are folded.
    fn before(&self, input: Extent, output: Extent) -> Round {
        match self.worker() {
            None => Round::send(self.rank + 1, input, false),
            Some(_) if self.has_taken() => Round::reduce_from(self.rank - 1, input, output, false),
            Some(_) => Round::default(),
        }
    }

    /// The round after the work, in which the folded ranks receive the result.
    fn after(&self, output: Extent) -> Round {
        match self.worker() {
            None => Round::copy_from(self.rank + 1, output),
            Some(_) if self.has_taken() => Round::send(self.rank - 1, output, false),
            Some(_) => Round::default(),
        }
    }
}
