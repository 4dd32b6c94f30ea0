//! Broadcast and reduce by two trees at once, each of which carries every other piece of the buffer.
//!
//! Owns which ranks a rank is joined with, and which piece goes where. The cut of a message into chunks is `cut`'s.

use super::cut::Pieces;
use super::round::Round;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};

/// Two binary trees of all ranks but the root (Sanders, Speck and Träff). A rank that passes pieces on in one of them
/// is a leaf of the other, so that every rank sends about as many bytes as it receives: the buffer once.
///
/// Ranks are numbered from the root on, and stand in order in the first tree: a position passes on to both sides, as
/// far as half of the largest power of two that divides it. In the second tree they stand in the opposite order. All
/// distances are therefore powers of two.
///
/// A piece takes longer to a rank that is deeper in its tree. So a rank takes pieces in the order in which they come to
/// it: one tree leads by as many pieces as come in the hops between the levels.
///
/// No deadlock: give piece `j` of a tree the time `j + hop * level` at a rank of that level. Each rank takes pieces in
/// the order of their times, and of equal ones in the order of levels. It waits for its parent, which has an earlier
/// time, or for a child to use a piece that is half of the slots before, at least, and so earlier, because a hop is
/// less.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoTrees {
    reduces: bool,
    root: u32,
    ranks: u64,
    trees: [Member; 2],
    pieces: Pieces,
    /// The tree whose pieces come first, and how many of them come before the first piece of the other.
    leads: usize,
    by: u64,
}

/// The ranks that a rank is joined with in a tree, relative to the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    parent: Option<u64>,
    children: [Option<u64>; 2],
    /// Ranks between the root and this one, and this one.
    level: u64,
}

impl Member {
    /// The place of `rank` among `ranks` in the first tree or in the second one.
    fn new(rank: u64, ranks: u64, second: bool) -> Self {
        let odd = ranks % 2;
        // The last position. In an even number of ranks the root has none in the second tree: the rank before the root
        // takes position 0, and has the pieces from the root.
        let last = if second { ranks - 2 + odd } else { ranks - 1 };
        let turn = |at: u64| if second { (ranks - 1 + odd - at) % ranks } else { at };
        let fed = (second && odd == 0).then_some(ranks - 1);
        if let (0, Some(first)) = (rank, fed) {
            return Self { parent: None, children: [Some(first), None], level: 0 };
        }
        let position = turn(rank);
        let (above, below) = (parent(position, last), children(position, last));
        let path = std::iter::successors(above, |position| parent(*position, last));
        Self {
            parent: above.map(turn).or(fed.map(|_| 0)),
            children: below.map(|child| child.map(turn)),
            level: path.count() as u64 + u64::from(fed.is_some()),
        }
    }
}

/// The position that passes pieces on to `position`.
fn parent(position: u64, last: u64) -> Option<u64> {
    let bit = position & position.wrapping_neg();
    let above = (position ^ bit) | bit << 1;
    (position > 0).then_some(if above > last { position ^ bit } else { above })
}

/// The positions to which `position` passes pieces on.
fn children(position: u64, last: u64) -> [Option<u64>; 2] {
    if position == 0 {
        return [last.checked_ilog2().map(|bits| 1 << bits), None];
    }
    let half = (position & position.wrapping_neg()) >> 1;
    let fits = |half: &u64| *half > 0 && position + half <= last;
    let after = std::iter::successors(Some(half), |half| Some(half >> 1).filter(|half| *half > 0)).find(fits);
    [Some(position - half).filter(|_| half > 0), after.map(|half| position + half)]
}

impl TwoTrees {
    pub(super) fn new(reduces: bool, operation: &Operation, root: u32, pieces: Pieces) -> Self {
        let ranks = u64::from(operation.ranks);
        let relative = u64::from(operation.position_from(root));
        // A rank that is alone has no tree.
        let trees = [false, true].map(|second| Member::new(relative, ranks.max(2), second));
        // A reduce goes from the deepest level to the root.
        let [first, second] = trees.map(|tree| tree.level);
        let leads = usize::from(if reduces { second > first } else { second < first });
        let by = first.abs_diff(second) * pieces.hop(operation);
        Self { reduces, root, ranks, trees, pieces, leads, by }
    }

    /// The tree of the piece that comes at an index, and the piece. Those of the first tree have even numbers.
    fn at(&self, index: u64) -> (usize, u64) {
        let all = self.pieces.len();
        let of = |tree: usize| (all + 1 - tree as u64) / 2;
        let (first, second) = (of(self.leads), of(1 - self.leads));
        let by = self.by.min(first);
        let pairs = (first - by).min(second);
        let (leads, number) = match index.checked_sub(by) {
            None => (true, index),
            Some(index) if index < 2 * pairs => {
                (index % 2 == 0, index / 2 + if index % 2 == 0 { by } else { 0 })
            }
            Some(index) if first - by > pairs => (true, index - pairs + by),
            Some(index) => (false, index - pairs),
        };
        let tree = if leads { self.leads } else { 1 - self.leads };
        (tree, 2 * number + tree as u64)
    }

    pub(super) const fn rounds(&self) -> u32 {
        3
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Pieces that this rank keeps in scratch memory.
    pub(super) fn kept(&self) -> usize {
        usize::from(
            self.reduces && self.trees.iter().any(|tree| tree.parent.is_some() && tree.children[0].is_some()),
        )
    }

    pub(super) fn round(&self, pass: u64, round: u32) -> Round {
        let (tree, piece) = self.at(pass);
        let (tree, piece) = (self.trees[tree], self.pieces.piece(piece));
        if self.reduces { self.reduce(tree, round, piece) } else { self.broadcast(tree, round, piece) }
    }

    fn broadcast(&self, Member { parent, children, .. }: Member, round: u32, piece: Span) -> Round {
        let [input, output] = [Buffer::Input, Buffer::Output].map(|buffer| Extent::of(buffer, piece));
        let source = if parent.is_some() { output } else { input };
        match (round, parent) {
            (0, Some(parent)) => Round::copy_from(self.rank(parent), output),
            (0, None) => Round::copy(input, output),
            (round, _) => children[round as usize - 1]
                .map_or(Round::default(), |child| Round::send(self.rank(child), source, false)),
        }
    }

    fn reduce(&self, Member { parent, children, .. }: Member, round: u32, piece: Span) -> Round {
        let input = Extent::of(Buffer::Input, piece);
        let kept = match parent {
            Some(_) => Extent::of(Buffer::Scratch, Span { offset: 0, len: piece.len }),
            None => Extent::of(Buffer::Output, piece),
        };
        match (children.get(round as usize).copied().flatten(), parent) {
            (Some(child), _) => {
                let operand = if round == 0 { input } else { kept };
                // The root has one child in each tree.
                Round::reduce_from(self.rank(child), operand, kept, parent.is_none())
            }
            // A copy, because the next piece is reduced into the same scratch bytes.
            (None, Some(parent)) if round == 2 && children[0].is_some() => {
                Round::send(self.rank(parent), kept, true)
            }
            (None, Some(parent)) if round == 2 => Round::send(self.rank(parent), input, false),
            _ => Round::default(),
        }
    }

    fn rank(&self, relative: u64) -> u32 {
        ((relative + u64::from(self.root)) % self.ranks) as u32
    }
}
