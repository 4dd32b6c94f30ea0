//! The fence: ends a queue pair, so that neither its device nor its peer accesses memory through it any more.

#![expect(unsafe_code, reason = "posts the sentinel, which has no memory")]

use std::time::Duration;

use super::super::in_flight::{Entry, Queue, Ring, Tag};
use super::super::interface::{RawCompletion, RawPostError, RawRecv, RawWorker};
use super::super::work::{Segment, Work};
use super::poll::complete_oldest;
use super::{QpHandle, WorkerCore};
use crate::error::FenceError;
use crate::log::Hold;
use crate::{CompletionStatus, Deadline, QpState};

/// Sleep between two polls that found nothing, while the device flushes.
const LOOK_EVERY: Duration = Duration::from_micros(50);

impl<R: RawWorker> WorkerCore<R> {
    /// Ends a queue pair: posts the sentinel receive, moves to ERR, drains, destroys.
    ///
    /// After `Ok` every request of the queue pair has a completion in `ready`, flushed unless it was carried out
    /// before, and no byte of its requests or of the peer's lands any more.
    ///
    /// The deadline bounds the drain. Requests that the device has not flushed by then are reported as flushed after
    /// the destruction; so are those of a lost completion queue. That is correct, because the destruction alone is
    /// exact: the drain only learns which requests were carried out.
    pub(crate) fn fence(&mut self, handle: QpHandle, deadline: Deadline) -> Result<(), FenceError> {
        if self.qp(handle).is_none() {
            return Err(FenceError::ForeignWorker { qp_num: handle.qp_num });
        }
        // A line waits until the queue pair is out of the books.
        let _lines = Hold::new();
        self.forget_gathered();
        let state = self.raw.query_state(handle.slot);
        // In RESET nothing was posted and nothing arrives. Devices refuse the step from RESET to ERR.
        let stopped = if state.as_ref().is_ok_and(|state| *state == QpState::RESET) {
            Ok(())
        } else {
            if state.is_ok() {
                self.post_sentinel(handle);
            }
            let stopped = self.raw.modify_to_err(handle.slot);
            // Without ERR the device flushes nothing: take only the completions that are there already.
            self.drain(handle, if stopped.is_ok() { deadline } else { Deadline::after(Duration::ZERO) });
            stopped
        };
        if let Err(source) = self.raw.destroy_qp(handle.slot, deadline) {
            let qp_num = handle.qp_num;
            return Err(match stopped {
                Ok(()) => FenceError::NotDestroyed { qp_num, source },
                Err(source) => FenceError::NotStopped { qp_num, source },
            });
        }
        self.flush_rest(handle);
        self.forget_qp(handle.slot);
        Ok(())
    }

    /// Posts a receive behind all others; its flush proves that the receive queue is drained.
    fn post_sentinel(&mut self, handle: QpHandle) {
        let entry = Entry { work: Work::recv(Segment::Empty), region: None, bytes: 0, sentinel: true };
        let Some(qp) = self.qp(handle) else { return };
        let Ok(sequence) = qp.recv.push(entry) else { return };
        let tag = Tag { slot: handle.slot, generation: handle.generation, queue: Queue::Recv, sequence };
        let chain = [RawRecv { wr_id: tag.encode().0, addr: 0, len: 0, lkey: 0 }];
        // SAFETY: the request has no local range, so no memory must stay valid; the ring had room, so the queue has.
        let posted = unsafe { self.raw.post_recv(handle.slot, &chain) };
        if matches!(posted, Err(RawPostError { posted: 0, .. })) {
            // The queue pair takes no receives any more, so only its destruction drains it.
            if let Some(qp) = self.qp(handle) {
                qp.recv.pop_newest();
            }
        }
    }

    /// Polls until the device has reported everything that it must report.
    ///
    /// A device need not report unsignalled requests that it carried out before ERR, so trailing ones are not waited
    /// for: they are reported after the destruction. Completions that are there are taken even after the deadline, so
    /// that requests that were carried out are reported as such. An error of the completion queue ends the wait,
    /// because nothing more will come.
    fn drain(&mut self, handle: QpHandle, deadline: Deadline) {
        let signalled = |ring: &Ring| {
            (0..ring.len()).any(|ahead| ring.peek(ahead).is_some_and(|entry| entry.work.signalled))
        };
        // Bounds the work after the deadline: a queue pair that completes as fast as it is polled must not keep the
        // fence.
        let mut late_left = self.cqe_reserved() as usize;
        while self.qp(handle).is_some_and(|qp| signalled(&qp.send) || qp.recv.len() > 0) {
            let taken = match self.fill() {
                Ok(taken) => taken,
                Err(error) => {
                    crate::log::warn!(%error, qp = %handle.qp_num, "the completion queue cannot be polled during a fence; outstanding requests are reported as flushed");
                    return;
                }
            };
            if deadline.expired() {
                late_left = late_left.saturating_sub(taken);
                if taken == 0 || late_left == 0 {
                    break;
                }
            } else if taken == 0 {
                std::thread::sleep(LOOK_EVERY.min(deadline.remaining()));
            }
        }
    }

    /// Completes the remaining requests of a destroyed queue pair as flushed.
    fn flush_rest(&mut self, handle: QpHandle) {
        let flushed = RawCompletion { status: CompletionStatus::WR_FLUSH_ERR.0, ..RawCompletion::default() };
        let Some(qp) = self.qps.get_mut(usize::from(handle.slot)).and_then(|entry| entry.qp.as_mut()) else {
            return;
        };
        for queue in [Queue::Send, Queue::Recv] {
            for _ in 0..qp.ring(queue).len() {
                self.ready.extend(complete_oldest(qp, queue, Some(&flushed), &mut self.regions));
            }
        }
    }
}
