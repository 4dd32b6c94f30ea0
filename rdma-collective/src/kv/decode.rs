//! The public decode end of a link: [`Decode`], which grants blocks and pulls them.
//!
//! This file owns the end. The state machine of its transfers is `receive`'s, and their handles are `transfer`'s.

use std::fmt;
use std::sync::Arc;

use rdma_core::{Deadline, PeerAccess};

use super::blocks::{Blocks, List};
use super::journal::{LinkEvent, LinkStats, TransferKind};
use super::lease::Hold;
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::pool::{PeerKeys, Pool, PoolUse};
use super::receive::{Receives, Taken};
use super::request::Asked;
use super::shared::Shared;
use super::transfer::{Grant, Pull, Transfer};
use super::verdict::{BlockVerdict, Verdicts};
use crate::bootstrap::JobToken;
use crate::engine::Engine;
use crate::kv::LinkError;
use crate::kv::layout::LayoutError;
use crate::kv::plan::{Cover, Gap, PlanError, Route, Wanted, gap};
use crate::kv::{KvError, Request, RequestId};
use crate::link::handshake::Meet;
use crate::link::imm::WRITES_MAX;
use crate::link::{LaneFailure, PeerName};

/// The decode end of a KV link: it has room for blocks, and grants or pulls them.
///
/// When a grant has ended, well or not, none of its bytes land any more. A grant that misses its deadline, or is
/// [revoked](Transfer::revoke), asks the peer to stop, and the link goes on. Only when the peer does not answer is the
/// lane fenced; then all other transfers on the link end with an error too.
///
/// Dropping it says goodbye to the peer within [`linger`](LinkOptions::linger) and ends every transfer that is left.
pub struct Decode {
    shared: Arc<Shared<Receives>>,
    /// A head that the link does not bring, so that a transfer needs other links, too.
    gap: Option<Gap>,
    strict: bool,
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
        let gap = gap(pool.layout(), &[&link.cover]);
        Self {
            shared: Shared::open(link, engine, pool, options, false, Receives::new),
            gap,
            strict: options.strict,
        }
    }

    /// Grants `blocks`, in all layers, to `request`; the push fills them in that order.
    ///
    /// Decode may [have](Blocks::having) all of them. Grant them all the same: no byte moves then, and prefill, which
    /// may push the request already, hears so at once instead of waiting until its deadline.
    ///
    /// The call returns at once. The grant lives until `deadline`, whoever waits for it: then the blocks are taken
    /// back, and a push that comes later is refused. Read the blocks only after [`wait`](Transfer::wait) has returned,
    /// because a peer may write them until then.
    ///
    /// # Errors
    ///
    /// [`KvError::PartOfBlocks`] when the link brings a part of each block alone; [`KvError::Plan`] for an empty
    /// list, a block out of range or given twice, a token range that does not fit the blocks, or a
    /// [had](Blocks::having) block that is not in the list; [`KvError::Held`], [`KvError::RequestRepeated`],
    /// [`KvError::TooManyTransfers`], [`KvError::LinkEnded`], and [`KvError::TooManyWrites`] for a request in part of
    /// more blocks and layers than messages can name (2^37). After any error no block is granted.
    pub fn grant<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        self.begun(request.into().asked(TransferKind::Grant)?, (blocks.into().into(), None), deadline)
    }

    /// Grants again the blocks of an earlier transfer that `verdicts` has as missing or corrupt, so that only those
    /// are moved. The link may be the same one or another link of the pool.
    ///
    /// Prefill must push the same blocks as before, in the same order and with the same token ranges. All layers of a
    /// block are moved when it belongs to another pool, or was granted or [written](Pool::write) since the verdicts
    /// were made, be it for other tokens of the block. Blocks that decode [had](Blocks::having) are had again. Writes
    /// that bypass [`Pool::write`] are not noticed: grant such a block with [`grant`](Self::grant). When all verdicts
    /// are valid, no byte moves: a transfer that lacked its note alone can be resumed so. On a link with checksums the
    /// blocks of such a transfer move again, unless it went by layers, because they are checked after the note.
    ///
    /// # Errors
    ///
    /// The errors of [`grant`](Self::grant).
    pub fn grant_missing(
        &self,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        let blocks = (verdicts.list().clone(), Some(verdicts));
        self.begun(request.into().asked(TransferKind::Grant)?, blocks, deadline)
    }

    /// Reads the blocks that prefill offers for `request` into `blocks`, in all layers and in that order.
    ///
    /// The call returns at once. The offer may have come before the pull, or come until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless the pool of prefill is a [`SourceToPull`](super::PoolUse::SourceToPull);
    /// [`KvError::ChecksumsOfPull`] on a link with checksums between pools of other orders, or for a token range;
    /// [`KvError::LeaseExpired`] when prefill took back an offer for the request within the last 60 s, which is
    /// reported once; otherwise the errors of [`grant`](Self::grant).
    pub fn pull<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Pull, KvError> {
        self.begun(request.into().asked(TransferKind::Pull)?, (blocks.into().into(), None), deadline)
    }

    /// Reads like [`pull`](Self::pull), but layer by layer, so that each [layer](Transfer::layer) is there as soon as
    /// it was read and the next ones are still under way.
    ///
    /// No read has bytes of two layers. So a pool that has all layers of a block side by side
    /// ([`BlockLayerPart`](super::layout::Order::BlockLayerPart)) takes a read for each layer, where `pull` takes one
    /// for all.
    ///
    /// # Errors
    ///
    /// The errors of [`pull`](Self::pull).
    ///
    /// ```
    /// # use rdma_collective::kv::{Decode, TransferError};
    /// # use rdma_core::Deadline;
    /// async fn run(decode: &Decode, deadline: Deadline) -> Result<(), TransferError> {
    ///     let Ok(pull) = decode.pull_layers(7, &[0, 5], deadline) else { return Ok(()) };
    ///     for layer in 0..decode.pool().layout().layers() {
    ///         pull.layer(layer).await?;
    ///         // The attention of this layer can be computed.
    ///     }
    ///     pull.await.map(drop)
    /// }
    /// ```
    pub fn pull_layers<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Pull, KvError> {
        self.begun(request.into().asked(TransferKind::PullLayers)?, (blocks.into().into(), None), deadline)
    }

    /// Pulls again the blocks of an earlier transfer that `verdicts` has as missing or corrupt, so that only those
    /// are read. The rules of [`grant_missing`](Self::grant_missing) apply: prefill must offer the same blocks as
    /// before, in the same order.
    ///
    /// # Errors
    ///
    /// The errors of [`pull`](Self::pull).
    pub fn pull_missing(
        &self,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Pull, KvError> {
        let blocks = (verdicts.list().clone(), Some(verdicts));
        self.begun(request.into().asked(TransferKind::Pull)?, blocks, deadline)
    }

    /// Begins a transfer of all `blocks`, or of those that `missing` has as missing or corrupt.
    pub(super) fn begun(
        &self,
        asked: Asked,
        (list, missing): (List, Option<&Verdicts>),
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        if let Some(gap) = self.gap {
            return Err(self.part_of_blocks(gap));
        }
        missing.map_or(Ok(()), |verdicts| check_layers(verdicts, self.pool()))?;
        let request = asked.request;
        let hold = |pool: &Pool| {
            let hold = hold(pool, &list, missing)?;
            // Only after the blocks are held: before, another transfer or [`Pool::write`] could still change them.
            let wanted = owed(self, request, hold.list(), missing)?;
            Ok((hold, wanted))
        };
        self.begin(asked, list.clone(), hold, deadline)
    }

    /// Begins a transfer of blocks that `hold` takes, once the transfer can begin.
    pub(super) fn begin(
        &self,
        asked: Asked,
        list: List,
        hold: impl FnOnce(&Pool) -> Result<(Hold, Option<Wanted>), KvError>,
        deadline: Deadline,
    ) -> Result<Grant, KvError> {
        let shared = &self.shared;
        let request = asked.request;
        let strict = self.strict && asked.kind == TransferKind::Grant;
        // Before the state is locked, because many blocks have many ranges.
        let bytes_of = |list: &List| self.pool().bytes_of(&list.not_had());
        let bytes = strict.then(|| bytes_of(&list));
        let take = |pool: &Pool| {
            let (hold, wanted) = hold(pool)?;
            let same = hold.list().had() == list.had();
            let bytes = bytes.map(|bytes| if same { bytes } else { bytes_of(hold.list()) });
            // Behind the hold, because no other transfer may have the blocks when they are opened.
            let open = |bytes| pool.open_blocks(&shared.pd, bytes);
            let keys = bytes.map_or_else(|| Ok((PeerKeys::none(), Vec::new())), open);
            let keys = keys.map_err(|cause| KvError::NoKey { request, cause: Arc::new(cause) })?;
            Ok(Taken { hold, wanted, keys })
        };
        let id = shared.change(&list, |state, now| state.add(asked, take, deadline, now))?;
        Ok(Transfer::new(shared, (id, request), list))
    }

    fn part_of_blocks(&self, gap: Gap) -> KvError {
        let (Gap::Missing { layer, head } | Gap::Twice { layer, head, .. }) = gap;
        KvError::PartOfBlocks { peer: self.peer(), layer, head }
    }

    /// Fails in a forked child.
    pub(super) fn check_process(&self) -> Result<(), KvError> {
        Ok(self.shared.engine.check_process()?)
    }

    pub(super) fn cover(&self) -> &Arc<Cover> {
        &self.shared.cover
    }

    /// The layers and heads that go from prefill's pool to this end's.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.shared.route
    }

    /// Whether the link has ended.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Whether a transfer is under way, or has an outcome that was not taken.
    pub(super) fn is_used(&self) -> bool {
        self.shared.glance(|state| state.is_used())
    }

    /// Ends the link at once, because the peer says that it has ended its own end.
    pub(super) fn end_with_peer(&self) {
        self.shared.end_with_peer(|state, core| state.end(core, LaneFailure::Closed));
    }

    #[cfg(test)]
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
        self.shared.peer.clone()
    }

    /// The path over which the peer's memory is reached.
    #[must_use]
    pub fn peer_access(&self) -> PeerAccess {
        self.shared.access
    }

    /// Whether the peer reaches the memory of this end's pool by keys of this link alone. Such keys reach no byte
    /// outside the pool and give no right beyond the pool's use, and end with the link, whatever the peer does.
    ///
    /// `true` on the software device, and for a [source](PoolUse::Source) that gives out no key. `false` on a device of
    /// libibverbs, where a key of its own would [pin](rdma_core::ProtectionDomain::export_pins) the pool once more for
    /// each link: the peer then has the key of the region, which other pools in the region and other links share, and
    /// which ends with the region. The line "a KV link is up" in the log has the same as `own_keys`.
    ///
    /// [`kv`](super) has an example of a link; `docs/trust.md` says who can do what.
    #[must_use]
    pub fn has_own_keys(&self) -> bool {
        self.shared.own_keys
    }
}

