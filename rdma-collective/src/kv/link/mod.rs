//! One lane between a source and a destination pool: what both ends know of it, and its end.
//!
//! How it comes to be is `prepare`'s; what one end says of its pool before, `payload`'s.

mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod payload;
mod prepare;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess, RemoteMemory};

use super::layout::Layout;
use crate::engine::{Core, LaneId};
use crate::kv::KvError;
use crate::link::Lane;
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::{ENVELOPE_BYTES, Kind};
use crate::link::{LaneFailure, LaneName, PeerName};

pub use error::LinkError;
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub(super) use prepare::Opening;
pub use prepare::Prepared;

/// How a KV link is made; each default is argued in `docs/defaults.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkOptions {
    /// Counts the links there have been to this peer (0); alike on both ends.
    pub epoch: u32,
    /// Writes outstanding (128): enough to keep a link busy.
    pub max_send_wr: u32,
    /// Messages that the peer may have sent before receives are returned to it (320). Fewer than twice its
    /// `max_send_wr` throttle it.
    pub credits: u32,
    /// The longest control message (1024 bytes), 64 to 65547; lists of blocks are cut to it.
    pub control_bytes_max: u32,
    /// The longest write (1 MiB), at most 2 GiB; adjacent blocks are merged up to it.
    pub write_bytes_max: u32,
    /// Whether blocks are checked by checksum, which reads them once more on both sides (no); the destination decides.
    pub checksums: bool,
    /// How long dropping an end may wait for what it has sent to arrive (1 s).
    pub linger: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            epoch: 0,
            max_send_wr: 128,
            credits: 320,
            control_bytes_max: 1024,
            write_bytes_max: 1 << 20,
            checksums: false,
            linger: Duration::from_secs(1),
        }
    }
}

/// An open link, as both ends know it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) lane: LaneId,
    pub(super) name: LaneName,
    pub(super) peer: PeerName,
    pub(super) access: PeerAccess,
    /// The peer's pool, and where it is if it may be written.
    pub(super) theirs: Layout,
    pub(super) remote: Option<RemoteMemory>,
    /// Why it has ended.
    pub(super) ended: Option<LaneFailure>,
    /// The connection over which the ends met, if they did so; open as long as this end is.
    pub(super) _control: Option<TcpStream>,
}

/// The shortest control messages: room for the fixed part of any, and a few numbers.
const CONTROL_BYTES_MIN: u32 = 64;

impl Link {
    /// The lane, while there is one.
    pub(super) fn lane<'c>(&self, core: &'c mut Core) -> Option<&'c mut Lane> {
        core.lane(self.lane)
    }

    /// That transfers can be begun.
    pub(super) fn check(&self) -> Result<(), KvError> {
        match &self.ended {
            Some(cause) => Err(KvError::LinkEnded { peer: self.peer, cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Says why a link is ended that both ends would have gone on with.
    pub(super) fn say_unanswered(&self) {
        tracing::warn!(
            peer = %self.peer,
            lane = %self.name,
            "what was given up was not answered in time: the link is ended, and its other transfers with it"
        );
    }

    /// Fences the lane, so that nothing of its transfers lands any more. When it is `false` the device did not do so,
    /// and what they use stays in use.
    pub(super) fn end(&mut self, core: &mut Core, cause: LaneFailure) -> bool {
        if self.ended.is_none() {
            if matches!(cause, LaneFailure::Closed | LaneFailure::Fenced) {
                tracing::info!(peer = %self.peer, lane = %self.name, %cause, "a KV link is down");
            } else {
                tracing::warn!(peer = %self.peer, lane = %self.name, %cause, "a KV link is down");
            }
            self.ended = Some(cause);
        }
        let fenced = core.fence_lane(self.lane, Deadline::after(FENCE_WITHIN));
        if let Err(error) = &fenced {
            tracing::error!(peer = %self.peer, %error, "a lane could not be ended");
        }
        fenced.is_ok()
    }

    /// When the peer was heard last, while there is a lane.
    pub(super) fn heard_at(&self, core: &mut Core) -> Option<Instant> {
        self.lane(core).map(|lane| lane.heard_at())
    }

    /// Queues a control message; `false` when it has to wait.
    pub(super) fn tell(
        &self,
        core: &mut Core,
        kind: Kind,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> bool {
        self.lane(core).is_some_and(|lane| matches!(lane.control(kind, body), Ok(true)))
    }

    /// Numbers of a list that fit into one control message.
    pub(super) fn list_room(&self, core: &mut Core) -> usize {
        let bytes = self.lane(core).map_or(0, |lane| lane.control_bytes_max());
        bytes.saturating_sub(ENVELOPE_BYTES + super::message::LIST_AT_MOST) / 4
    }
}

/// How long the device may take to flush a lane that is ended; beyond it its destruction ends it.
const FENCE_WITHIN: Duration = Duration::from_secs(1);
