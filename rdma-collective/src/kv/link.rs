//! One lane between a source and a destination pool: how it comes to be, what both ends know of it, and its end.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess, RemoteMemory};

use super::layout::{Layout, Shape};
use super::pool::{Pool, PoolUse};
use crate::comm::bootstrap::JobToken;
use crate::comm::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::comm::link::control::{ENVELOPE_BYTES, Kind, MESSAGE_BYTES_MAX};
use crate::comm::link::handshake::{Meet, meet};
use crate::comm::link::{Blob, Lane, LaneOptions, LinkKind};
use crate::comm::{Core, Engine, LaneId};
use crate::error::{KvError, LaneFailure, LaneName, LayoutError, SetupError};

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
    /// The longest control message (1024 bytes), 64 to 65543; lists of blocks are cut to it.
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

/// Where a link meets, and until when.
pub(super) struct Opening<'a> {
    pub(super) engine: &'a Engine,
    pub(super) pool: &'a Pool,
    pub(super) purpose: PoolUse,
    pub(super) token: &'a JobToken,
    pub(super) options: &'a LinkOptions,
    pub(super) deadline: Deadline,
}

/// An open link, as both ends know it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) lane: LaneId,
    pub(super) name: LaneName,
    pub(super) peer: SocketAddr,
    pub(super) access: PeerAccess,
    /// The peer's pool, and where it is if it may be written.
    pub(super) theirs: Layout,
    pub(super) remote: Option<RemoteMemory>,
    /// Why it has ended.
    pub(super) ended: Option<LaneFailure>,
    /// Open as long as this end is.
    _control: TcpStream,
}

/// What one end says of its pool.
struct Payload {
    purpose: PoolUse,
    shape: Shape,
    hash: u64,
}

impl Opening<'_> {
    /// Meets the peer, compares pools, and connects a lane.
    pub(super) fn open(&self, how: &Meet<'_>) -> Result<Link, SetupError> {
        let (needed, given) = (self.purpose, self.pool.purpose());
        if needed != given {
            return Err(SetupError::WrongUse { needed, given });
        }
        let options = LaneOptions {
            epoch: self.options.epoch,
            max_send_wr: self.options.max_send_wr.max(8),
            credits: self.options.credits.max(4),
            control_bytes_max: self.options.control_bytes_max.clamp(CONTROL_BYTES_MIN, MESSAGE_BYTES_MAX),
        };
        let lane = self.engine.lock().open_lane(options)?;
        let opened = self.connect(lane, how);
        if opened.is_err()
            && let Err(error) = self.engine.lock().fence_lane(lane, self.deadline)
        {
            tracing::warn!(%error, "a lane that was set up in vain stays until the engine goes");
        }
        opened
    }

    fn connect(&self, lane: LaneId, how: &Meet<'_>) -> Result<Link, SetupError> {
        let mut met = meet(how, self.token, self.deadline)?;
        let blob = self.blob(lane)?;
        let bytes = met.exchange(&blob)?;
        let (peer, _) = Blob::decode(&bytes, LinkKind::KV, self.token.fingerprint())?;
        let (theirs, remote) = self.check(&peer)?;
        let (name, access) = {
            let mut core = self.engine.lock();
            core.connect_lane(lane, &peer, Instant::now())?;
            let access = core.peer_access(lane)?;
            (core.lane(lane).ok_or(SetupError::LaneGone)?.name(), access)
        };
        let peer = met.peer();
        Ok(Link { lane, name, peer, access, theirs, remote, ended: None, _control: met.ready()? })
    }

    fn blob(&self, lane: LaneId) -> Result<Vec<u8>, SetupError> {
        let core = self.engine.lock();
        let lane = core.opening(lane).ok_or(SetupError::LaneGone)?;
        let regions = match self.purpose {
            PoolUse::Source => Vec::new(),
            PoolUse::Destination => vec![self.pool.region().remote()],
        };
        let blob = Blob {
            kind: LinkKind::KV,
            job: self.token.fingerprint(),
            epoch: self.options.epoch,
            soft: self.engine.context().is_soft(),
            endpoint: lane.endpoint(),
            credits: lane.options().credits,
            control_bytes_max: lane.options().control_bytes_max,
            regions,
            payload: Payload::of(self.pool).encode(),
        };
        Ok(blob.encode()?)
    }

    /// That the peer's pool goes with ours.
    fn check(&self, peer: &Blob) -> Result<(Layout, Option<RemoteMemory>), SetupError> {
        let payload = Payload::decode(&peer.payload)?;
        if payload.purpose == self.purpose {
            return Err(SetupError::SameUse(self.purpose));
        }
        let kind = |soft: bool| if soft { "the software device" } else { "an RDMA device" }.to_owned();
        let differs = |field, ours: String, theirs: String| {
            Err(SetupError::Layout(LayoutError::Differs { field, ours, theirs }))
        };
        if peer.epoch != self.options.epoch {
            return differs("epoch", self.options.epoch.to_string(), peer.epoch.to_string());
        }
        if peer.soft != self.engine.context().is_soft() {
            return differs("device", kind(!peer.soft), kind(peer.soft));
        }
        if peer.control_bytes_max < CONTROL_BYTES_MIN {
            return Err(SetupError::Peer { field: "longest control message" });
        }
        self.pool.layout().shape().check_same(&payload.shape)?;
        if payload.hash != payload.shape.layout_hash().0 {
            return Err(SetupError::Peer { field: "layout hash" });
        }
        let theirs = Layout::new(payload.shape)?;
        let remote = match (payload.purpose, &peer.regions[..]) {
            (PoolUse::Source, []) => None,
            (PoolUse::Destination, [region]) => {
                theirs.check_memory(region.len)?;
                Some(*region)
            }
            _ => return Err(SetupError::Peer { field: "list of regions" }),
        };
        Ok((theirs, remote))
    }
}

/// The shortest control messages: room for the fixed part of any, and a few numbers.
const CONTROL_BYTES_MIN: u32 = 64;

impl Payload {
    fn of(pool: &Pool) -> Self {
        let shape = *pool.layout().shape();
        Self { purpose: pool.purpose(), shape, hash: shape.layout_hash().0 }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4 + Shape::ENCODED_BYTES + 8];
        bytes[0] = match self.purpose {
            PoolUse::Source => 1,
            PoolUse::Destination => 2,
        };
        bytes[4..4 + Shape::ENCODED_BYTES].copy_from_slice(&self.shape.encode());
        bytes[4 + Shape::ENCODED_BYTES..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, SetupError> {
        let ended = |Ended| SetupError::Peer { field: "description of its pool" };
        let mut reader = Reader::new(bytes);
        let purpose = match reader.array().map_err(ended)? {
            [1, 0, 0, 0] => PoolUse::Source,
            [2, 0, 0, 0] => PoolUse::Destination,
            _ => return Err(ended(Ended)),
        };
        let shape = Shape::decode(&reader.array().map_err(ended)?)?;
        let hash = reader.u64().map_err(ended)?;
        if reader.rest().is_empty() { Ok(Self { purpose, shape, hash }) } else { Err(ended(Ended)) }
    }
}

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

    /// Fences the lane, so that nothing of its transfers lands any more. When it is `false` the device did not do so,
    /// and what they use stays in use.
    pub(super) fn end(&mut self, core: &mut Core, cause: LaneFailure) -> bool {
        self.ended.get_or_insert(cause);
        let fenced = core.fence_lane(self.lane, Deadline::after(FENCE_WITHIN));
        if let Err(error) = &fenced {
            tracing::error!(peer = %self.peer, %error, "a lane could not be ended");
        }
        fenced.is_ok()
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
