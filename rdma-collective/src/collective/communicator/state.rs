//! The queue of a communicator's operations: the first one runs, the others wait behind it. `progress` says who carries
//! it out.
//!
//! `State` is a service of the engine, so operations make progress whoever drives. Callers hold them by the handles of
//! `pending`. An operation on borrowed memory is not in the queue: its caller runs it, while the queue is empty. `gate`
//! has what a caller may read without locking this state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::announce::Announcer;
use super::caller_habit::CallerHabit;
use super::gate::{DeferredOp, FastPathGate};
use super::host::HostGroup;
use super::links::{self, CommContext, Links, Scratch};
use super::progress::{Event, Progress};
use crate::collective::execute::{Job, Participants};
use crate::collective::operation::Abort;
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{EngineState, HANDOVER_DELAY, Service};

/// Operations that may be queued at once. The bound lets the queues be allocated in advance.
pub(crate) const OPERATIONS_MAX: usize = 64;

/// The operations of one communicator, and what they run on. Locked behind the engine, never before it.
pub(crate) struct State {
    pub(super) rank: u32,
    pub(super) links: Option<Links>,
    pub(super) host: Option<Arc<HostGroup>>,
    /// Time at which the running operation wants to be polled again, though nothing arrives; see
    /// [`CommContext::look_at`].
    pub(super) look_at: Option<Instant>,
    scratch: Box<Scratch>,
    gate: Arc<FastPathGate>,
    /// Operations that have not ended, oldest first. Only the first may have begun.
    queue: VecDeque<Entry>,
    /// Time until which the running operation is its caller's, in the state [`CallerOwned`](Progress::CallerOwned).
    left_until: Instant,
    /// Whether the caller is left operations besides those that [suit](Job::suits_caller) a caller in any case.
    pub(super) habit: CallerHabit,
    /// Operations that have ended and whose handles have not asked yet.
    done: VecDeque<(Entry, Result<(), CollectiveError>)>,
    /// Jobs that failed. They stay here until the lanes are fenced, because the device may still access their memory.
    #[allow(clippy::vec_box, reason = "a job stays in the box in which its handle will find it")]
    failed: Vec<Box<Job>>,
    /// The first error, which ended the communicator.
    ended: Option<Arc<CollectiveError>>,
    pub(super) announcer: Announcer,
}

struct Entry {
    id: u64,
    job: Box<Job>,
    deadline: Deadline,
    waker: Option<Waker>,
    /// Whether the handle was dropped, so that nobody will take the result.
    forgotten: bool,
}

/// Result of an operation: the job with its memory, or an error if the device may still use that memory.
pub(super) type Ended = Result<Box<Job>, CollectiveError>;

impl State {
    pub(super) fn new(
        rank: u32,
        (links, host): (Option<Links>, Option<Arc<HostGroup>>),
        gate: Arc<FastPathGate>,
        announcer: Announcer,
    ) -> Self {
        Self {
            rank,
            links,
            host,
            look_at: None,
            scratch: links::scratch(),
            gate,
            queue: VecDeque::with_capacity(OPERATIONS_MAX),
            left_until: Instant::now(),
            habit: CallerHabit::default(),
            done: VecDeque::with_capacity(OPERATIONS_MAX),
            failed: Vec::new(),
            ended: None,
            announcer,
        }
    }

    /// The error for calls after the communicator has ended.
    pub(super) fn ended(&self) -> Option<CollectiveError> {
        self.ended.as_ref().map(|first| CollectiveError::Ended { first: Arc::clone(first) })
    }

    /// Ends the communicator because an operation failed. The first error stays the reason.
    pub(crate) fn end(&mut self, error: &CollectiveError) {
        self.announcer.ended(error);
        self.ended.get_or_insert_with(|| Arc::new(error.clone()));
        self.publish_failure();
    }

