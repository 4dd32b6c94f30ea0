//! What goes out on a lane: queued one by one, posted together.

use std::time::{Duration, Instant};

use rdma_core::memory::CacheHint;
use rdma_core::{AttachedRange, LocalBuf, RemoteKey, RemoteMemory, Segment, Work, Worker};

use super::{Lane, Sent};
use crate::link::LaneFailure;
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::{self, Kind};
use crate::link::imm::Imm;

/// A write of no bytes names no memory.
const NOWHERE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

impl Lane {
    /// Messages that can be queued now: the send queue has room and the peer has receives.
    ///
    /// One place is kept for the message that returns credits.
    pub(crate) fn room(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.places() }
    }

    /// The same, whether the peer still counts as there or not.
    fn places(&self) -> usize {
        if !self.can_hear() {
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
    pub(crate) fn write_range(
        &mut self,
        range: AttachedRange,
        to: RemoteMemory,
        imm: Imm,
        expect: CacheHint,
        signalled: bool,
    ) {
        let work = Work::write(range, to).with_imm(imm.encode()).with_cache_hint(expect);
        self.queue_counted(work, Sent::Range, signalled);
    }

    /// Reads that can be queued now: they take no receive of the peer.
    pub(crate) fn room_for_reads(&self) -> usize {
        if self.failure.is_some() || self.closed {
            return 0;
        }
        // Places are kept for the message that returns credits, for what is to be said, and for a sign of life: the peer
        // hears nothing of reads.
        self.max_send_wr.saturating_sub(3 + self.posted.len() + self.queued.len())
    }

    /// Queues a read into a registered range. Check [`room_for_reads`](Self::room_for_reads) first.
    pub(crate) fn read_range(
        &mut self,
        range: AttachedRange,
        from: RemoteMemory,
        expect: CacheHint,
        signalled: bool,
    ) {
        self.queue(Work::read(range, from).with_cache_hint(expect), Sent::Read, signalled);
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
        if self.room() == 0 { Ok(false) } else { self.last_word(kind, body) }
    }

    /// Whether the peer's process may still hear what is sent: one that counts as lost for its silence alone may, once it
    /// goes on.
    pub(crate) fn can_hear(&self) -> bool {
        matches!(self.failure, None | Some(LaneFailure::Silent { .. })) && !self.closed
    }

    /// [`control`](Self::control), to a peer that [can hear](Self::can_hear) it though the lane may have ended.
    ///
    /// # Errors
    ///
    /// As for that.
    pub(crate) fn last_word(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<bool, NoRoom> {
        if self.places() == 0 {
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
        self.leaving |= kind == Kind::CLOSE;
        Ok(true)
    }

    /// The longest control message that can be sent, envelope included.
    pub(crate) fn control_bytes_max(&self) -> usize {
        self.control_bytes_max
    }

    /// Says that this side lives, unless it has said something within the beat.
    ///
    /// The answer of the peer's device tells whether that lives, too. Where there is no room to say anything it is
    /// asked with a write of nothing; what is under way with a signal asks it already.
    pub(crate) fn beat(&mut self, now: Instant, every: Duration) {
        if self.beat_at(every).is_none_or(|due| now < due) {
            return;
        }
        let empty = Work::write(Segment::Empty, NOWHERE);
        // The last credit is for those who have more to say.
        if self.room() > 1 {
            self.queue_counted(empty.with_imm(Imm::Alive.encode()), Sent::Empty, true);
        } else {
            if self.posted.len() + self.queued.len() <= self.unsignalled {
                self.queue(empty, Sent::Probe, true);
            }
            // Tried again at the next beat.
            self.pulse.said(now);
        }
    }

    /// Queues a write of nothing, whose completion tells of all that was sent before; `false` when there is no room.
    pub(crate) fn confirm(&mut self) -> bool {
        let fits = self.failure.is_none() && self.posted.len() + self.queued.len() < self.max_send_wr;
        if fits {
            self.queue(Work::write(Segment::Empty, NOWHERE), Sent::Probe, true);
        }
        fits
    }

    /// Makes sure that everything sent so far is heard of, though nothing more may be sent.
    pub(crate) fn signal_rest(&mut self) {
        if self.unsignalled > 0 {
            self.confirm();
        }
    }

    /// Posts what is queued, receives first.
    pub(crate) fn flush(&mut self, worker: &mut Worker, now: Instant) {
        if !matches!(self.failure, None | Some(LaneFailure::Silent { .. })) {
            return;
        }
        self.return_credits();
        if self.idle.is_empty() && self.queued.is_empty() {
            return;
        }
        let silent = |sent: &Sent| matches!(sent, Sent::Probe | Sent::Read);
        if self.queued.iter().any(|(_, sent)| !silent(sent)) {
            self.pulse.said(now);
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
