//! The operations of a communicator in their order: the first one runs, the others wait for it.
//!
//! It is a service of the engine: whoever drives, operations go on. Callers see them through `pending`. An operation on
//! borrowed memory is not in the queue: its caller runs it, while the queue is empty.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::announce::Announcer;
use super::gate::{DeferredOp, FastPathGate};
use super::host::HostGroup;
use super::ring::{self, CommContext, RingLinks, Scratch};
use crate::collective::execute::{Job, Participants};
use crate::collective::operation::Abort;
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{EngineState, Service};

/// Operations that may wait for each other.
pub(crate) const OPERATIONS_MAX: usize = 64;

/// See the module.
pub(crate) struct State {
    pub(super) rank: u32,
    pub(super) ring: Option<RingLinks>,
    pub(super) host: Option<Arc<HostGroup>>,
    /// See [`CommContext::look_at`].
    pub(super) look_at: Option<Instant>,
    scratch: Box<Scratch>,
    gate: Arc<FastPathGate>,
    /// Not ended, in order; the first one may have begun.
    queue: VecDeque<Entry>,
    begun: bool,
    /// Until when that one, which is alone, is left to its caller; the turn knows whether it is.
    caller_owned_until: Option<Instant>,
    /// An operation on borrowed memory is under way.
    pub(super) borrowed: bool,
    /// Ended, for whoever waits for them.
    done: VecDeque<(Entry, Result<(), CollectiveError>)>,
    /// Ended with an error: the device may still use what they own.
    #[expect(clippy::vec_box, reason = "a job stays in the box in which its handle will find it")]
    failed: Vec<Box<Job>>,
    ended: Option<Arc<CollectiveError>>,
    pub(super) announcer: Announcer,
}

struct Entry {
    id: u64,
    job: Box<Job>,
    deadline: Deadline,
    waker: Option<Waker>,
    /// Nobody waits for it.
    forgotten: bool,
}

/// An operation that has ended: what it owns, unless the device may still use it.
pub(super) type Ended = Result<Box<Job>, CollectiveError>;

impl State {
    pub(super) fn new(
        rank: u32,
        (ring, host): (Option<RingLinks>, Option<Arc<HostGroup>>),
        gate: Arc<FastPathGate>,
        announcer: Announcer,
    ) -> Self {
        gate.set_open(true);
        Self {
            rank,
            ring,
            host,
            look_at: None,
            scratch: ring::scratch(),
            gate,
            queue: VecDeque::with_capacity(OPERATIONS_MAX),
            begun: false,
            caller_owned_until: None,
            borrowed: false,
            done: VecDeque::with_capacity(OPERATIONS_MAX),
            failed: Vec::new(),
            ended: None,
            announcer,
        }
    }

    /// Why there are no operations any more.
    pub(super) fn ended(&self) -> Option<CollectiveError> {
        self.ended.as_ref().map(|first| CollectiveError::Ended { first: Arc::clone(first) })
    }

    pub(super) fn say_way(&self, collective: &str, bytes: usize, way: &str) {
        self.announcer.way(collective, bytes, way);
    }

    /// An operation failed: there are no more.
    pub(crate) fn end(&mut self, error: &CollectiveError) {
        self.announcer.ended(error);
        self.ended.get_or_insert_with(|| Arc::new(error.clone()));
        self.settle();
    }

    /// Whether no operation is under way or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of an operation that begins now.
    pub(super) fn next_sequence(&mut self, among: Participants) -> u64 {
        let sequence = self.gate.sequence();
        if among != Participants::Pair {
            self.gate.count();
        }
        sequence
    }

    /// Whether the next operation may be done at once is known again.
    pub(super) fn settle(&self) {
        let failed = self.ended.is_some() || self.ring.as_ref().is_some_and(|ring| ring.abort.is_some());
        self.gate.set_open(self.is_idle() && !self.borrowed && !failed);
    }

