//! Set-up of a [`HostGroup`]: every rank offers its window, connects a lane to each rank that is not its neighbour, and
//! maps the windows of all others.
//!
//! After each step the ranks gather who failed, so that either all of them have a group or none has. A refusal of the
//! system is not an error: the communicator works over its ring then.

use std::time::{Duration, Instant};

use rdma_core::error::ReachError;
use rdma_core::{Deadline, PeerAccess, PeerWindow, RemoteKey, RemoteMemory, Window};

use super::super::connect::{CONTROL_BYTES_MAX, Setup, cut};
use super::super::links::Links;
use super::{HostGroup, RANKS_MAX};
use crate::collective::CommunicatorError;
use crate::engine::LaneId;
use crate::engine::SetupError;
use crate::link::codec::{Ended, Reader, Writer};
use crate::link::{Blob, FIRST_RAIL, LaneOptions, LinkKind};

/// Encoded bytes of a window's address, length and key.
const WINDOW_BYTES: usize = 20;
/// How long one attempt to map a window may hold the engine's lock. Other communicators of the engine stand still
/// meanwhile.
const HELD_FOR: Duration = Duration::from_millis(2);

/// A rank's window and lanes, before the other ranks know of them.
struct Offer {
    window: Window,
    /// Lanes to the ranks that are not ring neighbours, with their ranks.
    lanes: Vec<(u32, LaneId)>,
}

