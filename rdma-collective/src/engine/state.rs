//! The state of an engine behind its lock: the rails, the lanes by name, and the services that are driven.
//!
//! A single thread at a time uses the state (`locked` holds the lock, and tells the others what was found). This file
//! opens, connects and ends lanes, and drives once. `services` says which services a drive advances, and `flush` posts.
//! `wait` and `thread` decide who drives and who sleeps, and `attendance` records it; heartbeats and deaths are
//! in `alive`.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use rdma_core::error::PollError;
use rdma_core::{
    Deadline, PeerAccess, ProtectionDomain, QueuePair, ReadyToSend, Refused, Region, State, Worker,
};

use super::alive::Alive;
use super::attendance::Attendance;
use super::deadlines::Deadlines;
use super::news::News;
use super::rail::Rail;
use super::services::{ServiceId, Services};
use super::{Driver, EngineOptions};
use crate::engine::{EngineError, SetupError};
use crate::link::LaneFailure;
use crate::link::{AttachedOnRails, Blob, ConnectOverrides, Lane, LaneMemory, OpeningLane};
use crate::liveness::{Deaths, Process};
use crate::metrics;

/// The name of a lane within its engine. The generation tells the lane from earlier ones with the same index, so that a
/// stale name finds nothing instead of somebody else's lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The entry of a lane in the engine's table.
#[derive(Debug)]
pub(super) struct LaneEntry {
    generation: u32,
    pub(super) slot: LaneSlot,
    /// The service that acts on the lane's arrivals and on its end; `None` if each drive advances it anyway.
    pub(super) service: Option<ServiceId>,
    /// Whether the lane is in the list of touched ones.
    pub(super) is_touched: bool,
}

impl LaneEntry {
    /// Adds the lane, which is number `index`, to the `touched` ones.
    pub(super) fn touch(&mut self, index: usize, touched: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.is_touched, true) {
            touched.push(index);
        }
    }
}

/// The slot of a lane in the engine's table.
#[derive(Debug)]
pub(super) enum LaneSlot {
    Vacant,
    Opening(OpeningLane),
    Open(Box<Lane>),
}

/// The state of an engine, used by one thread at a time.
pub(crate) struct EngineState {
    /// At least one.
    pub(super) rails: Vec<Rail>,
    pub(super) alive: Alive,
    pub(super) deaths: Deaths,
    /// Lanes by index.
    pub(super) lanes: Vec<LaneEntry>,
    /// Lanes that were used since they were last flushed, each once.
    pub(super) touched: Vec<usize>,
    /// When each open lane has to be looked at: for a heartbeat, or for the peer's timeout.
    pub(super) signs: Deadlines,
    /// Scratch for [`keep_alive`](Self::keep_alive), kept so that a drive allocates nothing.
    pub(super) looking: Vec<usize>,
    pub(super) services: Services,
    /// Completions that were [taken aside](Self::take_aside).
    taken_aside: usize,
    /// The failure of the last device, once all have failed. Nothing on the engine goes on after that.
    broken: Option<Arc<PollError>>,
    pub(super) attendance: Attendance,
    /// Callers that wait for the thread that sleeps for all.
    pub(super) followers: usize,
    /// Counts the wake-ups of the followers, so that one that comes late sees that it has missed one.
    pub(super) turn: u64,
    /// The latest time at which the caller that looks now must look again.
    pub(super) look_at: Option<Instant>,
    pub(super) news: News,
    /// Bytes that are posted in one hold of the lock.
    pub(super) slice: u64,
}

/// Bytes that a software device copies in one hold of the lock: about 25 us.
const SLICE_BYTES: u64 = 128 * 1024;

