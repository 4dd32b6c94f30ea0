//! Decode as callers see it: it has room for the blocks of requests, grants it, and learns what has arrived.

mod layer;
mod outcome;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess};

pub use layer::LayerFuture;

use super::journal::{Journal, LinkEvent, LinkStats, TransferKind};
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::pending::Handle;
use super::pool::{Pool, PoolUse};
use super::receive::{END_WITHIN, Receives};
use super::revoking::Revoking;
use super::verdict::{BlockVerdict, Verdicts};
use crate::bootstrap::JobToken;
use crate::kv::LinkError;

use crate::engine::{Engine, Service};
use crate::kv::layout::LayoutError;
use crate::kv::plan::PlanError;
use crate::kv::{KvError, TransferError};
use crate::link::handshake::Meet;
use crate::link::{LaneFailure, PeerName};

/// The end of a KV link that has room for blocks.
///
/// When a grant has ended, well or not, nothing of it lands any more. One that misses its deadline, or is
/// [revoked](Grant::revoke), asks the peer to stop, and the link goes on; only when the peer does not answer is the lane
/// fenced, and all others on it end with an error too.
pub struct Decode {
    shared: Arc<Shared>,
    access: PeerAccess,
    linger: Duration,
}

/// What the end and the grants on it have in common.
pub(super) struct Shared {
    pub(super) engine: Engine,
    state: Arc<Mutex<Receives>>,
    journal: Journal,
    pool: Pool,
    peer: PeerName,
}

/// Blocks granted to a request. Dropping it lets them fill unseen.
#[must_use = "blocks are there when their grant was waited for"]
pub struct Grant {
    shared: Arc<Shared>,
    id: u64,
    request: u64,
    blocks: Box<[u32]>,
    deadline: Deadline,
    told: bool,
}

/// How far a transfer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes that have arrived.
    pub bytes_arrived: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Writes that have arrived.
    pub writes_arrived: u32,
    /// Writes that were announced; 0 before.
    pub writes: u32,
}

/// A transfer that has ended well: every block has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// What each block holds; [`BlockVerdict::Corrupt`] can be among it when checksums were asked for.
    pub verdicts: Verdicts,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Writes that carried them.
    pub writes: u32,
    /// From the grant to the arrival of the last block.
    pub elapsed: Duration,
    /// From the announcement of the writes to the arrival of the last block.
    pub moving: Duration,
}

impl Decode {
    /// Meets a prefill of the same job and connects its pool to `pool`.
    ///
    /// # Errors
    ///
    /// [`SetupError::Handshake`](crate::engine::SetupError::Handshake) when nobody with the token comes before the deadline, [`LinkError::Layout`] with the
    /// field in which the pools differ, others for what the device refuses.
    pub fn new(
        engine: &Engine,
        pool: &Pool,
        meet: &Meet<'_>,
        token: &JobToken,
        options: &LinkOptions,
        deadline: Deadline,
    ) -> Result<Self, LinkError> {
        let mut opening = Opening::new(engine, pool, PoolUse::Destination, token, options)?;
        Ok(Self::over(opening.meet(meet, token, deadline)?, engine, pool, options))
    }

    /// Prepares an end for a link that is opened over the caller's own control plane; see [`Prepared`].
    ///
    /// # Errors
    ///
    /// [`LinkError::WrongUse`] and [`LinkError::OtherEngine`] for a pool that does not go with it, others for what the
    /// device refuses.
    pub fn prepare(
        engine: &Engine,
        pool: &Pool,
        token: &JobToken,
        options: &LinkOptions,
    ) -> Result<Prepared<Self>, LinkError> {
        Ok(Prepared::new(Opening::new(engine, pool, PoolUse::Destination, token, options)?))
    }

    pub(super) fn over(link: Link, engine: &Engine, pool: &Pool, options: &LinkOptions) -> Self {
        let (peer, access) = (link.peer, link.access);
        let mut core = engine.lock();
        let destination = pool.attach(&mut core);
        let receives = Receives::new(link, pool.clone(), destination, options);
        let journal = receives.journal.clone();
        let state = Arc::new(Mutex::new(receives));
        core.register(&state);
        drop(core);
        let shared = Shared { engine: engine.clone(), state, journal, pool: pool.clone(), peer };
        Self { shared: Arc::new(shared), access, linger: options.linger }
    }

