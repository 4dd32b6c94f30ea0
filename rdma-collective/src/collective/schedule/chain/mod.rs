//! The chain: from the first rank to the last and around, so that every element is reduced in the order of ranks.
//!
//! Owns the order of steps. The cut into chunks is `chunk`'s. Uses the links of a ring.

use super::chunk::Chunks;
use super::{Extent, Operation, Span, Step};
use crate::collective::ScheduleError;

/// The steps of one rank in a reproducible all-reduce or reduce-scatter, or in a reduce; made one by one in constant
/// memory.
///
/// The first rank sends its input to the one after it, which reduces it into its own and sends that on, up to the
/// last rank, where the chunk is the result. The result goes on to the first rank, and along the ranks to the last
/// rank that needs it. Every element is therefore reduced as `((0 op 1) op 2) op …`, whatever the count and the
/// staging: the result depends on the inputs and their ranks alone. A reduce that need not be reproducible begins at
/// the rank after its root and ends at the root, which saves the second pass.
///
/// An all-reduce spreads the result to all ranks. The other operations pass it on to the one rank that needs it;
/// ranks on the path make it in their outgoing message, because their outputs have no room for it.
///
/// A link carries up to twice the buffer, that of a ring `2 (n-1)/n` times; and a chunk passes `2 (n-1)` links.
/// At index `i` of its sequence a rank reduces chunk `i` and then spreads chunk `i - lag`.
///
/// No deadlock: let `s` be the messages that may be out on a link while its receiver keeps credits back, `slots -
/// signal_every + 1`. If `s` is 2 or more, `lag` is `b n` with `b = s / 2`; call index `i` of rank `r` earlier than
/// another if `i + a r` is less, for an `a` just below `b`. A rank waits for its predecessor's same index (`i + a
/// (r-1)`), for its successor's use of the message that is `s` before (`i - s/2 + a (r+1)` or less, with two messages
/// an index at most), rank 0 for the result (`i - lag + a (n-1)`), and the last rank for the use of the result by
/// rank 0 (`i - s + lag` or less). All of these are earlier, so that the waits form no cycle. If `s` is 1, `lag` is
/// 1, and earlier is the lesser index or, at the same index, the first of: ranks reduce, ranks spread, the last rank
/// reduces.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    operation: Operation,
    /// This rank's position in the chain.
    position: u32,
    destination: Destination,
    chunks: Chunks,
    /// By how many chunks reducing is ahead of spreading.
    lag: u64,
    /// Messages between two signals.
    signal_every: u64,
    /// The chunk to be reduced next; runs on by `lag` to spread the last chunks.
    next: u64,
    /// Messages sent, received, and given back to the sender so far.
    sent: u64,
    received: u64,
    signalled: u64,
    /// Steps made and not yet taken: four to reduce, four to spread.
    ready: [Option<Step>; 8],
}

/// The ranks at which the result must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// All ranks.
    All,
    /// The rank at this position in the chain.
    Position(u32),
    /// Each part at its own rank; the chain then begins at rank 0, so that positions are ranks.
    Owners,
}

impl Chain {
    /// The steps of `operation.rank` in an all-reduce.
    ///
    /// A count of 0 has no steps; a rank that is alone copies its input.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank is not one of the ranks, the count has more bytes than a buffer can, or
    /// the staging has no slot or none that an element fits.
    pub(crate) fn all_reduce(operation: Operation) -> Result<Self, ScheduleError> {
        let alone = operation.check()?;
        Self::new(operation, 0, Destination::All, alone)
    }

