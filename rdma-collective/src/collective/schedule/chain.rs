//! The chain: from the first rank to the last and around, so that every element is reduced in the order of ranks.
//!
//! Owns the order of steps; the cut into chunks is `chunk`'s. Uses the links of a ring.

use std::iter::FusedIterator;

use super::chunk::Chunks;
use super::{Operation, Source, Span, Step};
use crate::error::ScheduleError;

/// The steps of one rank in a reproducible all-reduce, made one by one in constant memory.
///
/// Rank 0 sends its input to rank 1, which reduces it into its own and sends that on, up to the last rank: there it is
/// the result, which goes on to rank 0 and along the ranks to the last but one. Every element is thereby reduced as
/// `((0 op 1) op 2) op …`, whatever the count, the staging and the element's place: the result depends on the inputs
/// and their ranks alone.
///
/// A link carries up to twice the buffer, that of a ring `2 (n-1)/n` times; and a chunk passes `2 (n-1)` links.
/// At place `i` of its sequence a rank reduces chunk `i` and then spreads chunk `i - lag`.
///
/// No deadlock: let `s` be the messages that may be out on a link while its receiver sits on credits,
/// `slots - signal_every + 1`. If it is 2 or more, `lag` is `b n` with `b = s / 2`; call place `i` of rank `r`
/// earlier than another if `i + a r` is less, for an `a` just below `b`. A rank waits for its predecessor's same place
/// (`i + a (r-1)`), for its successor's use of the message that is `s` before (`i - s/2 + a (r+1)` or less, with two
/// messages a place), rank 0 for the result (`i - lag + a (n-1)`), and the last rank for its use by rank 0
/// (`i - s + lag`): all of them earlier, so that there is no circle. If it is 1, `lag` is 1, and earlier is what has the
/// lesser place or, at the same place, comes first in this order: ranks reduce, ranks spread, the last rank reduces.
#[derive(Clone, Debug)]
pub struct Chain {
    rank: u32,
    ranks: u32,
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

impl Chain {
    /// The steps of `operation.rank` in an all-reduce.
    ///
    /// A count of 0 has no steps; a rank that is alone copies its input.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank is not one of the ranks, the count has more bytes than a buffer can, or
    /// the staging has no slot or none that an element fits.
    pub fn all_reduce(operation: Operation) -> Result<Self, ScheduleError> {
        let Operation { rank, ranks, count, data_type, staging } = operation;
        let alone = operation.check()?;
        let slots = u64::from(staging.slots);
        let signal_every = (slots / 4).max(1);
        let out = (slots + 1).saturating_sub(signal_every);
        Ok(Self {
            rank,
            ranks,
            chunks: Chunks::new(count, data_type.size(), ranks as usize, &staging)?,
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
    #[must_use]
    pub fn has_put_all(&self) -> bool {
        let once = self.is_last() || self.rank + 2 == self.ranks;
        let all = self.chunks.len() * if once { 1 } else { 2 };
        self.sent == all && !self.ready.iter().flatten().any(|step| matches!(step, Step::Put { .. }))
    }

    fn is_last(&self) -> bool {
        self.rank + 1 == self.ranks
    }

    /// Makes the steps at one place of the sequence.
    fn advance(&mut self) {
        let reduced = self.chunks.span(self.next).map(|span| self.reduce(span));
        let spread = self.next.checked_sub(self.lag).filter(|_| !self.is_last());
        let spread = spread.and_then(|chunk| self.chunks.span(chunk)).map(|span| self.spread(span));
        let [a, b, c, d] = reduced.unwrap_or_default();
        let [e, f, g, h] = spread.unwrap_or_default();
        self.ready = [a, b, c, d, e, f, g, h];
        self.next += 1;
    }

    fn reduce(&mut self, span: Span) -> [Option<Step>; 4] {
        if self.rank == 0 {
            return [None, None, None, Some(self.send(Source::Input, span))];
        }
        let (from, message) = (self.previous_rank(), self.received);
        let consume = Step::ReduceFrom { from, message, span, last: self.is_last() };
        let [wait, signal] = self.receive();
        [wait, Some(consume), signal, Some(self.send(Source::Output, span))]
    }

    fn spread(&mut self, span: Span) -> [Option<Step>; 4] {
        let consume = Step::CopyFrom { from: self.previous_rank(), message: self.received, span };
        let [wait, signal] = self.receive();
        // The last rank, which has it, is not sent it.
        let send = (self.rank + 2 < self.ranks).then(|| self.send(Source::Output, span));
        [wait, Some(consume), signal, send]
    }

    /// The steps before and after the message that comes next is used.
    fn receive(&mut self) -> [Option<Step>; 2] {
        let from = self.previous_rank();
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
        let to = if self.is_last() { 0 } else { self.rank + 1 };
        let message = self.sent;
        self.sent += 1;
        Step::Put { to, message, source, span }
    }

    fn previous_rank(&self) -> u32 {
        if self.rank == 0 { self.ranks - 1 } else { self.rank - 1 }
    }

    /// How many this rank receives.
    fn messages(&self) -> u64 {
        let once = self.rank == 0 || self.is_last();
        self.chunks.len() * if once { 1 } else { 2 }
    }

    /// One beyond the last place at which there is something to do.
    fn end(&self) -> u64 {
        match (self.ranks, self.chunks.len()) {
            (1, _) | (_, 0) => 0,
            (_, chunks) if self.is_last() => chunks,
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
