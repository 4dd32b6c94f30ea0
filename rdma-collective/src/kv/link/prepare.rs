//! The set-up of a link: an end opens a lane, exports a blob that describes it, and connects to the blob of the other
//! end.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, ProtectionDomain, Region, RemoteMemory};

use super::payload::Payload;
use super::{CONTROL_BYTES_MIN, FENCE_WITHIN, Link, LinkOptions};
use crate::bootstrap::JobToken;
use crate::engine::SetupError;
use crate::engine::{Engine, LaneId};
use crate::kv::LinkError;
use crate::kv::layout::LayoutError;
use crate::kv::plan::{Cover, Route};
use crate::kv::pool::{PeerKeys, Pool, PoolUse};
use crate::kv::staging::Staging;
use crate::kv::{Decode, Prefill};
use crate::link::control::MESSAGE_BYTES_MAX;
use crate::link::handshake::{Meet, Met, exchange};
use crate::link::{Blob, ConnectOverrides, LaneOptions, LinkKind};
use crate::link::{BlobError, LaneFailure, PeerName};
use crate::liveness::{EXIT_WITHIN, Process};

/// A prepared end of a KV link, which waits for the blob of the other end; made by [`Prefill::prepare`] and
/// [`Decode::prepare`].
///
/// This is for servers with a control plane of their own. Each end [exports](Self::export) a blob, which the caller
/// carries as bytes over HTTP, etcd or anything else, and connects to the blob of the other end; nothing listens. A
/// blob is checked in full: one of another job, version or layout is an error that says so, and the end can
/// still connect to a better one. The carrier must keep strangers away: a blob has the token's fingerprint, not the
/// token.
///
/// Receives are posted before the blob is exported, so that either end may connect first. Decode sends first, and its
/// device repeats that message until the deadline: the acknowledgement timeout of its queue pair is made long enough.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::bootstrap::JobToken;
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_collective::kv::layout::{Layout, Model, Order};
/// use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
/// use rdma_core::{Deadline, Device, SoftOptions};
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// let (token, options) = (JobToken::random()?, LinkOptions::default());
/// let deadline = Deadline::after(Duration::from_secs(10));
/// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
/// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
///
/// let source = Pool::allocate(&engine, &layout, PoolUse::Source)?;
/// let mut prefill = Prefill::prepare(&engine, &source, &token, &options)?;
/// let room = Pool::allocate(&engine, &layout, PoolUse::Destination)?;
/// let mut decode = Decode::prepare(&engine, &room, &token, &options)?;
/// // A control plane carries each blob to the other end.
/// let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
/// let prefill = std::thread::spawn(move || prefill.connect(&to_prefill, deadline));
/// let decode = decode.connect(&to_decode, deadline)?;
/// let prefill = prefill.join().expect("it connects")?;
///
/// let grant = decode.grant(1, &[5], deadline)?;
/// let push = prefill.push(1, &[0], deadline)?;
/// assert!(grant.wait()?.verdicts.all_valid());
/// push.wait()?;
/// # Ok::<(), Error>(())
/// ```
pub struct Prepared<E> {
    opening: Opening,
    end: PhantomData<fn() -> E>,
}

/// An end of a link, prefill or decode, that is not connected.
pub(in crate::kv) struct Opening {
    engine: Engine,
    pool: Pool,
    /// The use of the pool at this end: [`PoolUse::Destination`] at decode, another one at prefill.
    purpose: PoolUse,
    job: u32,
    options: LinkOptions,
    /// The domain of the rail.
    pd: ProtectionDomain,
    /// The lane, until it is connected or lost.
    lane: Option<LaneId>,
    exported: Vec<u8>,
    /// Keys that the exported blob has, until a link has them. Dropped after the lane was fenced.
    keys: PeerKeys,
}

impl<E> Prepared<E> {
    pub(in crate::kv) fn new(opening: Opening) -> Self {
        Self { opening, end: PhantomData }
    }

