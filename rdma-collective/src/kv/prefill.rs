//! The public prefill end of a link: [`Prefill`], which pushes blocks and offers them.
//!
//! This file owns the end. The state machine of its transfers is `push`'s, and their handles are `transfer`'s.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rdma_core::{Deadline, PeerAccess};

use super::blocks::{Blocks, List};
use super::journal::{LinkEvent, LinkStats, TransferKind};
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::pool::{Pool, PoolUse};
use super::push::Pushes;
use super::request::Asked;
use super::shared::Shared;
use super::transfer::{Offer, Push, Transfer};
use crate::bootstrap::JobToken;
use crate::engine::Engine;
use crate::kv::LinkError;
use crate::kv::{KvError, Request};
use crate::link::handshake::Meet;
use crate::link::{LaneFailure, PeerName};

/// The prefill end of a KV link: it has blocks and writes them into the pool of decode.
///
/// Pushes of one link are carried out in the order in which they meet their grants. They go on while any thread
/// drives the engine, whoever waits. A push that misses its deadline after it began, or is
/// [given up](Transfer::revoke), posts nothing more and waits for the writes it has posted. Only when those are not
/// done in time is the lane fenced; then all other transfers on the link end with an error too.
///
/// Dropping it says goodbye to the peer within [`linger`](LinkOptions::linger) and ends every transfer that is left.
pub struct Prefill {
    shared: Arc<Shared<Pushes>>,
}

impl Prefill {
    /// Meets a decode end of the same job over TCP, and connects its pool to `pool`.
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
        let mut opening = Opening::new(engine, pool, PoolUse::Source, token, options)?;
        Ok(Self::over(opening.meet(meet, token, deadline)?, engine, pool, options))
    }

    /// Prepares a prefill end for a link that is opened over the caller's own control plane; see [`Prepared`].
    ///
    /// # Errors
    ///
    /// [`LinkError::WrongUse`] for a destination pool, [`LinkError::OtherEngine`] for a pool of another engine, and
    /// other [`LinkError`]s for what the device refuses.
    pub fn prepare(
        engine: &Engine,
        pool: &Pool,
        token: &JobToken,
        options: &LinkOptions,
    ) -> Result<Prepared<Self>, LinkError> {
        Ok(Prepared::new(Opening::new(engine, pool, PoolUse::Source, token, options)?))
    }

    /// Makes the end over a link that is set up, and registers its state machine with the engine.
    pub(super) fn over(link: Link, engine: &Engine, pool: &Pool, options: &LinkOptions) -> Self {
        Self { shared: Shared::open(link, engine, pool, options, true, Pushes::new) }
    }

    /// Pushes `blocks`, in all layers, to the blocks that decode grants to `request`, pairing both lists in order.
    ///
    /// The call returns at once. The blocks are leased, and must keep their bytes, until decode has confirmed them.
    /// The grant may have come before the push, or come until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for an empty list, a block out of range or given twice, or a token range that does not fit the
    /// blocks; [`KvError::Held`], [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`] and
    /// [`KvError::LinkEnded`]. [`KvError::GrantExpired`] or [`KvError::PeerRevoked`] when decode took back a grant for
    /// this request within the last 60 s. That is reported once, and a new grant of the request lifts it. So a request
    /// that is tried again has a new id, or is granted again before it is pushed again. After any error no block is
    /// leased.
    pub fn push<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Push, KvError> {
        self.begun(request.into().asked(TransferKind::Push)?, blocks.into().into(), deadline)
    }

    /// Pushes like [`push`](Self::push), but layer by layer: the blocks of a layer are pushed once the layer was
    /// [announced](Transfer::layer_ready), in any order, while the next layers are computed. The memory of a layer may
    /// be used for something else once the layer is [sent](Transfer::layer_sent). Blocks that decode has already are
    /// [skipped](Transfer::skipped), and need not be computed.
    ///
    /// [`Pool::write`] refuses leased blocks, so this call is for pools over memory that the caller, or a device of
    /// the caller, writes directly.
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push).
    pub fn push_layers<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Push, KvError> {
        self.begun(request.into().asked(TransferKind::Stream)?, blocks.into().into(), deadline)
    }

    /// Offers `blocks`, in all layers, to the pull of `request`, which reads them in that order.
    ///
    /// The call returns at once. The blocks are leased until decode has read them, or until `deadline`: then decode
    /// is asked to stop, and the blocks are free when it has.
    ///
    /// Decode remembers for 60 s that an offer was taken back before a pull met it, and the next pull of that request
    /// fails once. So give blocks that are offered again another request id.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless the pool is a [`SourceToPull`](super::PoolUse::SourceToPull),
    /// [`KvError::Plan`], [`KvError::Held`], [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`],
    /// [`KvError::TooManyWrites`] and [`KvError::LinkEnded`]. After any error no block is leased.
    pub fn offer<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Offer, KvError> {
        self.begun(request.into().asked(TransferKind::Offer)?, blocks.into().into(), deadline)
    }

    /// Begins a transfer of these blocks.
    pub(super) fn begun(&self, asked: Asked, list: List, deadline: Deadline) -> Result<Push, KvError> {
        let shared = &self.shared;
        let request = asked.request;
        let id = shared.change(&list, |state, now| match asked.kind {
            TransferKind::Offer => state.offer(asked, &list, deadline, now),
            _ => state.add(asked, &list, deadline, now),
        })?;
        Ok(Transfer::new(shared, (id, request), list))
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
        self.shared.end_with_peer(|state, core| state.end(core, LaneFailure::Closed, Instant::now()));
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Arc<Shared<Pushes>> {
        &self.shared
    }

    /// Counters of this end since it was made. Reading them takes a lock of their own, so no transfer waits.
    ///
    /// ```
    /// # use rdma_collective::kv::{LinkEvent, Prefill};
    /// fn log(prefill: &Prefill) {
    ///     let stats = prefill.stats();
    ///     println!("{} of {} transfers are done, {} bytes", stats.done, stats.begun, stats.bytes);
    ///     while let Some(event) = prefill.next_event() {
    ///         if let LinkEvent::Ended { request, outcome, elapsed, .. } = event {
    ///             println!("request {request}: {outcome:?} after {elapsed:?}");
    ///         }
    ///     }
    /// }
    /// ```
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

impl Drop for Prefill {
    fn drop(&mut self) {
        self.shared.close(|state, core| state.end(core, LaneFailure::Fenced, Instant::now()));
    }
}

impl fmt::Debug for Prefill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefill")
            .field("peer", &self.peer())
            .field("access", &self.shared.access)
            .finish_non_exhaustive()
    }
}
