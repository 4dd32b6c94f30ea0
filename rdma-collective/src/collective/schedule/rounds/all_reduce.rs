//! All-reduce between partners at distances that double.

use super::fold::Fold;
use super::round::Round;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Operation, Place, Span};

/// Recursive doubling: in each round partners exchange all that they have, and reduce it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubling {
    fold: Fold,
    len: usize,
}

impl Doubling {
    pub(super) fn new(operation: &Operation) -> Self {
        let len = operation.count * operation.data_type.size();
        Self { fold: Fold::new(operation.rank, operation.ranks), len }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.fold.bits + 2
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let all = |buffer| Place::of(buffer, Span { offset: 0, len: self.len });
        let (bits, output) = (self.fold.bits, all(Buffer::Output));
        let Some(bit) = round.checked_sub(1) else { return self.fold.before(all(Buffer::Input), output) };
        if bit == bits {
            return self.fold.after(output);
        }
        let Some(worker) = self.fold.worker() else { return Round::default() };
        let partner = self.fold.rank_of(worker ^ 1 << bit);
        let have = if bit == 0 { all(self.fold.first()) } else { output };
        // What is sent is also what is reduced into.
        Round::send(partner, have, true).and(Round::reduce_from(partner, have, output, bit + 1 == bits))
    }
}

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
