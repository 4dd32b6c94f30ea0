//! Stripes: how an operation is cut over rails, and when a piece is repeated. Pure data, the same on all ranks.
//!
//! In a round each live rail carries one piece. At the end of a round every rank states which results it has and which
//! rails it has lost. All ranks hear all statements, so all decide alike. A piece that some rank lacks is repeated by
//! all ranks on the rails that are left. Its input is still there, because results are kept apart until all ranks have
//! them.

use std::ops::Range;

/// The most rails of a rank: a [`RailSet`] is one byte.
pub(super) const RAILS_MAX: usize = 8;

/// A set of rails, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RailSet(u8);

impl RailSet {
    /// The rails `0..count`.
    pub(super) fn first(count: usize) -> Self {
        (0..count.min(RAILS_MAX)).collect()
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn contains(self, rail: usize) -> bool {
        rail < RAILS_MAX && self.0 & (1 << rail) != 0
    }

    pub(super) fn insert(&mut self, rail: usize) {
        debug_assert!(rail < RAILS_MAX);
        self.0 |= 1 << rail;
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The rails in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..RAILS_MAX).filter(move |rail| self.contains(*rail))
    }
}

impl FromIterator<usize> for RailSet {
    fn from_iter<I: IntoIterator<Item = usize>>(rails: I) -> Self {
        let mut set = Self::default();
        rails.into_iter().for_each(|rail| set.insert(rail));
        set
    }
}

/// Cuts `range` into one piece for each of `rails`, as equal as possible; a rail without elements has no piece.
pub(super) fn pieces(range: Range<usize>, rails: RailSet) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (len, count) = (range.len(), rails.len().max(1));
    let start = move |at: usize| range.start + at * (len / count) + at.min(len % count);
    let pieces = rails.iter().enumerate().map(move |(at, rail)| (rail, start(at)..start(at + 1)));
    pieces.filter(|(_, piece)| !piece.is_empty())
}

/// Bytes of an encoded [`Statement`].
pub(super) const STATEMENT_BYTES: usize = 2;

/// A rank's report at the end of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Statement {
    /// Rails whose result the rank has.
    pub(super) done: RailSet,
    /// Rails that the rank has lost.
    pub(super) lost: RailSet,
}

impl Statement {
    pub(super) fn encode(self) -> [u8; STATEMENT_BYTES] {
        [self.done.0, self.lost.0]
    }

    /// Combines the encoded statements of all ranks: results that all have, and rails that any has lost.
    pub(super) fn of_all(statements: &[u8]) -> Self {
        let all = Self { done: RailSet(u8::MAX), lost: RailSet::default() };
        statements.chunks_exact(STATEMENT_BYTES).fold(all, |all, one| Self {
            done: RailSet(all.done.0 & one[0]),
            lost: RailSet(all.lost.0 | one[1]),
        })
    }
}

/// The rest of an operation, and the rails that no rank had lost at the last decision.
#[derive(Debug, Clone)]
pub(super) struct Stripes {
    pub(super) live: RailSet,
    /// Pieces to repeat, the last one first; they come before the elements from `next` on.
    again: Vec<Range<usize>>,
    next: usize,
    end: usize,
    /// Elements of the longest piece.
    piece_max: usize,
}

impl Stripes {
    pub(super) fn new(elements: usize, piece_max: usize, live: RailSet) -> Self {
        Self { live, again: Vec::new(), next: 0, end: elements, piece_max: piece_max.max(1) }
    }

    /// The elements of the next round; `None` if all are done or no rail is left.
    pub(super) fn next_round(&mut self) -> Option<Range<usize>> {
        if self.live.len() == 0 {
            return None;
        }
        self.again.pop().or_else(|| {
            let start = self.next;
            self.next = self.end.min(start.saturating_add(self.piece_max.saturating_mul(self.live.len())));
            (start < self.next).then_some(start..self.next)
        })
    }

    /// Ends the round of `range` with the statement `all` of all ranks: returns the pieces that all have; the others
    /// are repeated.
    pub(super) fn decide(&mut self, range: Range<usize>, all: Statement) -> Vec<(usize, Range<usize>)> {
        let (done, lacking): (Vec<_>, Vec<_>) =
            pieces(range, self.live).partition(|(rail, _)| all.done.contains(*rail));
        self.again.extend(lacking.into_iter().map(|(_, piece)| piece));
        self.live = self.live.without(all.lost);
        done
    }

    pub(super) fn is_done(&self) -> bool {
        self.again.is_empty() && self.next == self.end
    }
}

#[cfg(test)]
mod tests;