    /// Whether the queue is empty. A deferred and a borrowed operation are not in it.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of an operation that begins now, and counts it.
    pub(super) fn next_sequence(&mut self, among: Participants) -> u64 {
        let sequence = self.gate.sequence();
        // A send or receive takes no number: only two ranks take part, and the others would count differently.
        if among != Participants::Pair {
            self.gate.count();
        }
        sequence
    }

    /// Tells the fast path whether a failure is known. Must follow each failure, and come before the progress becomes
    /// idle, because callers read both without this lock.
    pub(super) fn publish_failure(&self) {
        let aborted = self.links.as_ref().is_some_and(|links| links.abort.is_some());
        self.gate.set_failed(self.ended.is_some() || aborted);
    }

    pub(crate) fn parts(&mut self) -> CommContext<'_> {
        let Self { rank, links, host, look_at, scratch, .. } = self;
        CommContext { rank: *rank, links: links.as_mut(), host: host.as_deref(), look_at, scratch }
    }

    /// Checks that one more operation can be queued.
    pub(super) fn check_queue(&self) -> Result<(), CollectiveError> {
        match self.ended() {
            Some(ended) => Err(ended),
            None if self.queue.len() < OPERATIONS_MAX => Ok(()),
            None => Err(CollectiveError::TooManyOperations { max: OPERATIONS_MAX }),
        }
    }

    /// Queues an operation and returns its handle's number. A full queue, or a communicator that has ended, gives it
    /// back.
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
        self.gate.on(Event::Queue);
        Ok(id)
    }

    /// Leaves the running operation to the caller that has begun it, for the hand-over delay, unless it needs the
    /// engine or others wait behind it.
    pub(super) fn leave_to_caller(&mut self, core: &mut EngineState, now: Instant) {
        let Some(entry) = self.queue.front() else { return };
        // An operation that is due before the thread comes back would end late if its caller stayed away.
        let is_due = entry.deadline.expired_at(now + 2 * HANDOVER_DELAY);
        if !self.gate.is(Progress::Engine) || self.queue.len() > 1 || is_due {
            return;
        }
        let suits = entry.job.suits_caller();
        let is_left = suits || self.habit.waits_at_once();
        if !suits {
            self.habit.begins(entry.id);
        }
        if is_left {
            // Counted, because the engine's thread comes back after the hand-over delay where callers leave operations.
            core.leave();
            self.left_until = now + HANDOVER_DELAY;
            self.gate.on(Event::Leave);
        }
    }

    /// Ends the caller's ownership of the running operation; whoever drives goes on with it.
    pub(super) fn reclaim(&mut self) {
        if self.gate.is(Progress::CallerOwned) {
            self.gate.on(Event::Reclaim);
        }
    }

    /// Queues an operation that has begun on the fast path, as one that is running already. Nothing else may be under
    /// way.
    pub(super) fn adopt(&mut self, core: &mut EngineState, begun: DeferredOp, now: Instant) {
        let DeferredOp { id, job, deadline, .. } = begun;
        if let Some(links) = &mut self.links {
            links.watch(core, now);
            links.give_up_at(core, deadline);
        }
        // No `begin` and no count: this rank's messages are sent, and `Communicator::defer` has counted the operation.
        self.queue.push_back(Entry { id, job, deadline, waker: None, forgotten: false });
        self.gate.on(Event::Adopt);
    }

    /// Takes what linked ranks report and passes failures on. Done between operations too, because other ranks may wait
    /// for the news; the next operation of this rank then ends by it. Returns whether a failure is new.
    fn attend(&mut self, core: &mut EngineState) -> bool {
        let idle = self.gate.progress().is_quiet();
        let Some(links) = &mut self.links else { return false };
        let known = links.abort.is_some();
        if idle && self.ended.is_none() && !known {
            let present = (self.rank, self.gate.sequence());
            if !links.tell_of_losses(core, present)
                && let Err(wrong) = links.check_calls(present.1)
            {
                links.tell_wrong(core, present, wrong);
            }
        }
        links.pass_on(core);
        links.tell_waits(core);
        let learned = links.abort.is_some() && !known;
        if learned
            && idle
            && let Some(failure) = self.failure(core)
        {
            self.announcer.ended(&failure);
        }
        learned
    }

    /// Ends all operations on all ranks, because this rank's caller asks for it.
    pub(super) fn abort(&mut self, core: &mut EngineState) {
        let (culprit, reporter, reason) = (self.rank, self.rank, AbortReason::Requested);
        match &mut self.links {
            Some(links) => links.tell(core, Abort { sequence: 0, culprit, reporter, reason }),
            None => self.end(&CollectiveError::Aborted { culprit, reporter, reason, interrupted: None }),
        }
        // A running operation logs the failure when it ends by it; otherwise this is the only place that does.
        if self.gate.progress().is_quiet()
            && let Some(failure) = self.failure(core)
        {
            self.announcer.ended(&failure);
        }
        self.publish_failure();
    }

    /// The error with which operations fail from now on; `None` while they need not fail.
    pub(super) fn failure(&mut self, core: &mut EngineState) -> Option<CollectiveError> {
        if let Some(first) = &self.ended {
            return Some(CollectiveError::clone(first));
        }
        let links = self.links.as_ref()?;
        match links.abort {
            Some(abort) if abort.reporter != self.rank => {
                return Some(abort.into_error(self.rank, core.away(), None));
            }
            _ => {}
        }
        // This order is the attribution: news from another rank names the culprit, our own absence explains lost links,
        // and lost links are evidence of a peer's failure only if neither holds.
        if let Some(away) = links.left_behind(core) {
            return Some(CollectiveError::Fenced { away: Some(away), interrupted: None });
        }
        match links.lost(core) {
            Some(lost) => Some(lost.into_error(None)),
            None => Some(links.error_of(links.abort?, self.rank, core.away(), None)),
        }
    }

    /// Takes the result of an operation that has ended. The job of a failed one stays here, because the device may
    /// still access its memory.
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

    /// Sets the task that is woken when the operation has ended; one for each operation. Drop the returned waker after
    /// unlocking, because it may run any code.
    #[must_use]
    pub(super) fn set_waker(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let entry = self.queue.iter_mut().find(|entry| entry.id == id)?;
        match &entry.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => entry.waker.replace(waker.clone()),
        }
    }

    /// Marks an operation whose handle was dropped. It goes on, since other ranks wait for it. Drop the returned values
    /// after unlocking: a waker may run any code, and freeing memory takes time.
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

    /// Frees what failed operations own. Call it once the lanes are fenced, because the device uses the memory up to
    /// then.
    pub(super) fn release(&mut self, core: &mut EngineState) {
        let told = self.done.iter_mut().map(|(entry, _)| &mut entry.job);
        let held =
            self.failed.iter_mut().chain(told).filter_map(|job| (!job.release(core)).then_some(())).count();
        self.failed.clear();
        if held > 0 {
            crate::log::warn!(
                operations = held,
                "memory of operations stays registered until the engine goes"
            );
        }
    }

    /// Runs the first operation, and returns its outcome once it has ended.
    fn run(&mut self, core: &mut EngineState, now: Instant) -> Option<Result<(), CollectiveError>> {
        let Self { rank, links, host, look_at, scratch, queue, gate, .. } = self;
        let entry = queue.front_mut()?;
        let mut parts =
            CommContext { rank: *rank, links: links.as_mut(), host: host.as_deref(), look_at, scratch };
        if let Some(first) = &self.ended {
            return Some(Err(CollectiveError::Ended { first: Arc::clone(first) }));
        }
        if !gate.progress().has_begun() {
            if entry.deadline.expired_at(now) || !gate.is(Progress::Queued) {
                // `advance` ends this operation: a rank that never began it has no messages out, so the reason is
                // another one.
                return None;
            }
            gate.on(Event::Begin);
            // The number first, then the count: the header carries the number of operations before this one.
            entry.job.begin(&mut parts, core, gate.sequence(), now);
            if let Some(links) = &mut parts.links {
                links.give_up_at(core, entry.deadline);
            }
            if entry.job.among() != Participants::Pair {
                gate.count();
            }
        }
        // Advance before looking at the deadline, so that an operation whose last message is there ends well, however
        // late this rank polls.
        match entry.job.advance(&mut parts, core) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if entry.deadline.expired_at(now) => {
                Some(Err(entry.job.give_up_late(&mut parts, core)))
            }
            Poll::Pending => None,
        }
    }

    /// The place of an operation whose deadline has passed before it began.
    fn expired(&self, now: Instant) -> Option<usize> {
        let begun = usize::from(self.gate.progress().has_begun());
        let waiting = self.queue.iter().skip(begun);
        Some(begun + waiting.map(|entry| entry.deadline).position(|deadline| deadline.expired_at(now))?)
    }

    /// Ends the communicator for an operation that this rank will not begin: other ranks may be in it already, and
    /// would take this rank's next operation for it.
    pub(super) fn end_queued(&mut self, core: &mut EngineState) -> CollectiveError {
        // The abort names the operation that runs. `run` has counted that one, so its number is one less; a send or
        // receive has none.
        let begun = self.queue.front().filter(|_| self.gate.progress().has_begun());
        let counted = begun.is_some_and(|entry| entry.job.among() != Participants::Pair);
        let sequence = self.gate.sequence() - u64::from(counted);
        // This process may have been stopped until now: the other ranks' word of that is then still to be taken.
        core.catch_up();
        if let Some(links) = self.links.as_mut().filter(|_| self.ended.is_none()) {
            links.tell_of_losses(core, (self.rank, sequence));
        }
        let known = self.failure(core);
        if let Some(links) = self.links.as_mut().filter(|_| known.is_none()) {
            let (culprit, reporter, reason) = (self.rank, self.rank, AbortReason::Queued);
            links.unwatch(core);
            links.tell(core, Abort { sequence, culprit, reporter, reason });
        }
        let error = known.unwrap_or(CollectiveError::Queued);
        self.end(&error);
        error
    }

    /// Ends an operation: wakes its task and keeps the result for its handle, if anybody still holds one.
    fn finish(&mut self, core: &mut EngineState, mut entry: Entry, outcome: Result<(), CollectiveError>) {
        entry.job.counted.end(outcome.as_ref().copied());
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
        if self.caller_owned_until().is_some_and(|until| until <= now) {
            self.reclaim();
        }
        // First, because the deferred operation is older than all that could be queued behind it.
        if let Some(begun) = self.gate.take_due(now) {
            self.adopt(core, begun, now);
        }
        loop {
            let (place, outcome) = match self.run(core, now) {
                Some(outcome) => (0, outcome),
                None => {
                    let Some(place) = self.expired(now) else { break };
                    // The other operations end with it.
                    (place, Err(self.end_queued(core)))
                }
            };
            let Some(entry) = self.queue.remove(place) else { break };
            // The time belongs to the operation that has ended; the next one sets its own.
            self.look_at = None;
            self.finish(core, entry, outcome);
            if place == 0 {
                // First the failure: the fast path may go on as soon as the progress is idle.
                self.publish_failure();
                self.gate.on(if self.queue.is_empty() { Event::Last } else { Event::Next });
            }
            any = true;
        }
        let learned = self.attend(core);
        self.publish_failure();
        learned || any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = self.links.as_ref().and_then(Links::next_deadline);
        let deferred = self.gate.due();
        let queued = self.queue.iter().map(|entry| entry.deadline.instant());
        // The caller polls by itself for as long as it owns the operation, so the engine's thread need not wake before.
        let look_at = self.look_at.max(self.caller_owned_until());
        queued.chain(waits).chain(look_at).chain(deferred).min()
    }

    fn caller_owned_until(&self) -> Option<Instant> {
        self.gate.is(Progress::CallerOwned).then_some(self.left_until)
    }
}
