//! The zero-copy plan: the ranges that each rank reads from its peers' inputs, and the outputs to which it stores the
//! result. Pure data, as the schedules are; `execute` carries it out.
//!
//! Each element of the result is made by one rank. That rank reads everything it needs from the inputs, and then stores
//! the element to all outputs that get it. So nothing is overwritten before it was read, in place too: the rank that
//! stores an element has read it, and nobody else reads it. Reductions follow the order of the ring, so that the bits
//! do not depend on the algorithm that an operation takes.
//!
//! In an all-to-all two ranks exchange parts, and a rank in place stores to the range from which the other one reads.
//! If both are in place, each rank exchanges half of the parts. If one is, the other one reads that rank's part before
//! it stores its own there.

use std::ops::Range;

use super::call::{Call, Collective, Holds};
use super::schedule::{ReduceOrder, Span};
use crate::collective::rank_of::RankOf;

/// Bytes of a cache line. No two ranks store to one line, because it would move between their caches.
const LINE: usize = 64;

/// The moves of one rank.
#[derive(Clone, Debug)]
pub(super) struct ZeroCopyPlan {
    pub(super) call: Call,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    order: ReduceOrder,
    /// Bytes of the longest move.
    piece: usize,
    /// The ranks that work in place, a bit each: this one, and others that have announced it. Only all-to-all depends
    /// on it.
    pub(super) in_place: u32,
    /// Index of the current task.
    task: u32,
    /// Bytes of the current task that earlier moves cover.
    done: usize,
}

/// A range of outputs, its source, and the ranks whose outputs get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) span: Span,
    /// Offset of the range in the inputs.
    pub(super) at: usize,
    pub(super) from: From,
    pub(super) to: To,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The input of one rank.
    One(u32),
    /// The inputs of all ranks, reduced from rank `first` on around the ring.
    All { first: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    One(u32),
    All,
    /// The output of this rank; and the bytes that lay there go to the place that was read.
    Exchanged,
}

impl Move {
    /// The range of the inputs.
    pub(super) fn source(&self) -> Span {
        Span { offset: self.at, ..self.span }
    }
}

impl ZeroCopyPlan {
    /// The plan of a call that a schedule can be made of, so its byte counts do not overflow.
    pub(super) fn new(
        call: Call,
        RankOf { rank, size: ranks }: RankOf,
        order: ReduceOrder,
        piece: usize,
    ) -> Self {
        debug_assert!(piece.is_multiple_of(LINE));
        Self { call, rank, ranks, order, piece, in_place: 0, task: 0, done: 0 }
    }

    /// Whether others read the input of `rank`.
    pub(super) fn reads(&self, rank: u32) -> bool {
        self.call.gives(rank)
    }

    /// Whether others store to the output of `rank`.
    pub(super) fn writes(&self, rank: u32) -> bool {
        match self.call.collective {
            Collective::AllReduce | Collective::Reduce => self.call.gets(rank),
            // Out of place, each rank reads its parts by itself. Into a buffer in place, a peer must store what it has
            // taken the place of.
            Collective::AllToAll => self.is_in_place(rank),
            Collective::Broadcast => self.call.root != rank,
            // In the other collectives each rank reads what it gets, or they go by links, or only on borrowed slices.
            _ => false,
        }
    }

    /// Bytes of the input, and of the output, of a rank.
    pub(super) fn lengths(&self) -> [usize; 2] {
        let (input, output) = self.call.collective.properties().buffers;
        [input, output].map(|holds| match holds {
            Holds::One => self.call.bytes(),
            Holds::Parts => self.call.bytes() * self.ranks as usize,
        })
    }

    /// Bytes that this rank has still to make.
    pub(super) fn left(&self) -> usize {
        let tasks = (self.task..).map_while(|task| self.task(task));
        // The current task counts in full, so take off the bytes that moves have covered.
        tasks.map(|task| task.span.len).sum::<usize>() - self.done
    }