    /// The blob for the other end, at most 34 KiB, and below 1 KiB unless the pool has many tensors at odd places;
    /// `docs/wire.md` has the format.
    ///
    /// The blob serves one other end, and none once this end is dropped.
    #[must_use]
    pub fn export(&self) -> &[u8] {
        &self.opening.exported
    }
}

impl Prepared<Prefill> {
    /// Connects to the decode that exported `blob`, and waits until it has connected too.
    ///
    /// # Errors
    ///
    /// [`SetupError::Blob`](crate::engine::SetupError::Blob), [`LinkError::Layout`] with the field in which the pools
    /// differ, and [`LinkError::SameUse`]: the blob does not fit this end. Nothing has
    /// happened, and this end can connect to another blob.
    ///
    /// [`SetupError::PeerSilent`](crate::engine::SetupError::PeerSilent) at the deadline,
    /// [`SetupError::PeerLost`](crate::engine::SetupError::PeerLost) and errors of the device use this end up: later
    /// calls return [`SetupError::LaneGone`](crate::engine::SetupError::LaneGone).
    pub fn connect(&mut self, blob: &[u8], deadline: Deadline) -> Result<Prefill, LinkError> {
        let link = self.opening.connect(blob, deadline)?;
        Ok(Prefill::over(link, &self.opening.engine, &self.opening.pool, &self.opening.options))
    }
}

impl Prepared<Decode> {
    /// Connects to the prefill that exported `blob`, and waits until it has connected too.
    ///
    /// # Errors
    ///
    /// The errors of `connect` of a [`Prepared<Prefill>`].
    pub fn connect(&mut self, blob: &[u8], deadline: Deadline) -> Result<Decode, LinkError> {
        let link = self.opening.connect(blob, deadline)?;
        Ok(Decode::over(link, &self.opening.engine, &self.opening.pool, &self.opening.options))
    }
}

impl Opening {
    /// Opens a lane for `pool` on the options' rail of `engine`, and makes the blob.
    pub(in crate::kv) fn new(
        engine: &Engine,
        pool: &Pool,
        needed: PoolUse,
        token: &JobToken,
        options: &LinkOptions,
    ) -> Result<Self, LinkError> {
        engine.own_process().map_err(SetupError::from)?;
        let given = pool.purpose();
        let at_decode = needed == PoolUse::Destination;
        let purpose = if at_decode { given.at_decode() } else { given.at_prefill() };
        let purpose = purpose.ok_or(LinkError::WrongUse { needed, given })?;
        let lane_options = LaneOptions {
            epoch: incarnation() as u32,
            max_send_wr: options.max_send_wr.max(8),
            credits: options.credits.max(4),
            control_bytes_max: options.control_bytes_max.clamp(CONTROL_BYTES_MIN, MESSAGE_BYTES_MAX),
        };
        let (rail, rails) = (options.rail, engine.pds().len());
        let pd = engine.pds().nth(rail).ok_or(LinkError::NoRail { rail, rails })?.clone();
        let strict = options.strict && at_decode;
        if strict && pd.export_pins() {
            return Err(LinkError::NotStrict);
        }
        if !pool.is_of(engine) {
            return Err(LinkError::OtherEngine);
        }
        let lane = engine.open_lane(rail, lane_options)?;
        let (engine, pool, job) = (engine.clone(), pool.clone(), token.fingerprint());
        let options = LinkOptions { strict, ..options.clone() };
        let (lane_of, exported, keys) = (Some(lane), Vec::new(), PeerKeys::none());
        let mut opening = Self { engine, pool, purpose, job, options, pd, lane: lane_of, exported, keys };
        opening.describe(lane)?;
        Ok(opening)
    }

    /// Makes the blob: the lane's endpoint, and the pool's description with the keys for the peer.
    fn describe(&mut self, lane: LaneId) -> Result<(), LinkError> {
        let blob = self.engine.blob(lane, LinkKind::KV, self.job)?;
        let strict = self.options.strict;
        let memory = if strict {
            Some(self.pool.without_keys(&self.pd))
        } else {
            let opened = self.pool.open_to_peer(&self.pd, self.purpose);
            let (memory, keys) = opened.map_err(SetupError::from)?;
            self.keys = keys;
            memory
        };
        let (purpose, layout) = (self.purpose, self.pool.layout().clone());
        let payload = Payload { purpose, strict, layout, memory }.encode();
        self.exported = Blob { regions: Vec::new(), payload, ..blob }.encode()?;
        Ok(())
    }

