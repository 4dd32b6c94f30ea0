//! From a store where all ranks meet to a ring: introductions, blobs of neighbours, connections, and a last meeting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::{Access, Deadline, RemoteMemory};

use super::hold::{self, Door, Held};
use super::hosts::Hosts;
use super::info::Introduction;
use super::mesh::Mesh;
use super::ring::{Links, Neighbour, RingLinks};
use super::{Announcer, Communicator, CommunicatorOptions, FENCE_WITHIN, Origin, Rendezvous};
use crate::bootstrap::{GATHERED_BYTES_MAX, StoreClient};
use crate::collective::CommunicatorError;
use crate::engine::SetupError;
use crate::engine::{Core, Engine, LaneId};
use crate::link::mailbox::{Geometry, Inbox, Outbox};
use crate::link::{Blob, LaneOptions, LinkKind};

/// The longest control message of a ring.
pub(super) const CONTROL_BYTES_MAX: u32 = 128;

impl Communicator {
    /// Meets the other ranks in the store and connects to the neighbours.
    ///
    /// All ranks of the store call it, with the same options. The store is needed until then alone.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// use rdma_collective::engine::{Engine, EngineOptions};
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
    /// [`CommunicatorError::Bootstrap`] names ranks that did not come before the deadline; [`CommunicatorError::Differs`] an option
    /// that is not alike, on all ranks; others say what the device refused.
    pub fn new(
        engine: &Engine,
        store: &mut StoreClient,
        options: CommunicatorOptions,
        deadline: Deadline,
    ) -> Result<Self, CommunicatorError> {
        Self::meet(engine, store, options, deadline)
    }

    /// The same wherever the ranks meet.
    pub(crate) fn meet(
        engine: &Engine,
        store: &mut dyn Rendezvous,
        options: CommunicatorOptions,
        deadline: Deadline,
    ) -> Result<Self, CommunicatorError> {
        let announcer = Announcer::start(engine, store, &options);
        let mut setup = Setup { engine, store, options: &options, deadline, hosts: Arc::default() };
        let made = setup.ranks();
        announcer.connected(made.as_ref().map(|(_, links)| links.as_ref()));
        let hosts = Arc::clone(&setup.hosts);
        let (ranks, links) = made?;
        let (ring, host) = links.map_or((None, None), |(ring, host)| (Some(ring), host));
        let ranks = ranks.into_iter().map(|introduction| introduction.info).collect();
        let origin =
            Origin { token: store.token(), address: store.local_address(), parent: store.parent().cloned() };
        Ok(Self::connected(engine, (store.rank(), origin), options, (ranks, hosts), (ring, host), announcer))
    }
}

/// What is told of an error, at most.
const REASON_BYTES_MAX: usize = 1000;
/// How long a rank that could not be set up waits for the others to hear of it: they may be waiting for a connection.
const TOLD_WITHIN: Duration = hold::WITHIN.saturating_add(Duration::from_secs(5));

/// Lanes and memory that the neighbours have not been told of.
struct Opened {
    next: LaneId,
    previous: LaneId,
    geometry: Geometry,
    inbox: Inbox,
    door: Door,
}

pub(super) struct Setup<'a> {
    pub(super) engine: &'a Engine,
    pub(super) store: &'a mut dyn Rendezvous,
    pub(super) options: &'a CommunicatorOptions,
    pub(super) deadline: Deadline,
    /// Where the ranks are, once they have told.
    pub(super) hosts: Arc<Hosts>,
}

