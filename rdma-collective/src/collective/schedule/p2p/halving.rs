//! All-reduce between partners at distances that double.

use super::round::Round;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Operation, Place, Span};

/// Halving and doubling, after Rabenseifner: in each round partners exchange halves of what they are still to reduce, until
/// each has reduced its segment; then the same rounds, from the last to the first, spread the segments.
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
        let all = |buffer| Place::of(buffer, self.half(0, 0));
        let (bits, output) = (self.fold.bits, all(Buffer::Output));
        if round == 0 {
            return self.fold.before(all(Buffer::Input), output);
        }
        if round > 2 * bits {
            return self.fold.after(output);
        }
        let Some(worker) = self.fold.worker() else { return Round::default() };
        // How often what the partners exchange has been halved.
        let depth = if round <= bits { round } else { 2 * bits + 1 - round };
        let other = worker ^ 1 << (bits - depth);
        let (partner, mine, theirs) =
            (self.fold.rank_of(other), self.half(worker, depth), self.half(other, depth));
        let output = |span| Place::of(Buffer::Output, span);
        if round > bits {
            return Round::send(partner, output(mine), false).and(Round::copy_from(partner, output(theirs)));
        }
        let have = if round == 1 { self.fold.first() } else { Buffer::Output };
        let (sent, operand) = (Place::of(have, theirs), Place::of(have, mine));
        // What is sent comes back, from the partner alone and after it has used it.
        Round::send(partner, sent, false).and(Round::reduce_from(
            partner,
            operand,
            output(mine),
            round == bits,
        ))
    }

    /// What a worker is still to reduce when it has been halved so often.
    fn half(&self, worker: u32, depth: u32) -> Span {
        let (mut start, mut len) = (0, self.count);
        for bit in (self.fold.bits - depth..self.fold.bits).rev() {
            let (behind, half) = split(len, 2, (worker >> bit & 1) as usize);
            (start, len) = (start + behind, half);
        }
        Span { offset: start * self.element, len: len * self.element }
    }
}

/// The place of a rank among the power of two that does the work.
///
/// Of the first `2 * extra` ranks each even one gives what it has to the one after it before the work, and has the result
/// from there after it.
#[derive(Clone, Copy, Debug)]
struct Fold {
    rank: u32,
    extra: u32,
    /// The power of two that is at work is `1 << bits`.
    bits: u32,
}

impl Fold {
    fn new(rank: u32, ranks: u32) -> Self {
        let bits = ranks.ilog2();
        Self { rank, extra: ranks - (1 << bits), bits }
    }

    /// The number among those at work; `None` of one that is folded into another.
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

    /// Whether another was folded into this one.
    fn has_taken(&self) -> bool {
        self.worker().is_some_and(|worker| worker < self.extra)
    }

    /// What a worker begins with.
    fn first(&self) -> Buffer {
        if self.has_taken() { Buffer::Output } else { Buffer::Input }
    }

    /// The round before the work, of all that ranks have, or none.
    fn before(&self, input: Place, output: Place) -> Round {
        match self.worker() {
            None => Round::send(self.rank + 1, input, false),
            Some(_) if self.has_taken() => Round::reduce_from(self.rank - 1, input, output, false),
            Some(_) => Round::default(),
        }
    }

    /// The round after it.
    fn after(&self, output: Place) -> Round {
        match self.worker() {
            None => Round::copy_from(self.rank + 1, output),
            Some(_) if self.has_taken() => Round::send(self.rank - 1, output, false),
            Some(_) => Round::default(),
        }
    }
}
