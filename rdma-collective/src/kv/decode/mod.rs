//! The public decode end of a link: [`Decode`], and the handle of a [`Grant`].
//!
//! This file owns the handles. The state machine of grants is `receive`'s, and pulls are added in `kv/pull.rs`.

mod layer;
mod outcome;

use std::fmt;
use std::sync::Arc;

use rdma_core::{Deadline, PeerAccess};

pub use layer::LayerFuture;

use super::fence::END_WITHIN;
use super::journal::{LinkEvent, LinkStats, TransferKind};
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::outcome::{Progress, Received};
use super::pending::Handle;
use super::pool::{Pool, PoolUse};
use super::receive::Receives;
use super::revoking::Revoking;
use super::shared::Shared;
use super::verdict::{BlockVerdict, Verdicts};
use crate::bootstrap::JobToken;
use crate::engine::Engine;
use crate::kv::LinkError;
use crate::kv::layout::LayoutError;
use crate::kv::plan::PlanError;
use crate::kv::{KvError, TransferError};
use crate::link::handshake::Meet;
use crate::link::{LaneFailure, PeerName};

/// The decode end of a KV link: it has room for blocks, and grants or pulls them.
///
/// When a grant has ended, well or not, none of its bytes land any more. A grant that misses its deadline, or is
/// [revoked](Grant::revoke), asks the peer to stop, and the link goes on. Only when the peer does not answer is the
/// lane fenced; then all other transfers on the link end with an error too.
///
/// Dropping it says goodbye to the peer within [`linger`](LinkOptions::linger) and ends every transfer that is left.
pub struct Decode {
    shared: Arc<Shared<Receives>>,
}

/// Blocks granted to a request. Dropping the handle lets them fill; the outcome is lost.
///
/// Returned by [`Decode::grant`]; the module [`kv`](crate::kv) has an example.
#[must_use = "blocks are there when their grant was waited for"]
pub struct Grant {
    shared: Arc<Shared<Receives>>,
    id: u64,
    request: u64,
    blocks: Box<[u32]>,
    deadline: Deadline,
    taken: bool,
}

impl Decode {
    /// Meets a prefill end of the same job over TCP, and connects its pool to `pool`.
    ///
    /// # Errors
    ///
    /// [`SetupError::Handshake`](crate::engine::SetupError::Handshake) when no process with the token comes before
    /// the deadline, [`LinkError::Layout`] with the field in which the pools differ, and other [`LinkError`]s for
    /// what the device refuses.
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

    /// Prepares a decode end for a link that is opened over the caller's own control plane; see [`Prepared`].
    ///
    /// # Errors
    ///
    /// [`LinkError::WrongUse`] for a source pool, [`LinkError::OtherEngine`] for a pool of another engine, and other
    /// [`LinkError`]s for what the device refuses.
    pub fn prepare(
        engine: &Engine,
        pool: &Pool,
        token: &JobToken,
        options: &LinkOptions,
    ) -> Result<Prepared<Self>, LinkError> {
        Ok(Prepared::new(Opening::new(engine, pool, PoolUse::Destination, token, options)?))
    }

    /// Makes the end over a link that is set up, and registers its state machine with the engine.
    pub(super) fn over(link: Link, engine: &Engine, pool: &Pool, options: &LinkOptions) -> Self {
        Self { shared: Shared::open(link, engine, pool, options, Receives::new) }
    }

    /// Grants `blocks`, in all layers, to `request`; the push fills them in that order.
    ///
    /// The call returns at once. The grant lives until `deadline`, whoever waits for it: then the blocks are taken
    /// back, and a push that comes later is refused. Read the blocks only after [`wait`](Grant::wait) has returned,
    /// because a peer may write them until then.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for an empty list, a block out of range or a block given twice; [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`] and [`KvError::LinkEnded`]. After any error no
    /// block is granted.
    pub fn grant(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Grant, KvError> {
        self.granted(request, (blocks, None), deadline)
    }

    /// Grants again the blocks of an earlier transfer that `verdicts` has as missing or corrupt, so that only those
    /// are moved. The link may be the same one or another link of the pool.
    ///
    /// Prefill must push the same blocks as before, in the same order. A block is moved whole in all layers when it
    /// belongs to another pool, or was granted or [written](Pool::write) since the verdicts were made. Writes that
    /// bypass [`Pool::write`] are not noticed: grant such a block with [`grant`](Self::grant).
    ///
    /// # Errors
    ///
    /// The errors of [`grant`](Self::grant), and [`KvError::NothingMissing`] when all verdicts are valid.
    pub fn grant_missing(
        &self,
        request: u64,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        self.check_layers(verdicts)?;
        self.granted(request, (verdicts.blocks(), Some(verdicts)), deadline)
    }

    /// Fails unless the verdicts have as many layers as the pool.
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
        let shared = &self.shared;
        let kind = (TransferKind::Grant, request);
        let id = shared.change(|state, core, now| state.add(core, kind, blocks, deadline, now))?;
        Ok(Grant::new(Arc::clone(shared), id, request, blocks.0, deadline))
    }

