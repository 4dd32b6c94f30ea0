//! The sending side of a lane: requests are queued one by one, and posted together with one doorbell.
//!
//! Room in the send queue is reserved in layers, so that no traffic can block the messages that let it go on: one entry
//! for returned credits always, two more for control messages and heartbeats in the face of reads.

use std::time::{Duration, Instant};

use rdma_core::memory::CacheHint;
use rdma_core::{AttachedRange, LocalBuf, RemoteKey, RemoteMemory, Segment, Work, Worker};

use super::{Lane, Queued, Sent, Unsent};
use crate::link::LaneFailure;
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::{self, Kind};
use crate::link::imm::Imm;

/// The target of a write of no bytes, which names no memory.
const NOWHERE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

impl Lane {
    /// The number of messages that can be queued now: the send queue has room, and the peer has granted credits.
    ///
    /// An entry of the queue is reserved for the message that returns credits. Without it, two sides with full queues
    /// could each wait for credits that the other cannot return.
    pub(crate) fn room(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.places() }
    }

    /// The number of messages that can be queued now, even to a peer that counts as lost by its silence.
    fn places(&self) -> usize {
        if !self.can_hear() {
            return 0;
        }
        let queue = self.max_send_wr.saturating_sub(1 + self.posted.len() + self.queued.len());
        queue.min(self.credits.available() as usize)
    }

    /// Queues a write of an owned buffer, announced by its immediate. Check [`room`](Self::room) first.
    pub(crate) fn write_owned(&mut self, buffer: LocalBuf, to: RemoteMemory, imm: Imm, signalled: bool) {
        let work = Work::write(buffer, to).with_imm(imm.encode());
        self.queue_counted(work, Sent::Owned(imm), signalled);
        self.last_moves(to.len);
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
        self.queue_counted(work, Sent::Range(imm), signalled);
        self.last_moves(to.len);
    }

    /// The number of reads that can be queued now. Reads take no receive of the peer, so they cost no credits.
    pub(crate) fn room_for_reads(&self) -> usize {
        if self.failure.is_some() || self.closed {
            return 0;
        }
        // Three entries are reserved: for returned credits, a control message, and a heartbeat. Reads may fill the
        // queue for long, and the peer's process notices none of them: without a heartbeat it would give this side up.
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
        self.last_moves(from.len);
    }

    /// Queues a write that the peer's process does not notice, as no part of this crate does.
    #[cfg(test)]
    pub(crate) fn write_silently(&mut self, buffer: LocalBuf, to: RemoteMemory) {
        self.queue(Work::write(buffer, to), Sent::Probe, true);
    }

    /// Queues an immediate without data. Check [`room`](Self::room) first.
    pub(crate) fn note(&mut self, imm: Imm) {
        self.queue_counted(Work::write(Segment::Empty, NOWHERE).with_imm(imm.encode()), Sent::Empty, false);
    }

    /// Queues a control message; `false` if there is no room for it now.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the message is longer than the peer receives.
    pub(crate) fn control(
        &mut self,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<bool, NoRoom> {
        if self.room() == 0 { Ok(false) } else { self.last_word(kind, body) }
    }

    /// Whether the peer's process may still receive messages, and neither side has closed. A peer that counts as lost
    /// by its silence alone may: it receives them if it goes on.
    ///
    /// A message behind this side's CLOSE would be waited for in vain, because the peer leaves when it has heard that.
    pub(crate) fn can_hear(&self) -> bool {
        let is_there = matches!(self.failure, None | Some(LaneFailure::Silent { .. }));
        self.qp.is_some() && is_there && !self.closed && !self.leaving
    }

    /// Queues a control message like [`control`](Self::control), but also on a lane that has ended by the silence of
    /// its peer, which [can still hear](Self::can_hear) it: the peer then learns why this side went on without it.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the message is longer than the peer receives.
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

    /// The longest control message that can be sent, in bytes, envelope included.
    pub(crate) fn control_bytes_max(&self) -> usize {
        self.control_bytes_max
    }

    /// Queues a heartbeat, unless something was sent within the last `every`.
    ///
    /// The acknowledgement also shows whether the peer's device is alive. If there is no room for a heartbeat, a write
    /// of no bytes (which costs no credit) asks the device; a signalled request that is under way asks it already.
    pub(crate) fn beat(&mut self, now: Instant, every: Duration) {
        if self.beat_at(every).is_none_or(|due| now < due) {
            return;
        }
        let empty = Work::write(Segment::Empty, NOWHERE);
        // The last credit is left for a message that carries something.
        if self.room() > 1 {
            self.queue_counted(empty.with_imm(Imm::Alive.encode()), Sent::Empty, true);
        } else if self.posted.len() + self.queued.len() <= self.unsignalled {
            self.queue(empty, Sent::Probe, true);
        }
        // Counts as sent, so that the next attempt comes one interval later and not at every drive.
        self.pulse.said(now);
    }

    /// Queues a signalled write of no bytes. Its completion shows that everything sent before has completed, because a
    /// queue pair completes in order. `false` if there is no room.
    pub(crate) fn confirm(&mut self) -> bool {
        let fits = self.failure.is_none() && self.posted.len() + self.queued.len() < self.max_send_wr;
        if fits {
            self.queue(Work::write(Segment::Empty, NOWHERE), Sent::Probe, true);
        }
        fits
    }

    /// Makes sure that everything sent so far will be known to have completed, though nothing more may be sent.
    pub(crate) fn signal_rest(&mut self) {
        if self.unsignalled > 0 {
            self.confirm();
        }
    }

    /// Posts queued requests, receives first: a credit that is returned must find its receive posted. Requests are
    /// posted until `budget` bytes are used up; returns whether some are left.
    pub(crate) fn flush(&mut self, worker: &mut Worker, now: Instant, budget: &mut u64) -> bool {
        if !matches!(self.failure, None | Some(LaneFailure::Silent { .. })) {
            return false;
        }
        self.return_credits();
        if self.idle.is_empty() && self.queued.is_empty() {
            return false;
        }
        let count = self.within(budget);
        let silent = |sent: &Sent| matches!(sent, Sent::Probe | Sent::Read);
        if self.queued.iter().take(count).any(|queued| !silent(&queued.sent)) {
            self.pulse.said(now);
        }
        let mut refused = None;
        let Some(qp) = &self.qp else { return false };
        let mut batch = worker.batch(qp);
        for mut buffer in self.idle.drain(..) {
            buffer.reset_view();
            if let Err(error) = batch.push(Work::recv(buffer)) {
                refused = Some(error.error);
                break;
            }
        }
        let pushed = self.posted.len();
        for Queued { work, sent, .. } in self.queued.drain(..count) {
            if refused.is_some() {
                self.unposted.extend(Unsent::of_work(work, sent));
                continue;
            }
            match batch.push(work) {
                Ok(id) => self.posted.push_back((id, sent)),
                Err(error) => {
                    self.unposted.extend(Unsent::of_work(error.work, sent));
                    refused = Some(error.error);
                }
            }
        }
        if let Err(partial) = batch.submit() {
            self.keep_rejected(pushed, partial.rejected);
            refused = Some(partial.error);
        }
        if let Some(error) = refused {
            self.fail(LaneFailure::Refused(error.to_string().into()));
        }
        !self.queued.is_empty()
    }

    /// Notes how many bytes the request moves that was queued last.
    fn last_moves(&mut self, bytes: u64) {
        if let Some(queued) = self.queued.last_mut() {
            queued.bytes = bytes;
        }
    }

    /// The number of queued requests that a budget of bytes allows, which it is less by afterwards. A request may go
    /// beyond what is left, so that the longest one goes, too.
    fn within(&self, budget: &mut u64) -> usize {
        let fits = self.queued.iter().take_while(|queued| {
            let fits = *budget > 0;
            *budget = budget.saturating_sub(queued.bytes);
            fits
        });
        fits.count()
    }

    /// Bytes of the queued writes and reads.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued.iter().map(|queued| queued.bytes).sum()
    }

    /// Queues the return of credits, once half of the grant was consumed.
    fn return_credits(&mut self) {
        if self.closed || self.posted.len() + self.queued.len() >= self.max_send_wr {
            return;
        }
        if let Some(count) = self.credits.due() {
            self.credits.told();
            let imm = Imm::Credit { count }.encode();
            // Signalled, because it may be the last request of a lane that waits until everything has completed.
            self.queue(Work::write(Segment::Empty, NOWHERE).with_imm(imm), Sent::Credit, true);
        }
    }

    /// Queues a message that takes a receive of the peer, and so costs a credit.
    pub(super) fn queue_counted(&mut self, work: Work, sent: Sent, signalled: bool) {
        let credit = self.credits.take();
        debug_assert!(credit, "a message without a credit");
        self.queue(work, sent, signalled);
    }

    /// Queues a request. At least one request in a quarter of the queue is signalled: entries of the queue become free
    /// only when a later signalled request completes.
    pub(super) fn queue(&mut self, work: Work, sent: Sent, signalled: bool) {
        self.unsignalled += 1;
        let is_signalled = signalled || self.unsignalled >= (self.max_send_wr / 4).max(1);
        if is_signalled {
            self.unsignalled = 0;
        }
        let work = if is_signalled { work } else { work.unsignalled() };
        self.queued.push(Queued { work, sent, bytes: 0 });
    }
}