    pub(crate) fn parts(&mut self) -> CommContext<'_> {
        let Self { rank, ring, host, look_at, scratch, .. } = self;
        CommContext { rank: *rank, ring: ring.as_mut(), host: host.as_deref(), look_at, scratch }
    }

    /// That one more can be queued.
    pub(super) fn check_queue(&self) -> Result<(), CollectiveError> {
        match self.ended() {
            Some(ended) => Err(ended),
            None if self.queue.len() < OPERATIONS_MAX => Ok(()),
            None => Err(CollectiveError::TooManyOperations { max: OPERATIONS_MAX }),
        }
    }

    /// Puts an operation behind the others; its number. A full queue gives it back.
    pub(super) fn push(
        &mut self,
        job: Box<Job>,
        deadline: Deadline,
    ) -> Result<u64, (Box<Job>, CollectiveError)> {
        if let Err(refused) = self.check_queue() {
            return Err((job, refused));
        }
        let id = self.gate.next_id();
        self.queue.push_back(Entry { id, job, deadline, waker: None, forgotten: false });
        self.settle();
        Ok(id)
    }

    /// Leaves the operation under way to the caller that has begun it, `until` then, unless it needs the engine or others wait
    /// behind it.
    pub(super) fn leave_to_caller(&mut self, core: &mut EngineState, until: Instant) {
        let alone = self.begun && self.queue.len() == 1;
        if alone && self.queue.front().is_some_and(|entry| entry.job.suits_caller()) {
            core.leave();
            self.caller_owned_until = Some(until);
            self.gate.set_caller_owned(true);
        }
    }

    /// It is left to nobody any more.
    pub(super) fn reclaim(&mut self) {
        if self.caller_owned_until.take().is_some() {
            self.gate.set_caller_owned(false);
        }
    }

    /// Goes on with an operation that has begun without the engine, and with nothing else under way.
    pub(super) fn adopt(&mut self, core: &mut EngineState, begun: DeferredOp, now: Instant) {
        debug_assert!(self.is_idle() && !self.borrowed, "whoever begins another hands it over before");
        let DeferredOp { id, job, deadline, .. } = begun;
        if let Some(ring) = &mut self.ring {
            ring.watch(core, now);
            ring.give_up_at(core, deadline);
        }
        self.queue.push_back(Entry { id, job, deadline, waker: None, forgotten: false });
        self.begun = true;
        self.settle();
        self.gate.deferred.vacate();
    }

    /// While no operation is under way, what neighbours say is taken all the same, and a failure is passed on: others may
    /// wait for it. The next operation ends by it.
    fn attend(&mut self, core: &mut EngineState) -> bool {
        let idle = self.is_idle() && !self.borrowed;
        let Some(ring) = &mut self.ring else { return false };
        let known = ring.abort.is_some();
        if idle && self.ended.is_none() && !known {
            let taken = ring.take_arrivals(core);
            if let Some(lost) = taken.err().or_else(|| ring.lost(core)) {
                let (culprit, reason) = (lost.culprit(self.rank), AbortReason::PeerFailed);
                let sequence = self.gate.sequence();
                ring.tell(core, Abort { sequence, culprit, reporter: self.rank, reason });
            }
        }
        ring.pass_on(core);
        ring.tell_waits(core);
        let learned = ring.abort.is_some() && !known;
        if learned
            && idle
            && let Some(failure) = self.failure(core)
        {
            self.announcer.ended(&failure);
        }
        learned
    }

    /// Ends all operations on all ranks, as this one's caller asks.
    pub(super) fn abort(&mut self, core: &mut EngineState) {
        let (culprit, reporter, reason) = (self.rank, self.rank, AbortReason::Requested);
        match &mut self.ring {
            Some(ring) => ring.tell(core, Abort { sequence: 0, culprit, reporter, reason }),
            None => self.end(&CollectiveError::Aborted { culprit, reporter, reason, interrupted: None }),
        }
        // An operation says it by its own end.
        if self.is_idle()
            && !self.borrowed
            && let Some(failure) = self.failure(core)
        {
            self.announcer.ended(&failure);
        }
        self.settle();
    }

    /// Why operations fail from now on; `None` while they need not.
    pub(super) fn failure(&mut self, core: &mut EngineState) -> Option<CollectiveError> {
        if let Some(first) = &self.ended {
            return Some(CollectiveError::clone(first));
        }
        let ring = self.ring.as_ref()?;
        match ring.abort {
            Some(abort) if abort.reporter != self.rank => {
                return Some(abort.into_error(self.rank, core.away(), None));
            }
            _ => {}
        }
        if let Some(away) = ring.left_behind(core) {
            return Some(CollectiveError::Fenced { away: Some(away), interrupted: None });
        }
        match ring.lost(core) {
            Some(lost) => Some(lost.into_error(None)),
            None => Some(ring.abort?.into_error(self.rank, core.away(), None)),
        }
    }

    /// Takes an operation that has ended.
    pub(super) fn take(&mut self, id: u64) -> Option<Ended> {
        let place = self.done.iter().position(|(entry, _)| entry.id == id)?;
        let (entry, outcome) = self.done.remove(place)?;
        Some(match outcome {
            Ok(()) => Ok(entry.job),
            Err(error) => {
                self.failed.extend(Some(entry.job).filter(|_| !error.is_refusal()));
                Err(error)
            }
        })
    }

    /// Wakes a task when an operation has ended; one task each. Drop what comes back when nothing is locked: that may run
    /// what it likes.
    #[must_use]
    pub(super) fn set_waker(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let entry = self.queue.iter_mut().find(|entry| entry.id == id)?;
        match &entry.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => entry.waker.replace(waker.clone()),
        }
    }

    /// Nobody waits for an operation any more; it goes on, since other ranks wait for it. Drop what comes back when
    /// nothing is locked: a waker may run what it likes, and memory takes its time.
    #[must_use]
    pub(super) fn forget(&mut self, id: u64) -> (Option<Waker>, Option<Ended>) {
        match self.queue.iter_mut().find(|entry| entry.id == id) {
            Some(entry) => {
                entry.forgotten = true;
                (entry.waker.take(), None)
            }
            None => (None, self.take(id)),
        }
    }

    /// The lanes have been fenced: nothing uses what the operations own any more.
    pub(super) fn release(&mut self, core: &mut EngineState) {
        let told = self.done.iter_mut().map(|(entry, _)| &mut entry.job);
        let held =
            self.failed.iter_mut().chain(told).filter_map(|job| (!job.release(core)).then_some(())).count();
        self.failed.clear();
        if held > 0 {
            tracing::warn!(operations = held, "memory of operations stays registered until the engine goes");
        }
    }

    /// Runs the first operation; what became of it, once it has ended.
    fn run(&mut self, core: &mut EngineState, now: Instant) -> Option<Result<(), CollectiveError>> {
        let Self { rank, ring, host, look_at, scratch, queue, .. } = self;
        let entry = queue.front_mut()?;
        let mut parts =
            CommContext { rank: *rank, ring: ring.as_mut(), host: host.as_deref(), look_at, scratch };
        if let Some(first) = &self.ended {
            return Some(Err(CollectiveError::Ended { first: Arc::clone(first) }));
        }
        if !self.begun {
            if entry.deadline.expired_at(now) {
                return None;
            }
            self.begun = true;
            entry.job.begin(&mut parts, core, self.gate.sequence(), now);
            if let Some(ring) = &mut parts.ring {
                ring.give_up_at(core, entry.deadline);
            }
            if entry.job.among() != Participants::Pair {
                self.gate.count();
            }
        }
        match entry.job.advance(&mut parts, core) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if entry.deadline.expired_at(now) => {
                Some(Err(entry.job.give_up_late(&mut parts, core)))
            }
            Poll::Pending => None,
        }
    }

    /// An operation whose deadline has passed before it began; the others end with it.
    fn expire(
        &mut self,
        core: &mut EngineState,
        now: Instant,
    ) -> Option<(Entry, Result<(), CollectiveError>)> {
        let waits =
            |(at, entry): (usize, &Entry)| at >= usize::from(self.begun) && entry.deadline.expired_at(now);
        let place = self.queue.iter().enumerate().position(waits)?;
        let entry = self.queue.remove(place)?;
        Some((entry, Err(self.end_queued(core))))
    }

    /// Ends the communicator for an operation that this rank does not begin any more: others may be in it already, and
    /// would take the next one for it.
    pub(super) fn end_queued(&mut self, core: &mut EngineState) -> CollectiveError {
        let known = self.failure(core);
        let counted =
            self.begun && self.queue.front().is_some_and(|entry| entry.job.among() != Participants::Pair);
        if let Some(ring) = self.ring.as_mut().filter(|_| known.is_none()) {
            let (culprit, sequence) = (self.rank, self.gate.sequence() - u64::from(counted));
            ring.unwatch(core);
            ring.tell(core, Abort { sequence, culprit, reporter: culprit, reason: AbortReason::Queued });
        }
        let error = known.unwrap_or(CollectiveError::Queued);
        self.end(&error);
        error
    }

    /// An operation has ended: tells whoever waits for it.
    fn finish(&mut self, core: &mut EngineState, mut entry: Entry, outcome: Result<(), CollectiveError>) {
        let failed = outcome.as_ref().err().filter(|error| !error.is_refusal()).cloned();
        if let Some(error) = &failed {
            entry.job.revoke();
            self.end(error);
        }
        if let Some(waker) = entry.waker.take() {
            core.wake(waker);
        }
        match (entry.forgotten, failed.is_none()) {
            (true, true) => {}
            (true, false) => self.failed.push(entry.job),
            (false, _) => self.done.push_back((entry, outcome)),
        }
    }
}

impl Service for State {
    fn advance(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let mut any = false;
        if let Some(begun) = self.gate.deferred.take_due(now) {
            self.adopt(core, begun, now);
        }
        loop {
            let ended = match self.run(core, now) {
                Some(outcome) => {
                    self.begun = false;
                    self.queue.pop_front().map(|entry| (entry, outcome))
                }
                None => self.expire(core, now),
            };
            let Some((entry, outcome)) = ended else { break };
            self.look_at = None;
            self.reclaim();
            self.finish(core, entry, outcome);
            any = true;
        }
        let learned = self.attend(core);
        self.settle();
        learned || any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = self.ring.as_ref().and_then(RingLinks::next_deadline);
        let deferred = self.gate.deferred.due();
        let queued = self.queue.iter().map(|entry| entry.deadline.instant());
        let look_at = self.look_at.map(|at| self.caller_owned_until.map_or(at, |left| left.max(at)));
        queued.chain(waits).chain(look_at).chain(deferred).min()
    }

    fn caller_owned_until(&self) -> Option<Instant> {
        self.caller_owned_until
    }
}
