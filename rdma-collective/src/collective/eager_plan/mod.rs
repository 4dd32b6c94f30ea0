//! What ranks that reach each other directly tell each other in one exchange, and what each makes of it: pure data, as the
//! schedules are.
//!
//! Every rank has a message for every other one, be it empty. What is reduced is reduced in the order of the ring, so that the
//! bits do not depend on which way an operation takes.

use super::call::{Call, Collective, Holds, staging};
use super::schedule::{ReduceOrder, Span};
use super::{DataType, ReduceOp};
use crate::collective::communicator::{CommunicatorOptions, message_bytes_max};
use crate::collective::rank_of::RankOf;

const NONE: Span = Span { offset: 0, len: 0 };

/// The part of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct EagerPlan {
    pub(super) call: Call,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    order: ReduceOrder,
}

/// A range of the output that is made of the message of a rank, or of the input if it is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) span: Span,
    pub(super) from: u32,
}

/// A range that is made of all messages from byte `at` on, reduced from rank `first` on around the ring, and of this rank's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduced {
    pub(super) span: Span,
    pub(super) at: usize,
    pub(super) first: u32,
}

impl EagerPlan {
    /// `None` for what goes another way. All ranks that call the same come to the same.
    #[inline]
    pub(super) fn new(
        call: Call,
        RankOf { rank, size: ranks }: RankOf,
        options: &CommunicatorOptions,
    ) -> Option<Self> {
        let bytes = call.bytes();
        // Whatever the ring refuses, or cuts into rounds, is the ring's.
        let whole = options.slots > 0 && options.slot_bytes >= bytes.max(call.data_type.size());
        let links = call.collective == Collective::Connect || call.collective.is_uneven();
        if bytes > message_bytes_max(ranks) || !whole || call.root >= ranks || links {
            return None;
        }
        let order = if may_change_places(call, ranks) {
            ReduceOrder::from(0)
        } else {
            call.order(RankOf { rank, size: ranks }, staging(options), options.reproducible).ok()?
        };
        Some(Self { call, rank, ranks, order })
    }

    /// What of the input goes to rank `to`.
    #[inline]
    pub(super) fn sent(&self, to: u32) -> Span {
        if !self.call.gives(self.rank) || !self.call.gets(to) {
            return NONE;
        }
        match self.call.collective.buffers() {
            (Holds::Parts, _) => self.part(to),
            (Holds::One, Holds::Parts) => self.part(self.rank),
            (Holds::One, Holds::One) => self.whole(),
        }
    }

    /// Whether it cannot end without the message of rank `from`: who only gives goes on.
    #[inline]
    pub(super) fn needs(&self, from: u32) -> bool {
        self.call.gives(from) && self.call.gets(self.rank)
    }

    /// Bytes that come from rank `from`.
    #[inline]
    pub(super) fn received(&self, from: u32) -> usize {
        if self.needs(from) { self.call.bytes() } else { 0 }
    }

    /// All that is copied from one message each, in any order.
    #[inline]
    pub(super) fn copied(&self) -> impl Iterator<Item = Copied> {
        let Call { collective, root, .. } = self.call;
        let from = if collective.reduces() || !self.call.gets(self.rank) || self.call.bytes() == 0 {
            0..0
        } else if collective.is_from_root() {
            root..root + 1
        } else {
            0..self.ranks
        };
        from.map(move |from| {
            let span = match collective.buffers() {
                (Holds::One, Holds::One) => self.whole(),
                (Holds::Parts, Holds::One) => self.part(self.rank),
                _ => self.part(from),
            };
            Copied { span, from }
        })
    }

    /// All that is reduced, in its order.
    #[inline]
    pub(super) fn reduced(&self) -> impl Iterator<Item = Reduced> {
        let span = match self.call.collective.buffers() {
            _ if !self.call.collective.reduces() || !self.call.gets(self.rank) => NONE,
            (Holds::Parts, _) => self.part(self.rank),
            (Holds::One, _) => self.whole(),
        };
        let mut rest = span.range();
        std::iter::from_fn(move || {
            let begin = rest.start;
            (!rest.is_empty()).then(|| {
                let (first, end) = self.order.at(begin);
                rest.start = end.min(rest.end);
                let made = Span { offset: begin, len: rest.start - begin };
                Reduced { span: made, at: begin - span.offset, first }
            })
        })
    }

    #[inline]
    fn whole(&self) -> Span {
        Span { offset: 0, len: self.call.bytes() }
    }

    /// The part of `rank` of a buffer that has one for each.
    #[inline]
    fn part(&self, rank: u32) -> Span {
        Span { offset: rank as usize * self.call.bytes(), len: self.call.bytes() }
    }
}

/// Whether it is all the same from which rank on an all-reduce begins: two operands may change places, and whole numbers.
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
