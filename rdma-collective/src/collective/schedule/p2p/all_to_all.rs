//! All-to-all: pairwise, pairwise with parts of any length, and by Bruck's algorithm.
//!
//! Owns which parts a rank exchanges with which partner in a round.

use std::sync::Arc;

use super::cut::{Cut, Pieces};
use super::round::{Round, doublings, partner};
use crate::collective::ScheduleError;
use crate::collective::schedule::extent::Stride;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// The order in which a rank exchanges parts: with the partner of each turn, that is the rank with which its number
/// adds up to the turn modulo the number of ranks.
///
/// A rank sends a part and receives the part that replaces it in the same round, so that the operation works in place,
/// too. If all parts that it sends fit half of the slots of their links, it sends them in a first pass over the turns
/// and receives in a second. Ranks then need not wait for each other's turns.
///
/// No deadlock: a rank that sends all parts first waits for no message meanwhile. The parts find their slots free, or
/// used by messages of earlier operations, which every rank takes before it begins this one. With parts of any length
/// some ranks may send first while others take turns: a rank in its turn waits for the same message either way.
#[derive(Clone, Copy, Debug)]
struct Turns {
    rank: u32,
    ranks: u32,
    /// Whether all parts are sent before the first is received.
    sends_first: bool,
}

impl Turns {
    fn rounds(self) -> u32 {
        if self.sends_first { self.ranks.saturating_mul(2) } else { self.ranks }
    }

    /// The partner of a round, and whether the round sends and receives.
    fn round(self, round: u32) -> (u32, [bool; 2]) {
        let Self { rank, ranks, sends_first } = self;
        let (turn, is_second) = if round < ranks { (round, false) } else { (round - ranks, true) };
        (partner(rank, ranks, turn), [!is_second, !sends_first || is_second])
    }
}

/// Pairwise exchange of parts of one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    turns: Turns,
    part: Pieces,
}

impl Pairs {
    pub(super) fn new(operation: &Operation) -> Result<Self, ScheduleError> {
        let Operation { rank, ranks, data_type, ref staging, .. } = *operation;
        let part = Pieces::one(operation);
        let sends_first = Cut::new(data_type.size(), staging)?.fits_ahead(part.longest());
        Ok(Self { turns: Turns { rank, ranks, sends_first }, part })
    }

    pub(super) fn rounds(&self) -> u32 {
        self.turns.rounds()
    }

    pub(super) fn sends_first(&self) -> bool {
        self.turns.sends_first
    }

    /// Whether the messages join all ranks: no part is without an element.
    pub(super) fn joins_all(&self) -> bool {
        self.part.longest() > 0
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let (partner, [sends, receives]) = self.turns.round(round);
        let part = |buffer| self.part.parts(buffer, partner, 1, self.part.piece(0));
        let (input, output) = (part(Buffer::Input), part(Buffer::Output));
        if partner == self.turns.rank {
            return if sends { Round::copy(input, output) } else { Round::default() };
        }
        let send = if sends { Round::send(partner, input, true) } else { Round::default() };
        if receives { send.and(Round::copy_from(partner, output)) } else { send }
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

/// Pairwise exchange of parts of any length.
#[derive(Clone, Debug)]
pub(super) struct Uneven {
    turns: Turns,
    /// By rank.
    shares: Arc<[Share]>,
}

impl Uneven {
    pub(super) fn new(rank: u32, shares: Arc<[Share]>, cut: &Cut) -> Self {
        let fits =
            |(to, share): (u32, &Share)| to == rank || share.sent.is_none_or(|span| cut.fits_ahead(span.len));
        let turns = Turns { rank, ranks: shares.len() as u32, sends_first: (0..).zip(&*shares).all(fits) };
        Self { turns, shares }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.turns.rounds()
    }

    pub(super) fn sends_first(&self) -> bool {
        self.turns.sends_first
    }

    pub(super) fn share(&self, rank: u32) -> Share {
        self.shares.get(rank as usize).copied().unwrap_or_default()
    }

    pub(super) fn round(&self, round: u32) -> Round {
        let (partner, [sends, receives]) = self.turns.round(round);
        let Share { sent, received } = self.share(partner);
        let is_own = partner == self.turns.rank;
        let source = sent.filter(|_| sends).map(|span| Extent::of(Buffer::Input, span));
        let target = received.filter(|_| receives || is_own).map(|span| Extent::of(Buffer::Output, span));
        if is_own {
            let both = source.zip(target);
            return both.map_or(Round::default(), |(source, target)| Round::copy(source, target));
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
