//! The lane: one queue pair to one peer, with its epoch, its credits, and the requests that are under way on it.
//!
//! A lane queues requests, which [`flush`](Lane::flush) posts with one doorbell. It sorts completions: buffers return
//! to their owners, and arrivals wait in order until [`take`](Lane::take). Polling and timekeeping are the engine's
//! tasks.
//!
//! A lane ends once, with a [`LaneFailure`]. Requests that are under way stay so after that, and their memory must not
//! be used again, until the engine has fenced the queue pair.

mod open;
mod post;
mod sort;
mod stop;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::{
    DeviceAttributes, LocalBuf, PathOptions, QueuePair, ReadyToSend, RemoteMemory, RetryOptions, Work, WorkId,
};

use super::credit::Credits;
use super::imm::Imm;
use super::pulse::{Patience, Pulse};
use crate::link::control::{self, Control, ControlError};
use crate::link::{LaneFailure, LaneName};

pub(crate) use open::{LaneMemory, OpeningLane};
pub(crate) use stop::Unsent;

/// Options of a lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneOptions {
    pub(crate) epoch: u32,
    /// Requests that can be outstanding, at most.
    pub(crate) max_send_wr: u32,
    /// Credits granted to the peer: messages that it may send before it must wait for a return.
    pub(crate) credits: u32,
    /// The longest control message that the peer may send, in bytes.
    pub(crate) control_bytes_max: u32,
}

/// The purpose of a request in the send queue, which decides what its completion does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// A control message; the completion frees its buffer for the next one.
    Control,
    /// A write of an owned buffer, which the completion hands back to the sender; the immediate announces it.
    Owned(Imm),
    /// A write of a registered range, announced by the immediate; completed ones are counted.
    Range(Imm),
    /// A read into a registered range, counted with those. The peer's process does not notice it.
    Read,
    /// An immediate without data: the completion frees nothing.
    Empty,
    /// The return of credits, which costs none.
    Credit,
    /// A write of no bytes, which the peer's device acknowledges. The peer's process does not notice it.
    Probe,
}

/// A request that is not posted yet.
#[derive(Debug)]
struct Queued {
    work: Work,
    sent: Sent,
    /// Bytes that it writes or reads.
    bytes: u64,
}

/// A message from the peer.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// An immediate, and the length of its write in bytes.
    Imm(Imm, u32),
    /// A control message. Give its buffer back with [`Lane::recycle`], otherwise the peer runs out of credits.
    Control(Received),
}

/// A receive buffer with a control message in it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(super) buffer: LocalBuf,
    pub(super) len: usize,
    /// The epoch that the message must have.
    pub(super) epoch: u32,
}

/// A connected queue pair to one peer.
#[derive(Debug)]
pub(crate) struct Lane {
    name: LaneName,
    /// The epoch of the peer's messages.
    peer_epoch: u32,
    /// The number of the rail that the lane belongs to.
    rail: usize,
    /// The queue pair, until it is fenced.
    qp: Option<QueuePair<ReadyToSend>>,
    /// The slots of the peer's mailbox, as requests of this lane name them.
    slots: RemoteMemory,
    max_send_wr: usize,
    /// The longest control message that can be sent, in bytes, envelope included.
    control_bytes_max: usize,
    credits: Credits,
    /// Requests in the send queue, in posting order.
    posted: VecDeque<(WorkId, Sent)>,
    /// Requests that the next flush posts.
    queued: Vec<Queued>,
    /// Requests queued since the last signalled one. They raise no completion of their own.
    unsignalled: usize,
    /// Receive buffers that the next flush posts.
    idle: Vec<LocalBuf>,
    /// Free buffers for control messages.
    control: Vec<LocalBuf>,
    /// Buffers of completed writes, for their sender to take.
    returned: Vec<LocalBuf>,
    /// Completed writes and reads of registered ranges.
    ranges_done: u64,
    /// Messages that were not taken yet, in order.
    arrivals: VecDeque<Arrival>,
    /// Arrivals that can be outstanding: the credits that this side granted.
    arrivals_max: usize,
    /// The reason of the lane's end, once it has ended other than by the peer's CLOSE.
    failure: Option<LaneFailure>,
    /// The peer has sent CLOSE.
    closed: bool,
    /// This side has sent CLOSE.
    leaving: bool,
    /// No heartbeats are sent, see [`set_quiet`](Self::set_quiet).
    quiet: bool,
    pulse: Pulse,
    /// The evidence that the peer's process has ended. The lane fails once all that the peer sent was taken.
    gone: Option<LaneFailure>,
    /// The lane ended before the last drive, see [`settle`](Self::settle).
    settled: bool,
    /// Whether a link has other lanes beside this one. The link then logs the lane's failure, and says what goes on.
    is_one_of_many: bool,
    /// Requests that failed after they were posted, and requests that were never posted; each in order.
    failed: Vec<Unsent>,
    unposted: Vec<Unsent>,
}

