//! Polling: turns the entries of the device's completion queue into completions in posting order.
//!
//! An entry names one request. All older requests of its queue that asked for no completion are complete as well, and
//! are reported first.

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawCompletion, RawWorker};
use super::super::work::{Completion, Segment};
use super::{Qp, Regions, WorkerCore};
use crate::error::PollError;
use crate::log::Hold;
use crate::metrics;
use crate::{CompletionStatus, Failure, Opcode, Success};

impl<R: RawWorker> WorkerCore<R> {
    /// Returns the next completion; `None` when there is none yet.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        match self.ready.pop_front() {
            Some(completion) => Ok(Some(completion)),
            None => self.poll_device(),
        }
    }

    /// Whether the last poll looked in vain for what a peer on this host may need this core to send.
    pub(crate) fn should_yield(&self) -> bool {
        self.raw.should_yield()
    }

    /// Polls the device, because no decoded completion is left.
    fn poll_device(&mut self) -> Result<Option<Completion>, PollError> {
        match self.poll_raw()? {
            0 => Ok(None),
            1 => {
                // Most completions come alone: such a one skips the `ready` queue.
                let raw = self.polled[0];
                let last = self.retire(&raw).ok_or_else(|| self.distrust(&raw))?;
                if self.ready.is_empty() {
                    return Ok(last);
                }
                self.queue(last);
                Ok(self.ready.pop_front())
            }
            count => {
                self.retire_all(count)?;
                Ok(self.ready.pop_front())
            }
        }
    }

    /// Moves the completions that the device has into `ready`, and returns how many entries that were.
    pub(super) fn fill(&mut self) -> Result<usize, PollError> {
        let _lines = Hold::new();
        let count = self.poll_raw()?;
        self.retire_all(count)
    }

    /// Adds a completion, if there is one, to `ready`. Without `extend`, which takes twice as long for one item.
    #[inline]
    fn queue(&mut self, completion: Option<Completion>) {
        if let Some(completion) = completion {
            self.ready.push_back(completion);
        }
    }

    /// Takes entries of the device into `polled`, and returns their number.
    #[inline]
    fn poll_raw(&mut self) -> Result<usize, PollError> {
        match self.broken {
            None => self.raw.poll(&mut self.polled),
            Some(wr_id) => Err(PollError::Unexpected { wr_id }),
        }
    }

    /// Retires the requests of `count` entries. Returns how many entries were taken before an invalid one.
    fn retire_all(&mut self, count: usize) -> Result<usize, PollError> {
        for index in 0..count.min(self.polled.len()) {
            let raw = self.polled[index];
            match self.retire(&raw) {
                Some(last) => self.queue(last),
                None => {
                    let error = self.distrust(&raw);
                    // The completions before it are reported first; the error comes again with the next poll.
                    return if self.ready.is_empty() { Err(error) } else { Ok(index) };
                }
            }
        }
        Ok(count)
    }

    /// Marks the worker as broken, because the device reported a completion that cannot be right.
    #[cold]
    fn distrust(&mut self, raw: &RawCompletion) -> PollError {
        self.broken = Some(raw.wr_id);
        PollError::Unexpected { wr_id: raw.wr_id }
    }

    /// Retires the requests that `raw` proves complete. Returns the completion of the newest of them, and queues those
    /// of the older ones.
    ///
    /// The outer `None` means that the device cannot be trusted: `raw` names no request in flight, or skips a request
    /// that must have had an entry of its own. The inner `None` means that there is nothing to report.
    #[inline]
    fn retire(&mut self, raw: &RawCompletion) -> Option<Option<Completion>> {
        let tag = Tag::decode(raw.wr_id);
        // A generation of the past: the entry is left over from a destroyed queue pair, whose requests were already
        // reported as flushed.
        let Some(qp) = self.qps.get_mut(usize::from(tag.slot))?.named(tag.generation) else {
            return Some(None);
        };
        let ring = qp.ring(tag.queue);
        let ahead = ring.ahead_of(tag.sequence)?;
        if (0..ahead).any(|older| {
            tag.queue == Queue::Recv || ring.peek(older).is_none_or(|entry| entry.work.signalled)
        }) {
            return None;
        }
        // A message cannot be longer than the receive that it came into. The caller takes its bytes from the length.
        let told = tag.queue == Queue::Recv && !raw.write_imm && raw.status == CompletionStatus::SUCCESS.0;
        if told && ring.peek(ahead).is_none_or(|entry| raw.byte_len > entry.bytes) {
            return None;
        }
        for _ in 0..ahead {
            // Not by `extend`, which takes twice as long for one item.
            if let Some(older) = complete_oldest(qp, tag.queue, None, &mut self.regions) {
                self.ready.push_back(older);
            }
        }
        Some(complete_oldest(qp, tag.queue, Some(raw), &mut self.regions))
    }
}

/// Takes the oldest request out of its ring and makes its completion: a success when `raw` is `None`, otherwise as
/// `raw` says. Returns `None` for the sentinel of the fence.
#[inline]
pub(super) fn complete_oldest(
    qp: &mut Qp,
    queue: Queue,
    raw: Option<&RawCompletion>,
    regions: &mut Regions,
) -> Option<Completion> {
    let (slot, generation, qp_num) = (qp.slot, qp.generation, qp.num);
    let (sequence, cell) = qp.ring(queue).release_oldest()?;
    // Read in place, because most entries own no buffer: only an owned one is worth moving out.
    let Entry { work, region, bytes, sentinel } = cell.as_mut()?;
    let (opcode, bytes, sentinel) = (work.opcode(), *bytes, *sentinel);
    if let Some(index) = *region {
        regions.end(index);
    }
    let buffer = match &mut work.segment {
        Segment::Owned(_) => cell.take().and_then(|entry| entry.work.into_buffer()),
        Segment::Attached(_) | Segment::Empty => {
            *cell = None;
            None
        }
    };
    if sentinel {
        return None;
    }
    let result = match raw {
        None => Ok(Success { opcode, bytes, imm: None }),
        Some(raw) if raw.status == CompletionStatus::SUCCESS.0 => Ok(success(raw, queue, opcode, bytes)),
        Some(raw) => {
            metrics::completion_failed(CompletionStatus(raw.status));
            Err(Failure { status: CompletionStatus(raw.status), vendor_error: raw.vendor_error })
        }
    };
    let tag = Tag { slot, generation, queue, sequence };
    Some(Completion { id: tag.encode(), qp_num, buffer, result })
}

/// The success of a request. Only a receive learns its length and immediate from the entry.
fn success(raw: &RawCompletion, queue: Queue, opcode: Opcode, bytes: u32) -> Success {
    match queue {
        Queue::Send => Success { opcode, bytes, imm: None },
        Queue::Recv if raw.write_imm => {
            Success { opcode: Opcode::RecvWriteImm, bytes: raw.byte_len, imm: raw.imm }
        }
        Queue::Recv => Success { opcode: Opcode::Recv, bytes: raw.byte_len, imm: raw.imm },
    }
}
