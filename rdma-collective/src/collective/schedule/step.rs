//! The vocabulary of schedules: what one rank does next, in order.

use std::ops::Range;

/// A range of an operation's elements, in bytes; the same range of the input and of the output.
///
/// Where they differ in length, the shorter one is a rank's part of the longer one, and begins with it: at `rank * part`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// Where it starts.
    pub(crate) offset: usize,
    /// How long it is.
    pub(crate) len: usize,
}

impl Span {
    /// The indices of the range.
    pub(crate) const fn range(self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// What a [`Step::Put`] reads. In place, input and output are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// What this rank contributes.
    Input,
    /// What was reduced or received so far.
    Output,
    /// What was made of a message and [staged](Target::Staged).
    Staged,
}

/// Where a step leaves what it has made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// In the caller's output.
    Output,
    /// In the library's memory, for the next [`Step::Put`], which takes it: the output has no room for it. A rank has one
    /// such message at most.
    Staged,
}

/// One step of one rank. A rank takes its steps in order; a step that has to wait holds up those after it.
///
/// Messages of a link are numbered from 0 within a schedule, on both of its ends alike. A message lies in the
/// slot `(messages of earlier schedules on that link + message) % slots` of the receiver, so that schedules
/// follow each other on a link without a pause.
///
/// Arrivals are told apart by slot and not by order: messages may travel over several queue pairs or rails and
/// pass each other. A slot is announced by one count of immediates, and nobody writes to it again before the
/// receiver has given it back.
///
/// The source of a `Put` stays as it is until the message has arrived, in place too: it may be sent from the
/// caller's buffer without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Takes a credit, waiting until fewer than `slots` messages to this rank are not yet given back, and
    /// writes `span` of the source into the slot of `message`. Goes on before the write has completed.
    Put {
        /// The rank that receives.
        to: u32,
        /// The number of the message on the link to it.
        message: u64,
        /// What is read of.
        source: Source,
        /// What is read.
        span: Span,
    },
    /// Waits until the count of immediates that carry the slot of `message` says that all of it is there.
    WaitCount {
        /// The rank that sends.
        from: u32,
        /// The number of the message on the link from it.
        message: u64,
    },
    /// `target[span] = input[span] op slot`; what the operation does once at the end is done after the last one.
    ReduceFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// What is reduced.
        span: Span,
        /// Whether all ranks are then in it, so that it is not reduced any further on any rank.
        last: bool,
        /// Where it is left.
        target: Target,
    },
    /// `target[span] = slot`.
    CopyFrom {
        /// The rank that sent.
        from: u32,
        /// The message whose slot is read.
        message: u64,
        /// What is stored.
        span: Span,
        /// Where it is left.
        target: Target,
    },
    /// Gives the slots of all messages below `consumed` back to the rank that wrote them: its credits.
    Signal {
        /// The rank that sent.
        to: u32,
        /// How many messages of this schedule were used up so far.
        consumed: u64,
    },
    /// `output[span] = input[span]`; nothing to do in place. The only step of a rank that is alone.
    Copy {
        /// What is copied.
        span: Span,
    },
}