impl Lane {
    pub(crate) fn name(&self) -> LaneName {
        self.name
    }

    /// The number of the rail that the lane belongs to.
    pub(crate) fn rail(&self) -> usize {
        self.rail
    }

    /// The slots of the peer's mailbox, as requests of this lane name them.
    pub(super) fn slots(&self) -> RemoteMemory {
        self.slots
    }

    /// Sets the slots of the peer's mailbox.
    pub(crate) fn lead_to(&mut self, slots: RemoteMemory) {
        self.slots = slots;
    }

    /// The queue pair; `None` once the lane was stopped.
    pub(crate) fn qp(&self) -> Option<&QueuePair<ReadyToSend>> {
        self.qp.as_ref()
    }

    /// The reason why the lane has ended, if it has. Arrivals that were not taken are still there.
    pub(crate) fn ended(&self) -> Option<LaneFailure> {
        self.failure.clone().or_else(|| self.closed.then_some(LaneFailure::Closed))
    }

    /// Ends the lane, unless it has ended before. Requests that are under way stay so until the lane is fenced.
    pub(crate) fn fail(&mut self, failure: LaneFailure) {
        if self.failure.is_none() {
            if self.is_one_of_many {
                crate::log::debug!(lane = %self.name, %failure, "the lane has failed");
            } else if matches!(failure, LaneFailure::Closed) {
                crate::log::debug!(lane = %self.name, "the peer closed the lane");
            } else {
                crate::log::warn!("{} has failed: {failure}", self.name);
            }
            self.failure = Some(failure);
            self.keep_queued();
        }
    }

