//! The handle of a transfer, the same at both ends and for both ways: [`Transfer`], polled from a loop, waited for, or
//! awaited under any runtime.
//!
//! The state machines in `push` and `receive` do the work, whether or not anybody looks. This file only looks at them.
//! `kind` has the [kinds](Kind) of transfers, `layer` the layers of one, and `skipped` what prefill need not have.

mod joint;
mod kind;
mod layer;
mod skipped;
mod token;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

pub use self::joint::{Joint, JointLayer, JointRevoking};
pub use self::kind::{Kind, Receiving, Revocable, Revoked, Sending};
pub use self::layer::{LayerFuture, LayerSentFuture};
pub use self::skipped::SkippedFuture;
pub use self::token::RevokeToken;

use super::blocks::List;
use super::machine::Machine;
use super::outcome::Progress;
use super::shared::Shared;
use crate::kv::{KvError, RequestId};
use crate::link::LaneFailure;

/// Blocks that prefill writes to decode. Returned by [`Prefill::push`](super::Prefill::push).
pub type Push = Transfer<Sending>;
/// Blocks that decode may read from prefill. Returned by [`Prefill::offer`](super::Prefill::offer).
pub type Offer = Transfer<Sending>;
/// Blocks of decode that prefill fills. Returned by [`Decode::grant`](super::Decode::grant).
pub type Grant = Transfer<Receiving>;
/// Blocks of decode that it reads from prefill. Returned by [`Decode::pull`](super::Decode::pull).
pub type Pull = Transfer<Receiving>;
/// A transfer that is being given up. Returned by [`Transfer::start_revoke`].
pub type Revoking<K> = Transfer<Revoked<K>>;

