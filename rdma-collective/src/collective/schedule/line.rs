//! The line: from the root along the ring to the rank before the root.
//!
//! Owns the order of steps. The cut into chunks is `chunk`'s. Uses the links of a ring.

use super::chunk::Chunks;
use super::{Extent, Operation, Span, Step};
use crate::collective::ScheduleError;

/// The steps of one rank in a broadcast, made one by one in constant memory.
///
/// The root sends its buffer, chunk by chunk. Each rank passes a chunk on to the next rank while the chunk behind it
/// is under way; the rank before the root is the last. Each link but one carries the buffer once.
///
/// No deadlock: the last rank waits for messages alone, and every rank gives slots back before it holds all of them.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    operation: Operation,
    /// This rank's position in the line, counted from the root.
    position: u32,
    chunks: Chunks,
    /// Messages between two signals.
    signal_every: u64,
    /// The chunk, and so the message, that comes next.
    next: u64,
    /// Messages given back to the sender so far.
    signalled: u64,
    /// Steps made and not yet taken.
    ready: [Option<Step>; 4],
}

impl Line {
    /// The steps of `operation.rank` in a broadcast of what `root` has.
    ///
    /// A count of 0 has no steps; a rank that is alone copies its input.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank or the root is not one of the ranks, the count has more bytes than a buffer
    /// can, or the staging has no slot or none that an element fits.
    pub(crate) fn broadcast(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = operation;
        let alone = operation.check_root(root)?;
        Ok(Self {
            operation,
            position: operation.position_from(root),
            chunks: Chunks::new(count, data_type.size(), 1, ranks, &staging)?,
            signal_every: (u64::from(staging.slots) / 4).max(1),
            next: 0,
            signalled: 0,
            ready: [alone, None, None, None],
        })
    }

    /// Whether the last `Put` has been made.
    pub(crate) fn has_put_all(&self) -> bool {
        self.is_last()
            || self.next >= self.end()
                && !self.ready.iter().flatten().any(|step| matches!(step, Step::Put { .. }))
    }

    fn is_last(&self) -> bool {
        self.position + 1 == self.operation.ranks
    }

    /// Makes the steps of one chunk.
    fn advance(&mut self, span: Span) {
        let (message, root) = (self.next, self.position == 0);
        self.next += 1;
        let source = if root { Extent::input(span) } else { Extent::output(span) };
        let put = Step::Put { to: self.operation.next_rank(), message, source, copied: false };
        let put = (!self.is_last()).then_some(put);
        if root {
            self.ready = [put, Some(Step::copy(span)), None, None];
            return;
        }
        let from = self.operation.previous_rank();
        let wait = Step::WaitCount { from, message };
        let consume = Step::CopyFrom { from, message, target: Extent::output(span) };
        let due = self.next - self.signalled >= self.signal_every || self.next == self.end();
        let signal = due.then(|| {
            self.signalled = self.next;
            Step::Signal { to: from, consumed: self.next, may_wait: false }
        });
        self.ready = [Some(wait), Some(consume), signal, put];
    }

    fn end(&self) -> u64 {
        if self.operation.ranks == 1 { 0 } else { self.chunks.len() }
    }
}

impl Iterator for Line {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.iter_mut().find_map(Option::take) {
                return Some(step);
            }
            if self.next == self.end() {
                return None;
            }
            self.advance(self.chunks.span(self.next)?);
        }
    }
}