    /// Takes the oldest arrival that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.pop_front()?;
        if matches!(arrival, Arrival::Imm(..)) {
            // The receive of the immediate is posted again by the same flush that returns the credit, receives first.
            self.credits.consumed();
        }
        Some(arrival)
    }

    /// Takes all arrivals and drops them; their receives are posted again.
    pub(crate) fn discard_arrivals(&mut self) {
        while let Some(arrival) = self.take() {
            if let Arrival::Control(received) = arrival {
                self.recycle(received);
            }
        }
    }

    /// Gives the buffer of a control message back, so that it is posted again.
    pub(crate) fn recycle(&mut self, received: Received) {
        self.idle.push(received.buffer);
        self.credits.consumed();
    }

    /// Takes the buffer of a completed write.
    pub(crate) fn take_returned(&mut self) -> Option<LocalBuf> {
        self.returned.pop()
    }

    /// The number of completed writes from registered ranges and reads into them, since the lane began.
    pub(crate) fn ranges_done(&self) -> u64 {
        self.ranges_done
    }

    /// Whether the device may still read registered ranges for writes that were queued here.
    pub(crate) fn reads_ranges(&self) -> bool {
        let posted = self.posted.iter().map(|(_, sent)| sent);
        posted.chain(self.queued.iter().map(|queued| &queued.sent)).any(|sent| matches!(sent, Sent::Range(_)))
    }

    /// Whether all that was sent has been acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.posted.is_empty() && self.queued.is_empty()
    }

    /// Notes that an operation waits for the peer; from now on the peer's silence counts.
    pub(crate) fn watch(&mut self, now: Instant) {
        self.pulse.watch(now);
    }

    /// Sets the deadline of the operation that waits for the peer.
    pub(crate) fn give_up_at(&mut self, until: Instant) {
        self.pulse.give_up_at(until);
    }

    /// Notes that an operation has stopped waiting.
    pub(crate) fn unwatch(&mut self) {
        self.pulse.unwatch();
    }

    /// The time since which the peer is silent.
    pub(crate) fn heard_at(&self) -> Instant {
        self.pulse.heard_at()
    }

    /// The last sign of life of the peer. The time of [`heard_at`](Self::heard_at) also starts anew when this side did
    /// not listen.
    pub(crate) fn sign_at(&self) -> Instant {
        self.pulse.sign_at()
    }

    /// Has the peer's timeout start anew, because this side did not listen.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.pulse.restart(now);
    }

    /// Notes that this side did not listen for `gap`. A lane that is found ended after this may have ended because of
    /// it; one that had ended before (settled) did not.
    pub(crate) fn back(&mut self, now: Instant, gap: Duration) {
        if !self.settled {
            self.pulse.back(now, gap);
        }
    }

    /// Marks a lane that has ended as settled, so that a later gap of this side is not taken for the reason. Returns
    /// whether the lane has ended since the last call.
    pub(crate) fn settle(&mut self) -> bool {
        let has_ended = self.failure.is_some() || self.closed;
        has_ended && !std::mem::replace(&mut self.settled, true)
    }

    /// The length of the last gap in which this side did not listen, if the peer was not heard since. If the lane has
    /// ended, that gap is the reason.
    pub(crate) fn away(&self, beat: Duration) -> Option<Duration> {
        self.pulse.away(beat)
    }

    /// Stops the heartbeats (`true`), or starts them. A lane must be quiet while the peer's queue pair may not be
    /// connected yet: the device repeats an unanswered heartbeat only so often, and then the lane would fail.
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// The time of the next heartbeat, if one is sent `every` so long after the last message; `None` if none is sent.
    pub(crate) fn beat_at(&self, every: Duration) -> Option<Instant> {
        (self.is_open() && !self.quiet).then(|| self.pulse.beat_at(every)).flatten()
    }

    /// The time at which a peer that stays silent counts as lost.
    pub(crate) fn lost_at(&self, patience: Patience) -> Option<Instant> {
        (self.failure.is_none() && !self.closed).then(|| self.pulse.lost_at(patience)).flatten()
    }

    /// The next time to [beat](Self::beat), or to [listen](Self::listen). A peer whose process has ended was due when
    /// it was last heard.
    pub(crate) fn next_sign(&self, every: Duration, patience: Patience) -> Option<Instant> {
        let gone = (self.gone.is_some() && !self.closed).then(|| self.heard_at());
        self.beat_at(every).into_iter().chain(self.lost_at(patience)).chain(gone).min()
    }

    /// Notes that the peer's process has ended. The lane goes on until all that the peer had sent was taken.
    pub(crate) fn process_ended(&mut self, how: LaneFailure) {
        self.gone.get_or_insert(how);
    }

    /// Ends the lane if the peer has died or is silent for too long. Must be called only when no completion is left in
    /// the queue: otherwise the last messages of the peer would be lost.
    pub(crate) fn listen(&mut self, now: Instant, patience: Patience) {
        if !self.closed
            && let Some(failure) = self.gone.take()
        {
            self.fail(if self.leaving { LaneFailure::Closed } else { failure });
        }
        if self.lost_at(patience).is_some_and(|lost| now >= lost) {
            let since = self.pulse.silence(now);
            // After this side's CLOSE silence is no failure: the peer may have heard the CLOSE and gone, and its
            // acknowledgement may be lost.
            let failure = if self.leaving { LaneFailure::Closed } else { LaneFailure::Silent { since } };
            self.fail(failure);
        }
    }

    /// Whether both sides may still send.
    fn is_open(&self) -> bool {
        self.failure.is_none() && !self.closed && !self.leaving
    }
}

impl Received {
    /// Reads the message. One that the lane gives out can be read.
    pub(crate) fn message(&self) -> Result<Control<'_>, ControlError> {
        control::decode(self.buffer.get(..self.len).unwrap_or_default(), self.epoch)
    }
}

/// Path and retries of every queue pair of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) path: PathOptions,
    pub(crate) retry: RetryOptions,
}

/// Changes to path and retries for the connection of one queue pair.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectOverrides {
    /// The time for which the peer may not be connected yet: the device must repeat requests for at least that long.
    pub(crate) patience: Duration,
    /// Whether the peer counts as one of another host, so that no memory is shared with it.
    pub(crate) apart: bool,
}

impl Connection {
    /// Applies the changes for one queue pair.
    pub(crate) fn with(self, overrides: ConnectOverrides, device: &DeviceAttributes) -> Self {
        let Self { path, retry } = self;
        let path = PathOptions { other_host: path.other_host || overrides.apart, ..path };
        Self { path, retry: retry.lasting(overrides.patience, device) }
    }
}

#[cfg(test)]
mod tests;
