//! Prefill as callers see it: it has the blocks of requests, and pushes them to where decode has granted room.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess};

use super::journal::{Journal, LinkEvent, LinkStats};
use super::link::{Link, LinkOptions, Opening, Prepared};
use super::pending::Handle;
use super::pool::{Pool, PoolUse};
use super::push::Pushes;
use super::receive::END_WITHIN;
use super::revoking::Revoking;
use crate::bootstrap::JobToken;
use crate::kv::LinkError;

use crate::engine::{Engine, Service};
use crate::kv::KvError;
use crate::link::handshake::Meet;
use crate::link::{LaneFailure, PeerName};

/// The longest message of any device. What a port reports is no bound to go by.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// The end of a KV link that has blocks and writes them.
///
/// Pushes of one link are carried out in the order in which their grants meet them, and go on whoever drives the engine.
/// A push that misses its deadline after it began, or is [cancelled](Push::cancel), posts nothing more and waits for what
/// it has posted; only when that is not done in time is the lane fenced, and all others on it end with an error too.
pub struct Prefill {
    shared: Arc<Shared>,
    access: PeerAccess,
    linger: Duration,
}

/// What the end and the pushes on it have in common.
pub(super) struct Shared {
    pub(super) engine: Engine,
    state: Arc<Mutex<Pushes>>,
    journal: Journal,
    pub(super) peer: PeerName,
}

/// A push under way. Dropping it lets it go on unseen.
#[must_use = "a push is done when it was waited for"]
pub struct Push {
    shared: Arc<Shared>,
    id: u64,
    deadline: Deadline,
    told: bool,
}

/// A push that decode has confirmed: its blocks may be used for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// Bytes moved.
    pub bytes: u64,
    /// Writes that moved them.
    pub writes: u32,
    /// Blocks, over all layers, that decode found corrupt, of those that it has checked: without checksums none, and
    /// not all that are so many that it gives up at its deadline.
    pub corrupt: u32,
    /// From the grant to the confirmation.
    pub elapsed: Duration,
}

/// Blocks that decode has read: they may be used for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// Bytes moved.
    pub bytes: u64,
    /// Reads that moved them.
    pub reads: u32,
    /// Blocks, over all layers, that decode found corrupt, of those that it has checked: without checksums none, and
    /// not all that are so many that it gives up at its deadline.
    pub corrupt: u32,
    /// From the offer to its release.
    pub elapsed: Duration,
}

