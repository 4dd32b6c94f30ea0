//! From the links of a ring to the windows of all ranks: offers, lanes between those that are no neighbours, and a last word whether
//! every rank could. What the system refuses is no error: the communicator has its ring then.

use std::time::{Duration, Instant};

use rdma_core::error::ReachError;
use rdma_core::{Deadline, PeerAccess, PeerWindow, RemoteKey, RemoteMemory, Window};

use super::super::connect::{CONTROL_BYTES_MAX, Setup, cut};
use super::super::ring::RingLinks;
use super::{HostGroup, RANKS_MAX};
use crate::collective::CommunicatorError;
use crate::engine::LaneId;
use crate::engine::SetupError;
use crate::link::codec::{Ended, Reader, Writer};
use crate::link::{Blob, LaneOptions, LinkKind};

/// Bytes of a window's address, length and key.
const WINDOW_BYTES: usize = 20;
/// How long the engine is held for a window that cannot be mapped yet.
const HELD_FOR: Duration = Duration::from_millis(2);

/// What this rank has for the others.
struct Offer {
    window: Window,
    /// Lanes to ranks that are no neighbours.
    lanes: Vec<(u32, LaneId)>,
}

impl Setup<'_> {
    /// The windows of all ranks, if every rank can map those of all others; otherwise none of them has any.
    pub(in crate::collective) fn host(
        &mut self,
        ring: &RingLinks,
    ) -> Result<Option<HostGroup>, CommunicatorError> {
        if self.store.world() > RANKS_MAX {
            return Ok(None);
        }
        let near = [ring.next.access, ring.previous.access] == [PeerAccess::Mapped; 2];
        let offer = if near { self.offer(ring) } else { Err(SetupError::LaneGone.into()) };
        let lanes = offer.as_ref().map_or_else(|_| Vec::new(), |offer| offer.lanes.clone());
        let made = self.exchange(ring, offer);
        if !matches!(made, Ok(Some(_))) {
            self.fence(&lanes.into_iter().map(|(_, lane)| lane).collect::<Vec<_>>());
        }
        made
    }

    fn offer(&self, ring: &RingLinks) -> Result<Offer, CommunicatorError> {
        let window = self.engine.pd().alloc_window(HostGroup::window_bytes(self.store.world()))?;
        let (epoch, control_bytes_max) = (self.options.epoch, CONTROL_BYTES_MAX);
        let mut lanes = Vec::new();
        for rank in self.strangers(self.store.rank()) {
            debug_assert!(rank != ring.next.rank && rank != ring.previous.rank);
            let options = LaneOptions { epoch, max_send_wr: 8, credits: 8, control_bytes_max };
            match self.engine.open_lane(options) {
                Ok(lane) => lanes.push((rank, lane)),
                Err(error) => {
                    self.fence(&lanes.iter().map(|(_, lane)| *lane).collect::<Vec<_>>());
                    return Err(error.into());
                }
            }
        }
        Ok(Offer { window, lanes })
    }

    /// The ranks that are no neighbours of `rank`.
    fn strangers(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let world = self.store.world();
        (0..world).filter(move |other| {
            !matches!((other + world - rank) % world, 0 | 1) && (other + 1) % world != rank
        })
    }

    fn exchange(
        &mut self,
        ring: &RingLinks,
        offer: Result<Offer, CommunicatorError>,
    ) -> Result<Option<HostGroup>, CommunicatorError> {
        let encoded = offer.and_then(|offer| Ok((self.encode(&offer)?, offer)));
        if let Err(error) = &encoded {
            tracing::debug!(%error, "this rank has no window for the others");
        }
        let key = self.key("windows");
        let own = encoded.as_ref().map_or(&[][..], |(bytes, _)| bytes);
        let told = self.store.all_gather(&key, own, self.deadline)?;
        let without = told.iter().position(Vec::is_empty);
        let (Ok((_, offer)), None) = (encoded, without) else {
            tracing::debug!(
                rank = without,
                "no mailboxes between ranks: one cannot map the memory of all others"
            );
            return Ok(None);
        };
        let mut windows = Vec::new();
        let mut connected = Ok(());
        for (rank, bytes) in (0..).zip(&told) {
            let (window, blob) = self.decode(rank, bytes)?;
            windows.push(window);
            if let (Some(blob), Some((_, lane))) = (blob, offer.lanes.iter().find(|(to, _)| *to == rank)) {
                connected = connected.and(self.connect_stranger(*lane, (rank, &blob)));
            }
        }
        // Without lanes of its own no rank waits for another here.
        if !offer.lanes.is_empty() && self.all_could("windows/connected", connected)?.is_none() {
            return Ok(None);
        }
        let mapped = self.map(ring, &offer, &windows);
        let peers = self.all_could("windows/mapped", mapped)?;
        Ok(peers.map(|peers| {
            let lanes = (0..self.store.world()).map(|rank| self.lane_to(ring, &offer.lanes, rank)).collect();
            HostGroup::new(offer.window, peers, lanes)
        }))
    }

    /// Its neighbours tell of a rank that is silent: nothing is said here.
    fn connect_stranger(&self, lane: LaneId, (rank, blob): (u32, &Blob)) -> Result<(), CommunicatorError> {
        let mut core = self.engine.lock();
        core.connect_lane_as(lane, blob, Instant::now(), self.hosts.manner([self.store.rank(), rank]))?;
        if let Some(lane) = core.lane(lane) {
            lane.set_quiet(true);
        }
        Ok(())
    }

    /// What was made, if every rank could; who could not says why.
    fn all_could<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        own: Result<T, E>,
    ) -> Result<Option<T>, CommunicatorError> {
        let reason = own.as_ref().map_or_else(ToString::to_string, |_| String::new());
        let key = self.key(what);
        let reasons = self.store.all_gather(&key, cut(&reason, self.store.world()), self.deadline)?;
        if let Some((rank, reason)) = reasons.iter().enumerate().find(|(_, reason)| !reason.is_empty()) {
            let reason = String::from_utf8_lossy(reason).replace(char::is_control, " ");
            tracing::info!("No mailboxes between the ranks of this host, since rank {rank} says: {reason}");
            return Ok(None);
        }
        Ok(own.ok())
    }

    fn encode(&self, offer: &Offer) -> Result<Vec<u8>, CommunicatorError> {
        let RemoteMemory { addr, len, rkey } = offer.window.remote();
        let mut bytes = vec![0; WINDOW_BYTES];
        let mut writer = Writer::new(&mut bytes);
        let written = writer.u64(addr).and_then(|()| writer.u64(len)).and_then(|()| writer.u32(rkey.0));
        debug_assert!(written.is_ok(), "there is room for it");
        for (_, lane) in &offer.lanes {
            bytes.extend(self.blob(*lane, Vec::new(), Vec::new())?);
        }
        Ok(bytes)
    }

    /// What `rank` has told: its window, and where this rank's lane to it leads unless it is a neighbour.
    fn decode(&self, rank: u32, bytes: &[u8]) -> Result<(RemoteMemory, Option<Blob>), CommunicatorError> {
        let malformed = |_: Ended| CommunicatorError::Introduction { rank };
        let mut reader = Reader::new(bytes);
        let (addr, len) = (reader.u64().map_err(malformed)?, reader.u64().map_err(malformed)?);
        let rkey = RemoteKey(reader.u32().map_err(malformed)?);
        if len < HostGroup::window_bytes(self.store.world()) as u64 {
            return Err(CommunicatorError::Introduction { rank });
        }
        let (mut rest, mut own) = (reader.rest(), None);
        for to in self.strangers(rank) {
            let (blob, behind) = Blob::decode(rest, LinkKind::COLLECTIVE, self.store.token().fingerprint())?;
            rest = behind;
            own = own.or((to == self.store.rank()).then_some(blob));
        }
        if !rest.is_empty() {
            return Err(CommunicatorError::Introduction { rank });
        }
        Ok((RemoteMemory { addr, len, rkey }, own))
    }

    /// By rank.
    fn map(
        &self,
        ring: &RingLinks,
        offer: &Offer,
        windows: &[RemoteMemory],
    ) -> Result<Vec<Option<PeerWindow>>, ReachError> {
        let map = |(rank, window): (u32, &RemoteMemory)| match self.lane_to(ring, &offer.lanes, rank) {
            Some(lane) => self.map_one(lane, *window).map(Some),
            None => Ok(None),
        };
        (0..).zip(windows).map(map).collect()
    }

    fn lane_to(&self, ring: &RingLinks, others: &[(u32, LaneId)], rank: u32) -> Option<LaneId> {
        let near = [(ring.next.rank, ring.next.lane), (ring.previous.rank, ring.previous.lane)];
        let mut lanes = near.into_iter().chain(others.iter().copied());
        let found = lanes.find(|(to, _)| *to == rank && rank != self.store.rank());
        found.map(|(_, lane)| lane)
    }

    /// Lets the engine go on in between.
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