impl EngineState {
    pub(super) fn new(rails: Vec<Rail>, options: &EngineOptions) -> Result<Self, SetupError> {
        let channels = rails.iter().map(|rail| rail.worker.event_fd());
        let deaths = Deaths::new(channels).map_err(|error| SetupError::Descriptor {
            what: "the completion channel",
            source: error.into(),
        })?;
        let copies = rails.iter().any(|rail| rail.worker.context().is_soft());
        let slice = if copies { SLICE_BYTES } else { u64::MAX };
        Ok(Self {
            rails,
            alive: Alive {
                heartbeat: options.heartbeat,
                patience: options.patience(),
                beats: options.driver == Driver::Thread,
                process: Process::own(),
                driven: Instant::now(),
                away: None,
            },
            deaths,
            lanes: Vec::new(),
            touched: Vec::new(),
            signs: Deadlines::default(),
            looking: Vec::new(),
            services: Services::default(),
            taken_aside: 0,
            broken: None,
            attendance: Attendance::default(),
            followers: 0,
            turn: 0,
            look_at: None,
            news: News::default(),
            slice,
        })
    }

    /// The domain of the first rail.
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.rails[0].pd
    }

    pub(crate) fn attach(&mut self, region: &Region) -> AttachedOnRails {
        let first = self.rails[0].worker.attach(region);
        AttachedOnRails::new(first, self.rails[1..].iter_mut().map(|rail| rail.worker.attach(region)))
    }

    /// Detaches a region, and returns whether that worked: a region that requests still use stays attached.
    pub(crate) fn detach(&mut self, attached: AttachedOnRails) -> bool {
        let mut detached = true;
        for (number, rail) in self.rails.iter_mut().enumerate() {
            let Err(error) = rail.worker.detach(attached.on(number)) else { continue };
            crate::log::warn!(%error, "cannot detach a region: it stays attached until the engine is dropped");
            detached = false;
        }
        detached
    }

    /// Wakes a task after the lock is released: the task may need the lock at once.
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.news.wake(waker);
    }

    /// The time up to which every completion was taken. An operation that was due before and is not complete is late;
    /// for later times a completion may still lie in the queue.
    pub(crate) fn known_until(&self) -> Instant {
        let working = self.rails.iter().filter(|rail| !rail.broken);
        working.map(|rail| rail.known.until()).min().unwrap_or(self.alive.driven)
    }

    /// Creates a lane that waits for its peer's blob.
    pub(super) fn open_lane(&mut self, memory: LaneMemory) -> Result<LaneId, SetupError> {
        let number = memory.rail();
        let rail = self
            .rails
            .get_mut(number)
            .filter(|rail| !rail.broken)
            .ok_or(SetupError::DeviceFailed { number })?;
        let gid_index = rail.connection.path.gid_index;
        let lane = OpeningLane::new(&mut rail.worker, &rail.pd, &rail.init, gid_index, memory)?;
        let vacant = self.lanes.iter().position(|entry| matches!(entry.slot, LaneSlot::Vacant));
        let index = vacant.unwrap_or(self.lanes.len());
        if index == self.lanes.len() {
            let slot = LaneSlot::Vacant;
            self.lanes.push(LaneEntry { generation: 0, slot, service: None, is_touched: false });
        }
        rail.by_qp.insert(lane.endpoint().qp_num, index);
        let entry = &mut self.lanes[index];
        entry.slot = LaneSlot::Opening(lane);
        // The cast keeps the value: a worker has at most 65536 queue pairs, and each lane has one.
        Ok(LaneId { index: index as u32, generation: entry.generation })
    }

    /// The lane while it waits for its peer's blob.
    pub(crate) fn opening(&self, id: LaneId) -> Option<&OpeningLane> {
        match self.slot(id)? {
            LaneSlot::Opening(lane) => Some(lane),
            _ => None,
        }
    }

    /// Connects a lane to the end that `peer` describes. A lane that cannot be connected is ended.
    #[cfg(test)]
    pub(crate) fn connect_lane(&mut self, id: LaneId, peer: &Blob, now: Instant) -> Result<(), SetupError> {
        self.connect_lane_as(id, peer, now, ConnectOverrides::default())
    }

    /// Connects a lane to the end that `peer` describes, with path and retries changed by `overrides`. A lane that
    /// cannot be connected is ended.
    pub(crate) fn connect_lane_as(
        &mut self,
        id: LaneId,
        peer: &Blob,
        now: Instant,
        overrides: ConnectOverrides,
    ) -> Result<(), SetupError> {
        if let Some(number) = self.opening(id).map(OpeningLane::rail)
            && self.rails.get(number).is_some_and(|rail| rail.broken)
        {
            return Err(SetupError::DeviceFailed { number });
        }
        let entry = self.lanes.get_mut(id.index as usize);
        let Some(LaneEntry { slot: slot @ LaneSlot::Opening(_), generation, .. }) =
            entry.filter(|entry| entry.generation == id.generation)
        else {
            return Err(SetupError::LaneGone);
        };
        let LaneSlot::Opening(lane) = std::mem::replace(slot, LaneSlot::Vacant) else {
            return Err(SetupError::LaneGone);
        };
        let qp_num = lane.endpoint().qp_num;
        let rail = self.rails.get_mut(lane.rail()).ok_or(SetupError::LaneGone)?;
        let connection = rail.connection.clone().with(overrides, &rail.device);
        match lane.connect(&mut rail.worker, peer, &connection, now) {
            Ok(lane) => *slot = LaneSlot::Open(Box::new(lane)),
            Err(error) => {
                // The name ends here, because the place may be another lane's before the caller fences this one.
                *generation = generation.wrapping_add(1);
                rail.by_qp.remove(&qp_num);
                return Err(error);
            }
        }
        self.touch(id.index as usize);
        self.watch_process(id, &peer.process);
        Ok(())
    }

    /// The connected lane of that name; `None` before it is connected, and after it was fenced.
    pub(crate) fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        let index = id.index as usize;
        let entry = self.lanes.get_mut(index).filter(|entry| entry.generation == id.generation)?;
        entry.touch(index, &mut self.touched);
        match &mut entry.slot {
            LaneSlot::Open(lane) => Some(lane),
            _ => None,
        }
    }

    /// Names the service that acts on the lane's arrivals and on its end.
    pub(super) fn set_service(&mut self, id: LaneId, service: ServiceId) {
        let entry = self.lanes.get_mut(id.index as usize);
        if let Some(entry) = entry.filter(|entry| entry.generation == id.generation) {
            entry.service = Some(service);
        }
    }

    /// The means by which this process can reach the memory of a lane's peer.
    pub(crate) fn peer_access(&mut self, id: LaneId) -> Result<PeerAccess, SetupError> {
        let (worker, qp) = self.worker_and_qp(id).ok_or(SetupError::LaneGone)?;
        Ok(qp.peer_access(worker)?)
    }

    /// The queue pair of a connected lane and its worker; `None` after the lane was fenced or stopped.
    pub(super) fn worker_and_qp(&mut self, id: LaneId) -> Option<(&mut Worker, &QueuePair<ReadyToSend>)> {
        let Self { rails, lanes, .. } = self;
        let entry = lanes.get(id.index as usize).filter(|entry| entry.generation == id.generation)?;
        let LaneSlot::Open(lane) = &entry.slot else { return None };
        let rail = rails.get_mut(lane.rail())?;
        Some((&mut rail.worker, lane.qp()?))
    }

    fn slot(&self, id: LaneId) -> Option<&LaneSlot> {
        let entry = self.lanes.get(id.index as usize)?;
        (entry.generation == id.generation).then_some(&entry.slot)
    }

    /// Ends a lane. After `Ok` nothing that was posted on it reads or writes memory here any more, so that buffers and
    /// regions may be used again. A lane that is gone already is `Ok`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Fence`] if the device refuses: then the memory of the lane must not be used again.
    pub(crate) fn fence_lane(&mut self, id: LaneId, deadline: Deadline) -> Result<(), EngineError> {
        if self.slot(id).is_none() {
            return Ok(());
        }
        let index = id.index as usize;
        let entry = &mut self.lanes[index];
        // The name dies before the queue pair does: whatever the fence does, nobody uses this lane again.
        entry.generation = entry.generation.wrapping_add(1);
        entry.service.take().into_iter().for_each(|service| self.services.call(service));
        self.deaths.forget(id.key());
        self.signs.set(index, None);
        match std::mem::replace(&mut entry.slot, LaneSlot::Vacant) {
            LaneSlot::Vacant => Ok(()),
            LaneSlot::Opening(lane) => self.fence(lane.rail(), lane.into_qp(), deadline),
            LaneSlot::Open(mut lane) => match lane.take_qp() {
                Some(qp) => {
                    metrics::fenced(|| lane.ended().as_ref().map(LaneFailure::label));
                    self.fence(lane.rail(), qp, deadline)
                }
                // A lane that was stopped is fenced already.
                None => Ok(()),
            },
        }
    }

    /// Fences a queue pair, and forgets which lane it belonged to.
    fn fence<S: State>(
        &mut self,
        rail: usize,
        qp: QueuePair<S>,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        let Some(rail) = self.rails.get_mut(rail) else { return Ok(()) };
        let qp_num = qp.num();
        let fenced = rail.worker.fence(qp, deadline);
        rail.by_qp.remove(&qp_num);
        fenced.map_err(|Refused { error, .. }| EngineError::Fence { qp_num, source: Arc::new(error) })
    }

    /// Fences the queue pair of a lane, and keeps the lane with all that it has received and has not sent. After `Ok`
    /// nothing of the queue pair reads or writes memory here any more. [`fence_lane`](Self::fence_lane) drops the lane.
    ///
    /// # Errors
    ///
    /// [`EngineError::Fence`] if the device refuses: then the memory of the lane must not be used again.
    pub(crate) fn stop_lane(&mut self, id: LaneId, deadline: Deadline) -> Result<(), EngineError> {
        let Some(lane) = self.lane(id) else { return Ok(()) };
        lane.stop();
        let (number, qp) = (lane.rail(), lane.take_qp());
        qp.iter().for_each(|_| metrics::fenced(|| lane.ended().as_ref().map(LaneFailure::label)));
        let Some((qp, rail)) = qp.zip(self.rails.get_mut(number)) else { return Ok(()) };
        let qp_num = qp.num();
        let fenced = rail.worker.fence(qp, deadline);
        // The fence has left a completion of every request. Peers' credits bound what the other lanes add meanwhile.
        let taken = self.take_from(number, self.alive.driven, usize::MAX);
        self.take_aside(taken);
        self.rails[number].by_qp.remove(&qp_num);
        fenced.map_err(|Refused { error, .. }| EngineError::Fence { qp_num, source: Arc::new(error) })
    }

    /// Takes completions and lets the services act; returns how much happened.
    pub(crate) fn drive(&mut self, clock: impl Fn() -> Instant, budget: usize) -> usize {
        let (heard, now) = self.listen(clock, budget);
        let happened = heard + self.advance_services(now) + std::mem::take(&mut self.taken_aside);
        if happened > 0 {
            self.news.note();
        }
        happened
    }

    /// Takes completions and notes which peers are lost; returns how much was found, and the present time.
    ///
    /// The order is: note deaths, take completions, notice that this process was away, judge silence. Each step relies
    /// on the one before it (see `alive`).
    ///
    /// The clock is read a second time if something was found. The process may have been stopped between the first
    /// reading and the poll, and a message that came meanwhile must count as heard now, not back then.
    pub(super) fn listen(&mut self, clock: impl Fn() -> Instant, budget: usize) -> (usize, Instant) {
        let looked = clock();
        let died = self.look_for_deaths(looked);
        let (taken, all) = self.take_completions(looked, budget);
        let found = usize::from(died) + taken;
        let now = if found > 0 { clock() } else { looked };
        self.notice_absence(now);
        self.keep_alive(now, all);
        (found, now)
    }

    /// Notes completions that were taken outside a drive. The next drive counts them, because they may be of services
    /// that have to look at them.
    pub(super) fn take_aside(&mut self, taken: usize) {
        self.taken_aside += taken;
        if taken > 0 {
            self.news.note();
        }
    }

    /// Takes completions of all rails; returns how many, and whether none is left. Each rail has an equal share of the
    /// budget, so that none waits for a busy one.
    fn take_completions(&mut self, now: Instant, budget: usize) -> (usize, bool) {
        let share = budget.div_ceil(self.rails.len());
        let (mut sum, mut all) = (0, true);
        for number in 0..self.rails.len() {
            let taken = self.take_from(number, now, share);
            let rail = &mut self.rails[number];
            rail.known.taken(taken, taken < share, now, rail.worker.cqe_reserved());
            sum += taken;
            all &= taken < share;
        }
        (sum, all)
    }

    /// Takes completions of one rail, at most `budget`.
    fn take_from(&mut self, number: usize, now: Instant, budget: usize) -> usize {
        let Self { rails, lanes, touched, services, .. } = self;
        let Some(rail) = rails.get_mut(number).filter(|rail| !rail.broken) else { return 0 };
        for taken in 0..budget {
            match rail.worker.poll() {
                Ok(None) => return taken,
                Ok(Some(completion)) => {
                    // Late completions of a fenced queue pair have no lane: dropping them drops their buffers.
                    let Some(&index) = rail.by_qp.get(&completion.qp_num) else { continue };
                    if let Some(entry @ LaneEntry { slot: LaneSlot::Open(_), .. }) = lanes.get_mut(index) {
                        entry.touch(index, touched);
                        entry.service.into_iter().for_each(|service| services.call(service));
                        if let LaneSlot::Open(lane) = &mut entry.slot {
                            lane.sort(completion, now);
                        }
                    }
                }
                Err(error) => {
                    self.fail(number, error);
                    return taken;
                }
            }
        }
        budget
    }

    /// The first deadline of services and heartbeats together.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_pending().into_iter().chain(self.next_sign_of_life()).min()
    }

    /// Asks the devices for an event at the next completion. Completions that are in the queues already raise none, so
    /// the caller must drive once more before it sleeps.
    pub(super) fn arm(&mut self) {
        self.of_each_worker(Worker::request_notify);
    }

    /// Takes the events that woke a sleeper; otherwise the descriptor would stay readable.
    pub(super) fn consume_events(&mut self) {
        self.deaths.look_next();
        for rail in self.rails.iter_mut().filter(|rail| rail.broken) {
            // The channel of a failed device stays among those of the descriptor, which must not stay readable.
            let _ = rail.worker.consume_events();
        }
        self.of_each_worker(Worker::consume_events);
    }

    /// Calls `ask` for the worker of each rail that works; a device that refuses has failed.
    fn of_each_worker(&mut self, ask: impl Fn(&mut Worker) -> Result<(), PollError>) {
        for number in 0..self.rails.len() {
            let rail = &mut self.rails[number];
            if !rail.broken
                && let Err(error) = ask(&mut rail.worker)
            {
                self.fail(number, error);
            }
        }
    }

    /// The descriptor that is readable at a completion event, and at the end of a watched peer.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.deaths.as_fd()
    }

    /// Fails once all devices have failed, with the failure of the last.
    pub(crate) fn health(&self) -> Result<(), EngineError> {
        match &self.broken {
            Some(source) => Err(EngineError::Device { source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    /// Marks the device of a rail as failed, and every open lane on it.
    pub(crate) fn fail(&mut self, number: usize, error: PollError) {
        let Some(rail) = self.rails.get_mut(number).filter(|rail| !rail.broken) else { return };
        rail.broken = true;
        self.news.note();
        let text: Arc<str> = error.to_string().into();
        let Self { lanes, touched, services, .. } = self;
        for (index, entry) in lanes.iter_mut().enumerate() {
            if let LaneSlot::Open(lane) = &mut entry.slot
                && lane.rail() == number
            {
                lane.fail(LaneFailure::Device(Arc::clone(&text)));
                entry.service.into_iter().for_each(|service| services.call(service));
                entry.touch(index, touched);
            }
        }
        if self.rails.iter().all(|rail| rail.broken) {
            self.broken = Some(Arc::new(error));
        }
    }
}

impl fmt::Debug for EngineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineState")
            .field("rails", &self.rails)
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}
