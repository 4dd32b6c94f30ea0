//! The link: one lane between a source pool and a destination pool, as both state machines use it.
//!
//! `prepare` sets a link up, and `payload` describes a pool in a blob. Lanes themselves belong to [`crate::link`].

mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod payload;
mod prepare;
#[cfg(test)]
#[path = "tests/trust/mod.rs"]
mod trust;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess, ProtectionDomain, RemoteMemory};

use super::keep_alive::Signs;
use super::plan::{Cover, Route};
use super::pool::{PeerKeys, Pieces};
use super::staging::Staging;
use crate::engine::{EngineState, LaneId};
use crate::kv::KvError;
use crate::link::Lane;
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::{ENVELOPE_BYTES, Kind};
use crate::link::{LaneFailure, LaneName, PeerName};
use crate::metrics::{self, Present};

pub use error::LinkError;
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub use prepare::Prepared;
pub(super) use prepare::{Opening, incarnation};

/// Longest message of any device: 2 GiB. The maximum that a port reports is not reliable, so it is not used.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Options of a KV link; `docs/defaults.md` has the reason of each default.
///
/// The argument of [`Decode::new`](crate::kv::Decode::new) and [`Prefill::new`](crate::kv::Prefill::new).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// Most writes outstanding (128), which is enough to keep a link busy.
    pub max_send_wr: u32,
    /// Messages that the peer may send before this end returns their receives (320). Fewer than twice the peer's
    /// `max_send_wr` throttle it.
    pub credits: u32,
    /// Longest control message in bytes (1024), from 128 to 65547. Longer lists of blocks go in several messages.
    pub control_bytes_max: u32,
    /// Longest write in bytes (1 MiB), at most 2 GiB. Adjacent blocks are merged up to it.
    pub write_bytes_max: u32,
    /// Pieces shorter than this are packed into longer writes (4 KiB; 0 packs none), where heads of several tokens do
    /// not lie together at both ends. Each end then takes 2 MiB. The value at prefill decides, unless decode has 0.
    pub pack_bytes: u32,
    /// Whether decode checks blocks by CRC-32C (no). Both sides then read each block once more. The value at the
    /// destination decides.
    pub checksums: bool,
    /// Whether prefill may write the blocks of its grants alone (no), so that the device refuses every other write, and
    /// every write after the grant has ended. The value at the destination decides, and a source ignores its own.
    ///
    /// Needs the software device: [`LinkError::NotStrict`] elsewhere. The trap: on one host, blocks go over TCP then
    /// instead of through mapped memory, whatever `peer_access` says, because only decode itself checks the blocks.
    pub strict: bool,
    /// Time from the begin of a transfer for which its deadline is moved at most while the peer is alive (none: no
    /// deadline moves by itself), for requests without a [`Request::keep_alive`](crate::kv::Request::keep_alive) of
    /// their own. Each end keeps its own transfers alive.
    pub keep_alive: Option<Duration>,
    /// Time that dropping an end may wait for its last messages to arrive (1 s).
    pub linger: Duration,
    /// The rail of this end (0): the number of a device among those that the engine is
    /// [over](crate::engine::Engine::over), from 0.
    ///
    /// All bytes of the link go over that device, and the link ends with it. The trap: the other end must have a rail
    /// that this one reaches. A [`KvNode`](crate::kv::KvNode) ignores it, because it spreads its links by itself.
    pub rail: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            credits: 320,
            control_bytes_max: 1024,
            write_bytes_max: 1 << 20,
            pack_bytes: 4096,
            checksums: false,
            strict: false,
            keep_alive: None,
            linger: Duration::from_secs(1),
            rail: 0,
        }
    }
}

/// An open link, as both ends know it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) lane: LaneId,
    /// The rail of the lane, and its domain.
    pub(super) rail: usize,
    pub(super) pd: ProtectionDomain,
    pub(super) name: LaneName,
    pub(super) peer: PeerName,
    pub(super) access: PeerAccess,
    /// The route from the pool of prefill to that of decode.
    pub(super) route: Arc<Route>,
    /// The part of decode's layers and heads that the route brings.
    pub(super) cover: Arc<Cover>,
    /// Address of the peer's pool, if this side may write or read it; without keys on a strict link.
    pub(super) remote: Option<Pieces<RemoteMemory>>,
    /// Whether each grant brings its own keys.
    pub(super) strict: bool,
    /// Memory in which prefill packs short pieces, and into which it writes those that decode unpacks, if the route has
    /// short pieces.
    pub(super) staging: Option<Staging>,
    /// Memory into which decode reads pieces to unpack them, if it may read and the route has short pieces.
    pub(super) inbox: Option<Staging>,
    /// Keys by which the peer reaches the pool of this end.
    pub(super) keys: PeerKeys,
    /// Transfers that have begun to wait for the peer since the last drive.
    pub(super) waits: u32,
    /// Reason of the end, once the link has ended.
    pub(super) ended: Option<LaneFailure>,
    /// Whether the link has ended, for whoever must not wait for the state machine.
    pub(super) over: Arc<AtomicBool>,
    /// Connection over which the ends met, if they met over TCP. It stays open as long as this end, so that the peer
    /// notices when this process dies.
    pub(super) _control: Option<TcpStream>,
    pub(super) present: Present,
}

/// Shortest bound on control messages: 128 bytes, which is room for the fixed part of any message and a few numbers.
const CONTROL_BYTES_MIN: u32 = 128;

