//! The ring: reduce-scatter, all-gather, and both as an all-reduce, between neighbours, pipelined, for any count and number
//! of ranks.
//!
//! Owns the order of steps; the cut into chunks is `chunk`'s.

use std::iter::FusedIterator;

use super::chunk::{Chunking, Place};
use super::{Operation, Source, Span, Step, Target};
use crate::collective::ScheduleError;

/// The steps of one rank in a ring all-reduce, reduce-scatter or all-gather, made one by one in constant memory.
///
/// In an all-reduce each rank sends `2 (n-1)/n` of the buffer to the next rank and receives as much from the one before it.
/// The buffer is cut into rounds, a round into one segment a rank, a segment into `p` chunks. In step `s` of a
/// round a rank sends segment `rank - s` and receives `rank - s - 1`: `n-1` steps reduce, `n-1` more spread the
/// result. All chunks of all steps of all rounds are one sequence; chunk `i` is received and consumed just
/// before chunk `i + p` is sent, which is the first that needs it. Empty chunks are left out on both ends.
///
/// A reduce-scatter makes the steps that reduce, and an all-gather those that spread, `n-1` each, with the ranks' parts in
/// place of segments. A reduce-scatter begins with the segment before this rank's, so that it ends with this rank's own;
/// what it reduces of the others is staged, and is in no output.
///
/// No deadlock: take a rank that has sent least, `i` chunks. It waits for chunk `i - p`, which its predecessor
/// has sent, or for the slot of message `i - slots`. Its successor consumed that before sending chunk
/// `i - slots + p`, and gives slots back at least every `slots - p + 1` messages; so the successor has sent less
/// than `i`, which is less than least.
///
/// An element is reduced in ring order starting at the rank that puts it from the input, which is that of its segment, or in
/// a reduce-scatter the one after: the result depends on count, type, ranks and staging alone, and is the same bytes on all
/// ranks.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    rank: u32,
    ranks: u32,
    passes: Passes,
    chunking: Chunking,
    /// Messages between two signals.
    signal_every: u64,
    /// The chunk to be sent next, of `chunks`; runs on by `p` to receive the last ones.
    next: u64,
    chunks: u64,
    sent: u64,
    received: u64,
    signalled: u64,
    /// Steps made and not yet taken.
    ready: [Option<Step>; 5],
}

/// What is done on the way around the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    ReduceAndSpread,
    Reduce,
    Spread,
}