/// A transfer under way: a [`Push`] or an [`Offer`] of prefill, a [`Grant`] or a [`Pull`] of decode, or one of them
/// that is [being given up](Revoking).
///
/// Transfers go on while any thread drives the engine, whoever looks. The outcome is there once:
///
/// | call | under way | ended | outcome taken |
/// |---|---|---|---|
/// | [`poll`](Self::poll), `.await` | pending | the outcome | pending |
/// | [`wait`](Self::wait) | the outcome, once it is there | the outcome | `OutcomeTaken` |
/// | [`wait_until`](Self::wait_until) | the handle, at that deadline | the outcome | `OutcomeTaken` |
/// | [`start_revoke`](Self::start_revoke) | being given up | the outcome, as that of giving up | a taken handle |
/// | drop | [given up](Self::on_drop), or goes on | its outcome is lost | nothing |
///
/// A handle is a future. Await it by reference (`(&mut transfer).await`) to keep it, so that a task which stops waiting
/// can still [revoke](Self::revoke) it. A task that is itself dropped gives its transfers up: the blocks are free again
/// once the peer has stopped, and nobody waits for that.
///
/// ```
/// # use std::net::TcpListener;
/// # use std::time::Duration;
/// # use rdma_collective::bootstrap::JobToken;
/// # use rdma_collective::engine::{Engine, EngineOptions};
/// # use rdma_collective::link::Meet;
/// # use rdma_collective::kv::layout::{Layout, Model, Order};
/// # use rdma_collective::kv::{BlockVerdict, Decode, LinkOptions, Pool, PoolUse, Prefill};
/// # use rdma_core::{Deadline, Device, SoftOptions};
/// # let (token, options) = (JobToken::random()?, LinkOptions::default());
/// # let deadline = Deadline::after(Duration::from_secs(30));
/// # let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
/// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
/// # let pool = Pool::allocate(&engine, &layout, PoolUse::Source)?;
/// # let room = Pool::allocate(&engine, &layout, PoolUse::Destination)?;
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let (decode, prefill) = std::thread::scope(|scope| {
/// #     let prefill = scope.spawn(|| {
/// #         Prefill::new(&engine, &pool, &Meet::Connect(address), &token, &options, deadline)
/// #     });
/// #     let decode = Decode::new(&engine, &room, &Meet::Accept(&listener), &token, &options, deadline);
/// #     (decode, prefill.join().expect("prefill runs"))
/// # });
/// # let (decode, prefill) = (decode?, prefill?);
/// let (grant, push) = (decode.grant(1, &[0, 5], deadline)?, prefill.push(2, &[3, 1], deadline)?);
/// // Both are given up at once, and neither blocks the thread.
/// let (mut grant, push) = (grant.start_revoke(deadline), push.start_revoke(deadline));
/// let verdicts = loop {
///     if let std::task::Poll::Ready(verdicts) = grant.poll() {
///         break verdicts?;
///     }
///     // Other work of the loop goes here.
/// };
/// assert_eq!(verdicts.count(BlockVerdict::Valid), 0);
/// assert_eq!(room.held(5), None);
/// // A task would write `push.await?`.
/// push.wait()?;
/// assert_eq!(pool.held(3), None);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "blocks are there, or are free again, when their transfer was waited for"]
pub struct Transfer<K: Kind> {
    shared: Arc<Shared<K::Machine>>,
    id: u64,
    request: RequestId,
    list: List,
    /// The deadline of giving up, if this is the handle of that.
    revoked_by: Option<Deadline>,
    taken: bool,
    on_drop: OnDrop,
    kind: PhantomData<fn() -> K>,
}

/// The fate of a transfer whose handle is dropped before its outcome was taken.
///
/// The argument of [`Transfer::on_drop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnDrop {
    /// The transfer is given up, as by [`start_revoke`](Transfer::start_revoke) with a deadline of 5 s. The default.
    #[default]
    Revoke,
    /// The transfer goes on until it ends by itself, by its deadline at the latest.
    Finish,
}

impl<K: Kind> Transfer<K> {
    /// Makes the handle of a transfer that the state machine has as `id`.
    pub(super) fn new(shared: &Arc<Shared<K::Machine>>, (id, request): (u64, RequestId), list: List) -> Self {
        let (shared, taken, on_drop, kind) = (Arc::clone(shared), false, OnDrop::default(), PhantomData);
        Self { shared, id, request, list, revoked_by: None, taken, on_drop, kind }
    }

    /// The id of the request, which the peer knows too.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// The blocks of this end's pool, in the order of the request.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        self.list.blocks()
    }

    /// The progress of the transfer, as of the engine's last drive. An offer has none before decode has read all of
    /// its blocks.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.glance(|state| state.progress(self.id)).unwrap_or_default()
    }

    /// Drives the engine once, unless another thread does, and looks for the outcome; never waits. `Ready` comes once:
    /// a later poll is `Pending`.
    ///
    /// On a link with checksums the driving thread checks blocks that have arrived, at most 1 MiB in one drive, and
    /// the engine asks to be driven again [at once](crate::engine::Engine::drive): a large transfer takes several
    /// drives more.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn poll(&mut self) -> Poll<Result<K::Outcome, K::Error>> {
        self.shared.engine.try_drive();
        self.look(None)
    }

    /// Waits until the transfer has ended: a push until decode has confirmed all blocks, an offer until decode has
    /// read them or the offer has expired, a grant or a pull until all blocks have arrived, and were checked if the
    /// link has checksums. A transfer that is being given up ends when none of its bytes land or are read any more; at
    /// its deadline the lane is fenced.
    ///
    /// Any other transfer is given up at its deadline, and the peer is asked to stop. That takes up to 1 s more from a
    /// silent peer, and up to 6 s while the peer is heard or posted writes still complete, because over a slow link its
    /// answer comes behind what was queued before. Blocks that have all arrived by the deadline may be checked for 5 s
    /// more.
    ///
    /// # Errors
    ///
    /// At prefill a [`KvError`], at decode a [`TransferError`](super::TransferError), which has the verdict on each
    /// block beside it: [`KvError::DeadlineExceeded`]; [`KvError::PeerFailed`] for a lost peer;
    /// [`KvError::PeerRevoked`] when the peer gave up; [`KvError::GrantExpired`], [`KvError::LeaseExpired`] and, of a
    /// pull, [`KvError::NotOffered`] when the two sides did not meet in time; [`KvError::OutcomeTaken`] after a poll
    /// that was ready; [`KvError::BlockCounts`] and [`KvError::TokenRanges`] for a peer with another number of blocks
    /// or tokens, and [`KvError::Plan`], [`KvError::TooManyWrites`] and [`KvError::GrantRefused`] for
    /// other requests that do not fit. The blocks are free again and no longer read or written, but for two errors:
    /// after [`KvError::Quarantined`] they are never used again; and [`KvError::LinkEnded`] comes 8 s after the
    /// deadline if the engine could not end the transfer, and the blocks stay held until it has.
    ///
    /// A transfer that is being given up fails with [`KvError::Quarantined`] when the device did not fence the lane, so
    /// that the blocks are never used again; and with [`KvError::LinkEnded`] 2 s after the deadline if the engine has
    /// not fenced the lane by then, and the blocks stay held until it has.
    pub fn wait(mut self) -> Result<K::Outcome, K::Error> {
        self.outcome()
    }

    /// Waits for the outcome as long as it may take; the deadline may be [extended](Self::extend) meanwhile.
    fn outcome(&mut self) -> Result<K::Outcome, K::Error> {
        let mut ends_at = Instant::now().max(self.ends_at());
        loop {
            if let Some(outcome) = self.outcome_by(Deadline::at(ends_at + K::ENDS_WITHIN)) {
                return outcome;
            }
            let later = self.ends_at();
            if later <= ends_at {
                return self.stuck();
            }
            ends_at = later;
        }
    }

    /// The deadline by which the transfer ends: that of giving up, if it is given up.
    fn ends_at(&self) -> Instant {
        let deadline = || self.shared.glance(|state| state.deadline(self.id));
        // Without a deadline the outcome is there, or never will be.
        self.revoked_by.or_else(deadline).map_or_else(|| self.shared.opened, Deadline::instant)
    }

    /// Waits until the transfer has ended, or until `deadline`, which may be earlier or later than the transfer's own.
    ///
    /// # Errors
    ///
    /// The handle itself comes back at `deadline`, and the transfer goes on: wait again.
    pub fn wait_until(mut self, deadline: Deadline) -> Result<Result<K::Outcome, K::Error>, Self> {
        self.outcome_by(deadline).ok_or(self)
    }

    /// Waits for the outcome until `deadline`; `None` when the deadline passes first.
    fn outcome_by(&mut self, deadline: Deadline) -> Option<Result<K::Outcome, K::Error>> {
        let engine = self.shared.engine.clone();
        match engine.check_process() {
            Ok(()) if self.taken => Some(self.refused(KvError::OutcomeTaken { request: self.request })),
            Ok(()) => engine.wait_for(deadline, |_, _| self.look(None)),
            Err(forked) => Some(self.refused(forked.into())),
        }
    }

    /// Takes the outcome, which is there once; otherwise registers the waker, if there is one. A forked child is
    /// refused, because it must not take the lock.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<Result<K::Outcome, K::Error>> {
        if let Err(forked) = self.shared.engine.check_process() {
            return Poll::Ready(self.refused(forked.into()));
        }
        if self.taken {
            return Poll::Pending;
        }
        let id = self.id;
        let looked = self.shared.look(id, waker, |state| state.take(id), Machine::wakers);
        self.taken |= looked.is_ready();
        looked.map(K::conclude)
    }

    /// The outcome of a transfer that an engine which cannot go on has left open.
    fn stuck(&self) -> Result<K::Outcome, K::Error> {
        self.refused(KvError::LinkEnded { peer: self.shared.peer.clone(), cause: LaneFailure::Fenced })
    }

    /// The outcome of a transfer that cannot go on here because of `cause`.
    fn refused(&self, cause: KvError) -> Result<K::Outcome, K::Error> {
        K::conclude(Err(Machine::refused(&self.shared, self.id, &self.list, cause)))
    }
}

