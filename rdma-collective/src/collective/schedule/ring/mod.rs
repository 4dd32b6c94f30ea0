//! The ring: reduce-scatter, all-gather, and both as an all-reduce, between neighbours, pipelined, for any count and
//! number of ranks.
//!
//! Owns the order of steps. The cut into chunks is `chunk`'s.

use super::chunk::{ChunkIndex, Chunking};
use super::{Extent, Operation, Span, Step};
use crate::collective::ScheduleError;

/// The steps of one rank in a ring all-reduce, reduce-scatter or all-gather, made one by one in constant memory.
///
/// In an all-reduce each rank sends `2 (n-1)/n` of the buffer to the next rank and receives as much from the one
/// before it. The buffer is cut into rounds, a round into one segment a rank, a segment into `p` chunks. In step `s`
/// of a round a rank sends segment `rank - s` and receives `rank - s - 1`: `n-1` steps reduce, `n-1` more spread the
/// result. All chunks of all steps of all rounds are one sequence; chunk `i` is received and consumed just before
/// chunk `i + p` is sent, which is the first that needs it. Empty chunks are left out on both ends.
///
/// A reduce-scatter makes the steps that reduce, and an all-gather the steps that spread, `n-1` each, with the ranks'
/// parts in place of segments. A reduce-scatter begins with the segment before this rank's, so that it ends with this
/// rank's own. Partial results of other segments are made in the outgoing message, because the output has no room for
/// them.
///
/// No deadlock: take the rank that has sent least, `i` chunks. It waits for chunk `i - p`, which its predecessor
/// has sent, or for the slot of message `i - slots`. Its successor consumed that message before sending chunk
/// `i - slots + p`, and gives slots back at least every `slots - p + 1` messages. So the successor has sent less
/// than `i`, which contradicts the choice of the rank.
///
/// An element is reduced in ring order. The first operand is of the rank in whose segment the element lies, or in a
/// reduce-scatter of the rank after. The result depends on count, type, ranks and staging alone, and is the same
/// bytes on all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    operation: Operation,
    phases: Phases,
    chunking: Chunking,
    /// Messages between two signals.
    signal_every: u64,
    /// The chunk to be sent next, of `chunks`; runs on by `p` to receive the last chunks.
    next: u64,
    /// Chunks of all steps of all rounds.
    chunks: u64,
    /// Messages sent, received, and given back to the sender so far.
    sent: u64,
    received: u64,
    signalled: u64,
    /// Steps made and not yet taken.
    ready: [Option<Step>; 5],
}

