//! The binomial tree: broadcast and reduce of a buffer, gather and scatter of parts.
//!
//! Ranks count from the root. The parent of a rank is the rank without its lowest bit, so that a rank and those below it
//! follow each other, and what a rank holds of them is in one piece.

use super::cut::Pieces;
use super::round::{Round, doublings};
use crate::collective::schedule::{Buffer, Operation, Place, Span};

/// What goes along the branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Broadcast,
    Reduce,
    Gather,
    Scatter,
}

/// A rank's place in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    along: Along,
    root: u32,
    ranks: u64,
    /// This rank, counted from the root.
    place: u64,
    bits: u32,
    pieces: Pieces,
}

impl Tree {
    pub(super) fn new(along: Along, operation: &Operation, root: u32, pieces: Pieces) -> Self {
        let Operation { rank, ranks, .. } = *operation;
        let ranks_wide = u64::from(ranks);
        let place = (u64::from(rank) + ranks_wide - u64::from(root)) % ranks_wide;
        Self { along, root, ranks: ranks_wide, place, bits: doublings(ranks), pieces }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.bits + 1
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// What this rank keeps of others, in pieces: of a reduction one.
    pub(super) fn kept(&self) -> usize {
        match self.along {
            Along::Broadcast => 0,
            _ if self.is_root() || self.below(self.place) == 1 => 0,
            Along::Reduce => 1,
            Along::Gather | Along::Scatter => self.below(self.place) as usize,
        }
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let piece = self.pieces.piece(pass);
        match self.along {
            Along::Broadcast => self.broadcast(round, piece),
            Along::Reduce => self.reduce(round, piece),
            Along::Gather => self.gather(round, piece),
            Along::Scatter => self.scatter(round, piece),
        }
    }

    fn broadcast(&self, round: u32, piece: Span) -> Round {
        let (input, output) = (Place::of(Buffer::Input, piece), Place::of(Buffer::Output, piece));
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
        let input = Place::of(Buffer::Input, piece);
        let kept = if self.is_root() {
            Place::of(Buffer::Output, piece)
        } else {
            Place::of(Buffer::Scratch, Span { offset: 0, len: piece.len })
        };
        match self.inward(round) {
            Some(Branch::Parent(parent)) if self.below(self.place) == 1 => {
                Round::send(self.rank(parent), input, false)
            }
            // The next piece is kept in the same place.
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
        let below = self.below(self.place);
        let step = match self.inward(round) {
            Some(Branch::Parent(parent)) if below == 1 => {
                Round::send(self.rank(parent), self.parts(Buffer::Input, self.place, 1, piece), false)
            }
            Some(Branch::Parent(parent)) => Round::send(self.rank(parent), scratch(0, below, piece), true),
            Some(Branch::Child(child)) => Round::copy_from(self.rank(child), self.held(child, piece)),
            None => Round::default(),
        };
        if round > 0 || below == 1 {
            return step;
        }
        let own = self.parts(Buffer::Input, self.place, 1, piece);
        step.and(Round::copy(own, self.held_of(self.place, 1, piece)))
    }

    fn scatter(&self, round: u32, piece: Span) -> Round {
        let own = self.parts(Buffer::Output, self.place, 1, piece);
        let below = self.below(self.place);
        match self.outward(round) {
            Some(Branch::Parent(parent)) => {
                let target = if below == 1 { own } else { scratch(0, below, piece) };
                Round::copy_from(self.rank(parent), target)
            }
            Some(Branch::Child(child)) => {
                Round::send(self.rank(child), self.held(child, piece), !self.is_root())
            }
            None if round == self.bits && (self.is_root() || below > 1) => {
                Round::copy(self.held_of(self.place, 1, piece), own)
            }
            None => Round::default(),
        }
    }

    /// The parts of a child and of those below it, where this rank has them.
    fn held(&self, child: u64, piece: Span) -> Place {
        self.held_of(child, self.below(child), piece)
    }

    fn held_of(&self, place: u64, parts: u64, piece: Span) -> Place {
        if !self.is_root() {
            return scratch(place - self.place, parts, piece);
        }
        let buffer = if self.along == Along::Gather { Buffer::Output } else { Buffer::Input };
        self.parts(buffer, place, parts, piece)
    }

    /// A piece of the parts of some ranks that follow each other, in a buffer of all parts.
    fn parts(&self, buffer: Buffer, place: u64, parts: u64, piece: Span) -> Place {
        self.pieces.parts(buffer, self.rank(place), parts as usize, piece)
    }

    /// How many ranks there are at and below one.
    fn below(&self, place: u64) -> u64 {
        let all = if place == 0 { self.ranks } else { 1 << place.trailing_zeros() };
        all.min(self.ranks - place)
    }

    fn is_root(&self) -> bool {
        self.place == 0
    }

    fn rank(&self, place: u64) -> u32 {
        ((place + u64::from(self.root)) % self.ranks) as u32
    }

    /// The branch that a round is about when it goes from the leaves to the root.
    fn inward(&self, round: u32) -> Option<Branch> {
        let step = 1_u64 << round;
        match self.place % (2 * step) {
            _ if round >= self.bits => None,
            0 => Some(self.place + step).filter(|child| *child < self.ranks).map(Branch::Child),
            rest => (rest == step).then(|| Branch::Parent(self.place - step)),
        }
    }

    /// The same from the root to the leaves.
    fn outward(&self, round: u32) -> Option<Branch> {
        self.inward(self.bits.checked_sub(round + 1)?)
    }
}

/// The other end of a branch, counted from the root.
#[derive(Clone, Copy, Debug)]
enum Branch {
    Parent(u64),
    Child(u64),
}

/// Pieces of parts that follow each other, from the one at `index` on.
fn scratch(index: u64, parts: u64, piece: Span) -> Place {
    let span = Span { offset: index as usize * piece.len, len: parts as usize * piece.len };
    Place::of(Buffer::Scratch, span)
}