impl Link {
    /// The lane; `None` once it is gone.
    pub(super) fn lane<'c>(&self, core: &'c mut EngineState) -> Option<&'c mut Lane> {
        core.lane(self.lane)
    }

    /// Fails once the link has ended, as no transfer can begin then.
    pub(super) fn check(&self) -> Result<(), KvError> {
        match &self.ended {
            Some(cause) => Err(KvError::LinkEnded { peer: self.peer.clone(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Number of keys at the end of each grant: on a strict link one for each piece of decode's pool.
    pub(super) fn keys_of_a_grant(&self) -> usize {
        self.remote.as_ref().filter(|_| self.strict).map_or(0, |pool| pool.iter().len())
    }

    /// Logs that a link is ended because the peer did not answer, although neither end had lost it.
    pub(super) fn warn_unanswered(&self) {
        crate::log::warn!(
            peer = %self.peer,
            lane = %self.name,
            "the peer did not stop a transfer that was given up in time: the link is ended, and its other transfers with it"
        );
    }

    /// Fences the lane and ends the keys of the link, so that no byte lands any more, be it over this lane or over
    /// another queue pair. Returns `false` when the device refused; the caller must quarantine the blocks then.
    pub(super) fn end(&mut self, core: &mut EngineState, cause: LaneFailure) -> bool {
        if self.ended.is_none() {
            if matches!(cause, LaneFailure::Closed | LaneFailure::Fenced) {
                crate::log::info!(peer = %self.peer, lane = %self.name, %cause, "a KV link is down");
            } else {
                crate::log::warn!(peer = %self.peer, lane = %self.name, %cause, "a KV link is down");
            }
            if cause.is_refused_access() {
                metrics::kv_late_write();
            }
            self.present.end();
            self.ended = Some(cause);
            self.over.store(true, Ordering::Release);
        }
        let fenced = core.fence_lane(self.lane, Deadline::after(FENCE_WITHIN));
        if let Err(error) = &fenced {
            crate::log::error!(peer = %self.peer, %error, "the device did not end a lane; its blocks are quarantined");
        }
        // The keys come last: once the lane is gone, no peer that keeps to the protocol is at the memory, so that this
        // waits for nobody while the engine is locked.
        let ended = self.keys.end();
        if let Err(error) = &ended {
            crate::log::error!(peer = %self.peer, %error, "the device did not end a key of a link; its blocks are quarantined");
        }
        fenced.is_ok() && ended.is_ok()
    }

    /// The moment at which the peer was last heard; `None` once the lane is gone.
    pub(super) fn heard_at(&self, core: &mut EngineState) -> Option<Instant> {
        self.lane(core).map(|lane| lane.heard_at())
    }

    /// The signs of life of the peer; `None` once the lane is gone.
    pub(super) fn signs(&self, core: &mut EngineState) -> Option<Signs> {
        let beat = core.heartbeat();
        self.lane(core).map(|lane| Signs { heard: lane.sign_at(), beat })
    }

    /// Has the lane watch the peer for the transfers that have begun since the last drive.
    pub(super) fn watch(&mut self, core: &mut EngineState, now: Instant) {
        let waits = std::mem::take(&mut self.waits);
        if let Some(lane) = self.lane(core) {
            (0..waits).for_each(|_| lane.watch(now));
        }
    }

    /// Notes that a transfer waits for the peer no more.
    pub(super) fn unwatch(&self, core: &mut EngineState) {
        if let Some(lane) = self.lane(core) {
            lane.unwatch();
        }
    }

    /// Turns a breach of the protocol into a violation of the lane, which ends the link.
    pub(super) fn or_violation(&self, core: &mut EngineState, happened: Result<bool, &'static str>) -> bool {
        happened.unwrap_or_else(|what| {
            if let Some(lane) = self.lane(core) {
                lane.violation(what);
            }
            true
        })
    }

    /// Reason of the lane's end, unless the link has ended already.
    pub(super) fn lost(&self, core: &mut EngineState) -> Option<LaneFailure> {
        match self.lane(core) {
            _ if self.ended.is_some() => None,
            Some(lane) => lane.ended(),
            None => Some(LaneFailure::Fenced),
        }
    }

    /// Queues a control message. Returns `false` when the lane has no room; the caller tries again in a later drive.
    pub(super) fn send(
        &self,
        core: &mut EngineState,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> bool {
        self.lane(core).is_some_and(|lane| matches!(lane.control(kind, body), Ok(true)))
    }

    /// Bytes of a note that fit into one control message.
    pub(super) fn note_room(&self, core: &mut EngineState) -> usize {
        let bytes = self.lane(core).map_or(0, |lane| lane.control_bytes_max());
        bytes.saturating_sub(ENVELOPE_BYTES + super::message::NotePiece::HEAD_BYTES)
    }

    /// Count of 32-bit numbers that fit into one control message.
    pub(super) fn list_room(&self, core: &mut EngineState) -> usize {
        let bytes = self.lane(core).map_or(0, |lane| lane.control_bytes_max());
        bytes.saturating_sub(ENVELOPE_BYTES + super::message::LIST_AT_MOST) / 4
    }
}

/// Time that the device may take to flush a lane that is ended: 1 s. After that the lane is destroyed, which ends it
/// too.
const FENCE_WITHIN: Duration = Duration::from_secs(1);
