//! The eager plan: the messages of an exchange between ranks that map each other's memory, and the result that each
//! rank makes of them. Pure data, as the schedules are; `execute` carries it out.
//!
//! Every rank has a message for every other one, be it empty. Reductions follow the order of the ring, so that the bits
//! do not depend on the algorithm that an operation takes.

use super::call::{Call, Collective, Holds, staging};
use super::schedule::{ReduceOrder, Span};
use super::{DataType, ReduceOp};
use crate::collective::communicator::{CommunicatorOptions, message_bytes_max};
use crate::collective::rank_of::RankOf;

const NONE: Span = Span { offset: 0, len: 0 };

/// The part of one rank in an eager exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct EagerPlan {
    pub(super) call: Call,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    order: ReduceOrder,
}

/// A range of the output that is a copy of one rank's message, or of the input if that rank is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) span: Span,
    pub(super) from: u32,
}

/// A range that is reduced from all messages, from byte `at` on, and from this rank's input, beginning with rank
/// `first` and going around the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduced {
    pub(super) span: Span,
    pub(super) at: usize,
    pub(super) first: u32,
}

impl EagerPlan {
    /// The plan of a call, or `None` if the call does not take the eager exchange. All ranks that call the same get the
    /// same answer, because it depends on the call and on common options alone.
    #[inline]
    pub(super) fn new(
        call: Call,
        RankOf { rank, size: ranks }: RankOf,
        options: &CommunicatorOptions,
    ) -> Option<Self> {
        let bytes = call.bytes();
        // Calls that the ring refuses, or cuts into rounds, stay with the ring: its errors, and its order of sums, then
        // hold.
        let whole = options.slots > 0 && options.slot_bytes >= bytes.max(call.data_type.size());
        let links = call.collective == Collective::Connect || call.collective.is_uneven();
        if bytes > message_bytes_max(ranks) || !whole || call.root >= ranks || links {
            return None;
        }
        // Where every order gives the same bits, a single range over the whole buffer is faster than the ring's chunks.
        let order = if may_change_places(call, ranks) {
            ReduceOrder::from(0)
        } else {
            call.order(RankOf { rank, size: ranks }, staging(options), options.reproducible).ok()?
        };
        Some(Self { call, rank, ranks, order })
    }

    /// The range of the input that goes to rank `to`.
    #[inline]
    pub(super) fn sent(&self, to: u32) -> Span {
        // An empty message is still a message: it carries the header that the peer compares with its own call.
        if !self.call.gives(self.rank) || !self.call.gets(to) {
            return NONE;
        }
        match self.call.collective.properties().buffers {
            (Holds::Parts, _) => self.part(to),
            (Holds::One, Holds::Parts) => self.part(self.rank),
            (Holds::One, Holds::One) => self.whole(),
        }
    }

    /// Whether the exchange needs the message of rank `from` to end. A rank that only gives needs none and goes on.
    #[inline]
    pub(super) fn needs(&self, from: u32) -> bool {
        self.call.gives(from) && self.call.gets(self.rank)
    }

    /// Bytes that come from rank `from`.
    #[inline]
    pub(super) fn received(&self, from: u32) -> usize {
        if self.needs(from) { self.call.bytes() } else { 0 }
    }

    /// The ranges that are copied, each from one message, in any order.
    #[inline]
    pub(super) fn copied(&self) -> impl Iterator<Item = Copied> {
        let Call { collective, root, .. } = self.call;
        // A reducing rank copies nothing: `reduced` covers its whole output.
        let from = if collective.properties().reduces || !self.call.gets(self.rank) || self.call.bytes() == 0
        {
            0..0
        } else if collective.properties().from_root {
            root..root + 1
        } else {
            0..self.ranks
        };
        from.map(move |from| {
            let span = match collective.properties().buffers {
                (Holds::One, Holds::One) => self.whole(),
                (Holds::Parts, Holds::One) => self.part(self.rank),
                _ => self.part(from),
            };
            Copied { span, from }
        })
    }

    /// The ranges that are reduced, in ascending order; each lies within one chunk of the ring, which begins at one
    /// rank.
    #[inline]
    pub(super) fn reduced(&self) -> impl Iterator<Item = Reduced> {
        let span = match self.call.collective.properties().buffers {
            _ if !self.call.collective.properties().reduces || !self.call.gets(self.rank) => NONE,
            (Holds::Parts, _) => self.part(self.rank),
            (Holds::One, _) => self.whole(),
        };
        let mut rest = span.range();
        std::iter::from_fn(move || {
            let begin = rest.start;
            (!rest.is_empty()).then(|| {
                // The ring's chunks begin at different ranks, so cut where the first rank changes.
                let (first, end) = self.order.at(begin);
                rest.start = end.min(rest.end);
                let made = Span { offset: begin, len: rest.start - begin };
                // A message holds only this rank's part, so its offset counts from the part's start.
                Reduced { span: made, at: begin - span.offset, first }
            })
        })
    }

    #[inline]
    fn whole(&self) -> Span {
        Span { offset: 0, len: self.call.bytes() }
    }

    /// The part of `rank` in a buffer that has a part for each rank.
    #[inline]
    fn part(&self, rank: u32) -> Span {
        Span { offset: rank as usize * self.call.bytes(), len: self.call.bytes() }
    }
}

/// Whether an all-reduce has the same bits whichever rank it begins with: integers, max and min, and any two operands.
/// Then one range covers the whole buffer.
#[inline]
fn may_change_places(Call { collective, op, data_type, .. }: Call, ranks: u32) -> bool {
    if collective != Collective::AllReduce {
        return false;
    }
    let floats = matches!(data_type, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64);
    !floats || matches!(op, Some(ReduceOp::Max | ReduceOp::Min)) || ranks <= 2
}

#[cfg(test)]
mod tests;
