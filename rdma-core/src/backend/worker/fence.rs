//! Ending a queue pair so that no access of its device or its peer happens any more.

#![expect(unsafe_code, reason = "posts the sentinel, which has no memory")]

use std::io;
use std::time::Duration;

use super::super::in_flight::{Entry, Queue, Ring, Tag};
use super::super::interface::{RawCompletion, RawPostError, RawRecv, RawWorker};
use super::super::work::{Segment, Work};
use super::poll::finish;
use super::{WorkerCore, QpHandle};
use crate::error::FenceError;
use crate::memory::fork;
use crate::{CompletionStatus, Deadline, QpState};

/// How long to sleep between looks while the device flushes.
const LOOK_EVERY: Duration = Duration::from_micros(50);

impl<R: RawWorker> WorkerCore<R> {
    /// Sentinel receive, ERR, drain, destroy.
    ///
    /// After `Ok` every request of the queue pair has its completion at hand (flushed, unless it
    /// was carried out before), and no byte of it or of the peer lands any more. The deadline
    /// bounds the drain: what the device has not flushed by then, or what a completion queue that
    /// is lost no longer tells, is told as flushed after the destruction, which is exact by itself.
    pub(crate) fn fence(&mut self, handle: QpHandle, deadline: Deadline) -> Result<(), FenceError> {
        if self.qp(handle).is_none() {
            return Err(FenceError::ForeignWorker { qp_num: handle.qp_num });
        }
        if self.pid != fork::pid() {
            let source = io::Error::other("this process was forked from the one whose queue pair it is");
            return Err(FenceError::NotStopped { qp_num: handle.qp_num, source });
        }
        self.forget_gathered();
        let state = self.raw.query_state(handle.slot);
        // In RESET nothing was posted and nothing is heard, and devices know no step from there to ERR.
        let stopped = if state.as_ref().is_ok_and(|state| *state == QpState::RESET) {
            Ok(())
        } else {
            if state.is_ok() {
                self.post_sentinel(handle);
            }
            let stopped = self.raw.modify_to_err(handle.slot);
            // Without ERR nothing is flushed, and what is at hand is all there will be.
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

    /// A receive behind all others: its flush proves that the receive queue is drained.
    fn post_sentinel(&mut self, handle: QpHandle) {
        let entry = Entry { work: Work::recv(Segment::Empty), region: None, bytes: 0, sentinel: true };
        let Some(qp) = self.qp(handle) else { return };
        let Ok(sequence) = qp.recv.push(entry) else { return };
        let tag = Tag { slot: handle.slot, generation: handle.generation, queue: Queue::Recv, sequence };
        let chain = [RawRecv { wr_id: tag.encode().0, addr: 0, len: 0, lkey: 0 }];
        // SAFETY: the request has no local range, and the ring had room for it.
        let posted = unsafe { self.raw.post_recv(handle.slot, &chain) };
        if matches!(posted, Err(RawPostError { posted: 0, .. })) {
            // A queue pair that takes no receive any more is drained by its destruction alone.
            if let Some(qp) = self.qp(handle) {
                qp.recv.pop_newest();
            }
        }
    }

    /// Waits for what the device still owes. It need not say anything of unsignalled requests that it had carried
    /// out before it was stopped; those that nothing signalled follows are told after the destruction.
    ///
    /// What is at hand is taken also when the deadline has passed, so that what was done is told as done. A
    /// completion queue that cannot be polled ends the wait: nothing more will be told.
    fn drain(&mut self, handle: QpHandle, deadline: Deadline) {
        let signalled = |ring: &Ring| {
            (0..ring.len()).any(|ahead| ring.peek(ahead).is_some_and(|entry| entry.work.signalled))
        };
        let mut late_max = self.options.max_cqe as usize;
        while self.qp(handle).is_some_and(|qp| signalled(&qp.send) || qp.recv.len() > 0) {
            let taken = match self.fill() {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::warn!(%error, qp = %handle.qp_num, "what a queue pair being fenced has done is not known; it is told as flushed");
                    return;
                }
            };
            if deadline.expired() {
                late_max = late_max.saturating_sub(taken);
                if taken == 0 || late_max == 0 {
                    break;
                }
            } else if taken == 0 {
                std::thread::sleep(LOOK_EVERY.min(deadline.remaining()));
            }
        }
    }

    fn flush_rest(&mut self, handle: QpHandle) {
        let flushed = RawCompletion { status: CompletionStatus::WR_FLUSH_ERR.0, ..RawCompletion::default() };
        let Some(qp) = self.qps.get_mut(usize::from(handle.slot)).and_then(|place| place.qp.as_mut()) else {
            return;
        };
        for queue in [Queue::Send, Queue::Recv] {
            for _ in 0..qp.ring(queue).len() {
                self.ready.extend(finish(qp, queue, Some(&flushed), &mut self.regions));
            }
        }
    }
}