impl Ring {
    /// The steps of `operation.rank` in an all-reduce.
    ///
    /// A count of 0 has no steps; a rank that is alone copies its input.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank is not one of the ranks, the count has more bytes than a buffer can, or
    /// the staging has no slot or none that an element fits.
    pub(crate) fn all_reduce(operation: Operation) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = operation;
        let alone = operation.check()?;
        let chunking = Chunking::new(count, data_type.size(), ranks as usize, &staging)?;
        Ok(Self::new(operation, Passes::ReduceAndSpread, chunking, alone))
    }

    /// The steps of `operation.rank` in a reduce-scatter, which leaves it its part of the result.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn reduce_scatter(operation: Operation) -> Result<Self, ScheduleError> {
        Self::of_parts(operation, Passes::Reduce)
    }

    /// The steps of `operation.rank` in an all-gather, which brings it the parts of all ranks.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn all_gather(operation: Operation) -> Result<Self, ScheduleError> {
        Self::of_parts(operation, Passes::Spread)
    }

    fn of_parts(operation: Operation, passes: Passes) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = operation;
        let alone = operation.check_parts()?;
        let chunking = Chunking::of_parts(count, data_type.size(), ranks as usize, &staging)?;
        Ok(Self::new(operation, passes, chunking, alone))
    }

    fn new(operation: Operation, passes: Passes, chunking: Chunking, alone: Option<Step>) -> Self {
        let Operation { rank, ranks, staging, .. } = operation;
        let mut ring = Self {
            rank,
            ranks,
            passes,
            chunking,
            signal_every: ((u64::from(staging.slots) - chunking.chunks() as u64) / 2).max(1),
            next: 0,
            chunks: 0,
            sent: 0,
            received: 0,
            signalled: 0,
            ready: [alone, None, None, None, None],
        };
        ring.chunks = chunking.rounds() as u64 * ring.steps_a_round() * chunking.chunks() as u64;
        ring
    }

    fn steps_a_round(&self) -> u64 {
        let once = u64::from(self.ranks) - 1;
        if self.passes == Passes::ReduceAndSpread { 2 * once } else { once }
    }

    /// The rank that this one sends to.
    pub(crate) fn next_rank(&self) -> u32 {
        if self.rank + 1 == self.ranks { 0 } else { self.rank + 1 }
    }

    /// The rank that this one receives from.
    pub(crate) fn previous_rank(&self) -> u32 {
        if self.rank == 0 { self.ranks - 1 } else { self.rank - 1 }
    }

    /// Whether the last `Put` has been made. It can be `false` then when chunks behind it are empty.
    pub(crate) fn has_put_all(&self) -> bool {
        self.next >= self.chunks
    }

    /// Makes the steps at one place of the sequence: consume the chunk that the next one needs, then send that.
    fn advance(&mut self) {
        let consumed = self.next.checked_sub(self.chunking.chunks() as u64);
        let [wait, consume] = consumed.map_or([None; 2], |chunk| self.receive(chunk));
        let signal = self.signal();
        let [put, copy] = if self.next < self.chunks { self.send(self.next) } else { [None; 2] };
        self.ready = [wait, consume, signal, put, copy];
        self.next += 1;
    }

    fn receive(&mut self, chunk: u64) -> [Option<Step>; 2] {
        let from = self.previous_rank();
        let (step, span) = self.place(chunk, from);
        if span.len == 0 {
            return [None; 2];
        }
        let message = self.received;
        self.received += 1;
        let consume = if self.passes != Passes::Spread && step < self.ranks - 1 {
            let last = step == self.ranks - 2;
            let has_room = last || self.passes == Passes::ReduceAndSpread;
            let target = if has_room { Target::Output } else { Target::Staged };
            Step::ReduceFrom { from, message, span, last, target }
        } else {
            Step::CopyFrom { from, message, span, target: Target::Output }
        };
        [Some(Step::WaitCount { from, message }), Some(consume)]
    }

    /// The message; and this rank's own part of what is gathered is put where the others' will be.
    fn send(&mut self, chunk: u64) -> [Option<Step>; 2] {
        let (step, span) = self.place(chunk, self.rank);
        if span.len == 0 {
            return [None; 2];
        }
        let source = match self.passes {
            _ if step == 0 => Source::Input,
            Passes::Reduce => Source::Staged,
            _ => Source::Output,
        };
        let put = Step::Put { to: self.next_rank(), message: self.sent, source, span };
        self.sent += 1;
        let own = step == 0 && self.passes == Passes::Spread;
        [Some(put), own.then_some(Step::Copy { span })]
    }

    /// Credits go back in groups, and the last ones at the end.
    fn signal(&mut self) -> Option<Step> {
        let due = self.received - self.signalled;
        if due == 0 || (due < self.signal_every && self.next + 1 < self.end()) {
            return None;
        }
        self.signalled = self.received;
        Some(Step::Signal { to: self.previous_rank(), consumed: self.received })
    }

    /// The step of its round, and the bytes, of the chunk at place `index` of what `sender` sends.
    fn place(&self, index: u64, sender: u32) -> (u32, Span) {
        let (chunks, ranks) = (self.chunking.chunks() as u64, u64::from(self.ranks));
        let (step_index, chunk) = (index / chunks, index % chunks);
        let (round, step) = (step_index / self.steps_a_round(), step_index % self.steps_a_round());
        let first = u64::from(sender) + if self.passes == Passes::Reduce { ranks - 1 } else { 0 };
        let segment = (first + 2 * ranks - step) % ranks;
        let place = Place { round: round as usize, segment: segment as usize, chunk: chunk as usize };
        (step as u32, self.chunking.span(place))
    }

    /// One beyond the last place at which there is something to send or to consume.
    fn end(&self) -> u64 {
        if self.chunks == 0 { 0 } else { self.chunks + self.chunking.chunks() as u64 }
    }
}

impl Iterator for Ring {
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

impl FusedIterator for Ring {}

#[cfg(test)]
mod tests;
