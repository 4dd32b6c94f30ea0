//! The vocabularies of schedules: [`Step`]s between the neighbours of a ring, [`Primitive`]s between any ranks.

use std::ops::Range;

use super::{Buffer, Extent};

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

/// The memory that a [`Step::Put`] reads. In place, input and output are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// The contribution of this rank.
    Input,
    /// The bytes that this rank has reduced or received so far.
    Output,
    /// The message that was left in [staging memory](Target::Staged).
    Staged,
}

/// The memory in which a step leaves what it has made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// The caller's output.
    Output,
    /// Memory of the library, for the next [`Step::Put`], because the output has no room for the bytes. A rank has at
    /// most one such message.
    Staged,
}

/// A step of one rank between the neighbours of a ring. A rank takes its steps in order; a step that has to wait
/// holds up those after it.
///
/// Messages of a link are numbered from 0 within a schedule, on both of its ends alike. A message lies in the
/// slot `(messages of earlier schedules on that link + message) % slots` of the receiver, so that schedules
/// follow each other on a link without a pause.
///
/// Arrivals are told apart by slot and not by order, because messages may travel over several queue pairs or rails
/// and overtake each other. A slot is announced by one count of immediates, and nobody writes to it again before the
/// receiver has given it back.
///
/// The source of a `Put` must not change until the message has arrived, in place too: the executor may send it from
/// the caller's buffer without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Takes a credit, waiting while `slots` messages to this rank are not yet given back, and
    /// writes `span` of the source into the slot of `message`. Does not wait for the write to complete.
    Put {
        /// The rank that receives.
        to: u32,
        /// The number of the message on the link to it.
        message: u64,
        /// The memory that is read.
        source: Source,
        /// The bytes of it.
        span: Span,
    },
    /// Waits until the count of immediates that carry the slot of `message` says that the whole message is there.
    WaitCount {
        /// The rank that sends.
        from: u32,
        /// The number of the message on the link from it.
        message: u64,
    },
    /// `target[span] = input[span] op slot`; after the last one, also what the operation does once at the end (the
    /// division of an average).
    ReduceFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// The bytes that are reduced.
        span: Span,
        /// Whether the result contains all ranks, so that no rank reduces it any further.
        last: bool,
        /// Where the result is left.
        target: Target,
    },
    /// `target[span] = slot`.
    CopyFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// The bytes that are stored.
        span: Span,
        /// Where they are left.
        target: Target,
    },
    /// Gives the slots of all messages below `consumed` back to the rank that wrote them: its credits.
    Signal {
        /// The rank that sent.
        to: u32,
        /// How many messages of this schedule were used so far.
        consumed: u64,
    },
    /// `output[span] = input[span]`; nothing to do in place. The only step of a rank that is alone.
    Copy {
        /// The bytes that are copied.
        span: Span,
    },
}

/// A step of one rank by the rules of [`Step`], but to and from any rank and of any memory.
///
/// Each ordered pair of ranks has a link of its own, with its own message numbers from 0 and its own slots.
///
/// Every [`Step`] converts to a `Primitive`, so that one simulator checks and times both vocabularies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Primitive {
    /// Takes a credit of the link to the rank, waiting until there is one, and writes the source, which may be empty,
    /// into the slot of `message`. Does not wait for the write to complete.
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
        /// Whether the result contains all ranks.
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
    },
    /// `target = source`; nothing to do in place where both are the same range.
    Copy {
        /// The bytes that are read.
        source: Extent,
        /// Where they are left, of the same length.
        target: Extent,
    },
}

impl From<Step> for Primitive {
    fn from(step: Step) -> Self {
        let input = |span| Extent::of(Buffer::Input, span);
        let output = |span| Extent::of(Buffer::Output, span);
        // A rank has one staged message at a time, so that the message always begins at 0 of the scratch memory.
        let staged = |span: Span| Extent::of(Buffer::Scratch, Span { offset: 0, len: span.len });
        let target = |target, span| match target {
            Target::Output => output(span),
            Target::Staged => staged(span),
        };
        match step {
            Step::Put { to, message, source, span } => {
                let (source, copied) = match source {
                    Source::Input => (input(span), false),
                    Source::Output => (output(span), false),
                    // The next message takes the same scratch bytes, possibly before this one has arrived.
                    Source::Staged => (staged(span), true),
                };
                Self::Put { to, message, source, copied }
            }
            Step::WaitCount { from, message } => Self::WaitCount { from, message },
            Step::ReduceFrom { from, message, span, last, target: left } => {
                Self::ReduceFrom { from, message, operand: input(span), target: target(left, span), last }
            }
            Step::CopyFrom { from, message, span, target: left } => {
                Self::CopyFrom { from, message, target: target(left, span) }
            }
            Step::Signal { to, consumed } => Self::Signal { to, consumed },
            Step::Copy { span } => Self::Copy { source: input(span), target: output(span) },
        }
    }
}
