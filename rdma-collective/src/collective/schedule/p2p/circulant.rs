//! Rounds in which every rank sends to the rank at one distance and receives from the rank at the same distance on the
//! other side: all-gather, reduce-scatter, all-reduce and barrier in `log2 n` rounds for any number of ranks.
//!
//! Owns which blocks a rank exchanges in a round. The cut of a message into chunks is `cut`'s.

use super::cut::Pieces;
use super::round::{Round, doublings};
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// The collective that the rounds carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CirculantOp {
    AllGather,
    ReduceScatter,
    AllReduce,
    Barrier,
}

/// The circulant rounds, as seen from one rank.
///
/// A rank counts blocks from its own on and around. In the all-gather (Bruck's) a rank has the first `2^k` blocks
/// before round `k`, and receives as many, or the rest, from the rank `2^k` further on. The reduce-scatter is the same
/// in reverse: a rank sends the sums of the blocks from `2^k` on to the rank `2^k` further on, and adds what it
/// receives to the blocks below. An all-reduce is both. Each block is sent `n - 1` times in all, the fewest that there
/// can be.
///
/// A single rank reduces a block, in an order that depends on the number of ranks alone, and the others copy it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circulant {
    op: CirculantOp,
    rank: u32,
    ranks: u32,
    /// The number of doublings.
    bits: u32,
    count: usize,
    element: usize,
    pieces: Pieces,
}

impl Circulant {
    pub(super) fn new(op: CirculantOp, operation: &Operation, pieces: Pieces) -> Self {
        let Operation { rank, ranks, count, data_type, .. } = *operation;
        Self { op, rank, ranks, bits: doublings(ranks), count, element: data_type.size(), pieces }
    }

    pub(super) fn rounds(&self) -> u32 {
        if self.op == CirculantOp::AllReduce { 2 * self.bits } else { self.bits }
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Pieces that this rank keeps in scratch memory: the sums that are not its own, for which the output of a
    /// reduce-scatter has no room; the byte that a barrier receives.
    pub(super) fn kept(&self) -> usize {
        match self.op {
            CirculantOp::ReduceScatter => 1 << (self.bits - 1),
            CirculantOp::Barrier => 1,
            CirculantOp::AllGather | CirculantOp::AllReduce => 0,
        }
    }

    /// Whether the messages join all ranks: no block is without an element.
    pub(super) fn joins_all(&self) -> bool {
        match self.op {
            CirculantOp::AllReduce => self.count >= self.ranks as usize,
            _ => self.count > 0,
        }
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let piece = self.pieces.piece(pass);
        match self.op {
            CirculantOp::Barrier => self.tell(round, piece),
            CirculantOp::AllGather if round == 0 => {
                let [own, kept] = [Buffer::Input, Buffer::Output].map(|buffer| self.blocks(buffer, 0, 1));
                self.gather(0).and(Round::copy(own, kept))
            }
            CirculantOp::AllGather => self.gather(round),
            CirculantOp::ReduceScatter => self.scatter_parts(self.bits - 1 - round, piece),
            CirculantOp::AllReduce if round < self.bits => self.scatter_blocks(self.bits - 1 - round),
            CirculantOp::AllReduce => self.gather(round - self.bits),
        }
    }

    /// A round of a barrier: the byte says nothing but that its sender has heard of all ranks before it.
    fn tell(&self, doubling: u32, byte: Span) -> Round {
        let (_, [after, before]) = self.at(doubling);
        // Into scratch memory, because the byte of the caller is still on its way.
        Round::send(after, Extent::input(byte), false)
            .and(Round::copy_from(before, Extent::of(Buffer::Scratch, byte)))
    }

    /// A round of the all-gather.
    fn gather(&self, doubling: u32) -> Round {
        let (moved, [after, before]) = self.at(doubling);
        let [sent, received] = [0, 1 << doubling].map(|index| self.blocks(Buffer::Output, index, moved));
        Round::send(before, sent, false).and(Round::copy_from(after, received))
    }

    /// A round of the reduce-scatter of an all-reduce, whose output has room for all sums.
    fn scatter_blocks(&self, doubling: u32) -> Round {
        let (moved, [after, before]) = self.at(doubling);
        let (distance, first) = (1 << doubling, doubling + 1 == self.bits);
        let have = if first { Buffer::Input } else { Buffer::Output };
        // No copy: a block that was sent is overwritten only by its result, which depends on the message.
        let send = Round::send(after, self.blocks(have, distance, moved), false);
        let [operand, target] = [have, Buffer::Output].map(|buffer| self.blocks(buffer, 0, moved));
        let round = send.and(Round::reduce_from(before, operand, target, doubling == 0));
        if !first {
            return round;
        }
        // Blocks that nobody adds to in the first round are sent from the output later.
        let rest = |buffer| self.blocks(buffer, moved, distance - moved);
        round.and(Round::copy(rest(Buffer::Input), rest(Buffer::Output)))
    }

    /// A round of a reduce-scatter, which keeps sums in scratch memory: that of block `i` as the `i`-th.
    fn scatter_parts(&self, doubling: u32, piece: Span) -> Round {
        let (moved, [after, before]) = self.at(doubling);
        let (distance, first) = (1 << doubling, doubling + 1 == self.bits);
        let scratch = |index: usize, blocks: usize| {
            Extent::of(Buffer::Scratch, Span { offset: index * piece.len, len: blocks * piece.len })
        };
        let input = |index, blocks| self.parts(Buffer::Input, index, blocks, piece);
        let own = self.parts(Buffer::Output, 0, 1, piece);
        let target = if doubling == 0 { own } else { scratch(0, moved) };
        let receive = |operand| Round::reduce_from(before, operand, target, doubling == 0);
        if !first {
            // A copy, because the next piece is reduced into the same scratch bytes.
            return Round::send(after, scratch(distance, moved), true).and(receive(scratch(0, moved)));
        }
        let rest = Round::copy(input(moved, distance - moved), scratch(moved, distance - moved));
        Round::send(after, input(distance, moved), false).and(receive(input(0, moved))).and(rest)
    }

    /// How many blocks are sent in a doubling, and the ranks at its distance after this one and before it.
    fn at(&self, doubling: u32) -> (usize, [u32; 2]) {
        let (ranks, distance) = (u64::from(self.ranks), 1_u64 << doubling);
        let around = |distance| ((u64::from(self.rank) + distance) % ranks) as u32;
        (distance.min(ranks - distance) as usize, [around(distance), around(ranks - distance)])
    }

    /// Piece `piece` of the parts of `blocks` ranks, from the rank at `index` after this one on.
    fn parts(&self, buffer: Buffer, index: usize, blocks: usize, piece: Span) -> Extent {
        self.pieces.parts(buffer, self.rank_at(index) as u32, blocks, piece)
    }

    /// `blocks` whole blocks of a buffer of all of them, from the one at `index` after this rank's on.
    fn blocks(&self, buffer: Buffer, index: usize, blocks: usize) -> Extent {
        let (ranks, first) = (self.ranks as usize, self.rank_at(index));
        let start = |block| match self.op {
            CirculantOp::AllReduce => split(self.count, ranks, block).0 * self.element,
            _ => block * self.count * self.element,
        };
        let (offset, end, total) = (start(first), first + blocks, start(ranks));
        let len = if end <= ranks { start(end) - offset } else { total - offset + start(end - ranks) };
        Extent::around(buffer, offset, len, total)
    }

    fn rank_at(&self, index: usize) -> usize {
        (self.rank as usize + index) % self.ranks as usize
    }
}