    /// Meets the other end over TCP, and exchanges blobs there.
    pub(in crate::kv) fn meet(
        &mut self,
        how: &Meet<'_>,
        token: &JobToken,
        deadline: Deadline,
    ) -> Result<Link, LinkError> {
        self.engine.own_process().map_err(SetupError::from)?;
        let (met, theirs) = exchange(how, token, &self.exported, deadline)?;
        // Both ends say so when they are connected. Only then does either send over the lane, so that no message is
        // lost.
        self.join_over(met, &theirs, deadline)
    }

    /// The blob of this end, for the other one.
    pub(in crate::kv) fn exported(&self) -> &[u8] {
        &self.exported
    }

    /// The pool of this end.
    pub(in crate::kv) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Connects to the end that `blob` describes, over the connection on which both blobs were exchanged.
    pub(in crate::kv) fn join_over(
        &mut self,
        met: Met,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Link, LinkError> {
        self.engine.own_process().map_err(SetupError::from)?;
        self.join(blob, deadline, Some(met))
    }

    fn connect(&mut self, blob: &[u8], deadline: Deadline) -> Result<Link, LinkError> {
        self.join(blob, deadline, None)
    }

    /// Connects the lane to the end that `blob` describes. `meeting` is the TCP connection, if the ends met.
    fn join(&mut self, blob: &[u8], deadline: Deadline, meeting: Option<Met>) -> Result<Link, LinkError> {
        self.engine.own_process().map_err(SetupError::from)?;
        let lane = self.lane.ok_or(SetupError::LaneGone)?;
        let (blob, rest) = Blob::decode(blob, LinkKind::KV, self.job)?;
        if !rest.is_empty() {
            return Err(BlobError::Malformed { field: "end" }.into());
        }
        let (route, Payload { strict, memory: remote, .. }) = self.check(&blob)?;
        let strict = strict || self.options.strict;
        let at_decode = self.purpose == PoolUse::Destination;
        let packs = route.has_pieces_below(self.options.pack_bytes);
        let register = |needed: bool, is_written: bool| {
            let Some(region) = needed.then(|| Staging::register(&self.engine, is_written)) else {
                return Ok(None);
            };
            let region = region.map_err(SetupError::from)?;
            let remote = self.pd.remote(&region).ok_or(SetupError::LaneGone)?;
            Ok::<_, SetupError>(Some((region, remote)))
        };
        let staging = register(packs, at_decode)?;
        let inbox = register(packs && at_decode && remote.is_some(), false)?;
        self.lane = None;
        let by_blob = PeerName::Process { pid: blob.process.pid, gid: blob.endpoint.gid };
        let peer = meeting.as_ref().map_or(by_blob, |met| PeerName::Address(met.peer()));
        let purpose = self.purpose;
        let _connecting = crate::log::debug_span!("kv_connect", pool = ?purpose, ?lane);
        let joined = self.join_lane(lane, &blob, deadline, meeting);
        if joined.is_err() {
            self.fence(lane);
        }
        // After an error the end is used up, and the keys end here with it.
        let keys = std::mem::replace(&mut self.keys, PeerKeys::none());
        let (name, access, control) = joined?;
        let own_keys = keys.are_own();
        crate::log::info!(%peer, lane = %name, pool = ?purpose, ?access, own_keys, rail = self.options.rail, "a KV link is up");
        let cover = Arc::new(Cover::of(&route));
        let (rail, pd) = (self.options.rail, self.pd.clone());
        let attach = |memory: (Region, RemoteMemory)| {
            let attached = self.engine.lock_with(|core| core.attach(&memory.0));
            Staging::new(memory, attached, rail)
        };
        let (staging, inbox) = (staging.map(attach), inbox.map(attach));
        let (waits, ended, over, _control) = (0, None, Arc::default(), control);
        Ok(Link {
            lane,
            rail,
            pd,
            name,
            peer,
            access,
            route,
            cover,
            remote,
            strict,
            staging,
            inbox,
            keys,
            waits,
            ended,
            over,
            _control,
            present: crate::metrics::kv_link(),
        })
    }

    /// Connects the queue pair, tells the peer so, and exchanges the first message over the lane.
    fn join_lane(
        &self,
        lane: LaneId,
        blob: &Blob,
        deadline: Deadline,
        meeting: Option<Met>,
    ) -> Result<Joined, LinkError> {
        let first = self.purpose == PoolUse::Destination;
        let patience = if first && meeting.is_none() { deadline.remaining() } else { Duration::ZERO };
        let connected = self.engine.lock_with(|core| {
            core.connect_lane_as(
                lane,
                blob,
                Instant::now(),
                ConnectOverrides { patience, ..ConnectOverrides::default() },
            )?;
            let access = core.peer_access(lane)?;
            let lane = core.lane(lane).ok_or(SetupError::LaneGone)?;
            lane.set_quiet(true);
            Ok::<_, LinkError>((lane.name(), access))
        });
        let (name, access) = connected.map_err(|error| or_lost(error, &blob.process))?;
        let control = meeting.map(Met::ready).transpose()?;
        if let Some(held) = control.as_ref().and_then(|control| control.try_clone().ok()) {
            let mut core = self.engine.lock();
            // A peer on this host is watched by its process already, which tells more than a connection.
            if !core.is_watched(lane) {
                core.watch_connection(lane, held.into());
            }
        }
        self.engine.greet(lane, first, deadline)?;
        Ok((name, access, control))
    }

    /// Fails unless the peer's pool goes with this end's; returns what goes over, and what the peer tells of its pool.
    fn check(&self, peer: &Blob) -> Result<(Arc<Route>, Payload), LinkError> {
        let payload = Payload::decode(&peer.payload)?;
        let at_decode = self.purpose == PoolUse::Destination;
        if (payload.purpose == PoolUse::Destination) == at_decode {
            return Err(LinkError::SameUse(payload.purpose));
        }
        let soft = self.engine.context().is_soft();
        if peer.soft != soft {
            return Err(LinkError::OtherDevice { soft });
        }
        if peer.control_bytes_max < CONTROL_BYTES_MIN {
            return Err(SetupError::Peer { field: "longest control message" }.into());
        }
        let (ours, theirs) = (self.pool.layout(), &payload.layout);
        let route = if at_decode {
            Route::new(theirs, ours).map_err(LayoutError::seen_by_the_other_end)?
        } else {
            Route::new(ours, theirs)?
        };
        if !peer.regions.is_empty() {
            return Err(SetupError::Peer { field: "list of regions" }.into());
        }
        Ok((Arc::new(route), payload))
    }

    fn fence(&self, lane: LaneId) {
        let fenced = self.engine.lock_with(|core| core.fence_lane(lane, Deadline::after(FENCE_WITHIN)));
        if let Err(error) = fenced {
            crate::log::warn!(%error, "the device did not end a lane whose set-up failed; the lane stays until the engine is dropped");
        }
    }
}

/// A random number, which tells an end of a link, or a node, from earlier ones: so messages of an earlier link are not
/// taken for this one's.
pub(in crate::kv) fn incarnation() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Names the death of the peer's process as the cause of a refused connection. The device cannot do so, because it sees
/// only that nobody answers.
fn or_lost(refused: LinkError, peer: &Process) -> LinkError {
    if !peer.ends_within(EXIT_WITHIN) {
        return refused;
    }
    SetupError::PeerLost { cause: LaneFailure::Died { pid: peer.pid } }.into()
}

/// A lane's name, how its peer is reached, and the connection over which the ends met.
type Joined = (crate::link::LaneName, rdma_core::PeerAccess, Option<TcpStream>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take().filter(|_| !self.engine.is_forked()) {
            self.fence(lane);
        }
    }
}

impl<E> fmt::Debug for Prepared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("pool", &self.opening.pool).finish_non_exhaustive()
    }
}