/// The phases of a ring that an operation goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phases {
    ReduceScatterAllGather,
    ReduceScatter,
    AllGather,
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
        Ok(Self::new(operation, Phases::ReduceScatterAllGather, chunking, alone))
    }

    /// The steps of `operation.rank` in a reduce-scatter, which leaves it its part of the result.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn reduce_scatter(operation: Operation) -> Result<Self, ScheduleError> {
        Self::of_parts(operation, Phases::ReduceScatter)
    }

    /// The steps of `operation.rank` in an all-gather, which brings it the parts of all ranks.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); the count is that of a part.
    pub(crate) fn all_gather(operation: Operation) -> Result<Self, ScheduleError> {
        Self::of_parts(operation, Phases::AllGather)
    }

    fn of_parts(operation: Operation, phases: Phases) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = operation;
        let alone = operation.check_parts()?;
        let chunking = Chunking::of_parts(count, data_type.size(), ranks as usize, &staging)?;
        Ok(Self::new(operation, phases, chunking, alone))
    }

    fn new(operation: Operation, phases: Phases, chunking: Chunking, alone: Option<Step>) -> Self {
        let mut ring = Self {
            operation,
            phases,
            chunking,
            // At least two signals for the slots that are not under way, so that the sender rarely waits for one.
            signal_every: ((u64::from(operation.staging.slots) - chunking.chunks as u64) / 2).max(1),
            next: 0,
            chunks: 0,
            sent: 0,
            received: 0,
            signalled: 0,
            ready: [alone, None, None, None, None],
        };
        ring.chunks = chunking.rounds as u64 * ring.steps_a_round() * chunking.chunks as u64;
        ring
    }

    fn steps_a_round(&self) -> u64 {
        let once = u64::from(self.operation.ranks) - 1;
        if self.phases == Phases::ReduceScatterAllGather { 2 * once } else { once }
    }

    /// Whether the last `Put` has been made. May still be `false` then, when the chunks behind that `Put` are empty.
    pub(crate) fn has_put_all(&self) -> bool {
        self.next >= self.chunks
    }

    /// Makes the steps of one chunk of the sequence: consume the chunk that the next `Put` needs, then send.
    fn advance(&mut self) {
        let consumed = self.next.checked_sub(self.chunking.chunks as u64);
        let [wait, consume] = consumed.map_or([None; 2], |chunk| self.receive(chunk));
        let signal = self.signal();
        let [put, copy] = if self.next < self.chunks { self.send(self.next) } else { [None; 2] };
        self.ready = [wait, consume, signal, put, copy];
        self.next += 1;
    }

    fn receive(&mut self, chunk: u64) -> [Option<Step>; 2] {
        let (from, ranks) = (self.operation.previous_rank(), self.operation.ranks);
        let (step, span) = self.locate(chunk, from);
        if span.len == 0 {
            return [None; 2];
        }
        let message = self.received;
        self.received += 1;
        let consume = if self.phases != Phases::AllGather && step < ranks - 1 {
            let last = step == ranks - 2;
            let has_room = last || self.phases == Phases::ReduceScatterAllGather;
            let target = if has_room { Extent::output(span) } else { self.outgoing(span) };
            Step::ReduceFrom { from, message, operand: Extent::input(span), target, last }
        } else {
            Step::CopyFrom { from, message, target: Extent::output(span) }
        };
        [Some(Step::WaitCount { from, message }), Some(consume)]
    }

    /// The `Put` of a chunk; in an all-gather also the copy of this rank's own part into its output.
    fn send(&mut self, chunk: u64) -> [Option<Step>; 2] {
        let (step, span) = self.locate(chunk, self.operation.rank);
        if span.len == 0 {
            return [None; 2];
        }
        let source = match self.phases {
            _ if step == 0 => Extent::input(span),
            Phases::ReduceScatter => self.outgoing(span),
            _ => Extent::output(span),
        };
        // In place, a chunk is overwritten only by the result, which depends on the message.
        let put = Step::Put { to: self.operation.next_rank(), message: self.sent, source, copied: false };
        self.sent += 1;
        let own = step == 0 && self.phases == Phases::AllGather;
        [Some(put), own.then_some(Step::copy(span))]
    }

    /// The next message to the next rank, which has the bytes of `span`.
    fn outgoing(&self, span: Span) -> Extent {
        Extent::outgoing(self.operation.next_rank(), span.len)
    }

    /// The signal that is due, if any: credits go back in groups, because each signal is a message of its own, and
    /// all that are left at the end.
    fn signal(&mut self) -> Option<Step> {
        let due = self.received - self.signalled;
        if due == 0 || (due < self.signal_every && self.next + 1 < self.end()) {
            return None;
        }
        self.signalled = self.received;
        Some(Step::Signal { to: self.operation.previous_rank(), consumed: self.received, may_wait: false })
    }

    /// The step of its round, and the bytes, of the chunk at `index` in the sequence that `sender` sends.
    fn locate(&self, index: u64, sender: u32) -> (u32, Span) {
        let (chunks, ranks) = (self.chunking.chunks as u64, u64::from(self.operation.ranks));
        let (step_index, chunk) = (index / chunks, index % chunks);
        let (round, step) = (step_index / self.steps_a_round(), step_index % self.steps_a_round());
        let first = u64::from(sender) + if self.phases == Phases::ReduceScatter { ranks - 1 } else { 0 };
        // `2 ranks` keeps the difference above 0, since a round has fewer than `2 ranks` steps.
        let segment = (first + 2 * ranks - step) % ranks;
        let at = ChunkIndex { round: round as usize, segment: segment as usize, chunk: chunk as usize };
        (step as u32, self.chunking.span(at))
    }

    /// The end of the sequence, behind the last chunk that is sent or consumed.
    fn end(&self) -> u64 {
        if self.chunks == 0 { 0 } else { self.chunks + self.chunking.chunks as u64 }
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

#[cfg(test)]
mod tests;