impl Prefill {
    /// Meets a decode of the same job and connects its pool to `pool`.
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
        let mut opening = Opening::new(engine, pool, PoolUse::Source, token, options)?;
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
        Ok(Prepared::new(Opening::new(engine, pool, PoolUse::Source, token, options)?))
    }

    pub(super) fn over(link: Link, engine: &Engine, pool: &Pool, options: &LinkOptions) -> Self {
        let (peer, access) = (link.peer, link.access);
        let mut core = engine.lock();
        let source = pool.attach(&mut core);
        let write_bytes_max = options.write_bytes_max.min(MESSAGE_BYTES_MAX);
        let pushes = Pushes::new(link, pool.clone(), source, write_bytes_max);
        let journal = pushes.journal.clone();
        let state = Arc::new(Mutex::new(pushes));
        core.register(&state);
        drop(core);
        let shared = Arc::new(Shared { engine: engine.clone(), state, journal, peer });
        Self { shared, access, linger: options.linger }
    }

    /// Pushes `blocks` of all layers to the blocks that decode grants to `request`, in that order.
    ///
    /// It returns at once; the blocks are leased until decode has confirmed them. The grant may have come before, or come
    /// until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for no blocks, one that is not there or one that is given twice, [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`], or [`KvError::LinkEnded`]; [`KvError::GrantExpired`] and
    /// [`KvError::PeerRevoked`] when a grant for the request was taken back within the last minute, which is told once: a
    /// request that is tried again has a number of its own. Nothing is lost then.
    pub fn push(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Push, KvError> {
        self.begun(request, (blocks, false), deadline)
    }

    /// As [`push`](Self::push), layer by layer: what `blocks` hold of a layer is pushed once the layer was
    /// [announced](Push::layer_ready), while the next ones are computed. Layers are announced in order.
    ///
    /// The library's own [`Pool::write`] does not write blocks that are leased: this is for pools over memory that the
    /// caller, or a device of its, writes.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn push_layers(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Push, KvError> {
        self.begun(request, (blocks, true), deadline)
    }

    fn begun(&self, request: u64, blocks: (&[u32], bool), deadline: Deadline) -> Result<Push, KvError> {
        let now = Instant::now();
        let shared = &self.shared;
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.add(core, request, blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(id)
        })?;
        Ok(Push { shared: Arc::clone(shared), id, deadline, told: false })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What this end has done so far; it keeps no transfer waiting, and can be asked as often as one likes.
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
        self.shared.journal.stats()
    }

    /// Takes the oldest event; of more than 256 the oldest are dropped, and [counted](LinkStats::events_dropped).
    #[must_use]
    pub fn next_event(&self) -> Option<LinkEvent> {
        self.shared.journal.next_event()
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
    pub(super) fn lock(&self) -> MutexGuard<'_, Pushes> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Push {
    /// Waits until decode has confirmed all blocks. Giving it up at the deadline may take up to a second more, and up to
    /// six as long as decode is heard or what was posted moves.
    ///
    /// # Errors
    ///
    /// [`KvError`]: the deadline, a peer that is lost, a grant that does not fit. The blocks are free again, and nothing
    /// reads them any more.
    pub fn wait(mut self) -> Result<Pushed, KvError> {
        let deadline = Deadline::after(self.deadline.remaining() + END_WITHIN);
        let peer = self.shared.peer;
        // The service has ended it at the deadline, unless the engine could not.
        let late = || Err(KvError::LinkEnded { peer, cause: LaneFailure::Fenced });
        self.outcome_by(deadline).unwrap_or_else(late)
    }

    /// Announces that the blocks hold what is to be pushed of `layer`: from now on it is read.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerOutOfOrder`] and [`KvError::LayerRepeated`], and [`KvError::Plan`] for a layer that is not there;
    /// the push goes on as if nothing had been announced.
    pub fn layer_ready(&self, layer: u32) -> Result<(), KvError> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.layer_ready(self.id, layer)?;
            state.advance(core, Instant::now());
            Ok(())
        })
    }

    /// Gives the push up: after `Ok` its blocks are not read any more, and can be used for something else.
    ///
    /// What had been posted is waited for, and the peer is told; the link goes on. When it is not done by `deadline`, the
    /// lane is fenced: then the link has ended, and every transfer on it with it.
    ///
    /// It blocks meanwhile; [`start_cancel`](Self::start_cancel) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: its blocks are never used again.
    pub fn cancel(self, deadline: Deadline) -> Result<(), KvError> {
        self.start_cancel(deadline).wait()
    }

    /// Begins to give the push up, as [`cancel`](Self::cancel) does, and returns at once.
    pub fn start_cancel(self, deadline: Deadline) -> Revoking<()> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.cancel(core, self.id, deadline);
            state.advance(core, Instant::now());
        });
        let peer = shared.peer;
        Revoking::new(self, peer, deadline)
    }

    /// Bytes that are known to have arrived, and all of them, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        self.shared.lock().progress(self.id).unwrap_or((0, 0))
    }
}

impl Handle for Push {
    type Outcome = Result<Pushed, KvError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let mut state = self.shared.lock();
        if let Some(outcome) = state.outcome(self.id) {
            self.told = true;
            return Poll::Ready(outcome);
        }
        let replaced = waker.and_then(|waker| state.push_wakers.set(self.id, waker));
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome> {
        let shared = Arc::clone(&self.shared);
        shared.engine.wait_for(deadline, |_, _| self.look(None))
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if !self.told && !self.shared.engine.is_forked() {
            self.shared.lock().abandon(self.id);
        }
    }
}

impl Drop for Prefill {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.engine.is_forked() {
            return;
        }
        let lane = shared.lock().link.lane;
        shared.engine.say_goodbye(&[lane], Deadline::after(self.linger));
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.end(core, LaneFailure::Fenced, Instant::now());
            state.detach(core);
        });
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
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
