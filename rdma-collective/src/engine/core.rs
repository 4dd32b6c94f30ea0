//! What the engine owns: the worker, the lanes by name, the services; all of it in one thread at a time.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use rdma_core::error::PollError;
use rdma_core::{
    Access, Attached, Context, Deadline, DeviceAttributes, InitOptions, PeerAccess, ProtectionDomain, QpNum,
    Refused, Region, RetryOptions, Worker, WorkerOptions,
};

use super::alive::Alive;
use super::known::Known;
use super::news::News;
use super::thread::Attendance;
use super::{Driver, EngineOptions, Service};
use crate::engine::{EngineError, SetupError};
use crate::link::LaneFailure;
use crate::link::{Blob, Connection, Lane, LaneMemory, Manner, OpeningLane};
use crate::liveness::{Deaths, Process};

/// Names a lane of one engine; the generation tells it from those that had its place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

#[derive(Debug)]
pub(super) enum Place {
    Vacant,
    Opening(OpeningLane),
    Open(Box<Lane>),
}

/// See the module.
pub(crate) struct Core {
    pub(super) worker: Worker,
    pd: ProtectionDomain,
    init: InitOptions,
    connection: Connection,
    device: DeviceAttributes,
    pub(super) alive: Alive,
    pub(super) deaths: Deaths,
    pub(super) lanes: Vec<(u32, Place)>,
    by_qp: HashMap<QpNum, usize>,
    pub(super) services: Vec<Weak<Mutex<dyn Service>>>,
    /// Kept over calls so that driving allocates nothing.
    driven: Vec<Arc<Mutex<dyn Service>>>,
    broken: Option<Arc<PollError>>,
    known: Known,
    /// A thread sleeps for all others; they wait for it.
    pub(super) asleep: bool,
    pub(super) followers: usize,
    /// How often those were woken.
    pub(super) turn: u64,
    pub(super) attendance: Attendance,
    /// Callers have asked to be told when somebody else has driven.
    pub(super) armed: bool,
    /// Something has happened that nobody had asked to be told of.
    pub(super) missed: bool,
    /// A caller sleeps for all others, and has not been told to look.
    pub(super) led: bool,
    /// When the caller that looks now has to do so again.
    pub(super) look_at: Option<Instant>,
    pub(super) news: News,
}

