//! A lane: one queue pair to one peer, with an epoch, credits, and everything that is under way on it.
//!
//! It queues requests, which [`flush`](Lane::flush) posts with one doorbell, and sorts completions: buffers go back to
//! where they came from, arrivals wait in order until [`take`](Lane::take). It keeps no time and does not poll: the
//! engine does.

mod open;
mod post;
mod sort;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::{
    DeviceAttributes, LocalBuf, PathOptions, QueuePair, ReadyToSend, RetryOptions, Work, WorkId,
};

use super::credit::Credits;
use super::imm::Imm;
use super::pulse::{Patience, Pulse};
use crate::link::{LaneFailure, LaneName};

pub(crate) use open::{LaneMemory, OpeningLane};

/// How a lane is made.
#[derive(Debug, Clone)]
pub(crate) struct LaneOptions {
    pub(crate) epoch: u32,
    /// Requests outstanding.
    pub(crate) max_send_wr: u32,
    /// Messages that the peer may have sent and not seen returned.
    pub(crate) credits: u32,
    /// The longest control message that the peer may send.
    pub(crate) control_bytes_max: u32,
}

/// What a request in the send queue was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// A control message; its buffer is used again.
    Control,
    /// A write of an owned buffer, which its sender gets back.
    Owned,
    /// A write of a registered range; they are counted.
    Range,
    /// A read into a registered range, counted with those; the peer's process does not hear of it.
    Read,
    /// An immediate alone: there is nothing to give back.
    Empty,
    /// A write of nothing, which the peer's device answers and its process does not hear of.
    Probe,
}

/// Something that came from the peer.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// An immediate, and the bytes of the write that it came with.
    Imm(Imm, u32),
    /// A control message; give it back with [`Lane::recycle`].
    Control(Received),
}

/// A receive buffer with a control message in it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(super) buffer: LocalBuf,
    pub(super) len: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    name: LaneName,
    qp: QueuePair<ReadyToSend>,
    max_send_wr: usize,
    /// The longest control message that can be sent, envelope included.
    control_bytes_max: usize,
    credits: Credits,
    /// In the send queue, in posting order.
    posted: VecDeque<(WorkId, Sent)>,
    /// To be posted by the next flush.
    queued: Vec<(Work, Sent)>,
    /// Requests since one that is signalled: nothing will be heard of them alone.
    unsignalled: usize,
    /// Receive buffers to be posted by the next flush.
    idle: Vec<LocalBuf>,
    /// Free buffers for control messages.
    control: Vec<LocalBuf>,
    /// Buffers of writes that are done.
    returned: Vec<LocalBuf>,
    /// Writes of registered ranges that are done.
    ranges_done: u64,
    arrivals: VecDeque<Arrival>,
    /// Arrivals that can be outstanding by the credits we granted.
    arrivals_max: usize,
    failure: Option<LaneFailure>,
    /// The peer has said that it sends nothing more.
    closed: bool,
    /// This side has said that it sends nothing more.
    leaving: bool,
    /// See [`set_quiet`](Self::set_quiet).
    quiet: bool,
    pulse: Pulse,
    /// What tells that the peer's process has ended, once it has.
    gone: Option<LaneFailure>,
    /// See [`settle`](Self::settle).
    settled: bool,
}

impl Lane {
    pub(crate) fn name(&self) -> LaneName {
        self.name
    }

    pub(crate) fn qp(&self) -> &QueuePair<ReadyToSend> {
        &self.qp
    }

    /// The queue pair, to be fenced.
    pub(crate) fn into_qp(self) -> QueuePair<ReadyToSend> {
        self.qp
    }

    /// Why nothing comes over it any more; arrivals that were not taken are still there.
    pub(crate) fn ended(&self) -> Option<LaneFailure> {
        self.failure.clone().or_else(|| self.closed.then_some(LaneFailure::Closed))
    }

    /// Ends it, unless it ended before. What is under way stays under way until the lane is fenced.
    pub(crate) fn fail(&mut self, failure: LaneFailure) {
        if self.failure.is_none() {
            if matches!(failure, LaneFailure::Closed) {
                tracing::debug!(lane = %self.name, "a lane was closed");
            } else {
                tracing::warn!("{} has failed: {failure}", self.name);
            }
            self.failure = Some(failure);
            self.queued.clear();
        }
    }

