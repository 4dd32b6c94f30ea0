//! The vocabulary of schedules: the [`Step`]s of one rank.

use std::ops::Range;

use super::Extent;

/// A range of an operation's elements, in bytes; the same range of the input and of the output.
///
/// Where input and output differ in length, the shorter one is a rank's part of the longer one, and begins at
/// `rank * part` of it. In place and out of place are therefore one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// The first byte.
    pub(crate) offset: usize,
    /// How many bytes.
    pub(crate) len: usize,
}

impl Span {
    /// The indices of the range.
    pub(crate) const fn range(self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// A step of one rank. A rank takes the steps of a *strand* in order; a step that has to wait holds up those after it.
/// A collective has one strand. Sends and receives that go together have one for each link and direction.
///
/// Each ordered pair of ranks has a link of its own, with its own slots. Messages of a link are numbered from 0 within
/// a schedule, on both of its ends alike. A message lies in the slot `(messages of earlier schedules on that link +
/// message) % slots` of the receiver, so that schedules follow each other on a link without a pause.
///
/// Arrivals are told apart by slot and not by order, because messages may travel over several queue pairs and overtake
/// each other. A slot is announced by one count of immediates, and nobody writes to it again before the receiver has
/// given it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Takes a credit of the link to the rank, waiting until there is one, and writes the source, which may be empty,
    /// into the slot of `message`. Does not wait for the write to complete.
    ///
    /// The executor may send the source without a copy, so that the source must not change until the message has
    /// arrived.
    Put {
        /// The rank that receives.
        to: u32,
        /// The number of the message on the link to it.
        message: u64,
        /// The bytes that are read.
        source: Extent,
        /// Whether the executor must send a copy, because the schedule changes the source before the message is sure
        /// to have arrived. An input that is not also the output never changes, and needs no copy.
        copied: bool,
    },
    /// Waits until the count of immediates that carry the slot of `message` says that the whole message is there.
    WaitCount {
        /// The rank that sends.
        from: u32,
        /// The number of the message on the link from it.
        message: u64,
    },
    /// Waits until this rank has put `message` to that rank. Another strand of the operation does so: it sends the
    /// buffer that the next step overwrites.
    WaitPut {
        /// The rank that receives.
        to: u32,
        /// The number of the message on the link to it.
        message: u64,
    },
    /// `target = operand op slot`; after the last one, also what the operation does once at the end (the division of
    /// an average).
    ReduceFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// The other operand.
        operand: Extent,
        /// Where the result is left; it may be the operand.
        target: Extent,
        /// Whether the result contains all ranks, so that no rank reduces it any further.
        last: bool,
    },
    /// `target = slot`; an empty message is only consumed.
    CopyFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// Where the bytes are left.
        target: Extent,
    },
    /// Gives the slots of all messages below `consumed` back to the rank that wrote them: its credits.
    Signal {
        /// The rank that sent.
        to: u32,
        /// How many messages of this schedule from it were used so far.
        consumed: u64,
        /// Whether the sender can wait for the news, until this rank sends to it again: the two exchange messages, and
        /// the sender has put all of its own.
        may_wait: bool,
    },
    /// `target = source`; nothing to do in place where both are the same range. The only step of a rank that is alone.
    Copy {
        /// The bytes that are read.
        source: Extent,
        /// Where they are left, of the same length.
        target: Extent,
    },
}

impl Step {
    /// The copy of a span of the input to the same span of the output.
    pub(super) const fn copy(span: Span) -> Self {
        Self::Copy { source: Extent::input(span), target: Extent::output(span) }
    }

    /// The other rank of the step; `None` for a copy.
    pub(crate) const fn peer(&self) -> Option<u32> {
        match *self {
            Self::Put { to: peer, .. }
            | Self::WaitPut { to: peer, .. }
            | Self::Signal { to: peer, .. }
            | Self::WaitCount { from: peer, .. }
            | Self::ReduceFrom { from: peer, .. }
            | Self::CopyFrom { from: peer, .. } => Some(peer),
            Self::Copy { .. } => None,
        }
    }

    /// The bytes that the step uses of a message of its peer.
    pub(crate) const fn used(&self) -> usize {
        match self {
            Self::ReduceFrom { target, .. } | Self::CopyFrom { target, .. } => target.len(),
            _ => 0,
        }
    }

    /// The spans of the input that the step puts.
    #[cfg(test)]
    pub(crate) fn put_from_input(&self) -> impl Iterator<Item = Span> + use<> {
        let source = match *self {
            Self::Put { source, .. } if source.buffer() == super::Buffer::Input => Some(source),
            _ => None,
        };
        source.into_iter().flat_map(|source| source.spans())
    }
}
