//! Joining: from a rendezvous of all ranks to a connected ring.
//!
//! The steps, each of which ends with a gathering of all ranks: introductions, which must agree; the blobs of the
//! ring's lanes; connections to both neighbours; and, on one host, the shared-memory windows. A rank that fails in a
//! step gives its reason in the gathering, so that all ranks fail at once and none waits for its deadline.

use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Deadline, Region};

use super::host::HostGroup;
use super::hosts::Hosts;
use super::info::Introduction;
use super::lanes::{LANES_MAX, Lanes, fence_unused};
use super::link::Link;
use super::link_table::LinkTable;
use super::links::Links;
use super::liveness_socket::{self, Listener, WatchedPeer};
use super::open_link::{LinkShape, OpenLink, read_blobs};
use super::{Announcer, Communicator, CommunicatorOptions, FENCE_WITHIN, Origin, Rendezvous};
use crate::bootstrap::{GATHERED_BYTES_MAX, StoreClient};
use crate::collective::operation::{ABORT, Abort};
use crate::collective::{AbortReason, CommunicatorError};
use crate::engine::SetupError;
use crate::engine::{Engine, EngineState, LaneId};
use crate::link::mailbox::Geometry;
use crate::link::{Blob, LaneFailure, LaneOptions, LinkKind};
use crate::liveness::{EXIT_WITHIN, Process};

/// The longest control message of a ring.
pub(super) const CONTROL_BYTES_MAX: u32 = 128;

impl Communicator {
    /// Joins a communicator of all ranks of the store.
    ///
    /// All ranks of the store must call this, with the same options. The communicator does not use the store
    /// afterwards.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`CommunicatorError::Bootstrap`] names the ranks that did not join before the deadline.
    /// - [`CommunicatorError::Differs`] names an option that differs between ranks; every rank gets it.
    /// - Other errors say what the device refused.
    pub fn new(
        engine: &Engine,
        store: &mut StoreClient,
        options: CommunicatorOptions,
        deadline: Deadline,
    ) -> Result<Self, CommunicatorError> {
        Self::meet(engine, store, options, deadline)
    }

    /// Joins a communicator by any rendezvous: a store, or a communicator that is split.
    pub(crate) fn meet(
        engine: &Engine,
        store: &mut dyn Rendezvous,
        options: CommunicatorOptions,
        deadline: Deadline,
    ) -> Result<Self, CommunicatorError> {
        engine.own_process().map_err(SetupError::from)?;
        let count = Lanes::count(engine, &options);
        if !(1..=LANES_MAX).contains(&count) {
            return Err(CommunicatorError::Lanes { count, max: LANES_MAX });
        }
        let announcer = Announcer::start(engine, store, &options);
        let mut setup = Setup { engine, store, options: &options, deadline, hosts: Arc::default() };
        let made = setup.ranks();
        announcer.connected(made.as_ref().map(|(_, links)| links.as_ref()));
        let hosts = Arc::clone(&setup.hosts);
        let (ranks, links) = made?;
        let (links, host) = links.map_or((None, None), |(links, host)| (Some(links), host));
        let ranks = ranks.into_iter().map(|introduction| introduction.info).collect();
        let origin =
            Origin { token: store.token(), address: store.local_address(), parent: store.parent().cloned() };
        Ok(Self::connected(engine, (store.rank(), origin), options, (ranks, hosts), (links, host), announcer))
    }
}

/// The longest reason that a rank gives to the others, in bytes.
const REASON_BYTES_MAX: usize = 1000;
/// How long a rank whose gathering has failed waits until its neighbours know why.
const GOODBYE_WITHIN: Duration = Duration::from_millis(250);
/// How long a rank that has failed waits for the others to gather its reason. They may still be trying to connect
/// liveness sockets, which takes up to [`liveness_socket::CONNECT_WITHIN`]; the other 5 s are for the gathering itself.
const REASON_WITHIN: Duration = liveness_socket::CONNECT_WITHIN.saturating_add(Duration::from_secs(5));

/// The ends of the links to the neighbours, before they know of them. Both neighbours of a ring of two are one rank.
struct OpenRing {
    neighbours: Vec<OpenLink>,
    listener: Listener,
}

/// This rank's end of the link to a neighbour, as far as it is needed when joining fails.
struct NeighbourEnd {
    rank: u32,
    lanes: Vec<LaneId>,
    /// The mailbox into which the neighbour may write already. It stays registered until the lanes are fenced: a write
    /// that is refused would end the lane before the neighbour is told why this rank leaves.
    _mailbox: Region,
}

