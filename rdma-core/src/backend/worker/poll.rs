//! From what the device reports to completions in posting order.

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawCompletion, RawWorker};
use super::super::work::{Completion, Segment};
use super::{WorkerCore, Qp, Regions};
use crate::error::PollError;
use crate::{CompletionStatus, Failure, Opcode, Success};

impl<R: RawWorker> WorkerCore<R> {
    /// The next completion, from those at hand or from the device; `None` when there is none yet.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        match self.ready.pop_front() {
            Some(completion) => Ok(Some(completion)),
            None => self.poll_device(),
        }
    }

    /// The next completion of the device, since none is at hand.
    fn poll_device(&mut self) -> Result<Option<Completion>, PollError> {
        match self.ask()? {
            0 => Ok(None),
            1 => {
                // One that comes alone, as most do, goes straight to the caller.
                let raw = self.polled[0];
                let last = self.retire(&raw).ok_or_else(|| self.breaks(&raw))?;
                if self.ready.is_empty() {
                    return Ok(last);
                }
                self.tell(last);
                Ok(self.ready.pop_front())
            }
            count => {
                self.retire_all(count)?;
                Ok(self.ready.pop_front())
            }
        }
    }

    /// Takes what the device has into `ready`, and tells how many completions that were.
    pub(super) fn fill(&mut self) -> Result<usize, PollError> {
        let count = self.ask()?;
        self.retire_all(count)
    }

    /// Adds what there is to tell to what is at hand.
    #[inline]
    fn tell(&mut self, completion: Option<Completion>) {
        if let Some(completion) = completion {
            self.ready.push_back(completion);
        }
    }

    /// Has the device tell what it has.
    #[inline]
    fn ask(&mut self) -> Result<usize, PollError> {
        match self.broken {
            None => self.raw.poll(&mut self.polled),
            Some(wr_id) => Err(PollError::Unexpected { wr_id }),
        }
    }

    fn retire_all(&mut self, count: usize) -> Result<usize, PollError> {
        for index in 0..count.min(self.polled.len()) {
            let raw = self.polled[index];
            match self.retire(&raw) {
                Some(last) => self.tell(last),
                None => {
                    let error = self.breaks(&raw);
                    // What came before it is told first.
                    return if self.ready.is_empty() { Err(error) } else { Ok(index) };
                }
            }
        }
        Ok(count)
    }

    /// The device said what cannot be.
    #[cold]
    fn breaks(&mut self, raw: &RawCompletion) -> PollError {
        self.broken = Some(raw.wr_id);
        PollError::Unexpected { wr_id: raw.wr_id }
    }

    /// Ends what `raw` proves to be over, and tells of the last of that; what is older is added to `ready`. `None` when it names
    /// nothing in flight, or skips a request that must have had a completion of its own.
    #[inline]
    fn retire(&mut self, raw: &RawCompletion) -> Option<Option<Completion>> {
        let tag = Tag::decode(raw.wr_id);
        // Without: left over from a destroyed queue pair, whose requests were told as flushed.
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
        for _ in 0..ahead {
            // Not by `extend`, which takes twice as long.
            if let Some(older) = finish(qp, tag.queue, None, &mut self.regions) {
                self.ready.push_back(older);
            }
        }
        Some(finish(qp, tag.queue, Some(raw), &mut self.regions))
    }
}

/// Takes the oldest entry of a queue out and tells it: done when `raw` is `None`, else as it says. Of the fence's own nothing
/// is told.
#[inline]
pub(super) fn finish(
    qp: &mut Qp,
    queue: Queue,
    raw: Option<&RawCompletion>,
    regions: &mut Regions,
) -> Option<Completion> {
    let (slot, generation, qp_num) = (qp.slot, qp.generation, qp.num);
    let (sequence, place) = qp.ring(queue).oldest()?;
    // Most have nothing that is worth moving.
    let Entry { work, region, bytes, sentinel } = place.as_mut()?;
    let (opcode, bytes, sentinel) = (work.opcode(), *bytes, *sentinel);
    if let Some(index) = *region {
        regions.end(index);
    }
    let buffer = match &mut work.segment {
        Segment::Owned(_) => place.take().and_then(|entry| entry.work.into_buffer()),
        Segment::Attached(_) | Segment::Empty => {
            *place = None;
            None
        }
    };
    if sentinel {
        return None;
    }
    let result = match raw {
        None => Ok(Success { opcode, bytes, imm: None }),
        Some(raw) if raw.status == CompletionStatus::SUCCESS.0 => Ok(success(raw, queue, opcode, bytes)),
        Some(raw) => Err(Failure { status: CompletionStatus(raw.status), vendor_error: raw.vendor_error }),
    };
    let tag = Tag { slot, generation, queue, sequence };
    Some(Completion { id: tag.encode(), qp_num, buffer, result })
}

fn success(raw: &RawCompletion, queue: Queue, opcode: Opcode, bytes: u32) -> Success {
    match queue {
        Queue::Send => Success { opcode, bytes, imm: None },
        Queue::Recv if raw.write_imm => {
            Success { opcode: Opcode::RecvWriteImm, bytes: raw.byte_len, imm: raw.imm }
        }
        Queue::Recv => Success { opcode: Opcode::Recv, bytes: raw.byte_len, imm: raw.imm },
    }
}
