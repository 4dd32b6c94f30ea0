//! The public prefill end of a link: [`Prefill`], and the handle of a [`Push`].
//!
//! This file owns the handles. The state machine of pushes is `push`'s, and offers are added in `pull`.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use rdma_core::{Deadline, PeerAccess};

use super::journal::{LinkEvent, LinkStats};
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::outcome::Pushed;
use super::pending::{self, Handle};
use super::pool::{Pool, PoolUse};
use super::push::Pushes;
use super::revoking::Revoking;
use super::shared::Shared;
use crate::bootstrap::JobToken;
use crate::engine::Engine;
use crate::kv::KvError;
use crate::kv::LinkError;
use crate::link::handshake::Meet;
use crate::link::{LaneFailure, PeerName};

/// The prefill end of a KV link: it has blocks and writes them into the pool of decode.
///
/// Pushes of one link are carried out in the order in which they meet their grants. They go on while any thread
/// drives the engine, whoever waits. A push that misses its deadline after it began, or is [cancelled](Push::cancel),
/// posts nothing more and waits for the writes it has posted. Only when those are not done in time is the lane
/// fenced; then all other transfers on the link end with an error too.
///
/// Dropping it says goodbye to the peer within [`linger`](LinkOptions::linger) and ends every transfer that is left.
pub struct Prefill {
    shared: Arc<Shared<Pushes>>,
}

/// A push under way. Dropping the handle lets the push go on; its outcome is lost.
///
/// Returned by [`Prefill::push`].
#[must_use = "a push is done when it was waited for"]
pub struct Push {
    shared: Arc<Shared<Pushes>>,
    id: u64,
    deadline: Deadline,
    taken: bool,
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
        Self { shared: Shared::open(link, engine, pool, options, Pushes::new) }
    }

    /// Pushes `blocks`, in all layers, to the blocks that decode grants to `request`, pairing both lists in order.
    ///
    /// The call returns at once. The blocks are leased, and must keep their bytes, until decode has confirmed them.
    /// The grant may have come before the push, or come until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for an empty list, a block out of range or a block given twice; [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`] and [`KvError::LinkEnded`].
    /// [`KvError::GrantExpired`] or [`KvError::PeerRevoked`] when decode took back a grant for this request within
    /// the last 60 s. That is reported once, and a new grant of the request lifts it. So a request that is tried again
    /// has a new number, or is granted again before it is pushed again. After any error no block is leased.
    pub fn push(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Push, KvError> {
        self.begun(request, (blocks, false), deadline)
    }

    /// Pushes like [`push`](Self::push), but layer by layer: the blocks of a layer are pushed once the layer was
    /// [announced](Push::layer_ready), while the next layers are computed. Layers are announced in order.
    ///
    /// [`Pool::write`] refuses leased blocks, so this call is for pools over memory that the caller, or a device of
    /// the caller, writes directly.
    ///
    /// # Errors
    ///
    /// The errors of [`push`](Self::push).
    pub fn push_layers(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Push, KvError> {
        self.begun(request, (blocks, true), deadline)
    }

    fn begun(&self, request: u64, blocks: (&[u32], bool), deadline: Deadline) -> Result<Push, KvError> {
        let shared = &self.shared;
        let id = shared.change(|state, core, now| state.add(core, request, blocks, deadline, now))?;
        Ok(Push { shared: Arc::clone(shared), id, deadline, taken: false })
    }

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
        self.shared.peer
    }

    /// The path over which the peer's memory is reached.
    #[must_use]
    pub fn peer_access(&self) -> PeerAccess {
        self.shared.access
    }
}

impl Push {
    /// Waits until decode has confirmed all blocks.
    ///
    /// At the deadline the push is given up, which takes up to 1 s more, or up to 6 s while the peer is heard or
    /// posted writes still complete.
    ///
    /// # Errors
    ///
    /// [`KvError::DeadlineExceeded`], [`KvError::PeerFailed`] for a lost peer, [`KvError::BlockCounts`] and other
    /// [`KvError`]s for a grant that does not fit. The blocks are free again and no longer read, unless the error is
    /// [`KvError::Quarantined`].
    pub fn wait(self) -> Result<Pushed, KvError> {
        let (deadline, peer) = (self.deadline, self.shared.peer);
        pending::wait(self, deadline, peer)
    }

    /// Announces that the blocks hold the bytes of `layer`: from now on the device may read that layer.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerOutOfOrder`] and [`KvError::LayerRepeated`], and [`KvError::Plan`] for a layer that the pool
    /// does not have. The push goes on as if nothing had been announced.
    pub fn layer_ready(&self, layer: u32) -> Result<(), KvError> {
        self.shared.change(|state, _, _| state.layer_ready(self.id, layer))
    }

    /// Gives the push up. After `Ok` its blocks are not read any more, and can be used for something else.
    ///
    /// The writes that were posted are waited for, and the peer is notified, so the link goes on. When the writes are
    /// not done by `deadline`, the lane is fenced: the link has ended then, and every transfer on it too.
    ///
    /// The call blocks; [`start_cancel`](Self::start_cancel) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    pub fn cancel(self, deadline: Deadline) -> Result<(), KvError> {
        self.start_cancel(deadline).wait()
    }

    /// Begins to give the push up like [`cancel`](Self::cancel), and returns at once.
    pub fn start_cancel(self, deadline: Deadline) -> Revoking<()> {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        Revoking::new(self, &shared, deadline, |state, core| state.cancel(core, id, deadline))
    }

    /// Bytes that are known to have arrived, and all bytes of the push, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        self.shared.glance(|state| state.progress(self.id)).unwrap_or((0, 0))
    }
}

impl Handle for Push {
    type Outcome = Result<Pushed, KvError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let take = |state: &mut Pushes| state.outcome(self.id);
        let looked = self.shared.look(self.id, waker, take, |state| &mut state.push_wakers);
        self.taken |= looked.is_ready();
        looked
    }

    fn refused(&self, cause: KvError) -> Self::Outcome {
        Err(cause)
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if !self.taken && !self.shared.engine.is_forked() {
            self.shared.lock().abandon(self.id);
        }
    }
}

impl Drop for Prefill {
    fn drop(&mut self) {
        self.shared.close(|state, core| state.end(core, LaneFailure::Fenced, Instant::now()));
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("id", &self.id).finish_non_exhaustive()
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
