//! All-to-all: in pairs, and after Bruck; and the barrier, which is one of nothing.

use std::sync::Arc;

use super::cut::Pieces;
use super::round::{Round, doublings, partner};
use crate::collective::schedule::{Buffer, Operation, Place, Span};

/// In round `t` ranks whose numbers add up to `t`, around, exchange their parts.
///
/// What a rank sends and what it gets in its place are of one round, so that it can be in place, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    rank: u32,
    ranks: u32,
    part: Pieces,
}

impl Pairs {
    pub(super) fn new(operation: &Operation) -> Self {
        Self { rank: operation.rank, ranks: operation.ranks, part: Pieces::one(operation) }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.ranks
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let partner = partner([self.rank, self.ranks], round);
        let part = |buffer| self.part.parts(buffer, partner, 1, self.part.piece(0));
        let (input, output) = (part(Buffer::Input), part(Buffer::Output));
        if partner == self.rank {
            return Round::copy(input, output);
        }
        Round::send(partner, input, true).and(Round::copy_from(partner, output))
    }
}

/// What a rank sends to another one of its input, and receives from it into its output: messages of no bytes, too, and `None` where
/// there is no message at all. What the one sends the other receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) sent: Option<Span>,
    pub(crate) received: Option<Span>,
}

/// In round `t` ranks whose numbers add up to `t`, around, exchange their parts.
#[derive(Clone, Debug)]
pub(super) struct Uneven {
    rank: u32,
    /// By rank.
    shares: Arc<[Share]>,
}

impl Uneven {
    pub(super) fn new(rank: u32, shares: Arc<[Share]>) -> Self {
        Self { rank, shares }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.shares.len() as u32
    }

    pub(super) fn share(&self, rank: u32) -> Share {
        self.shares.get(rank as usize).copied().unwrap_or_default()
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let partner = partner([self.rank, self.rounds()], round);
        let Share { sent, received } = self.share(partner);
        let source = sent.map(|span| Place::of(Buffer::Input, span));
        let target = received.map(|span| Place::of(Buffer::Output, span));
        if partner == self.rank {
            return source
                .zip(target)
                .map_or(Round::default(), |(source, target)| Round::copy(source, target));
        }
        let send = source.map_or(Round::default(), |source| Round::send(partner, source, false));
        send.and(target.map_or(Round::default(), |target| Round::copy_from(partner, target)))
    }
}

/// In round `k` a rank sends all that has a distance with bit `k` still to go on by `2^k`: fewer messages, and more bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bruck {
    rank: u32,
    ranks: u32,
    pieces: Pieces,
}

impl Bruck {
    pub(super) fn new(operation: &Operation, pieces: Pieces) -> Self {
        Self { rank: operation.rank, ranks: operation.ranks, pieces }
    }

    pub(super) fn rounds(&self) -> u32 {
        doublings(self.ranks) + 1
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// How many parts it keeps.
    pub(super) fn kept(&self) -> usize {
        self.ranks as usize
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let (piece, all) = (self.pieces.piece(pass), self.ranks as usize);
        // By how far they have to go: what is for this rank, for the next one, and so on; and at the end by how far they
        // have come.
        let scratch = Place::of(Buffer::Scratch, Span { offset: 0, len: all * piece.len });
        if round + 1 == self.rounds() {
            return Round::copy(scratch, self.pieces.parts_back(Buffer::Output, self.rank, all, piece));
        }
        let distance = 1_usize << round;
        let len = with_bit(all, round) * piece.len;
        let [run, stride] = [distance * piece.len, 2 * distance * piece.len];
        let moved = Place::pieces(Buffer::Scratch, run, [run, stride], usize::MAX, len);
        let to = self.around(distance);
        let from = self.around(all - distance);
        let moved = Round::send(to, moved, true).and(Round::copy_from(from, moved));
        if round > 0 {
            return moved;
        }
        moved.and(Round::copy(self.pieces.parts(Buffer::Input, self.rank, all, piece), scratch))
    }

    fn around(&self, distance: usize) -> u32 {
        ((u64::from(self.rank) + distance as u64) % u64::from(self.ranks)) as u32
    }
}

/// How many numbers below `end` have the bit.
fn with_bit(end: usize, bit: u32) -> usize {
    let run = 1_usize << bit;
    end / (2 * run) * run + (end % (2 * run)).saturating_sub(run)
}