impl Setup<'_> {
    /// Makes the group if every rank can map the windows of all others; otherwise no rank has a group.
    pub(in crate::collective) fn host(
        &mut self,
        links: &Links,
    ) -> Result<Option<HostGroup>, CommunicatorError> {
        // Every rank knows the size of the world, so all ranks skip the gatherings below together.
        if self.store.world() > RANKS_MAX {
            return Ok(None);
        }
        let mapped = links.table.links().all(|link| link.access == PeerAccess::Mapped);
        // A rank that shares no memory with its neighbours still gathers with the others: they wait for its offer.
        let offer = if mapped { self.offer(links) } else { Err(SetupError::LaneGone.into()) };
        let lanes = offer.as_ref().map_or_else(|_| Vec::new(), |offer| offer.lanes.clone());
        let made = self.exchange(links, offer);
        // Without a group nothing uses these lanes, and they would hold queue pairs of the device.
        if !matches!(made, Ok(Some(_))) {
            self.fence(&lanes.into_iter().map(|(_, lane)| lane).collect::<Vec<_>>());
        }
        made
    }

    /// Allocates this rank's window, and opens a lane to each rank that is not a neighbour.
    fn offer(&self, links: &Links) -> Result<Offer, CommunicatorError> {
        let window = self.engine.pd().alloc_window(HostGroup::window_bytes(self.store.world()))?;
        let (epoch, control_bytes_max) = (self.options.epoch, CONTROL_BYTES_MAX);
        let mut lanes = Vec::new();
        for rank in self.non_neighbours(self.store.rank()) {
            debug_assert!(links.table.link(rank).is_none());
            let options = LaneOptions { epoch, max_send_wr: 8, credits: 8, control_bytes_max };
            match self.engine.open_lane(FIRST_RAIL, options) {
                Ok(lane) => lanes.push((rank, lane)),
                Err(error) => {
                    self.fence(&lanes.iter().map(|(_, lane)| *lane).collect::<Vec<_>>());
                    return Err(error.into());
                }
            }
        }
        Ok(Offer { window, lanes })
    }

    /// The ranks that are not ring neighbours of `rank`, nor `rank` itself.
    fn non_neighbours(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let world = self.store.world();
        (0..world).filter(move |other| {
            !matches!((other + world - rank) % world, 0 | 1) && (other + 1) % world != rank
        })
    }

    /// Exchanges the offers, connects the lanes and maps the windows.
    ///
    /// All ranks return `None`, or all return a group. Errors are those of the rendezvous, or a malformed offer.
    fn exchange(
        &mut self,
        links: &Links,
        offer: Result<Offer, CommunicatorError>,
    ) -> Result<Option<HostGroup>, CommunicatorError> {
        let encoded = offer.and_then(|offer| Ok((self.encode(&offer)?, offer)));
        if let Err(error) = &encoded {
            crate::log::debug!(
                %error,
                "this rank cannot offer a shared-memory window; the ranks of this host use their ring"
            );
        }
        let key = self.key("windows");
        // An empty offer says that this rank has no window.
        let own = encoded.as_ref().map_or(&[][..], |(bytes, _)| bytes);
        let told = self.store.all_gather(&key, own, self.deadline)?;
        let without = told.iter().position(Vec::is_empty);
        let (Ok((_, offer)), None) = (encoded, without) else {
            crate::log::debug!(
                rank = without,
                "no shared-memory mailboxes: a rank cannot map the memory of all others; all ranks use their ring"
            );
            return Ok(None);
        };
        let mut windows = Vec::new();
        let mut connected = Ok(());
        for (rank, bytes) in (0..).zip(&told) {
            let (window, blob) = self.decode(rank, bytes)?;
            windows.push(window);
            // A failure is kept for the gathering: the other ranks wait for this rank's verdict.
            if let (Some(blob), Some((_, lane))) = (blob, offer.lanes.iter().find(|(to, _)| *to == rank)) {
                connected = connected.and(self.connect_non_neighbour(*lane, (rank, &blob)));
            }
        }
        // All ranks skip this gathering together: how many ranks are not neighbours depends on the world's size alone.
        if !offer.lanes.is_empty() && self.all_succeeded("windows/connected", connected)?.is_none() {
            return Ok(None);
        }
        // A window is mapped through its lane, so every lane must be connected at both ends before.
        let mapped = self.map(links, &offer, &windows);
        let peers = self.all_succeeded("windows/mapped", mapped)?;
        Ok(peers.map(|peers| {
            let lanes = (0..self.store.world()).map(|rank| self.lane_to(links, &offer.lanes, rank)).collect();
            HostGroup::new(offer.window, peers, lanes)
        }))
    }

    /// Connects a lane to a rank that is not a neighbour. The lane sends no heartbeats: the ring's lanes already find a
    /// silent rank, and its neighbours report it.
    fn connect_non_neighbour(
        &self,
        lane: LaneId,
        (rank, blob): (u32, &Blob),
    ) -> Result<(), CommunicatorError> {
        let mut core = self.engine.lock();
        core.connect_lane_as(
            lane,
            blob,
            Instant::now(),
            self.hosts.connect_overrides([self.store.rank(), rank]),
        )?;
        if let Some(lane) = core.lane(lane) {
            lane.set_quiet(true);
        }
        Ok(())
    }

    /// Gathers whether every rank made its part. Returns this rank's part if all did; `None` on all ranks otherwise.
    fn all_succeeded<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        own: Result<T, E>,
    ) -> Result<Option<T>, CommunicatorError> {
        let reason = own.as_ref().map_or_else(ToString::to_string, |_| String::new());
        let key = self.key(what);
        let reasons = self.store.all_gather(&key, cut(&reason, self.store.world()), self.deadline)?;
        if let Some((rank, reason)) = reasons.iter().enumerate().find(|(_, reason)| !reason.is_empty()) {
            // The text is a peer's: control characters could forge lines of this rank's log.
            let reason = String::from_utf8_lossy(reason).replace(char::is_control, " ");
            crate::log::info!(
                "No shared-memory mailboxes: rank {rank} has failed ({reason}); all ranks use their ring"
            );
            return Ok(None);
        }
        Ok(own.ok())
    }

    /// Encodes an offer: the window, and a blob for each rank that is not a neighbour, in order of rank.
    fn encode(&self, offer: &Offer) -> Result<Vec<u8>, CommunicatorError> {
        let RemoteMemory { addr, len, rkey } = offer.window.remote();
        let mut bytes = vec![0; WINDOW_BYTES];
        let mut writer = Writer::new(&mut bytes);
        let written = writer.u64(addr).and_then(|()| writer.u64(len)).and_then(|()| writer.u32(rkey.0));
        debug_assert!(written.is_ok(), "there is room for it");
        for (_, lane) in &offer.lanes {
            let job = self.store.token().fingerprint();
            bytes.extend(self.engine.blob(*lane, LinkKind::COLLECTIVE, job)?.encode()?);
        }
        Ok(bytes)
    }

    /// Decodes the offer of `rank`: its window, and the blob for this rank unless the two are ring neighbours.
    fn decode(&self, rank: u32, bytes: &[u8]) -> Result<(RemoteMemory, Option<Blob>), CommunicatorError> {
        let malformed = |_: Ended| CommunicatorError::Introduction { rank };
        let mut reader = Reader::new(bytes);
        let (addr, len) = (reader.u64().map_err(malformed)?, reader.u64().map_err(malformed)?);
        let rkey = RemoteKey(reader.u32().map_err(malformed)?);
        // The lengths come from the wire. A window that is too short would fail in the middle of an operation.
        if len < HostGroup::window_bytes(self.store.world()) as u64 {
            return Err(CommunicatorError::Introduction { rank });
        }
        // Blobs carry no rank: sender and receiver know the same ranks that are not the sender's neighbours.
        let (mut rest, mut own) = (reader.rest(), None);
        for to in self.non_neighbours(rank) {
            let (blob, behind) = Blob::decode(rest, LinkKind::COLLECTIVE, self.store.token().fingerprint())?;
            rest = behind;
            own = own.or((to == self.store.rank()).then_some(blob));
        }
        if !rest.is_empty() {
            return Err(CommunicatorError::Introduction { rank });
        }
        Ok((RemoteMemory { addr, len, rkey }, own))
    }

    /// Maps the windows of all other ranks, by rank.
    fn map(
        &self,
        links: &Links,
        offer: &Offer,
        windows: &[RemoteMemory],
    ) -> Result<Vec<Option<PeerWindow>>, ReachError> {
        let map = |(rank, window): (u32, &RemoteMemory)| match self.lane_to(links, &offer.lanes, rank) {
            Some(lane) => self.map_one(lane, *window).map(Some),
            None => Ok(None),
        };
        (0..).zip(windows).map(map).collect()
    }

    /// The lane to `rank`: one of the ring's or one of `others`; `None` for this rank itself.
    fn lane_to(&self, links: &Links, others: &[(u32, LaneId)], rank: u32) -> Option<LaneId> {
        let neighbour = links.table.link(rank).map(|link| link.lanes.first);
        neighbour.or_else(|| others.iter().find(|(to, _)| *to == rank).map(|(_, lane)| *lane))
    }

    /// Maps one window. The peer may not be ready to grant it yet, so this tries again until the deadline. It
    /// releases and drives the engine between two attempts, because other work of the engine must go on.
    fn map_one(&self, lane: LaneId, window: RemoteMemory) -> Result<PeerWindow, ReachError> {
        loop {
            let until = self.deadline.min(Deadline::after(HELD_FOR));
            let mapped = self.engine.lock_with(|core| core.peer_window(lane, window, until));
            match mapped {
                Err(ReachError::DeadlineExceeded { .. }) if !self.deadline.expired() => {
                    self.engine.lock_with(|core| core.drive(Instant::now, 64));
                    std::thread::yield_now();
                }
                outcome => return outcome,
            }
        }
    }
}
