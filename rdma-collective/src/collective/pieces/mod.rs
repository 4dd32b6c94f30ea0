//! What ranks that reach each other's windows leave there when an operation is longer than a message: its pieces, in rounds. Pure
//! data, as the schedules are.
//!
//! In a round every rank puts what the others need of its input, makes its part of what all have put, and takes what the
//! others have made. The elements are cut as the ring cuts them, and reduced in the order of the ring, so that the bits do not
//! depend on which way an operation takes.
//!
//! A window has two generations of units, one a rank. Of round `i`, in generation `i` modulo 2, a rank has made what lies in the
//! unit of its own number, and has put what lies in the others: for rank `r` in unit `r`, for all in the one after its own. A rank
//! tells of what it has put and of what it has made, in the order of its [steps](Pieces::step), which is why two generations are
//! enough:
//!
//! - It puts round `i + 1` once all have made round `i - 1`, so that they have read what it put for that; in a broadcast, where
//!   only the root puts, only the root waits for that.
//! - It makes round `i` once all have put it that have something to put; before that they have taken what was made in round `i - 2`.
//! - An operation ends when all have made its last round, in a broadcast for who takes when the root has. What was made in that is read until the next operation has begun, and
//!   not overwritten before all have put that one's first round.

use super::call::{Call, Collective, staging};
use super::schedule::{ChunkPlace, Chunking, Order, Span};
use crate::collective::communicator::{CommunicatorOptions, UNIT_BYTES};

/// The part of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    pub(super) call: Call,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    cut: Chunking,
    order: Order,
}

/// What a rank does next. Each step is of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Leaves what the others need, and tells them.
    Put(u64),
    /// Goes on when all have put that it [awaits](Pieces::awaits).
    AwaitPut(u64),
    /// Makes its part of what they have put, and tells them.
    Make(u64),
    /// Goes on when all have made that it awaits.
    AwaitMade(u64),
    /// Takes what they have made.
    Take(u64),
}

/// A part of the output, and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// Of the input.
    Own { span: Span },
    /// Of a unit of rank `from`.
    Copied { span: Span, from: u32, unit: u32 },
    /// Of all units of this rank, reduced from rank `first` on around the ring.
    Reduced { span: Span, first: u32, kept: bool, left: bool },
}