/// Holds a list for moving all that decode does not have of it, or that `missing` has as missing or corrupt.
pub(super) fn hold(pool: &Pool, list: &List, missing: Option<&Verdicts>) -> Result<Hold, KvError> {
    missing.map_or_else(|| Hold::grant(pool, list.clone()), |verdicts| verdicts.hold(pool))
}

/// The blocks of a held list that the source of a link owes, if not all.
pub(super) fn owed(
    link: &Decode,
    request: RequestId,
    held: &List,
    missing: Option<&Verdicts>,
) -> Result<Option<Wanted>, KvError> {
    let (pool, cover) = (link.pool(), link.cover());
    let owed = match missing {
        Some(verdicts) => verdicts.owed(cover, pool, held),
        None if held.had().is_empty() => return Ok(None),
        None => Verdicts::new(pool.layout().layers(), held, BlockVerdict::Missing).owed(cover, pool, held),
    };
    owed.map(Some).ok_or(KvError::TooManyWrites { request, max: WRITES_MAX })
}

/// Fails unless the verdicts have as many layers as the pool.
pub(super) fn check_layers(verdicts: &Verdicts, pool: &Pool) -> Result<(), KvError> {
    let layers = pool.layout().layers();
    if verdicts.layers() == layers {
        return Ok(());
    }
    let (ours, theirs) = (layers.to_string(), verdicts.layers().to_string());
    Err(PlanError::from(LayoutError::Differs { field: "layers", ours, theirs }).into())
}

impl Drop for Decode {
    fn drop(&mut self) {
        self.shared.close(|state, core| state.end(core, LaneFailure::Fenced));
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
