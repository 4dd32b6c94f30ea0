//! What ranks that reach each other directly tell each other in one exchange, and what each makes of it: pure data, as the
//! schedules are.
//!
//! Every rank has a message for every other one, be it empty. What is reduced is reduced in the order of the ring, so that the
//! bits do not depend on which way an operation takes.

use super::call::{Call, Collective};
use super::pieces::Pieces;
use super::schedule::Span;
use super::{DataType, ReduceOp};
use crate::comm::{CommunicatorOptions, MESSAGE_BYTES_MAX};

/// Bytes of a rank's message up to which an exchange is faster than a ring.
const BYTES_MAX: usize = 8 * 1024;
const _: () = assert!(BYTES_MAX <= MESSAGE_BYTES_MAX);

/// The part of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) call: Call,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    reproducible: bool,
    /// Of what is longer than a message: those say that the first pieces are there then, and have nothing besides.
    pub(super) pieces: Option<Pieces>,
}

/// A range of the output, and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// Of the message of a rank, or of the input if it is this one.
    Copied { span: Span, from: u32 },
    /// Of all messages from byte `at` on, reduced from rank `first` on around the ring, and of this rank's input.
    Reduced { span: Span, at: usize, first: u32 },
}

impl Exchange {
    /// `None` for what had better go around the ring. All ranks that call the same come to the same.
    pub(super) fn new(call: Call, [rank, ranks]: [u32; 2], options: &CommunicatorOptions) -> Option<Self> {
        let bytes = call.bytes();
        // Whatever the ring refuses, or cuts into rounds, is the ring's.
        let whole = options.slots > 0 && options.slot_bytes >= bytes.max(call.data_type.size());
        let rooted = call.collective.root().is_none_or(|root| root < ranks);
        let short = bytes <= BYTES_MAX && whole && rooted;
        let pieces = if bytes > BYTES_MAX { Some(Pieces::new(call, [rank, ranks], options)?) } else { None };
        let reproducible = options.reproducible;
        (short || pieces.is_some()).then_some(Self { call, rank, ranks, reproducible, pieces })
    }

    /// What of the input goes to rank `to`.
    pub(super) fn sent(&self, to: u32) -> Span {
        let all = Span { offset: 0, len: self.call.bytes() };
        let none = Span { offset: 0, len: 0 };
        match self.call.collective {
            _ if self.pieces.is_some() => none,
            Collective::AllReduce(_) => all,
            Collective::AllGather => self.part(self.rank),
            Collective::ReduceScatter(_) => self.part(to),
            Collective::Broadcast { root } if root == self.rank => all,
            Collective::Reduce { root, .. } if root == to => all,
            Collective::Broadcast { .. } | Collective::Reduce { .. } | Collective::Barrier => none,
        }
    }

    /// Bytes that come from rank `from`.
    pub(super) fn received(&self, from: u32) -> usize {
        match self.call.collective {
            _ if self.pieces.is_some() => 0,
            Collective::Broadcast { root } if root != from => 0,
            Collective::Reduce { root, .. } if root != self.rank => 0,
            _ => self.call.bytes(),
        }
    }

    /// All that is made of the messages, in any order.
    pub(super) fn made(self) -> impl Iterator<Item = Made> {
        let all = Span { offset: 0, len: self.call.bytes() };
        let (copied, reduced) = match self.call.collective {
            _ if self.pieces.is_some() => (0..0, 0..0),
            Collective::AllGather => (0..self.ranks, 0..0),
            Collective::Broadcast { root } => (root..root + 1, 0..0),
            Collective::AllReduce(_) => (0..0, 0..if self.is_ordered() { self.ranks } else { 1 }),
            Collective::ReduceScatter(_) => (0..0, 0..1),
            Collective::Reduce { root, .. } => (0..0, 0..u32::from(root == self.rank)),
            Collective::Barrier => (0..0, 0..0),
        };
        let copied = copied.map(move |from| {
            let gathers = self.call.collective == Collective::AllGather;
            Made::Copied { span: if gathers { self.part(from) } else { all }, from }
        });
        let after = move |rank| if self.reproducible { 0 } else { (rank + 1) % self.ranks };
        let reduced = reduced.map(move |first| match self.call.collective {
            Collective::ReduceScatter(_) => {
                Made::Reduced { span: self.part(self.rank), at: 0, first: after(self.rank) }
            }
            Collective::Reduce { root, .. } => Made::Reduced { span: all, at: 0, first: after(root) },
            _ if self.is_ordered() => {
                let span = self.segment(first);
                Made::Reduced { span, at: span.offset, first }
            }
            _ => Made::Reduced { span: all, at: 0, first },
        });
        copied.chain(reduced)
    }

    /// The part of `rank` of a buffer that has one for each.
    fn part(&self, rank: u32) -> Span {
        Span { offset: rank as usize * self.call.bytes(), len: self.call.bytes() }
    }

    /// Whether an all-reduce depends on the rank that an element is reduced from on. Two operands may change places.
    fn is_ordered(&self) -> bool {
        let Call { collective, data_type, .. } = self.call;
        let floats = matches!(data_type, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64);
        let picks = matches!(collective, Collective::AllReduce(ReduceOp::Max | ReduceOp::Min));
        floats && !picks && self.ranks > 2 && !self.reproducible
    }

    /// What the ring reduces from `rank` on: as equal segments as whole elements allow, the first ones longer.
    fn segment(&self, rank: u32) -> Span {
        let Call { count, data_type, .. } = self.call;
        let (ranks, rank) = (self.ranks as usize, rank as usize);
        let (len, longer) = (count / ranks, count % ranks);
        let start = rank * len + rank.min(longer);
        let len = len + usize::from(rank < longer);
        Span { offset: start * data_type.size(), len: len * data_type.size() }
    }
}

#[cfg(test)]
mod tests;