impl Core {
    pub(super) fn new(
        context: &Context,
        options: &EngineOptions,
        gid_index: u32,
    ) -> Result<Self, SetupError> {
        let pd = context.alloc_pd()?;
        let worker =
            context.worker(WorkerOptions { max_cqe: options.max_cqe, ..WorkerOptions::default() })?;
        let deaths = Deaths::new(worker.event_fd()).map_err(|error| SetupError::Descriptor {
            what: "the completion channel",
            source: error.into(),
        })?;
        let device = context.attributes()?;
        let suiting = || RetryOptions::suiting(&device).lasting(options.peer_timeout, &device);
        let retry = options.retry.clone().unwrap_or_else(suiting);
        let path = rdma_core::PathOptions { gid_index, ..options.path.clone() };
        let init = InitOptions {
            port: options.port,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            ..InitOptions::default()
        };
        Ok(Self {
            worker,
            pd,
            init,
            connection: Connection { path, retry },
            device,
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
            by_qp: HashMap::new(),
            services: Vec::new(),
            driven: Vec::new(),
            broken: None,
            known: Known::new(options.max_cqe, Instant::now()),
            asleep: false,
            followers: 0,
            turn: 0,
            attendance: Attendance::default(),
            armed: false,
            missed: false,
            led: false,
            look_at: None,
            news: News::default(),
        })
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn attach(&mut self, region: &Region) -> Attached {
        self.worker.attach(region)
    }

    /// Lets go of an attached region, unless requests still use it; whether it has.
    pub(crate) fn detach(&mut self, attached: Attached) -> bool {
        match self.worker.detach(attached) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "a region stays attached until the engine goes");
                false
            }
        }
    }

    /// Wakes a task once the core is unlocked.
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.news.wake(waker);
    }

    /// Until when all that has completed is known: what was due before and has not come is late.
    pub(crate) fn known_until(&self) -> Instant {
        self.known.until()
    }

    /// Creates a lane that waits for its peer's blob.
    pub(super) fn open_lane(&mut self, memory: LaneMemory) -> Result<LaneId, SetupError> {
        let gid_index = self.connection.path.gid_index;
        let lane = OpeningLane::new(&mut self.worker, &self.pd, &self.init, gid_index, memory)?;
        let vacant = self.lanes.iter().position(|(_, place)| matches!(place, Place::Vacant));
        let index = vacant.unwrap_or(self.lanes.len());
        if index == self.lanes.len() {
            self.lanes.push((0, Place::Vacant));
        }
        self.by_qp.insert(lane.endpoint().qp_num, index);
        let (generation, place) = &mut self.lanes[index];
        *place = Place::Opening(lane);
        // A worker has at most 65536 queue pairs.
        Ok(LaneId { index: index as u32, generation: *generation })
    }

    /// The lane while it waits for its peer's blob.
    pub(crate) fn opening(&self, id: LaneId) -> Option<&OpeningLane> {
        match self.place(id)? {
            Place::Opening(lane) => Some(lane),
            _ => None,
        }
    }

    /// Connects a lane to the end that `peer` describes; a lane that cannot be is ended.
    #[cfg(test)]
    pub(crate) fn connect_lane(&mut self, id: LaneId, peer: &Blob, now: Instant) -> Result<(), SetupError> {
        self.connect_lane_as(id, peer, now, Manner::default())
    }

    /// [`connect_lane`](Self::connect_lane) in that manner.
    pub(crate) fn connect_lane_as(
        &mut self,
        id: LaneId,
        peer: &Blob,
        now: Instant,
        manner: Manner,
    ) -> Result<(), SetupError> {
        let Some((_, place @ Place::Opening(_))) =
            self.lanes.get_mut(id.index as usize).filter(|(generation, _)| *generation == id.generation)
        else {
            return Err(SetupError::LaneGone);
        };
        let Place::Opening(lane) = std::mem::replace(place, Place::Vacant) else {
            return Err(SetupError::LaneGone);
        };
        let qp_num = lane.endpoint().qp_num;
        let connection = self.connection.clone().with(manner, &self.device);
        match lane.connect(&mut self.worker, peer, &connection, now) {
            Ok(lane) => *place = Place::Open(Box::new(lane)),
            Err(error) => {
                self.by_qp.remove(&qp_num);
                return Err(error);
            }
        }
        self.watch_process(id, &peer.process);
        Ok(())
    }

    /// An open lane; `None` once it was fenced.
    pub(crate) fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        let (generation, place) = self.lanes.get_mut(id.index as usize)?;
        match place {
            Place::Open(lane) if *generation == id.generation => Some(lane),
            _ => None,
        }
    }

    /// How the memory of a lane's peer is reached.
    pub(crate) fn peer_access(&mut self, id: LaneId) -> Result<PeerAccess, SetupError> {
        let Some((generation, Place::Open(lane))) = self.lanes.get(id.index as usize) else {
            return Err(SetupError::LaneGone);
        };
        if *generation != id.generation {
            return Err(SetupError::LaneGone);
        }
        Ok(lane.qp().peer_access(&mut self.worker)?)
    }

    fn place(&self, id: LaneId) -> Option<&Place> {
        let (generation, place) = self.lanes.get(id.index as usize)?;
        (*generation == id.generation).then_some(place)
    }

    /// Ends a lane: after `Ok` no byte of it or of its peer lands any more. A lane that is gone is `Ok`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Fence`] when the device refuses: then the memory of the lane must not be used again.
    pub(crate) fn fence_lane(&mut self, id: LaneId, deadline: Deadline) -> Result<(), EngineError> {
        if self.place(id).is_none() {
            return Ok(());
        }
        let (generation, place) = &mut self.lanes[id.index as usize];
        *generation = generation.wrapping_add(1);
        self.deaths.forget(id.key());
        let (qp_num, fenced) = match std::mem::replace(place, Place::Vacant) {
            Place::Vacant => return Ok(()),
            Place::Opening(lane) => {
                let qp = lane.into_qp();
                (qp.num(), self.worker.fence(qp, deadline).map_err(|Refused { error, .. }| error))
            }
            Place::Open(lane) => {
                let qp = lane.into_qp();
                (qp.num(), self.worker.fence(qp, deadline).map_err(|Refused { error, .. }| error))
            }
        };
        self.by_qp.remove(&qp_num);
        fenced.map_err(|source| EngineError::Fence { qp_num, source: Arc::new(source) })
    }

    /// Drives `service` from now on, as long as somebody else keeps it.
    pub(crate) fn register<S: Service + 'static>(&mut self, service: &Arc<Mutex<S>>) {
        let service: Weak<Mutex<S>> = Arc::downgrade(service);
        self.services.push(service);
    }

    /// Takes completions and lets the services act; returns how much happened.
    ///
    /// The clock is read again when there is news: a process may have been stopped between looking at the clock and at
    /// that, and what it finds is judged by the time at which it has found it.
    pub(crate) fn drive(&mut self, clock: impl Fn() -> Instant, budget: usize) -> usize {
        let looked = clock();
        let died = self.look_for_deaths(looked);
        let taken = self.take_completions(looked, budget);
        self.known.taken(taken, taken < budget, looked);
        let now = if died || taken > 0 { clock() } else { looked };
        self.notice_absence(now);
        self.keep_alive(now, taken < budget);
        let happened = taken + self.advance_services(now);
        if died || happened > 0 {
            self.news.note();
        }
        happened
    }

    fn take_completions(&mut self, now: Instant, budget: usize) -> usize {
        for taken in 0..budget {
            match self.worker.poll() {
                Ok(None) => return taken,
                Ok(Some(completion)) => {
                    // A queue pair that was fenced has no lane any more; its buffers go with its completions.
                    let index = self.by_qp.get(&completion.qp_num);
                    if let Some((_, Place::Open(lane))) = index.and_then(|&index| self.lanes.get_mut(index)) {
                        lane.sort(completion, now);
                    }
                }
                Err(error) => {
                    self.fail(error);
                    return taken;
                }
            }
        }
        budget
    }

    fn advance_services(&mut self, now: Instant) -> usize {
        let mut driven = std::mem::take(&mut self.driven);
        self.services.retain(|service| match service.upgrade() {
            Some(service) => {
                driven.push(service);
                true
            }
            None => false,
        });
        let mut acted = 0;
        for service in driven.drain(..) {
            let mut service = service.lock().unwrap_or_else(PoisonError::into_inner);
            acted += usize::from(service.advance(self, now));
        }
        self.driven = driven;
        acted
    }

    /// Posts what the lanes have queued.
    pub(crate) fn flush(&mut self) {
        for (_, place) in &mut self.lanes {
            if let Place::Open(lane) = place {
                lane.flush(&mut self.worker, self.alive.driven);
            }
        }
    }

    /// The first deadline of what is pending; `None` when nothing is.
    pub(super) fn next_pending(&self) -> Option<Instant> {
        let services = self.services.iter().filter_map(Weak::upgrade);
        let deadlines = services
            .filter_map(|service| service.lock().unwrap_or_else(PoisonError::into_inner).next_deadline());
        deadlines.min()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_pending().into_iter().chain(self.next_sign_of_life()).min()
    }

    pub(super) fn arm(&mut self) {
        if let Err(error) = self.worker.request_notify() {
            self.fail(error);
        }
    }

    pub(super) fn consume_events(&mut self) {
        self.deaths.look_next();
        if let Err(error) = self.worker.consume_events() {
            self.fail(error);
        }
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.deaths.as_fd()
    }

    /// Whether the device can still be trusted.
    pub(crate) fn health(&self) -> Result<(), EngineError> {
        match &self.broken {
            Some(source) => Err(EngineError::Device { source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    pub(super) fn fail(&mut self, error: PollError) {
        if self.broken.is_some() {
            return;
        }
        self.news.note();
        let text: Arc<str> = error.to_string().into();
        for (_, place) in &mut self.lanes {
            if let Place::Open(lane) = place {
                lane.fail(LaneFailure::Device(Arc::clone(&text)));
            }
        }
        self.broken = Some(Arc::new(error));
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("worker", &self.worker)
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}
