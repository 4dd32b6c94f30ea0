//! What the engine owns: the worker, the lanes by name, the services; all of it in one thread at a time.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdma_core::error::PollError;
use rdma_core::{
    Access, Attached, Context, Deadline, InitOptions, PeerAccess, ProtectionDomain, QpNum, Refused, Region,
    Worker, WorkerOptions,
};

use super::{EngineOptions, Service};
use crate::comm::link::{Blob, Connection, Lane, LaneOptions, OpeningLane};
use crate::error::{EngineError, LaneFailure, SetupError};

/// Names a lane of one engine; the generation tells it from those that had its place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
enum Place {
    Vacant,
    Opening(OpeningLane),
    Open(Box<Lane>),
}

/// See the module.
pub(crate) struct Core {
    worker: Worker,
    pd: ProtectionDomain,
    init: InitOptions,
    connection: Connection,
    probe_after: Duration,
    lanes: Vec<(u32, Place)>,
    by_qp: HashMap<QpNum, usize>,
    services: Vec<Weak<Mutex<dyn Service>>>,
    /// Kept over calls so that driving allocates nothing.
    driven: Vec<Arc<Mutex<dyn Service>>>,
    broken: Option<Arc<PollError>>,
    /// A thread sleeps for all others; they wait for it.
    pub(super) asleep: bool,
    pub(super) followers: usize,
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
        let path = rdma_core::PathOptions { gid_index, ..options.path.clone() };
        let init = InitOptions { port: options.port, access: Access::REMOTE_WRITE, ..InitOptions::default() };
        Ok(Self {
            worker,
            pd,
            init,
            connection: Connection { path, retry: options.retry.clone() },
            probe_after: options.probe_after,
            lanes: Vec::new(),
            by_qp: HashMap::new(),
            services: Vec::new(),
            driven: Vec::new(),
            broken: None,
            asleep: false,
            followers: 0,
        })
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn attach(&mut self, region: &Region) -> Attached {
        self.worker.attach(region)
    }

    /// Lets go of an attached region, unless requests still use it.
    pub(crate) fn detach(&mut self, attached: Attached) {
        if let Err(error) = self.worker.detach(attached) {
            tracing::warn!(%error, "a region stays attached until the engine goes");
        }
    }

    /// Creates a lane that waits for its peer's blob.
    pub(crate) fn open_lane(&mut self, options: LaneOptions) -> Result<LaneId, SetupError> {
        let gid_index = self.connection.path.gid_index;
        let lane = OpeningLane::new(&mut self.worker, &self.pd, &self.init, gid_index, options)?;
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
    pub(crate) fn connect_lane(&mut self, id: LaneId, peer: &Blob, now: Instant) -> Result<(), SetupError> {
        let Some((_, place @ Place::Opening(_))) =
            self.lanes.get_mut(id.index as usize).filter(|(generation, _)| *generation == id.generation)
        else {
            return Err(SetupError::LaneGone);
        };
        let Place::Opening(lane) = std::mem::replace(place, Place::Vacant) else {
            return Err(SetupError::LaneGone);
        };
        let qp_num = lane.endpoint().qp_num;
        match lane.connect(&mut self.worker, peer, &self.connection, now) {
            Ok(lane) => *place = Place::Open(Box::new(lane)),
            Err(error) => {
                self.by_qp.remove(&qp_num);
                return Err(error);
            }
        }
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

    pub(crate) fn register(&mut self, service: Weak<Mutex<dyn Service>>) {
        self.services.push(service);
    }

    /// Takes completions and lets the services act; returns how much happened.
    pub(crate) fn drive(&mut self, now: Instant, budget: usize) -> usize {
        let taken = self.take_completions(now, budget);
        self.probe(now);
        taken + self.advance_services(now)
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

    /// Asks the devices of silent peers whether they are there: a request to one that is not fails its lane.
    fn probe(&mut self, now: Instant) {
        for (_, place) in &mut self.lanes {
            let Place::Open(lane) = place else { continue };
            let due = lane.silent_since().and_then(|since| since.checked_add(self.probe_after));
            if due.is_some_and(|due| now >= due) {
                lane.probe();
            }
        }
    }

    /// Posts what the lanes have queued.
    pub(crate) fn flush(&mut self) {
        for (_, place) in &mut self.lanes {
            if let Place::Open(lane) = place {
                lane.flush(&mut self.worker);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let services = self.services.iter().filter_map(Weak::upgrade);
        let services = services
            .filter_map(|service| service.lock().unwrap_or_else(PoisonError::into_inner).next_deadline());
        let probes = self.lanes.iter().filter_map(|(_, place)| match place {
            Place::Open(lane) => lane.silent_since()?.checked_add(self.probe_after),
            _ => None,
        });
        services.chain(probes).min()
    }

    pub(super) fn arm(&mut self) {
        if let Err(error) = self.worker.request_notify() {
            self.fail(error);
        }
    }

    pub(super) fn consume_events(&mut self) {
        if let Err(error) = self.worker.consume_events() {
            self.fail(error);
        }
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.worker.event_fd()
    }

    /// Whether the device can still be trusted.
    pub(crate) fn health(&self) -> Result<(), EngineError> {
        match &self.broken {
            Some(source) => Err(EngineError::Device { source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: PollError) {
        let text: Arc<str> = error.to_string().into();
        for (_, place) in &mut self.lanes {
            if let Place::Open(lane) = place {
                lane.fail(LaneFailure::Device(Arc::clone(&text)));
            }
        }
        self.broken.get_or_insert_with(|| Arc::new(error));
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
