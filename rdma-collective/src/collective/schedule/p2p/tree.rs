//! The binomial tree: broadcast and reduce of a buffer, gather and scatter of parts.
//!
//! Ranks are numbered relative to the root. The parent of a rank is the rank without its lowest set bit, so that a
//! rank and its subtree are consecutive, and the parts that a rank holds of its subtree are one piece.

use super::cut::Pieces;
use super::round::{Round, doublings};
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// The collective that the tree carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeOp {
    Broadcast,
    Reduce,
    Gather,
    Scatter,
}

/// The binomial tree, as seen from one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    op: TreeOp,
    root: u32,
    ranks: u64,
    /// This rank, relative to the root.
    relative: u64,
    /// Rounds in which the tree grows, `log2` of the ranks.
    bits: u32,
    pieces: Pieces,
}

impl Tree {
    pub(super) fn new(op: TreeOp, operation: &Operation, root: u32, pieces: Pieces) -> Self {
        let Operation { rank, ranks, .. } = *operation;
        let ranks_wide = u64::from(ranks);
        let relative = (u64::from(rank) + ranks_wide - u64::from(root)) % ranks_wide;
        Self { op, root, ranks: ranks_wide, relative, bits: doublings(ranks), pieces }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.bits + 1
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Pieces that this rank keeps in scratch memory: one of a reduction, one for each rank of its subtree in a
    /// gather or scatter.
    pub(super) fn kept(&self) -> usize {
        match self.op {
            TreeOp::Broadcast => 0,
            _ if self.is_root() || self.subtree(self.relative) == 1 => 0,
            TreeOp::Reduce => 1,
            TreeOp::Gather | TreeOp::Scatter => self.subtree(self.relative) as usize,
        }
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let piece = self.pieces.piece(pass);
        match self.op {
            TreeOp::Broadcast => self.broadcast(round, piece),
            TreeOp::Reduce => self.reduce(round, piece),
            TreeOp::Gather => self.gather(round, piece),
            TreeOp::Scatter => self.scatter(round, piece),
        }
    }

    fn broadcast(&self, round: u32, piece: Span) -> Round {
        let (input, output) = (Extent::of(Buffer::Input, piece), Extent::of(Buffer::Output, piece));
        match self.outward(round) {
            Some(Branch::Parent(parent)) => Round::copy_from(self.rank(parent), output),
            Some(Branch::Child(child)) => {
                Round::send(self.rank(child), if self.is_root() { input } else { output }, false)
            }
            None if round == self.bits && self.is_root() => Round::copy(input, output),
            None => Round::default(),
        }
    }

    fn reduce(&self, round: u32, piece: Span) -> Round {
        let input = Extent::of(Buffer::Input, piece);
        let kept = if self.is_root() {
            Extent::of(Buffer::Output, piece)
        } else {
            Extent::of(Buffer::Scratch, Span { offset: 0, len: piece.len })
        };
        match self.inward(round) {
            Some(Branch::Parent(parent)) if self.subtree(self.relative) == 1 => {
                Round::send(self.rank(parent), input, false)
            }
            // A copy, because the next piece is reduced into the same scratch bytes.
            Some(Branch::Parent(parent)) => Round::send(self.rank(parent), kept, true),
            Some(Branch::Child(child)) => {
                let operand = if round == 0 { input } else { kept };
                let last = self.is_root() && round + 1 == self.bits;
                Round::reduce_from(self.rank(child), operand, kept, last)
            }
            None => Round::default(),
        }
    }

    fn gather(&self, round: u32, piece: Span) -> Round {
        let subtree = self.subtree(self.relative);
        let step = match self.inward(round) {
            Some(Branch::Parent(parent)) if subtree == 1 => {
                Round::send(self.rank(parent), self.parts(Buffer::Input, self.relative, 1, piece), false)
            }
            Some(Branch::Parent(parent)) => Round::send(self.rank(parent), scratch(0, subtree, piece), true),
            Some(Branch::Child(child)) => Round::copy_from(self.rank(child), self.held(child, piece)),
            None => Round::default(),
        };
        if round > 0 || subtree == 1 {
            return step;
        }
        let own = self.parts(Buffer::Input, self.relative, 1, piece);
        step.and(Round::copy(own, self.held_of(self.relative, 1, piece)))
    }

    fn scatter(&self, round: u32, piece: Span) -> Round {
        let own = self.parts(Buffer::Output, self.relative, 1, piece);
        let subtree = self.subtree(self.relative);
        match self.outward(round) {
            Some(Branch::Parent(parent)) => {
                let target = if subtree == 1 { own } else { scratch(0, subtree, piece) };
                Round::copy_from(self.rank(parent), target)
            }
            Some(Branch::Child(child)) => {
                Round::send(self.rank(child), self.held(child, piece), !self.is_root())
            }
            None if round == self.bits && (self.is_root() || subtree > 1) => {
                Round::copy(self.held_of(self.relative, 1, piece), own)
            }
            None => Round::default(),
        }
    }

    /// The parts of a child and its subtree, in the buffer in which this rank holds them.
    fn held(&self, child: u64, piece: Span) -> Extent {
        self.held_of(child, self.subtree(child), piece)
    }

    fn held_of(&self, relative: u64, parts: u64, piece: Span) -> Extent {
        if !self.is_root() {
            return scratch(relative - self.relative, parts, piece);
        }
        let buffer = if self.op == TreeOp::Gather { Buffer::Output } else { Buffer::Input };
        self.parts(buffer, relative, parts, piece)
    }

    /// Piece `piece` of each part of `parts` consecutive ranks, in a buffer of all parts.
    fn parts(&self, buffer: Buffer, relative: u64, parts: u64, piece: Span) -> Extent {
        self.pieces.parts(buffer, self.rank(relative), parts as usize, piece)
    }

    /// The number of ranks in the subtree of a rank, that rank included.
    fn subtree(&self, relative: u64) -> u64 {
        let all = if relative == 0 { self.ranks } else { 1 << relative.trailing_zeros() };
        all.min(self.ranks - relative)
    }

    fn is_root(&self) -> bool {
        self.relative == 0
    }

    fn rank(&self, relative: u64) -> u32 {
        ((relative + u64::from(self.root)) % self.ranks) as u32
    }

    /// The branch that a round uses when rounds go from the leaves to the root (reduce, gather).
    fn inward(&self, round: u32) -> Option<Branch> {
        let step = 1_u64 << round;
        match self.relative % (2 * step) {
            _ if round >= self.bits => None,
            0 => Some(self.relative + step).filter(|child| *child < self.ranks).map(Branch::Child),
            rest => (rest == step).then(|| Branch::Parent(self.relative - step)),
        }
    }

    /// The branch that a round uses when rounds go from the root to the leaves (broadcast, scatter).
    fn outward(&self, round: u32) -> Option<Branch> {
        self.inward(self.bits.checked_sub(round + 1)?)
    }
}

/// The other end of a branch, relative to the root.
#[derive(Clone, Copy, Debug)]
enum Branch {
    Parent(u64),
    Child(u64),
}

/// The pieces of `parts` consecutive parts in scratch memory, from the piece at `index` on.
fn scratch(index: u64, parts: u64, piece: Span) -> Extent {
    let span = Span { offset: index as usize * piece.len, len: parts as usize * piece.len };
    Extent::of(Buffer::Scratch, span)
}