    /// The steps of `operation.rank` in a reduce-scatter, which leaves it its part of the result.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn reduce_scatter(operation: Operation) -> Result<Self, ScheduleError> {
        let alone = operation.check_parts()?;
        Self::new(operation, 0, Destination::Owners, alone)
    }

    /// The steps of `operation.rank` in a reduce, which leaves the result to `root`: in the order of ranks from the
    /// one after it on or, with `reproducible`, from rank 0 on.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and when the root is not one of the ranks.
    pub(crate) fn reduce(operation: Operation, root: u32, reproducible: bool) -> Result<Self, ScheduleError> {
        let alone = operation.check_root(root)?;
        let (first, position) = if reproducible { (0, root) } else { (root + 1, operation.ranks - 1) };
        Self::new(operation, first % operation.ranks, Destination::Position(position), alone)
    }

    fn new(
        operation: Operation,
        first: u32,
        destination: Destination,
        alone: Option<Step>,
    ) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = operation;
        let parts = if destination == Destination::Owners { ranks } else { 1 };
        let slots = u64::from(staging.slots);
        let signal_every = (slots / 4).max(1);
        let out = (slots + 1).saturating_sub(signal_every);
        Ok(Self {
            operation,
            position: operation.position_from(first),
            destination,
            chunks: Chunks::new(count, data_type.size(), parts, ranks, &staging)?,
            lag: if out < 2 { 1 } else { u64::from(ranks) * (out / 2) },
            signal_every,
            next: 0,
            sent: 0,
            received: 0,
            signalled: 0,
            ready: [alone, None, None, None, None, None, None, None],
        })
    }

    /// Whether the last `Put` has been made.
    pub(crate) fn has_put_all(&self) -> bool {
        let all = if self.is_last() {
            self.spread_beyond(0)
        } else {
            self.chunks.len() + self.spread_beyond(self.position + 1)
        };
        self.sent == all && !self.ready.iter().flatten().any(|step| matches!(step, Step::Put { .. }))
    }

    fn is_last(&self) -> bool {
        self.position + 1 == self.operation.ranks
    }

    /// The last position to which the result of a chunk travels from the end of the chain; `None` when the result
    /// stays there.
    fn spread_to(&self, chunk: u64) -> Option<u32> {
        let last = self.operation.ranks - 1;
        match self.destination {
            Destination::All => last.checked_sub(1),
            Destination::Position(position) => (position < last).then_some(position),
            Destination::Owners => Some(self.chunks.part(chunk)).filter(|position| *position < last),
        }
    }

    /// How many chunks' results travel to `position` or beyond.
    fn spread_beyond(&self, position: u32) -> u64 {
        let last = self.operation.ranks - 1;
        match self.destination {
            Destination::Owners => self.chunks.a_part() * u64::from(last.saturating_sub(position)),
            _ if self.spread_to(0).is_some_and(|end| end >= position) => self.chunks.len(),
            _ => 0,
        }
    }

    /// Makes the steps at one index of the sequence.
    fn advance(&mut self) {
        let reduced = self.chunks.span(self.next).map(|span| self.reduce_chunk(self.next, span));
        let spread = self.next.checked_sub(self.lag).filter(|_| !self.is_last()).and_then(|chunk| {
            let end = self.spread_to(chunk).filter(|end| *end >= self.position)?;
            Some(self.spread(self.chunks.span(chunk)?, end))
        });
        let [a, b, c, d] = reduced.unwrap_or_default();
        let [e, f, g, h] = spread.unwrap_or_default();
        self.ready = [a, b, c, d, e, f, g, h];
        self.next += 1;
    }

    fn reduce_chunk(&mut self, chunk: u64, span: Span) -> [Option<Step>; 4] {
        if self.position == 0 {
            return [None, None, None, Some(self.send(Extent::input(span)))];
        }
        let (from, message, last) = (self.operation.previous_rank(), self.received, self.is_last());
        let stays = last && self.spread_to(chunk).is_none();
        let target = if stays { Extent::output(span) } else { self.passed_on(span) };
        let consume = Step::ReduceFrom { from, message, operand: Extent::input(span), target, last };
        let [wait, signal] = self.receive();
        [wait, Some(consume), signal, (!stays).then(|| self.send(target))]
    }

    fn spread(&mut self, span: Span, end: u32) -> [Option<Step>; 4] {
        let (from, message) = (self.operation.previous_rank(), self.received);
        // The rank at `end` does not send on: behind it only the end of the chain is left, which has the result.
        let stays = end == self.position;
        let target = if stays { Extent::output(span) } else { self.passed_on(span) };
        let consume = Step::CopyFrom { from, message, target };
        let [wait, signal] = self.receive();
        [wait, Some(consume), signal, (!stays).then(|| self.send(target))]
    }

    /// Where a message that travels on is left and sent from: the output, if the output has room for the message.
    fn passed_on(&self, span: Span) -> Extent {
        match self.destination {
            Destination::All => Extent::output(span),
            Destination::Position(_) | Destination::Owners => {
                Extent::outgoing(self.operation.next_rank(), span.len)
            }
        }
    }

    /// The steps before and after the use of the next message: the wait, and the signal if one is due.
    fn receive(&mut self) -> [Option<Step>; 2] {
        let from = self.operation.previous_rank();
        let wait = Step::WaitCount { from, message: self.received };
        self.received += 1;
        let (due, all) = (self.received - self.signalled, self.received == self.messages());
        let signal = (due >= self.signal_every || all).then(|| {
            self.signalled = self.received;
            Step::Signal { to: from, consumed: self.received, may_wait: false }
        });
        [Some(wait), signal]
    }

    fn send(&mut self, source: Extent) -> Step {
        let message = self.sent;
        self.sent += 1;
        Step::Put { to: self.operation.next_rank(), message, source, copied: false }
    }

    /// Messages that this rank receives in all.
    fn messages(&self) -> u64 {
        let reduced = if self.position == 0 { 0 } else { self.chunks.len() };
        reduced + if self.is_last() { 0 } else { self.spread_beyond(self.position) }
    }

    /// The end of the sequence, behind the last index at which there is something to do.
    fn end(&self) -> u64 {
        match (self.operation.ranks, self.chunks.len()) {
            (1, _) | (_, 0) => 0,
            (_, chunks) if self.is_last() || self.spread_beyond(self.position) == 0 => chunks,
            (_, chunks) => chunks + self.lag,
        }
    }
}

impl Iterator for Chain {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.iter_mut().find_map(Option::take) {
                return Some(step);
            }
            if self.next == self.end() {
                return None;
            }
            self.advance();
        }
    }
}

#[cfg(test)]
mod tests;
