//! The vocabulary of schedules among many peers, of which that of neighbours is a part.

use super::{Buffer, Place, Source, Span, Step, Target};

/// One step of one rank, as [`Step`], and by the same rules; to and from any rank, and of any memory.
///
/// Each ordered pair of ranks has a link of its own, whose messages are numbered from 0, and slots of its own.
///
/// Every [`Step`] is one of them, so what checks and times them does so for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Primitive {
    /// Takes a credit of the link to the rank, waiting until there is one, and writes the source, which may be empty, into
    /// the slot of `message`. Goes on before the write has completed.
    Put {
        /// The rank that receives.
        to: u32,
        /// The number of the message on the link to it.
        message: u64,
        /// What is read.
        source: Place,
        /// Sent from a copy, since the source is changed before it is sure to have arrived. What is read of an input that
        /// is not the output stays as it is, and needs none.
        copied: bool,
    },
    /// Waits until the count of immediates that carry the slot of `message` says that all of it is there.
    WaitCount {
        /// The rank that sends.
        from: u32,
        /// The number of the message on the link from it.
        message: u64,
    },
    /// `target = operand op slot`; what the operation does once at the end is done after the last one.
    ReduceFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// What it is reduced with.
        operand: Place,
        /// Where the result is left; it may be the operand.
        target: Place,
        /// Whether all ranks are then in it.
        last: bool,
    },
    /// `target = slot`; of an empty message it is but the use.
    CopyFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// Where it is left.
        target: Place,
    },
    /// Gives the slots of all messages below `consumed` back to the rank that wrote them: its credits.
    Signal {
        /// The rank that sent.
        to: u32,
        /// How many messages of this schedule from it were used up so far.
        consumed: u64,
    },
    /// `target = source`; nothing to do in place where both are the same range.
    Copy {
        /// What is read.
        source: Place,
        /// Where it is left, of the same length.
        target: Place,
    },
}

impl From<Step> for Primitive {
    fn from(step: Step) -> Self {
        let output = |span| Place::of(Buffer::Output, span);
        let staged = |span: Span| Place::of(Buffer::Scratch, Span { offset: 0, len: span.len });
        let target = |target, span| match target {
            Target::Output => output(span),
            Target::Staged => staged(span),
        };
        match step {
            Step::Put { to, message, source, span } => {
                let (source, copied) = match source {
                    Source::Input => (Place::of(Buffer::Input, span), false),
                    Source::Output => (output(span), false),
                    Source::Staged => (staged(span), true),
                };
                Self::Put { to, message, source, copied }
            }
            Step::WaitCount { from, message } => Self::WaitCount { from, message },
            Step::ReduceFrom { from, message, span, last, target: left } => {
                let operand = Place::of(Buffer::Input, span);
                Self::ReduceFrom { from, message, operand, target: target(left, span), last }
            }
            Step::CopyFrom { from, message, span, target: left } => {
                Self::CopyFrom { from, message, target: target(left, span) }
            }
            Step::Signal { to, consumed } => Self::Signal { to, consumed },
            Step::Copy { span } => {
                Self::Copy { source: Place::of(Buffer::Input, span), target: output(span) }
            }
        }
    }
}