    pub(super) fn shared(&self) -> &Arc<Shared<Receives>> {
        &self.shared
    }

    /// Counters of this end since it was made. Reading them takes a lock of their own, so no transfer waits.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.shared.stats()
    }

    /// Takes the oldest event. At most 256 events are kept; older ones are dropped and
    /// [counted](LinkStats::events_dropped).
    #[must_use]
    pub fn next_event(&self) -> Option<LinkEvent> {
        self.shared.next_event()
    }

    /// The pool whose blocks this end grants.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// The name of the peer, as errors and logs print it.
    #[must_use]
    pub fn peer(&self) -> PeerName {
        self.shared.peer
    }

    /// The path over which the peer's memory is reached.
    #[must_use]
    pub fn peer_access(&self) -> PeerAccess {
        self.shared.access
    }
}

impl Grant {
    pub(super) fn new(
        shared: Arc<Shared<Receives>>,
        id: u64,
        request: u64,
        blocks: &[u32],
        deadline: Deadline,
    ) -> Self {
        Self { shared, id, request, blocks: blocks.into(), deadline, taken: false }
    }

    /// Waits until all blocks have arrived, and were checked if the link has checksums.
    ///
    /// At the deadline the peer is asked to stop. That takes up to 1 s more from a silent peer, and up to 6 s while
    /// the peer is heard, because over a slow link its answer comes behind what was queued before. Blocks that have
    /// all arrived by the deadline may be checked for 5 s more.
    ///
    /// # Errors
    ///
    /// [`TransferError`] with the verdict on each block: at the deadline, when the peer is lost, or when the peer has
    /// another number of blocks. The blocks are free again and not written any more, unless the cause is
    /// [`KvError::Quarantined`].
    pub fn wait(mut self) -> Result<Received, TransferError> {
        let deadline = Deadline::after(self.deadline.remaining() + END_WITHIN);
        self.outcome_by(deadline).unwrap_or_else(|| {
            // The service ends the grant at its deadline; only an engine that cannot go on leaves it open.
            let cause = KvError::LinkEnded { peer: self.shared.peer, cause: LaneFailure::Fenced };
            let verdicts = Verdicts::new(self.layers(), &self.blocks, BlockVerdict::Missing);
            Err(TransferError { cause: Arc::new(cause), verdicts })
        })
    }

    fn layers(&self) -> u32 {
        self.shared.pool.layout().shape().layers
    }

    /// Takes the blocks back, and returns verdicts on what had arrived in them. After `Ok` no byte of the transfer
    /// lands any more.
    ///
    /// The peer is asked to stop, which takes a round trip and leaves the link as it is. When the peer has not
    /// answered by `deadline`, the lane is fenced: the link has ended then, and every transfer on it too.
    ///
    /// The call blocks; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    pub fn revoke(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to take the blocks back like [`revoke`](Self::revoke), and returns at once.
    pub fn start_revoke(self, deadline: Deadline) -> Revoking<Verdicts> {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        Revoking::new(self, &shared, deadline, |state, core| state.revoke(core, id, deadline))
    }

    /// The progress of the transfer, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.glance(|state| state.progress(self.id)).unwrap_or_default()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.taken && !self.shared.engine.is_forked() {
            self.shared.lock().abandon(self.id);
        }
    }
}

impl Drop for Decode {
    fn drop(&mut self) {
        self.shared.close(|state, core| state.end(core, LaneFailure::Fenced));
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
            .field("access", &self.shared.access)
            .finish_non_exhaustive()
    }
}
