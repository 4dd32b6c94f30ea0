//! All-gather and reduce-scatter between partners at distances that double, where the ranks are a power of two.
//!
//! Owns which blocks a rank exchanges in a round. The cut of a message into chunks is `cut`'s.

use super::cut::Pieces;
use super::round::Round;
use crate::collective::schedule::extent::Stride;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// Partners exchange what they have: in an all-gather the parts, farthest partners first; in a reduce-scatter the sums
/// that the partner needs, nearest partners first.
///
/// A rank sends as many bytes in as many rounds as in circulant rounds, but most of them to near ranks, which are on
/// its host where ranks stand in blocks on hosts. A rank that has exchanged with all partners from `2^k` on has the
/// parts of all ranks that are equal to its own modulo `2^k`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cube {
    reduces: bool,
    rank: u32,
    /// The number of doublings.
    bits: u32,
    pieces: Pieces,
    /// Bytes of a part.
    part: usize,
}

impl Cube {
    pub(super) fn new(reduces: bool, operation: &Operation, pieces: Pieces) -> Self {
        let Operation { rank, ranks, count, data_type, .. } = *operation;
        Self { reduces, rank, bits: ranks.ilog2(), pieces, part: count * data_type.size() }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.bits
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Pieces that this rank keeps in scratch memory: sums for which the output has no room.
    pub(super) fn kept(&self) -> usize {
        if self.reduces { 1 << self.bits.saturating_sub(1) } else { 0 }
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let piece = self.pieces.piece(pass);
        if self.reduces { self.scatter(round, piece) } else { self.gather(self.bits - 1 - round, piece) }
    }

    fn gather(&self, bit: u32, piece: Span) -> Round {
        let partner = self.rank ^ 1 << bit;
        let parts = |rank| self.parts(Buffer::Output, rank, bit + 1, piece);
        let round =
            Round::send(partner, parts(self.rank), false).and(Round::copy_from(partner, parts(partner)));
        if bit + 1 < self.bits {
            return round;
        }
        let [own, kept] =
            [Buffer::Input, Buffer::Output].map(|buffer| self.parts(buffer, self.rank, self.bits, piece));
        round.and(Round::copy(own, kept))
    }

    fn scatter(&self, bit: u32, piece: Span) -> Round {
        let partner = self.rank ^ 1 << bit;
        let have = |rank| match bit {
            0 => self.parts(Buffer::Input, rank, 1, piece),
            _ => self.sums(rank, bit, piece),
        };
        let last = bit + 1 == self.bits;
        let target = match last {
            true => self.parts(Buffer::Output, self.rank, self.bits, piece),
            false => self.sums(self.rank, bit, piece),
        };
        // Sums are sent as a copy, because the next piece is reduced into the same scratch bytes.
        Round::send(partner, have(partner), bit > 0).and(Round::reduce_from(
            partner,
            have(self.rank),
            target,
            last,
        ))
    }

    /// A piece of the parts of all ranks that are equal to `rank` modulo `1 << bits`.
    fn parts(&self, buffer: Buffer, rank: u32, bits: u32, piece: Span) -> Extent {
        let offset = (rank as usize % (1 << bits)) * self.part + piece.offset;
        self.every(buffer, offset, piece.len, self.part << bits, bits)
    }

    /// The sums of a piece for all ranks that are equal to `rank` modulo `2 << bit`; kept of every other rank.
    fn sums(&self, rank: u32, bit: u32, piece: Span) -> Extent {
        let offset = (rank as usize / 2 % (1 << bit)) * piece.len;
        self.every(Buffer::Scratch, offset, piece.len, piece.len << bit, bit + 1)
    }

    /// A run of bytes of every `1 << bits`-th rank.
    fn every(&self, buffer: Buffer, offset: usize, run: usize, stride: usize, bits: u32) -> Extent {
        if bits == self.bits {
            return Extent::of(buffer, Span { offset, len: run });
        }
        let shape = Stride { run, stride, wrap: usize::MAX };
        Extent::strided(buffer, offset, run << (self.bits - bits), shape)
    }
}