    /// Grants `blocks` of all layers to `request`, to be filled in that order. The grant lives until `deadline`, whoever
    /// waits for it: then the blocks are taken back, and a push that meets it later is refused.
    ///
    /// It returns at once. The blocks can be used when the grant was waited for.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for no blocks, one that is not there or one that is given twice, [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`], or [`KvError::LinkEnded`]; nothing is lost then.
    pub fn grant(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Grant, KvError> {
        self.granted(request, (blocks, None), deadline)
    }

    /// Grants the blocks of an earlier transfer again, for what `verdicts` has of them as missing or corrupt: that alone
    /// is moved, over this link or another one of the pool.
    ///
    /// Prefill pushes the same blocks as before, in the same order. A block of another pool, and one that was granted or
    /// [written](Pool::write) since the verdicts were made, is moved whole. What else writes the pool's memory is not seen:
    /// such a block has to be granted anew.
    ///
    /// # Errors
    ///
    /// As for [`grant`](Self::grant), and [`KvError::NothingMissing`] when all is valid.
    pub fn grant_missing(
        &self,
        request: u64,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        self.check_layers(verdicts)?;
        self.granted(request, (verdicts.blocks(), Some(verdicts)), deadline)
    }

    /// That verdicts speak of as many layers as the pool has.
    pub(super) fn check_layers(&self, verdicts: &Verdicts) -> Result<(), KvError> {
        let layers = self.shared.pool.layout().shape().layers;
        if verdicts.layers() == layers {
            return Ok(());
        }
        let (ours, theirs) = (layers.to_string(), verdicts.layers().to_string());
        Err(PlanError::from(LayoutError::Differs { field: "layers", ours, theirs }).into())
    }

    fn granted(
        &self,
        request: u64,
        blocks: (&[u32], Option<&Verdicts>),
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        let now = Instant::now();
        let shared = &self.shared;
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.add(core, (TransferKind::Grant, request), blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(id)
        })?;
        Ok(Grant::new(Arc::clone(shared), id, request, blocks.0, deadline))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What this end has done so far; it keeps no transfer waiting, and can be asked as often as one likes.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.shared.journal.stats()
    }

    /// Takes the oldest event; of more than 256 the oldest are dropped, and [counted](LinkStats::events_dropped).
    #[must_use]
    pub fn next_event(&self) -> Option<LinkEvent> {
        self.shared.journal.next_event()
    }

    /// The pool that it grants blocks of.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> PeerName {
        self.shared.peer
    }

    /// How the peer's memory is reached.
    #[must_use]
    pub fn peer_access(&self) -> PeerAccess {
        self.access
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Receives> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grant {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: u64,
        request: u64,
        blocks: &[u32],
        deadline: Deadline,
    ) -> Self {
        Self { shared, id, request, blocks: blocks.into(), deadline, told: false }
    }

    /// Waits until all blocks have arrived, and were checked when the link has checksums. The peer is told then, or asked
    /// to stop at the deadline, which may take up to a second more when it does not listen, and up to six as long as it is
    /// heard: over a slow link its answer comes behind what was queued before. What has arrived by the deadline may be
    /// checked for five seconds more.
    ///
    /// # Errors
    ///
    /// [`TransferError`] with what is known of each block: at the deadline, when the peer is lost, or when it has another
    /// number of blocks. The blocks are free again, and nothing writes them any more.
    pub fn wait(mut self) -> Result<Received, TransferError> {
        let deadline = Deadline::after(self.deadline.remaining() + END_WITHIN);
        self.outcome_by(deadline).unwrap_or_else(|| {
            // The service has ended it at the deadline, unless the engine could not.
            let cause = KvError::LinkEnded { peer: self.shared.peer, cause: LaneFailure::Fenced };
            let verdicts = Verdicts::new(self.layers(), &self.blocks, BlockVerdict::Missing);
            Err(TransferError { cause: Arc::new(cause), verdicts })
        })
    }

    fn layers(&self) -> u32 {
        self.shared.pool.layout().shape().layers
    }

    /// Takes the blocks back, and says what had arrived in them. After `Ok` nothing of the transfer lands any more.
    ///
    /// The peer is asked to stop, which takes a round trip and leaves the link as it is. When it has not answered by
    /// `deadline`, the lane is fenced: then the link has ended, and every transfer on it with it.
    ///
    /// It blocks meanwhile; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: its blocks are never used again.
    pub fn revoke(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to take the blocks back, as [`revoke`](Self::revoke) does, and returns at once.
    pub fn start_revoke(self, deadline: Deadline) -> Revoking<Verdicts> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.revoke(core, self.id, deadline);
            state.advance(core, Instant::now());
        });
        let peer = shared.peer;
        Revoking::new(self, peer, deadline)
    }

    /// How far it has come, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.lock().progress(self.id).unwrap_or_default()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let shared = &self.shared;
        if self.told || shared.engine.is_forked() {
            return;
        }
        shared.lock().abandon(self.id);
    }
}

impl Drop for Decode {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.engine.is_forked() {
            return;
        }
        let lane = shared.lock().link.lane;
        shared.engine.say_goodbye(&[lane], Deadline::after(self.linger));
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.end(core, LaneFailure::Fenced);
            state.detach(core);
        });
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("id", &self.id)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decode")
            .field("peer", &self.peer())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
