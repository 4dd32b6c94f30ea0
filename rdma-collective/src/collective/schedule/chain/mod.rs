//! The chain: from the first rank to the last and around, so that every element is reduced in the order of ranks.
//!
//! Owns the order of steps; the cut into chunks is `chunk`'s. Uses the links of a ring.

use std::iter::FusedIterator;

use super::chunk::Chunks;
use super::{Operation, Source, Span, Step, Target};
use crate::collective::ScheduleError;

/// The steps of one rank in a reproducible all-reduce or reduce-scatter, or in a reduce; made one by one in constant memory.
///
/// The first rank sends its input to the one after it, which reduces it into its own and sends that on, up to the last
/// rank: there it is the result, which goes on to the first rank and along the ranks to the last that is to have it. Every
/// element is thereby reduced as `((0 op 1) op 2) op …`, whatever the count, the staging and the element's place: the result
/// depends on the inputs and their ranks alone. A reduce that need not be reproducible begins at the rank after its root,
/// and ends there.
///
/// An all-reduce spreads the result to all; the other operations pass it on to the one rank that it is for, and what they
/// pass on is staged, and is in no output but that rank's.
///
/// A link carries up to twice the buffer, that of a ring `2 (n-1)/n` times; and a chunk passes `2 (n-1)` links.
/// At place `i` of its sequence a rank reduces chunk `i` and then spreads chunk `i - lag`.
///
/// No deadlock: let `s` be the messages that may be out on a link while its receiver sits on credits,
/// `slots - signal_every + 1`. If it is 2 or more, `lag` is `b n` with `b = s / 2`; call place `i` of rank `r`
/// earlier than another if `i + a r` is less, for an `a` just below `b`. A rank waits for its predecessor's same place
/// (`i + a (r-1)`), for its successor's use of the message that is `s` before (`i - s/2 + a (r+1)` or less, with two
/// messages a place at most), rank 0 for the result (`i - lag + a (n-1)`), and the last rank for its use by rank 0
/// (`i - s + lag` or less): all of them earlier, so that there is no circle. If it is 1, `lag` is 1, and earlier is what has
/// the lesser place or, at the same place, comes first in this order: ranks reduce, ranks spread, the last rank reduces.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    operation: Operation,
    /// This rank's place in the chain.
    at: u32,
    result: For,
    chunks: Chunks,
    /// Chunks that a rank reduces ahead of those that it spreads.
    lag: u64,
    /// Messages between two signals.
    signal_every: u64,
    /// The chunk to be reduced next; runs on by `lag` to spread the last ones.
    next: u64,
    sent: u64,
    received: u64,
    signalled: u64,
    /// Steps made and not yet taken: four to reduce, four to spread.
    ready: [Option<Step>; 8],
}