impl<K: Revocable> Transfer<K> {
    /// Sets what becomes of the transfer when this handle is dropped: [given up](OnDrop::Revoke) unless said otherwise.
    ///
    /// Dropping returns at once, in either case.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// Moves the deadline of the transfer to a later one, and returns at once. An earlier one changes nothing.
    ///
    /// A server that takes short deadlines, so that what is forgotten does not last, extends those of requests that
    /// still wait. Each end has a deadline of its own: extend at both. The peer is told how long a grant or an offer
    /// lives that it has not met yet.
    ///
    /// # Errors
    ///
    /// [`KvError::AlreadyEnded`] for a transfer that has ended well, and its error for one that has not, or is being
    /// given up; [`KvError::OutcomeTaken`], and [`KvError::Engine`] in a forked child.
    pub fn extend(&self, deadline: Deadline) -> Result<(), KvError> {
        self.shared.extend((self.id, self.request), &self.list, deadline)
    }

    /// Gives the transfer up. After `Ok` none of its bytes land or are read any more, and the blocks can be used for
    /// something else. Decode gets the verdicts on what had arrived.
    ///
    /// Writes and reads that were posted are waited for, and the peer is asked to stop, which takes a round trip and
    /// leaves the link as it is. When that is not done by `deadline`, the lane is fenced: the link has ended then, and
    /// every transfer on it too. The engine fences when it is driven, by its [own
    /// thread](crate::engine::Driver::Thread) or by a thread that polls, whether or not anybody waits.
    ///
    /// The call blocks; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    /// [`KvError::Engine`] and [`KvError::LinkEnded`] when the engine cannot go on: the blocks stay held.
    #[doc(alias = "cancel")]
    pub fn revoke(self, deadline: Deadline) -> Result<K::Left, KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to give the transfer up like [`revoke`](Self::revoke), and returns at once. Dropping the returned handle
    /// lets giving up go on.
    pub fn start_revoke(mut self, deadline: Deadline) -> Revoking<K> {
        // Nothing is asked in a forked child, and the handle reports the refusal.
        self.shared.ask_to_give_up(self.id, &self.list, Some(deadline));
        let mut revoking = Transfer::new(&self.shared, (self.id, self.request), self.list.clone());
        revoking.revoked_by = Some(deadline);
        revoking.on_drop = OnDrop::Finish;
        // The returned handle takes the outcome now, unless this one has taken it.
        revoking.taken = std::mem::replace(&mut self.taken, true);
        revoking
    }
}

impl<K: Kind> Future for Transfer<K> {
    type Output = Result<K::Outcome, K::Error>;

    /// Looks for the outcome. The thread that drives the engine wakes the task.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(Some(context.waker()))
    }
}

impl<K: Kind> Drop for Transfer<K> {
    fn drop(&mut self) {
        if self.taken || self.shared.engine.is_forked() {
            return;
        }
        self.shared.lock().abandon(self.id);
        if self.on_drop == OnDrop::Revoke {
            self.shared.ask_to_give_up(self.id, &self.list, None);
        }
    }
}

impl<K: Kind> fmt::Debug for Transfer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("request", &self.request)
            .field("blocks", &self.blocks().len())
            .field("peer", &self.shared.peer)
            .finish_non_exhaustive()
    }
}