impl Pieces {
    /// `None` for what goes another way. All ranks that call the same come to the same.
    pub(super) fn new(call: Call, [rank, ranks]: [u32; 2], options: &CommunicatorOptions) -> Option<Self> {
        let staging = staging(options);
        // Who gives the mailboxes little memory has an operation in little memory.
        if options.slot_bytes < UNIT_BYTES || call.root >= ranks {
            return None;
        }
        let Call { collective, count, data_type, .. } = call;
        let (element, parts) = (data_type.size(), ranks as usize);
        data_type.bytes(count.checked_mul(parts)?).ok()?;
        let cut = match collective {
            Collective::AllReduce | Collective::Reduce => Chunking::new(count, element, parts, &staging),
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
                Chunking::of_parts(count, element, parts, &staging)
            }
            Collective::Broadcast => Chunking::new(count, element, 1, &staging),
            _ => return None,
        };
        let order = call.order([rank, ranks], staging, options.reproducible).ok()?;
        Some(Self { call, rank, ranks, cut: cut.ok()?.finer(UNIT_BYTES), order })
    }

    pub(super) fn rounds(&self) -> u64 {
        (self.cut.rounds() * self.cut.chunks()) as u64
    }

    /// Step number `at`; `None` at the end.
    pub(super) fn step(&self, at: u64) -> Option<Step> {
        let Some(at) = at.checked_sub(1) else { return Some(Step::Put(0)) };
        let round = at / 5;
        (round < self.rounds()).then_some(match at % 5 {
            0 => Step::Put(round + 1),
            1 => Step::AwaitPut(round),
            2 => Step::Make(round),
            3 => Step::AwaitMade(round),
            _ => Step::Take(round),
        })
    }

    /// Whether it goes beyond a step only when rank `of` has come as far: what a root alone has to give waits for that one, and the
    /// root, whose units it is read from, for all.
    pub(super) fn awaits(&self, step: Step, of: u32) -> bool {
        match (self.call.collective, step) {
            (Collective::Broadcast, Step::AwaitPut(_)) => self.call.root == of,
            (Collective::Broadcast, Step::AwaitMade(_)) => self.call.root == self.rank,
            _ => matches!(step, Step::AwaitPut(_) | Step::AwaitMade(_)),
        }
    }

    /// Whether it cannot begin to wait for pieces without the message of rank `from`.
    pub(super) fn needs(&self, from: u32) -> bool {
        [Step::AwaitPut(0), Step::AwaitMade(0)].into_iter().any(|step| self.awaits(step, from))
    }

    /// What a rank says when it has put a round, or has made it: more than it said before.
    pub(super) fn mark(step: Step) -> u64 {
        match step {
            Step::Put(round) | Step::AwaitPut(round) => (2 * round).max(1),
            Step::Make(round) | Step::AwaitMade(round) | Step::Take(round) => 2 * round + 3,
        }
    }

    /// More than any mark.
    pub(super) fn marks(&self) -> u64 {
        2 * self.rounds() + 2
    }

    /// The units that this rank fills in a round, and with what of its input.
    pub(super) fn put(&self, round: u64) -> impl Iterator<Item = (u32, Span)> {
        let own = self.rank;
        let units = match self.call.collective {
            _ if round >= self.rounds() => 0..0,
            _ if !self.call.gives(own) => 0..0,
            Collective::AllGather | Collective::Broadcast => own..own + 1,
            _ => 0..self.ranks,
        };
        let for_one = self.is_for_one();
        let parts = units.filter(move |part| !for_one || *part != own);
        parts.map(move |part| (if for_one { part } else { self.after(part) }, self.span(round, part)))
    }

    /// Whether what a rank puts is each for one other.
    fn is_for_one(&self) -> bool {
        self.call.collective.reduces() || self.call.collective == Collective::AllToAll
    }

    fn after(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }

    /// What this rank makes of what all have put in a round.
    pub(super) fn make(&self, round: u64) -> impl Iterator<Item = Made> {
        let own = self.rank;
        let (copied, reduced) = match self.call.collective {
            Collective::AllGather | Collective::AllToAll => (0..self.ranks, None),
            Collective::Broadcast => (self.call.root..self.call.root + 1, None),
            Collective::AllReduce => (0..0, Some((true, true))),
            Collective::ReduceScatter => (0..0, Some((true, false))),
            Collective::Reduce => (0..0, Some((self.call.gets(own), !self.call.gets(own)))),
            _ => (0..0, None),
        };
        let copied = copied.map(move |from| {
            let span = self.span(round, from);
            let unit = if self.is_for_one() { own } else { self.after(from) };
            if from == own { Made::Own { span } } else { Made::Copied { span, from, unit } }
        });
        let span = self.span(round, own);
        let (first, _) = self.order.at(span.offset);
        copied.chain(reduced.map(move |(kept, left)| Made::Reduced { span, first, kept, left }))
    }

    /// What this rank takes of what the others have made of a round.
    pub(super) fn take(&self, round: u64) -> impl Iterator<Item = Made> {
        let from = match self.call.collective {
            Collective::AllReduce | Collective::Reduce if self.call.gets(self.rank) => 0..self.ranks,
            _ => 0..0,
        };
        let others = from.filter(|from| *from != self.rank);
        others.map(move |from| Made::Copied { span: self.span(round, from), from, unit: from })
    }

    /// Bytes that come from others from a round on, about.
    pub(super) fn outstanding(&self, round: u64) -> u64 {
        let all = self.call.bytes() as u64;
        let others = u64::from(self.ranks - 1);
        let bytes = match self.call.collective {
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => all * others,
            Collective::AllReduce => 2 * all * others / u64::from(self.ranks),
            Collective::Reduce => all * others / u64::from(self.ranks),
            Collective::Broadcast if self.call.root == self.rank => 0,
            _ => all,
        };
        bytes - bytes * round.min(self.rounds()) / self.rounds().max(1)
    }

    /// The piece of a rank's part in a round; where there are no parts, of the whole.
    fn span(&self, round: u64, part: u32) -> Span {
        let (round, chunks) = (round as usize, self.cut.chunks());
        let segment = if self.cut.has_one_segment() { 0 } else { part as usize };
        self.cut.span(ChunkPlace { round: round / chunks, segment, chunk: round % chunks })
    }
}

#[cfg(test)]
mod tests;