/// Who is to have the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    All,
    /// The rank at a place in the chain.
    One(u32),
    /// Each rank its part; the chain begins at rank 0.
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
        Self::new(operation, 0, For::All, alone)
    }

    /// The steps of `operation.rank` in a reduce-scatter, which leaves it its part of the result.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn reduce_scatter(operation: Operation) -> Result<Self, ScheduleError> {
        let alone = operation.check_parts()?;
        Self::new(operation, 0, For::Owners, alone)
    }

    /// The steps of `operation.rank` in a reduce, which leaves the result to `root`: in the order of ranks from the one
    /// after it on or, with `reproducible`, from rank 0 on.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and when the root is not one of the ranks.
    pub(crate) fn reduce(operation: Operation, root: u32, reproducible: bool) -> Result<Self, ScheduleError> {
        let alone = operation.check_root(root)?;
        let (first, at) = if reproducible { (0, root) } else { (root + 1, operation.ranks - 1) };
        Self::new(operation, first % operation.ranks, For::One(at), alone)
    }

    fn new(
        operation: Operation,
        first: u32,
        result: For,
        alone: Option<Step>,
    ) -> Result<Self, ScheduleError> {
        let Operation { rank, ranks, count, data_type, staging } = operation;
        let parts = if result == For::Owners { ranks } else { 1 };
        let slots = u64::from(staging.slots);
        let signal_every = (slots / 4).max(1);
        let out = (slots + 1).saturating_sub(signal_every);
        Ok(Self {
            operation,
            at: if rank >= first { rank - first } else { ranks - first + rank },
            result,
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
            self.chunks.len() + self.spread_beyond(self.at + 1)
        };
        self.sent == all && !self.ready.iter().flatten().any(|step| matches!(step, Step::Put { .. }))
    }

    fn is_last(&self) -> bool {
        self.at + 1 == self.operation.ranks
    }

    /// The last place that the result of a chunk goes to from the last one; `None` when it stays there.
    fn spread_to(&self, chunk: u64) -> Option<u32> {
        let last = self.operation.ranks - 1;
        match self.result {
            For::All => last.checked_sub(1),
            For::One(place) => (place < last).then_some(place),
            For::Owners => Some(self.chunks.part(chunk)).filter(|place| *place < last),
        }
    }

    /// How many chunks' results go from the last place to `place` or beyond.
    fn spread_beyond(&self, place: u32) -> u64 {
        let last = self.operation.ranks - 1;
        match self.result {
            For::Owners => self.chunks.a_part() * u64::from(last.saturating_sub(place)),
            _ if self.spread_to(0).is_some_and(|end| end >= place) => self.chunks.len(),
            _ => 0,
        }
    }

    /// Makes the steps at one place of the sequence.
    fn advance(&mut self) {
        let reduced = self.chunks.span(self.next).map(|span| self.reduce_chunk(self.next, span));
        let spread = self.next.checked_sub(self.lag).filter(|_| !self.is_last()).and_then(|chunk| {
            let end = self.spread_to(chunk).filter(|end| *end >= self.at)?;
            Some(self.spread(self.chunks.span(chunk)?, end))
        });
        let [a, b, c, d] = reduced.unwrap_or_default();
        let [e, f, g, h] = spread.unwrap_or_default();
        self.ready = [a, b, c, d, e, f, g, h];
        self.next += 1;
    }

    fn reduce_chunk(&mut self, chunk: u64, span: Span) -> [Option<Step>; 4] {
        if self.at == 0 {
            return [None, None, None, Some(self.send(Source::Input, span))];
        }
        let (from, message, last) = (self.operation.previous_rank(), self.received, self.is_last());
        let stays = last && self.spread_to(chunk).is_none();
        let (target, source) = if stays { (Target::Output, None) } else { self.passed_on() };
        let consume = Step::ReduceFrom { from, message, span, last, target };
        let [wait, signal] = self.receive();
        [wait, Some(consume), signal, source.map(|source| self.send(source, span))]
    }

    fn spread(&mut self, span: Span, end: u32) -> [Option<Step>; 4] {
        let (from, message) = (self.operation.previous_rank(), self.received);
        // The last rank, which has it, is not sent it.
        let (target, source) = if end == self.at { (Target::Output, None) } else { self.passed_on() };
        let consume = Step::CopyFrom { from, message, span, target };
        let [wait, signal] = self.receive();
        [wait, Some(consume), signal, source.map(|source| self.send(source, span))]
    }

    /// Where a message is left that is sent on, and sent from: in the output when that has room for it.
    fn passed_on(&self) -> (Target, Option<Source>) {
        match self.result {
            For::All => (Target::Output, Some(Source::Output)),
            For::One(_) | For::Owners => (Target::Staged, Some(Source::Staged)),
        }
    }

    /// The steps before and after the message that comes next is used.
    fn receive(&mut self) -> [Option<Step>; 2] {
        let from = self.operation.previous_rank();
        let wait = Step::WaitCount { from, message: self.received };
        self.received += 1;
        let (due, all) = (self.received - self.signalled, self.received == self.messages());
        let signal = (due >= self.signal_every || all).then(|| {
            self.signalled = self.received;
            Step::Signal { to: from, consumed: self.received }
        });
        [Some(wait), signal]
    }

    fn send(&mut self, source: Source, span: Span) -> Step {
        let message = self.sent;
        self.sent += 1;
        Step::Put { to: self.operation.next_rank(), message, source, span }
    }

    /// How many this rank receives.
    fn messages(&self) -> u64 {
        let reduced = if self.at == 0 { 0 } else { self.chunks.len() };
        reduced + if self.is_last() { 0 } else { self.spread_beyond(self.at) }
    }

    /// One beyond the last place at which there is something to do.
    fn end(&self) -> u64 {
        match (self.operation.ranks, self.chunks.len()) {
            (1, _) | (_, 0) => 0,
            (_, chunks) if self.is_last() || self.spread_beyond(self.at) == 0 => chunks,
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

impl FusedIterator for Chain {}

#[cfg(test)]
mod tests;
