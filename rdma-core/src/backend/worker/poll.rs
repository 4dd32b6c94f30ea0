//! From what the device reports to completions in posting order.

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawCompletion, RawWorker};
use super::super::work::{Completion, Segment};
use super::{Core, Qp, Regions};
use crate::error::PollError;
use crate::{CompletionStatus, Failure, Opcode, Success};
use std::collections::VecDeque;

impl<R: RawWorker> Core<R> {
    /// The next completion, from those at hand or from the device; `None` when there is none yet.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Takes what the device has into `ready`, and tells how many completions that were.
    pub(super) fn fill(&mut self) -> Result<usize, PollError> {
        if let Some(wr_id) = self.broken {
            return Err(PollError::Unexpected { wr_id });
        }
        let count = self.raw.poll(&mut self.polled)?;
        for index in 0..count.min(self.polled.len()) {
            let raw = self.polled[index];
            if self.retire(&raw).is_none() {
                self.broken = Some(raw.wr_id);
                // What came before it is told first.
                return if self.ready.is_empty() {
                    Err(PollError::Unexpected { wr_id: raw.wr_id })
                } else {
                    Ok(index)
                };
            }
        }
        Ok(count)
    }

    /// Ends what `raw` proves to be over; `None` when it names nothing in flight, or skips a
    /// request that must have had a completion of its own.
    fn retire(&mut self, raw: &RawCompletion) -> Option<()> {
        let tag = Tag::decode(raw.wr_id);
        // Without: left over from a destroyed queue pair, whose requests were told as flushed.
        let Some(qp) = self.qps.get_mut(usize::from(tag.slot))?.named(tag.generation) else {
            return Some(());
        };
        let ring = qp.ring(tag.queue);
        let ahead = ring.ahead_of(tag.sequence)?;
        if (0..ahead).any(|older| {
            tag.queue == Queue::Recv || ring.peek(older).is_none_or(|entry| entry.work.signalled)
        }) {
            return None;
        }
        for _ in 0..ahead {
            finish(qp, tag.queue, None, &mut self.regions, &mut self.ready);
        }
        finish(qp, tag.queue, Some(raw), &mut self.regions, &mut self.ready);
        Some(())
    }
}

/// Takes the oldest entry of a queue out and tells it: done when `raw` is `None`, else as it says.
pub(super) fn finish(
    qp: &mut Qp,
    queue: Queue,
    raw: Option<&RawCompletion>,
    regions: &mut Regions,
    ready: &mut VecDeque<Completion>,
) {
    let Some((sequence, entry)) = qp.ring(queue).pop_oldest() else { return };
    if let Some(index) = entry.region {
        regions.end(index);
    }
    let Entry { work, bytes, sentinel, .. } = entry;
    if sentinel {
        return;
    }
    let opcode = work.opcode();
    let buffer = match work.into_segment() {
        Segment::Owned(buffer) => Some(buffer),
        Segment::Attached(_) | Segment::Empty => None,
    };
    let result = match raw {
        None => Ok(Success { opcode, bytes, imm: None }),
        Some(raw) if raw.status == CompletionStatus::SUCCESS.0 => Ok(success(raw, queue, opcode, bytes)),
        Some(raw) => Err(Failure { status: CompletionStatus(raw.status), vendor_error: raw.vendor_error }),
    };
    let tag = Tag { slot: qp.slot, generation: qp.generation, queue, sequence };
    ready.push_back(Completion { id: tag.encode(), qp_num: qp.num, buffer, result });
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
