//! From a store where all ranks meet to a ring: introductions, blobs of neighbours, connections, and a last meeting.

use std::collections::VecDeque;
use std::time::Instant;

use rdma_core::{Access, Deadline};

use super::info::Introduction;
use super::{Communicator, CommunicatorOptions, Neighbour, Ring, SCRATCH_BYTES};
use crate::comm::bootstrap::StoreClient;
use crate::comm::link::mailbox::{Geometry, Inbox, Outbox};
use crate::comm::link::{Blob, LaneOptions, LinkKind};
use crate::comm::{Core, Engine, LaneId};
use crate::error::SetupError;

/// The longest control message of a ring.
const CONTROL_BYTES_MAX: u32 = 128;

impl Communicator {
    /// Meets the other ranks in the store and connects to the neighbours.
    ///
    /// All ranks of the store call it, with the same options. The store is needed until then alone.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::comm::bootstrap::{Join, JobToken, StoreClient, StoreOptions, StoreServer};
    /// use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
    /// use rdma_core::{Deadline, Device, SoftOptions};
    ///
    /// let deadline = Deadline::after(Duration::from_secs(10));
    /// let token = JobToken::random()?;
    /// let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// let mut store = StoreClient::connect(join, deadline)?;
    ///
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// let comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// assert_eq!((comm.rank(), comm.size()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SetupError::Bootstrap`] names ranks that did not come before the deadline; [`SetupError::Differs`] an option
    /// that is not alike, on all ranks; others say what the device refused.
    pub fn new(
        engine: &Engine,
        store: &mut StoreClient,
        options: CommunicatorOptions,
        deadline: Deadline,
    ) -> Result<Self, SetupError> {
        let mut setup = Setup { engine, store, options: &options, deadline };
        let ranks = setup.introduce()?;
        let rank = setup.store.rank();
        let ring = if ranks.len() > 1 { Some(setup.ring()?) } else { None };
        let ranks = ranks.into_iter().map(|introduction| introduction.info).collect();
        Ok(Self {
            engine: engine.clone(),
            rank,
            options,
            ranks,
            ring,
            sequence: 0,
            scratch: vec![0; SCRATCH_BYTES].into(),
            ended: None,
            closed: false,
        })
    }
}

struct Setup<'a> {
    engine: &'a Engine,
    store: &'a mut StoreClient,
    options: &'a CommunicatorOptions,
    deadline: Deadline,
}