impl Setup<'_> {
    pub(super) fn key(&self, what: impl std::fmt::Display) -> String {
        format!("comm/{}/{}/{what}", self.options.name, self.options.epoch)
    }

    /// All ranks, and the links to the neighbours unless this one is alone.
    fn ranks(&mut self) -> Result<(Vec<Introduction>, Option<Links>), CommunicatorError> {
        let ranks = self.introduce()?;
        let names: Vec<&str> = ranks.iter().map(|told| told.host_id.as_str()).collect();
        let named = ranks.iter().map(|told| told.host_is_named);
        self.hosts = Arc::new(Hosts::new(names.iter().copied().zip(named)));
        if let Some(hosts) = self.hosts.told_apart(&names) {
            tracing::info!("{hosts}");
        }
        let links = if ranks.len() > 1 { Some(self.links()?) } else { None };
        Ok((ranks, links))
    }

    /// Every rank compares itself with all others, so that a difference is an error on all of them at once.
    fn introduce(&mut self) -> Result<Vec<Introduction>, CommunicatorError> {
        let own = Introduction::own(self.engine.context(), self.options);
        let told = self.store.all_gather(&self.key("ranks"), &own.encode(), self.deadline)?;
        let read = (0..).zip(&told).map(|(rank, bytes)| Introduction::decode(bytes, rank));
        let ranks = read.collect::<Result<Vec<_>, _>>()?;
        for (rank, theirs) in (0..).zip(&ranks) {
            own.check(theirs, rank)?;
        }
        Ok(ranks)
    }

    fn links(&mut self) -> Result<Links, CommunicatorError> {
        let opened = self.open();
        let lanes = opened.as_ref().ok().map(|opened| [opened.next, opened.previous]);
        let connected = self.publish_and_connect(opened).and_then(|ring| {
            let host = self.host(&ring)?;
            Ok((ring, host))
        });
        if let (Err(_), Some(lanes)) = (&connected, lanes) {
            self.fence(&lanes);
        }
        connected
    }

    /// Ends lanes that were set up in vain, or for a while.
    pub(super) fn fence(&self, lanes: &[LaneId]) {
        let deadline = self.deadline.min(Deadline::after(FENCE_WITHIN));
        let mut core = self.engine.lock();
        for lane in lanes {
            if let Err(error) = core.fence_lane(*lane, deadline) {
                tracing::warn!(%error, "a lane that is of no use stays until the engine goes");
            }
        }
    }

    fn open(&self) -> Result<Opened, CommunicatorError> {
        let options = self.options;
        let geometry = Geometry { slots: options.slots, slot_bytes: options.slot_bytes };
        let mailbox = SetupError::Mailbox { slots: options.slots, slot_bytes: options.slot_bytes };
        let bytes = geometry.bytes().ok_or(mailbox)?;
        let slots = u32::from(options.slots);
        let lane = LaneOptions {
            epoch: options.epoch,
            max_send_wr: 2 * slots + 32,
            credits: 4 * slots + 32,
            control_bytes_max: CONTROL_BYTES_MAX,
        };
        let region = self.engine.pd().alloc_region(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let inbox = Inbox::new(geometry, region);
        let next = self.engine.open_lane(lane.clone())?;
        match self.engine.open_lane(lane) {
            Ok(previous) => {
                let door = Door::open(self.engine, self.store.local_address());
                Ok(Opened { next, previous, geometry, inbox, door })
            }
            Err(error) => {
                self.fence(&[next]);
                Err(error.into())
            }
        }
    }

    fn publish_and_connect(
        &mut self,
        opened: Result<Opened, CommunicatorError>,
    ) -> Result<RingLinks, CommunicatorError> {
        let published = opened.and_then(|opened| self.publish(&opened).map(|()| opened));
        let opened = self.agree("blobs", published)?;
        let connected = self.connect(opened);
        // Nobody sends before all can receive.
        self.agree("connected", connected)
    }

    /// Waits until every rank has come as far. A rank that could not says why, and it is an error on all of them at
    /// once: what the system refuses one of them the others would wait for until their deadline.
    fn agree<T>(&mut self, what: &str, own: Result<T, CommunicatorError>) -> Result<T, CommunicatorError> {
        let key = self.key(what);
        let value = match own {
            Ok(value) => value,
            Err(error) => {
                let reason = error.to_string();
                let reason = cut(&reason, self.store.world());
                let deadline = self.deadline.min(Deadline::after(TOLD_WITHIN));
                if let Err(untold) = self.store.all_gather(&key, reason, deadline) {
                    tracing::debug!(%untold, "not every rank was told why this one could not be set up");
                }
                return Err(error);
            }
        };
        let reasons = self.store.all_gather(&key, &[], self.deadline)?;
        match (0..).zip(reasons).find(|(_, reason)| !reason.is_empty()) {
            Some((rank, reason)) => {
                let reason = String::from_utf8_lossy(&reason).replace(char::is_control, " ");
                Err(CommunicatorError::Rank { rank, reason })
            }
            None => Ok(value),
        }
    }

    fn publish(&mut self, opened: &Opened) -> Result<(), CommunicatorError> {
        let rank = self.store.rank();
        let to_next = self.blob(opened.next, Vec::new(), Vec::new())?;
        let to_previous = self.blob(opened.previous, vec![opened.inbox.remote()], opened.door.address())?;
        self.store.set(&self.key(format_args!("{rank}/next")), &to_next, self.deadline)?;
        self.store.set(&self.key(format_args!("{rank}/previous")), &to_previous, self.deadline)?;
        Ok(())
    }

    fn connect(&mut self, opened: Opened) -> Result<RingLinks, CommunicatorError> {
        let Opened { next, previous, geometry, inbox, door } = opened;
        let (rank, world) = (self.store.rank(), self.store.world());
        let next_rank = if rank + 1 == world { 0 } else { rank + 1 };
        let previous_rank = if rank == 0 { world - 1 } else { rank - 1 };
        let from_next = self.peer(next_rank, "previous")?;
        let from_previous = self.peer(previous_rank, "next")?;
        let [slots] = from_next.regions[..] else {
            return Err(CommunicatorError::Introduction { rank: next_rank });
        };
        let held = [
            Held { rank: next_rank, lane: next, blob: &from_next },
            Held { rank: previous_rank, lane: previous, blob: &from_previous },
        ];
        let outbox = Outbox::new(&self.engine.pd(), geometry, slots)?;
        let mut core = self.engine.lock();
        let next = self.neighbour(&mut core, next, (next_rank, &from_next), outbox)?;
        let previous = self.neighbour(&mut core, previous, (previous_rank, &from_previous), inbox)?;
        drop(core);
        door.hold(self.engine, &self.store.token(), held, self.deadline);
        let job = (self.store.token().fingerprint(), self.options.epoch);
        let mesh = Mesh::new((rank, world), job, Arc::clone(&self.hosts));
        Ok(RingLinks::new(next, previous, (rank, world), mesh))
    }

    fn neighbour<B>(
        &self,
        core: &mut Core,
        lane: LaneId,
        (rank, peer): (u32, &Blob),
        mailbox: B,
    ) -> Result<Neighbour<B>, CommunicatorError> {
        core.connect_lane_as(lane, peer, Instant::now(), self.hosts.manner([self.store.rank(), rank]))?;
        let access = core.peer_access(lane)?;
        let name = core.lane(lane).ok_or(SetupError::LaneGone)?.name();
        Ok(Neighbour { rank, lane, name, mailbox, access })
    }

    pub(super) fn blob(
        &self,
        lane: LaneId,
        regions: Vec<RemoteMemory>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, CommunicatorError> {
        let blob = self.engine.blob(lane, LinkKind::COLLECTIVE, self.store.token().fingerprint())?;
        Ok(Blob { regions, payload, ..blob }.encode()?)
    }

    fn peer(&mut self, rank: u32, end: &str) -> Result<Blob, CommunicatorError> {
        let bytes = self.store.get(&self.key(format_args!("{rank}/{end}")), self.deadline)?;
        let (blob, _) = Blob::decode(&bytes, LinkKind::COLLECTIVE, self.store.token().fingerprint())?;
        if blob.epoch != self.options.epoch {
            let (ours, theirs) = (self.options.epoch.to_string(), blob.epoch.to_string());
            return Err(CommunicatorError::Differs { field: "epoch", rank, ours, theirs });
        }
        Ok(blob)
    }
}

/// As much of `text` as each of `world` ranks may say at once.
pub(super) fn cut(text: &str, world: u32) -> &[u8] {
    let bytes_max = REASON_BYTES_MAX.min((GATHERED_BYTES_MAX / world.max(1) as usize).saturating_sub(4));
    &text.as_bytes()[..text.len().min(bytes_max)]
}
