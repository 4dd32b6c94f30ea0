//! What goes out on a lane: queued one by one, posted together.

use rdma_core::{AttachedRange, LocalBuf, RemoteKey, RemoteMemory, Segment, Work, Worker};

use super::{Lane, Sent};
use crate::comm::link::codec::{NoRoom, Writer};
use crate::comm::link::control::{self, Kind};
use crate::comm::link::imm::Imm;
use crate::error::LaneFailure;

/// A write of no bytes names no memory.
const NOWHERE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

impl Lane {
    /// Messages that can be queued now: the send queue has room and the peer has receives.
    ///
    /// One place is kept for the message that returns credits.
    pub(crate) fn room(&self) -> usize {
        if self.failure.is_some() || self.closed {
            return 0;
        }
        let queue = self.max_send_wr.saturating_sub(1 + self.posted.len() + self.queued.len());
        queue.min(self.credits.available() as usize)
    }

    /// Queues a write of an owned buffer, whose immediate announces it. Check [`room`](Self::room) first.
    pub(crate) fn write_owned(&mut self, buffer: LocalBuf, to: RemoteMemory, imm: Imm, signalled: bool) {
        let work = Work::write(buffer, to).with_imm(imm.encode());
        self.queue_counted(work, Sent::Owned, signalled);
    }

    /// Queues a write of a registered range. Check [`room`](Self::room) first.
    pub(crate) fn write_range(&mut self, range: AttachedRange, to: RemoteMemory, imm: Imm, signalled: bool) {
        self.queue_counted(Work::write(range, to).with_imm(imm.encode()), Sent::Range, signalled);
    }

    /// Queues an immediate alone. Check [`room`](Self::room) first.
    pub(crate) fn note(&mut self, imm: Imm) {
        self.queue_counted(Work::write(Segment::Empty, NOWHERE).with_imm(imm.encode()), Sent::Empty, false);
    }

    /// Queues a control message; `false` when there is no room for it now.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] when it is longer than the peer receives.
    pub(crate) fn control(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<bool, NoRoom> {
        if self.room() == 0 {
            return Ok(false);
        }
        let Some(mut buffer) = self.control.pop() else { return Ok(false) };
        buffer.reset_view();
        let limit = buffer.len().min(self.control_bytes_max);
        let encoded = control::encode(&mut buffer[..limit], self.name.epoch, kind, body);
        let narrowed = encoded.and_then(|len| buffer.set_view(0..len).map_err(|_| NoRoom));
        if let Err(error) = narrowed {
            self.control.push(buffer);
            return Err(error);
        }
        self.queue_counted(Work::send(buffer), Sent::Control, true);
        Ok(true)
    }

    /// The longest control message that can be sent, envelope included.
    pub(crate) fn control_bytes_max(&self) -> usize {
        self.control_bytes_max
    }

    /// Queues a write of nothing, to see whether the peer's device still answers.
    pub(crate) fn probe(&mut self) {
        self.queue(Work::write(Segment::Empty, NOWHERE), Sent::Empty, true);
    }

    /// Posts what is queued, receives first.
    pub(crate) fn flush(&mut self, worker: &mut Worker) {
        if self.failure.is_some() {
            return;
        }
        self.return_credits();
        if self.idle.is_empty() && self.queued.is_empty() {
            return;
        }
        let mut refused = None;
        let mut batch = worker.batch(&self.qp);
        for mut buffer in self.idle.drain(..) {
            buffer.reset_view();
            if let Err(error) = batch.push(Work::recv(buffer)) {
                refused = Some(error.error);
                break;
            }
        }
        for (work, sent) in self.queued.drain(..) {
            match batch.push(work) {
                Ok(id) => self.posted.push_back((id, sent)),
                Err(error) => {
                    refused = Some(error.error);
                    break;
                }
            }
        }
        if let Err(partial) = batch.submit() {
            refused = Some(partial.error);
        }
        if let Some(error) = refused {
            self.fail(LaneFailure::Refused(error.to_string().into()));
        }
    }

    fn return_credits(&mut self) {
        if self.closed || self.posted.len() + self.queued.len() >= self.max_send_wr {
            return;
        }
        if let Some(count) = self.credits.due() {
            self.credits.told();
            let imm = Imm::Credit { count }.encode();
            // Signalled: it may be the last request of a lane that waits to be drained.
            self.queue(Work::write(Segment::Empty, NOWHERE).with_imm(imm), Sent::Empty, true);
        }
    }

    /// Queues a message that takes a receive of the peer.
    fn queue_counted(&mut self, work: Work, sent: Sent, signalled: bool) {
        let credit = self.credits.take();
        debug_assert!(credit, "a message without a credit");
        self.queue(work, sent, signalled);
    }

    /// At least one request in a quarter of the queue is signalled, so that the queue always frees.
    pub(super) fn queue(&mut self, work: Work, sent: Sent, signalled: bool) {
        self.unsignalled += 1;
        if signalled || self.unsignalled >= (self.max_send_wr / 4).max(1) {
            self.unsignalled = 0;
            self.queued.push((work, sent));
        } else {
            self.queued.push((work.unsignalled(), sent));
        }
    }
}
