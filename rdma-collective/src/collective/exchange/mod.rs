//! What ranks that reach each other directly tell each other in one exchange, and what each makes of it: pure data, as the
//! schedules are.
//!
//! Every rank has a message for every other one, be it empty. What is reduced is reduced in the order of the ring, so that the
//! bits do not depend on which way an operation takes.

use super::call::{Call, Collective, staging};
use super::schedule::{ReduceOrder, Span};
use super::{DataType, ReduceOp};
use crate::collective::communicator::{CommunicatorOptions, message_bytes_max};

const NONE: Span = Span { offset: 0, len: 0 };

/// The part of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
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

impl Exchange {
    /// `None` for what goes another way. All ranks that call the same come to the same.
    #[inline]
    pub(super) fn new(call: Call, [rank, ranks]: [u32; 2], options: &CommunicatorOptions) -> Option<Self> {
        let bytes = call.bytes();
        // Whatever the ring refuses, or cuts into rounds, is the ring's.
        let whole = options.slots > 0 && options.slot_bytes >= bytes.max(call.data_type.size());
        let rooted = call.collective.root().is_none_or(|root| root < ranks);
        let links = matches!(call.collective, Collective::Connect | Collective::Uneven(_));
        if bytes > message_bytes_max(ranks) || !whole || !rooted || links {
            return None;
        }
        let order = if may_change_places(call, ranks) {
            ReduceOrder::from(0)
        } else {
            call.order([rank, ranks], staging(options), options.reproducible).ok()?
        };
        Some(Self { call, rank, ranks, order })
    }

    /// What of the input goes to rank `to`.
    #[inline]
    pub(super) fn sent(&self, to: u32) -> Span {
        match self.call.collective {
            Collective::AllReduce(_) => self.whole(),
            Collective::AllGather | Collective::Split => self.part(self.rank),
            Collective::ReduceScatter(_) | Collective::AllToAll => self.part(to),
            Collective::Gather { root } if root == to => self.part(self.rank),
            Collective::Scatter { root } if root == self.rank => self.part(to),
            Collective::Broadcast { root } if root == self.rank => self.whole(),
            Collective::Reduce { root, .. } if root == to => self.whole(),
            _ => NONE,
        }
    }

    /// Whether it cannot end without the message of rank `from`: who only gives goes on.
    #[inline]
    pub(super) fn needs(&self, from: u32) -> bool {
        match self.call.collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => root == from,
            Collective::Reduce { root, .. } | Collective::Gather { root } => root == self.rank,
            _ => true,
        }
    }

    /// Bytes that come from rank `from`.
    #[inline]
    pub(super) fn received(&self, from: u32) -> usize {
        if self.needs(from) { self.call.bytes() } else { 0 }
    }

    /// All that is copied from one message each, in any order.
    #[inline]
    pub(super) fn copied(&self) -> impl Iterator<Item = Copied> {
        let from = match self.call.collective {
            Collective::AllGather | Collective::Split | Collective::AllToAll => 0..self.ranks,
            Collective::Gather { root } if root == self.rank => 0..self.ranks,
            Collective::Broadcast { root } | Collective::Scatter { root } => root..root + 1,
            _ => 0..0,
        };
        from.map(|from| {
            let span = match self.call.collective {
                Collective::Broadcast { .. } => self.whole(),
                Collective::Scatter { .. } => self.part(self.rank),
                _ => self.part(from),
            };
            Copied { span, from }
        })
    }

    /// All that is reduced, in its order.
    #[inline]
    pub(super) fn reduced(&self) -> impl Iterator<Item = Reduced> {
        let span = match self.call.collective {
            Collective::AllReduce(_) => self.whole(),
            Collective::ReduceScatter(_) => self.part(self.rank),
            Collective::Reduce { root, .. } if root == self.rank => self.whole(),
            _ => NONE,
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
fn may_change_places(Call { collective, data_type, .. }: Call, ranks: u32) -> bool {
    let Collective::AllReduce(op) = collective else { return false };
    let floats = matches!(data_type, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64);
    !floats || matches!(op, ReduceOp::Max | ReduceOp::Min) || ranks <= 2
}

#[cfg(test)]
mod tests;
