//! Any number of ranks as a power of two: those beyond it are folded into others.

use crate::collective::schedule::{Buffer, Place};

use super::round::Round;

/// The place of a rank among the power of two that does the work.
///
/// Of the first `2 * extra` ranks each even one gives what it has to the one after it before the work, and has the result
/// from there after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fold {
    rank: u32,
    extra: u32,
    /// The power of two that is at work is `1 << bits`.
    pub(super) bits: u32,
}

impl Fold {
    pub(super) fn new(rank: u32, ranks: u32) -> Self {
        let bits = ranks.ilog2();
        Self { rank, extra: ranks - (1 << bits), bits }
    }

    /// The number among those at work; `None` of one that is folded into another.
    pub(super) fn worker(&self) -> Option<u32> {
        match self.rank {
            rank if rank >= 2 * self.extra => Some(rank - self.extra),
            rank if rank % 2 == 1 => Some(rank / 2),
            _ => None,
        }
    }

    /// The rank of a worker.
    pub(super) fn rank_of(&self, worker: u32) -> u32 {
        if worker < self.extra { 2 * worker + 1 } else { worker + self.extra }
    }

    /// Whether another was folded into this one.
    fn has_taken(&self) -> bool {
        self.worker().is_some_and(|worker| worker < self.extra)
    }

    /// What a worker begins with.
    pub(super) fn first(&self) -> Buffer {
        if self.has_taken() { Buffer::Output } else { Buffer::Input }
    }

    /// The round before the work, of all that ranks have, or none.
    pub(super) fn before(&self, input: Place, output: Place) -> Round {
        match self.worker() {
            None => Round::send(self.rank + 1, input, false),
            Some(_) if self.has_taken() => Round::reduce_from(self.rank - 1, input, output, false),
            Some(_) => Round::default(),
        }
    }

    /// The round after it.
    pub(super) fn after(&self, output: Place) -> Round {
        match self.worker() {
            None => Round::copy_from(self.rank + 1, output),
            Some(_) if self.has_taken() => Round::send(self.rank - 1, output, false),
            Some(_) => Round::default(),
        }
    }
}