    /// The oldest arrival that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.pop_front()?;
        if matches!(arrival, Arrival::Imm(..)) {
            // Its receive is posted again already, or will be before the credit is told.
            self.credits.consumed();
        }
        Some(arrival)
    }

    /// Takes all arrivals and looks at none.
    pub(crate) fn discard_arrivals(&mut self) {
        while let Some(arrival) = self.take() {
            if let Arrival::Control(received) = arrival {
                self.recycle(received);
            }
        }
    }

    /// Gives a control message's buffer back.
    pub(crate) fn recycle(&mut self, received: Received) {
        self.idle.push(received.buffer);
        self.credits.consumed();
    }

    /// A buffer of a write that is done.
    pub(crate) fn take_returned(&mut self) -> Option<LocalBuf> {
        self.returned.pop()
    }

    /// Writes from registered ranges, and reads into them, that are done since the lane began.
    pub(crate) fn ranges_done(&self) -> u64 {
        self.ranges_done
    }

    /// Whether all that was sent has been acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.posted.is_empty() && self.queued.is_empty()
    }

    /// An operation waits for the peer: its silence is looked into.
    pub(crate) fn watch(&mut self, now: Instant) {
        self.pulse.watch(now);
    }

    /// The operation that waits for the peer gives up then.
    pub(crate) fn give_up_at(&mut self, until: Instant) {
        self.pulse.give_up_at(until);
    }

    /// An operation waits no more.
    pub(crate) fn unwatch(&mut self) {
        self.pulse.unwatch();
    }

    /// When the peer was heard last.
    pub(crate) fn heard_at(&self) -> Instant {
        self.pulse.heard_at()
    }

    /// Counts as a sign of life of the peer.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.pulse.heard(now);
    }

    /// This side did not listen for as long as `gap`: what it finds ended from now on may have ended because of that.
    pub(crate) fn back(&mut self, now: Instant, gap: Duration) {
        if !self.settled {
            self.pulse.back(now, gap);
        }
    }

    /// Its end, if it has ended, is no matter of times to come.
    pub(crate) fn settle(&mut self) {
        self.settled = self.ended().is_some();
    }

    /// How long this side did not listen, when the peer was not heard since: why the lane has ended, if it has.
    pub(crate) fn away(&self, beat: Duration) -> Option<Duration> {
        self.pulse.away(beat)
    }

    /// Whether it says nothing by itself, as long as the peer may not hear yet: what it says then is repeated by the
    /// device only so often, and the lane lost.
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// When this side has to say that it lives, with a beat `every` so long.
    pub(crate) fn beat_at(&self, every: Duration) -> Option<Instant> {
        (self.is_open() && !self.quiet).then(|| self.pulse.beat_at(every)).flatten()
    }

    /// When the peer counts as lost if it goes on saying nothing.
    pub(crate) fn lost_at(&self, patience: Patience) -> Option<Instant> {
        (self.failure.is_none() && !self.closed).then(|| self.pulse.lost_at(patience)).flatten()
    }

    /// The peer's process has ended; what it had sent is still to be taken.
    pub(crate) fn process_ended(&mut self, how: LaneFailure) {
        self.gone.get_or_insert(how);
    }

    /// Ends the lane of a peer that has died, or is silent too long; nothing that it sent is left to be taken.
    pub(crate) fn listen(&mut self, now: Instant, patience: Patience) {
        if !self.closed
            && let Some(failure) = self.gone.take()
        {
            self.fail(if self.leaving { LaneFailure::Closed } else { failure });
        }
        if self.lost_at(patience).is_some_and(|lost| now >= lost) {
            let since = self.pulse.silence(now);
            // The peer may have heard this side's last word and gone, and the acknowledgement be lost.
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
    /// The message's bytes, envelope included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// How every queue pair of an engine is connected.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) path: PathOptions,
    pub(crate) retry: RetryOptions,
}

/// What is special of the connection of one queue pair.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// The peer may not hear for so long: the device repeats what is said for at least that.
    pub(crate) patience: Duration,
    /// The peer counts as one of another host.
    pub(crate) apart: bool,
}

impl Connection {
    pub(crate) fn with(self, manner: Manner, device: &DeviceAttributes) -> Self {
        let Self { path, retry } = self;
        let path = PathOptions { other_host: path.other_host || manner.apart, ..path };
        Self { path, retry: retry.lasting(manner.patience, device) }
    }
}

#[cfg(test)]
mod tests;