    /// The task of this rank at `index`, of any length. Tasks run in this order.
    fn task(&self, index: u32) -> Option<Move> {
        let Self { rank, ranks, .. } = *self;
        let reduced = |span: Span, to| Move { span, at: span.offset, from: From::All { first: 0 }, to };
        let copied =
            |span: Span, from, to| Move { span, at: span.offset, from: From::One(from), to: To::One(to) };
        // Each rank begins with its own part and goes around, so that ranks do not all read one peer's memory at once.
        let other = (rank + index) % ranks;
        let root = self.call.root;
        Some(match (self.call.collective, index) {
            (Collective::AllReduce, 0) => reduced(self.share(rank), To::All),
            (Collective::ReduceScatter, 0) => reduced(self.part(rank), To::One(rank)),
            (Collective::Reduce, 0) => reduced(self.share(rank), To::One(root)),
            (Collective::AllGather, _) if index < ranks => copied(self.part(other), other, rank),
            (Collective::Broadcast, _) if root == rank && index < ranks => {
                let span = if other == root { self.all() } else { self.share(root) };
                copied(span, root, other)
            }
            // Skip the root's share: the root stores that one itself, so that it works as much as the others.
            (Collective::Broadcast, 0 | 1) if root != rank => {
                let Range { start, end } = self.share(root).range();
                let range = if index == 0 { 0..start } else { end..self.call.bytes() };
                copied(Span { offset: range.start, len: range.len() }, root, rank)
            }
            (Collective::AllToAll, _) if index < 2 * ranks => {
                let other = (rank + index / 2) % ranks;
                // Two tasks for each peer, in this order: the second stores to the bytes that the first reads.
                if index.is_multiple_of(2) { self.first_with(other) } else { self.then_with(other) }
            }
            _ => return None,
        })
    }

    /// The first move of this rank for the parts that it exchanges with another one, or with itself.
    fn first_with(&self, other: u32) -> Move {
        let Self { rank, .. } = *self;
        let exchange = rank != other && self.is_in_place(rank);
        let Range { start, end } = match (exchange, self.is_in_place(other)) {
            (false, _) => 0..self.call.bytes(),
            // The other rank reads the part, and stores the one for this rank: see `then_with`.
            (true, false) => 0..0,
            (true, true) => {
                // Halves by rank, so that the two ranks agree without a message; whole lines, so that they share none.
                let half = self.call.bytes() / 2 / LINE * LINE;
                if rank < other { 0..half } else { half..self.call.bytes() }
            }
        };
        // A rank in place must hand over what it overwrites, because nobody reads it later.
        let to = if exchange { To::Exchanged } else { To::One(rank) };
        let span = Span { offset: self.part(other).offset + start, len: end - start };
        Move { span, at: self.part(rank).offset + start, from: From::One(other), to }
    }

    /// The second move: a store to the other rank, if that one is in place and this one is not. It must follow
    /// `first_with`, which reads the bytes that it overwrites.
    fn then_with(&self, other: u32) -> Move {
        let Self { rank, .. } = *self;
        let stores = rank != other && !self.is_in_place(rank) && self.is_in_place(other);
        let Span { offset, len } = self.part(rank);
        let span = Span { offset, len: if stores { len } else { 0 } };
        Move { span, at: self.part(other).offset, from: From::One(rank), to: To::One(other) }
    }

    fn is_in_place(&self, rank: u32) -> bool {
        self.in_place & 1 << rank != 0
    }

    fn all(&self) -> Span {
        Span { offset: 0, len: self.call.bytes() }
    }

    /// The part of `rank` in a buffer that has a part for each rank.
    fn part(&self, rank: u32) -> Span {
        Span { offset: rank as usize * self.call.bytes(), len: self.call.bytes() }
    }

    /// The share that `rank` makes of a buffer that all ranks have: as equal as whole lines allow.
    fn share(&self, rank: u32) -> Span {
        let bytes = self.call.bytes();
        let (lines, ranks, rank) = (bytes.div_ceil(LINE), self.ranks as usize, rank as usize);
        let start = |rank: usize| (rank * (lines / ranks) + rank.min(lines % ranks)) * LINE;
        let (start, end) = (start(rank).min(bytes), start(rank + 1).min(bytes));
        Span { offset: start, len: end - start }
    }
}

impl Iterator for ZeroCopyPlan {
    type Item = Move;

    fn next(&mut self) -> Option<Move> {
        loop {
            let Move { span, at, from, to } = self.task(self.task)?;
            // Empty tasks end here, too: a share of fewer lines than ranks may be empty.
            if self.done == span.len {
                (self.task, self.done) = (self.task + 1, 0);
                continue;
            }
            let (offset, at) = (span.offset + self.done, at + self.done);
            let mut len = self.piece.min(span.len - self.done);
            let from = match from {
                From::All { .. } => {
                    // A move must not cross a chunk of the ring, because the next chunk begins at another rank.
                    let (first, end) = self.order.at(offset);
                    len = len.min(end - offset);
                    From::All { first }
                }
                // A copy has no order, so only the piece bounds it.
                one => one,
            };
            self.done += len;
            return Some(Move { span: Span { offset, len }, at, from, to });
        }
    }
}

#[cfg(test)]
mod tests;