impl Setup<'_> {
    fn key(&self, what: impl std::fmt::Display) -> String {
        format!("comm/{}/{}/{what}", self.options.name, self.options.epoch)
    }

    /// Every rank compares itself with all others, so that a difference is an error on all of them at once.
    fn introduce(&mut self) -> Result<Vec<Introduction>, SetupError> {
        let own = Introduction::own(self.engine.context(), self.options);
        let told = self.store.all_gather(&self.key("ranks"), &own.encode(), self.deadline)?;
        let read = (0..).zip(&told).map(|(rank, bytes)| Introduction::decode(bytes, rank));
        let ranks = read.collect::<Result<Vec<_>, _>>()?;
        for (rank, theirs) in (0..).zip(&ranks) {
            own.check(theirs, rank)?;
        }
        Ok(ranks)
    }

    fn ring(&mut self) -> Result<Ring, SetupError> {
        let options = self.options;
        let geometry = Geometry { slots: options.slots, slot_bytes: options.slot_bytes };
        let mailbox = SetupError::Mailbox { slots: options.slots, slot_bytes: options.slot_bytes };
        let bytes = geometry.bytes().ok_or(mailbox)?;
        let region =
            self.engine.lock().pd().alloc_region(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let inbox = Inbox::new(geometry, region);
        let [next, previous] = self.open()?;
        let connected = self.connect(next, previous, geometry, inbox);
        if connected.is_err() {
            let mut core = self.engine.lock();
            for lane in [next, previous] {
                if let Err(error) = core.fence_lane(lane, self.deadline) {
                    tracing::warn!(%error, "a lane that was set up in vain stays until the engine goes");
                }
            }
        }
        connected
    }

    fn open(&self) -> Result<[LaneId; 2], SetupError> {
        let slots = u32::from(self.options.slots);
        let lane = LaneOptions {
            epoch: self.options.epoch,
            max_send_wr: 2 * slots + 32,
            credits: 4 * slots + 32,
            control_bytes_max: CONTROL_BYTES_MAX,
        };
        let mut core = self.engine.lock();
        let next = core.open_lane(lane.clone())?;
        match core.open_lane(lane) {
            Ok(previous) => Ok([next, previous]),
            Err(error) => {
                if let Err(error) = core.fence_lane(next, self.deadline) {
                    tracing::warn!(%error, "a lane that was set up in vain stays until the engine goes");
                }
                Err(error)
            }
        }
    }

    fn connect(
        &mut self,
        next: LaneId,
        previous: LaneId,
        geometry: Geometry,
        inbox: Inbox,
    ) -> Result<Ring, SetupError> {
        let (rank, world) = (self.store.rank(), self.store.world());
        let next_rank = if rank + 1 == world { 0 } else { rank + 1 };
        let previous_rank = if rank == 0 { world - 1 } else { rank - 1 };
        let to_next = self.blob(next, Vec::new())?;
        let to_previous = self.blob(previous, vec![inbox.remote()])?;
        self.store.set(&self.key(format_args!("{rank}/next")), &to_next, self.deadline)?;
        self.store.set(&self.key(format_args!("{rank}/previous")), &to_previous, self.deadline)?;
        // One that is lost before it could say where it is ends this wait for all; a key is waited for in vain.
        self.store.barrier(&self.key("blobs"), self.deadline)?;
        let from_next = self.peer(next_rank, "previous")?;
        let from_previous = self.peer(previous_rank, "next")?;
        let [slots] = from_next.regions[..] else {
            return Err(SetupError::Introduction { rank: next_rank });
        };
        let (next, previous) = {
            let mut core = self.engine.lock();
            let outbox = Outbox::new(core.pd(), geometry, slots)?;
            let next = neighbour(&mut core, next, next_rank, &from_next, outbox)?;
            (next, neighbour(&mut core, previous, previous_rank, &from_previous, inbox)?)
        };
        // Nobody sends before all can receive.
        self.store.barrier(&self.key("connected"), self.deadline)?;
        Ok(Ring { next, previous, ahead: VecDeque::with_capacity(world as usize), abort: None })
    }

    fn blob(&self, lane: LaneId, regions: Vec<rdma_core::RemoteMemory>) -> Result<Vec<u8>, SetupError> {
        let core = self.engine.lock();
        let lane = core.opening(lane).ok_or(SetupError::LaneGone)?;
        let blob = Blob {
            kind: LinkKind::COLLECTIVE,
            job: self.store.token().fingerprint(),
            epoch: self.options.epoch,
            soft: self.engine.context().is_soft(),
            endpoint: lane.endpoint(),
            credits: lane.options().credits,
            control_bytes_max: lane.options().control_bytes_max,
            regions,
            payload: Vec::new(),
        };
        Ok(blob.encode()?)
    }

    fn peer(&mut self, rank: u32, end: &str) -> Result<Blob, SetupError> {
        let bytes = self.store.get(&self.key(format_args!("{rank}/{end}")), self.deadline)?;
        let (blob, _) = Blob::decode(&bytes, LinkKind::COLLECTIVE, self.store.token().fingerprint())?;
        if blob.epoch != self.options.epoch {
            let (ours, theirs) = (self.options.epoch.to_string(), blob.epoch.to_string());
            return Err(SetupError::Differs { field: "epoch", rank, ours, theirs });
        }
        Ok(blob)
    }
}

fn neighbour<B>(
    core: &mut Core,
    lane: LaneId,
    rank: u32,
    peer: &Blob,
    mailbox: B,
) -> Result<Neighbour<B>, SetupError> {
    core.connect_lane(lane, peer, Instant::now())?;
    let access = core.peer_access(lane)?;
    let name = core.lane(lane).ok_or(SetupError::LaneGone)?.name();
    Ok(Neighbour { rank, lane, name, mailbox, access })
}