impl NeighbourEnd {
    fn of(link: &OpenLink) -> Self {
        Self { rank: link.rank, lanes: link.lanes.clone(), _mailbox: link.mailbox().clone() }
    }
}

/// Whether a lane has ended because its peer's process has.
fn has_died(core: &mut EngineState, id: LaneId) -> bool {
    let ended = core.lane(id).and_then(|lane| lane.ended());
    matches!(ended, Some(LaneFailure::Died { .. } | LaneFailure::Disconnected))
}

/// The links of a rank, and the windows of its host.
pub(super) type LinksAndHost = (Links, Option<HostGroup>);

/// A communicator while it joins.
pub(super) struct Setup<'a> {
    pub(super) engine: &'a Engine,
    pub(super) store: &'a mut dyn Rendezvous,
    pub(super) options: &'a CommunicatorOptions,
    pub(super) deadline: Deadline,
    /// The ranks of each host, once the ranks have introduced themselves.
    pub(super) hosts: Arc<Hosts>,
}

impl OpenRing {
    fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.neighbours.iter().flat_map(|neighbour| neighbour.lanes.iter().copied())
    }
}

impl Setup<'_> {
    /// The rendezvous key of `what`. It has the epoch, so that a second attempt does not read values of the first.
    pub(super) fn key(&self, what: impl std::fmt::Display) -> String {
        format!("comm/{}/{}/{what}", self.options.name, self.options.epoch)
    }

    /// Lanes of each link.
    fn lanes(&self) -> u8 {
        Lanes::count(self.engine, self.options)
    }

    /// Introduces this rank and connects it; there are no links if it is alone.
    fn ranks(&mut self) -> Result<(Vec<Introduction>, Option<LinksAndHost>), CommunicatorError> {
        let ranks = self.introduce()?;
        let names: Vec<&str> = ranks.iter().map(|introduction| introduction.host_id.as_str()).collect();
        let named = ranks.iter().map(|introduction| introduction.host_is_named);
        self.hosts = Arc::new(Hosts::new(names.iter().copied().zip(named)));
        if let Some(hosts) = self.hosts.describe_named(&names) {
            crate::log::info!("{hosts}");
        }
        let links = if ranks.len() > 1 { Some(self.links()?) } else { None };
        Ok((ranks, links))
    }

    /// Gathers the introductions. Every rank compares itself with all others, so a difference is an error on all ranks.
    fn introduce(&mut self) -> Result<Vec<Introduction>, CommunicatorError> {
        // Each rank names the first rank that differs from itself.
        let own = Introduction::own(self.engine, self.options);
        let told = self.store.all_gather(&self.key("ranks"), &own.encode(), self.deadline)?;
        let read = (0..).zip(&told).map(|(rank, bytes)| Introduction::decode(bytes, rank));
        let ranks = read.collect::<Result<Vec<_>, _>>()?;
        for (rank, theirs) in (0..).zip(&ranks) {
            own.check(theirs, rank)?;
        }
        Ok(ranks)
    }

    fn links(&mut self) -> Result<LinksAndHost, CommunicatorError> {
        let opened = self.open();
        let ends: Vec<NeighbourEnd> =
            opened.iter().flat_map(|ring| &ring.neighbours).map(NeighbourEnd::of).collect();
        let connected = self.publish_and_connect(opened).and_then(|links| {
            let host = self.host(&links)?;
            Ok((links, host))
        });
        if let Err(error) = &connected {
            let lanes: Vec<LaneId> = ends.iter().flat_map(|end| end.lanes.iter().copied()).collect();
            // A gathering tells all ranks of any other failure.
            if matches!(error, CommunicatorError::Bootstrap(_)) {
                self.tell_neighbours(&ends, self.store.culprit(error));
                // Nothing may be sent behind the news, and the news must arrive.
                self.engine.say_goodbye(&lanes, self.deadline.min(Deadline::after(GOODBYE_WITHIN)));
            }
            // The engine may outlive this attempt, and must not keep its lanes.
            self.fence(&lanes);
        }
        connected
    }

    /// Tells the neighbours which rank's end is the reason why this one leaves: they may have joined already, and would
    /// take this rank for the one at fault. If this rank does not know, they find out by themselves.
    fn tell_neighbours(&self, ends: &[NeighbourEnd], culprit: Option<u32>) {
        let reporter = self.store.rank();
        self.engine.lock_with(|core| {
            core.catch_up();
            let dead = ends.iter().find(|end| end.lanes.iter().any(|id| has_died(core, *id)));
            let Some(culprit) = culprit.or(dead.map(|end| end.rank)) else { return };
            let abort = Abort { sequence: 0, culprit, reporter, reason: AbortReason::PeerFailed };
            for end in ends {
                let mut is_up = |id: &&LaneId| core.lane(**id).is_some_and(|lane| lane.ended().is_none());
                // A neighbour whose lanes are not connected yet cannot be told.
                let Some(lane) = end.lanes.iter().find(&mut is_up).copied() else { continue };
                let told = core.lane(lane).map(|lane| lane.control(ABORT, |body| abort.write(body)));
                debug_assert!(told.is_none_or(|told| told.is_ok()), "an abort fits a control message");
            }
        });
    }

    /// The next and the previous rank of the ring.
    fn ring(&self) -> [u32; 2] {
        let (rank, world) = (self.store.rank(), self.store.world());
        let next = if rank + 1 == world { 0 } else { rank + 1 };
        let previous = if rank == 0 { world - 1 } else { rank - 1 };
        [next, previous]
    }

    /// Ends lanes that are not used after all.
    pub(super) fn fence(&self, lanes: &[LaneId]) {
        let deadline = self.deadline.min(Deadline::after(FENCE_WITHIN));
        fence_unused(&mut self.engine.lock(), lanes, deadline);
    }

    /// Opens the lanes and registers the mailboxes, before any rank is told of them.
    fn open(&self) -> Result<OpenRing, CommunicatorError> {
        let [next, previous] = self.ring();
        let mut opened = OpenRing {
            neighbours: Vec::new(),
            listener: Listener::open(self.engine, self.store.local_address()),
        };
        for rank in [Some(next), Some(previous).filter(|previous| *previous != next)].into_iter().flatten() {
            // The first blob has the address to which the previous rank connects its liveness socket.
            let opened_link = OpenLink::open(self.engine, rank, &self.shape(), opened.listener.address());
            match opened_link {
                Ok(neighbour) => opened.neighbours.push(neighbour),
                Err(error) => {
                    self.fence(&opened.lanes().collect::<Vec<_>>());
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// The shape of the links to the neighbours.
    fn shape(&self) -> LinkShape {
        let CommunicatorOptions { slots, slot_bytes, epoch, .. } = *self.options;
        let (geometry, slots) = (Geometry { slots, slot_bytes }, u32::from(slots));
        let lane = LaneOptions {
            epoch,
            max_send_wr: 2 * slots + 32,
            credits: 4 * slots + 32,
            control_bytes_max: CONTROL_BYTES_MAX,
        };
        let job = self.store.token().fingerprint();
        LinkShape { kind: LinkKind::COLLECTIVE, job, lanes: self.lanes(), lane, geometry }
    }

    fn publish_and_connect(
        &mut self,
        opened: Result<OpenRing, CommunicatorError>,
    ) -> Result<Links, CommunicatorError> {
        let published = opened.and_then(|opened| self.publish(&opened).map(|()| opened));
        let opened = self.agree("blobs", published)?;
        let connected = self.connect(opened);
        // No rank may send before every rank can receive: the device would repeat the message in vain and end the lane.
        self.agree("connected", connected)
    }

    /// Waits until every rank has finished the step `what`.
    ///
    /// A rank that has failed gives its reason, which is an error on all ranks. Otherwise the others would wait for
    /// it until their deadline, and would not learn the reason.
    fn agree<T>(&mut self, what: &str, own: Result<T, CommunicatorError>) -> Result<T, CommunicatorError> {
        let key = self.key(what);
        let value = match own {
            Ok(value) => value,
            // A rank has died, so the gathering fails on all ranks, and the rendezvous names that rank. A reason
            // that this rank gives would make the others take this rank for the one at fault.
            Err(error @ CommunicatorError::Rank { .. }) => {
                return self.store.all_gather(&key, &[], self.deadline).and(Err(error));
            }
            Err(error) => {
                let reason = error.to_string();
                let reason = cut(&reason, self.store.world());
                // This rank fails anyway, so it does not wait for the whole deadline.
                let deadline = self.deadline.min(Deadline::after(REASON_WITHIN));
                if let Err(untold) = self.store.all_gather(&key, reason, deadline) {
                    crate::log::debug!(
                        %untold,
                        "not every rank learned why this rank failed to join; \
                         those wait until their deadlines"
                    );
                }
                return Err(error);
            }
        };
        let reasons = self.store.all_gather(&key, &[], self.deadline)?;
        match (0..).zip(reasons).find(|(_, reason)| !reason.is_empty()) {
            Some((rank, reason)) => {
                // The text is a peer's: control characters could forge lines of this rank's log.
                let reason = String::from_utf8_lossy(&reason).replace(char::is_control, " ");
                Err(CommunicatorError::Rank { rank, reason })
            }
            None => Ok(value),
        }
    }

    /// Gives the neighbours the blobs of this rank's ends.
    fn publish(&mut self, opened: &OpenRing) -> Result<(), CommunicatorError> {
        let rank = self.store.rank();
        for OpenLink { rank: to, blobs, .. } in &opened.neighbours {
            self.store.set(&self.key(format_args!("{rank}/{to}")), blobs, self.deadline)?;
        }
        Ok(())
    }

    /// Connects the links to the neighbours.
    fn connect(&mut self, opened: OpenRing) -> Result<Links, CommunicatorError> {
        let OpenRing { neighbours, listener } = opened;
        let (rank, world) = (self.store.rank(), self.store.world());
        let (mut links, mut blobs) = (Vec::new(), Vec::new());
        for neighbour in neighbours {
            let peer = self.peer(neighbour.rank)?;
            links.push(self.neighbour(neighbour, &peer)?);
            blobs.extend(peer.into_iter().next());
        }
        let watched: Vec<_> = links
            .iter()
            .zip(&blobs)
            .map(|(link, blob)| WatchedPeer { rank: link.rank, lane: link.lanes.first, blob })
            .collect();
        listener.connect(self.engine, &self.store.token(), rank, &watched, self.deadline);
        let job = (self.store.token().fingerprint(), self.options.epoch);
        let made = (links, self.lanes());
        let table = LinkTable::new(made, (rank, world), job, Arc::clone(&self.hosts));
        Ok(Links::new(self.ring(), (rank, world), table))
    }

    /// Connects the link to one neighbour.
    fn neighbour(&self, opened: OpenLink, peer: &[Blob]) -> Result<Link, CommunicatorError> {
        let rank = opened.rank;
        let Some(first) = peer.first() else { return Err(CommunicatorError::Introduction { rank }) };
        let overrides = self.hosts.connect_overrides([self.store.rank(), rank]);
        let connected = self.engine.lock_with(|core| opened.connect(core, peer, overrides));
        // The engine is released: to find out whether the peer has died may take a while.
        connected.map_err(|error| or_lost(error, (rank, &first.process)))
    }

    /// Reads the blobs that a neighbour has published for this rank, one for each lane.
    fn peer(&mut self, rank: u32) -> Result<Vec<Blob>, CommunicatorError> {
        let own = self.store.rank();
        let bytes = self.store.get(&self.key(format_args!("{rank}/{own}")), self.deadline)?;
        let job = self.store.token().fingerprint();
        let (blobs, _) = read_blobs(&bytes, (LinkKind::COLLECTIVE, job), self.lanes())?;
        if let Some(other) = blobs.iter().find(|blob| blob.epoch != self.options.epoch) {
            let (ours, theirs) = (self.options.epoch.to_string(), other.epoch.to_string());
            return Err(CommunicatorError::Differs { field: "epoch", rank, ours, theirs });
        }
        Ok(blobs)
    }
}

/// Names the death of the peer's process as the cause of a refused connection. The device cannot do so, because it sees
/// only that nobody answers.
fn or_lost(refused: CommunicatorError, (rank, peer): (u32, &Process)) -> CommunicatorError {
    if !peer.ends_within(EXIT_WITHIN) {
        return refused;
    }
    CommunicatorError::Rank { rank, reason: LaneFailure::Died { pid: peer.pid }.to_string() }
}

/// The part of `text` that fits a gathering in which each of `world` ranks gives as much.
pub(super) fn cut(text: &str, world: u32) -> &[u8] {
    let bytes_max = REASON_BYTES_MAX.min((GATHERED_BYTES_MAX / world.max(1) as usize).saturating_sub(4));
    &text.as_bytes()[..text.len().min(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_refused_because_the_peer_has_died_names_the_peers_rank() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id());
        let refused = || CommunicatorError::Setup(SetupError::LaneGone);
        assert!(matches!(or_lost(refused(), (3, &process)), CommunicatorError::Setup(SetupError::LaneGone)));
        child.kill().unwrap();
        let lost = or_lost(refused(), (3, &process));
        child.wait().unwrap();
        assert!(matches!(lost, CommunicatorError::Rank { rank: 3, .. }), "{lost}");
    }
}
