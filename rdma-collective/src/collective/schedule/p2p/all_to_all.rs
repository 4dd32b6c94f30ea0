//! All-to-all: pairwise, pairwise with parts of any length, and by Bruck's algorithm.
//!
//! Owns which parts a rank exchanges with which partner in a round.

use std::sync::Arc;

use super::cut::Pieces;
use super::round::{Round, doublings, partner};
use crate::collective::schedule::extent::Stride;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// Pairwise exchange: in round `t`, ranks whose numbers add up to `t` modulo the number of ranks exchange their
/// parts.
///
/// A rank sends a part and receives the part that replaces it in the same round, so that the operation works in
/// place, too.
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
        let partner = partner(self.rank, self.ranks, round);
        let part = |buffer| self.part.parts(buffer, partner, 1, self.part.piece(0));
        let (input, output) = (part(Buffer::Input), part(Buffer::Output));
        if partner == self.rank {
            return Round::copy(input, output);
        }
        Round::send(partner, input, true).and(Round::copy_from(partner, output))
    }
}

/// The spans that a rank exchanges with one other rank where parts have any length: a span of its input that it
/// sends, and a span of its output that it receives into.
///
/// An empty span is a message of no bytes; `None` is no message. Both ranks must agree: one sends exactly what the
/// other receives, otherwise a rank waits for a message that never comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) sent: Option<Span>,
    pub(crate) received: Option<Span>,
}

/// [Pairwise exchange](Pairs) of parts of any length.
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
        let partner = partner(self.rank, self.rounds(), round);
        let Share { sent, received } = self.share(partner);
        let source = sent.map(|span| Extent::of(Buffer::Input, span));
        let target = received.map(|span| Extent::of(Buffer::Output, span));
        if partner == self.rank {
            return source
                .zip(target)
                .map_or(Round::default(), |(source, target)| Round::copy(source, target));
        }
        let send = source.map_or(Round::default(), |source| Round::send(partner, source, false));
        send.and(target.map_or(Round::default(), |target| Round::copy_from(partner, target)))
    }
}

/// Bruck's algorithm: in round `k` a rank forwards by `2^k` ranks every part whose remaining distance has bit `k`. It
/// needs `log2 n` messages a rank instead of `n - 1`, and more bytes, because a part travels several times.
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

    /// How many parts a rank keeps in scratch memory.
    pub(super) fn kept(&self) -> usize {
        self.ranks as usize
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let (piece, all) = (self.pieces.piece(pass), self.ranks as usize);
        // The scratch memory is ordered by distance: the part for this rank, for the next rank, and so on. At the end
        // slot `d` holds the part that came from the rank `d` before this one, hence `parts_back`.
        let scratch = Extent::of(Buffer::Scratch, Span { offset: 0, len: all * piece.len });
        if round + 1 == self.rounds() {
            return Round::copy(scratch, self.pieces.parts_back(Buffer::Output, self.rank, all, piece));
        }
        let distance = 1_usize << round;
        let len = with_bit(all, round) * piece.len;
        let run = distance * piece.len;
        let shape = Stride { run, stride: 2 * run, wrap: usize::MAX };
        let moved = Extent::strided(Buffer::Scratch, run, len, shape);
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

/// How many numbers below `end` have bit `bit` set.
fn with_bit(end: usize, bit: u32) -> usize {
    let run = 1_usize << bit;
    end / (2 * run) * run + (end % (2 * run)).saturating_sub(run)
}
