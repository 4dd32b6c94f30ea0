//! Handles of transfers that are being given up: [`Revoking`], polled, waited for or awaited.
//!
//! The state machines `receive` and `push` do the work, and fence the lane at the deadline whether or not anybody
//! looks. This file only looks at them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::fence::CONFIRM_WITHIN;
use super::outcome::Received;
use super::pending::{BUDGET, Handle};
use super::shared::Shared;
use super::verdict::Verdicts;
use crate::engine::{Engine, EngineState, Service};
use crate::kv::{KvError, TransferError};
use crate::link::{LaneFailure, PeerName};

/// Takes the final result, which is there once; otherwise registers the waker.
type Look<K> = dyn FnMut(Option<&Waker>) -> Poll<Result<K, KvError>> + Send + Sync;

/// A transfer that is being given up, and its final result: the [`Verdicts`] of a grant or a pull.
///
/// After `Ok` none of its bytes land, or are read, any more. The result comes when the peer has answered, or by
/// fencing the lane at the given deadline. The engine fences when it is driven, by its [own
/// thread](crate::engine::Driver::Thread) or by a thread that polls, whether or not this handle is looked at.
/// Dropping the handle lets giving up go on.
///
/// Call [`poll`](Self::poll) from a loop, [`wait`](Self::wait), or `.await` under any runtime.
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
/// # let pool = Pool::allocate(&engine, layout, PoolUse::Source)?;
/// # let room = Pool::allocate(&engine, layout, PoolUse::Destination)?;
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
/// let (mut revoking, cancelling) = (grant.start_revoke(deadline), push.start_cancel(deadline));
/// let verdicts = loop {
///     if let std::task::Poll::Ready(verdicts) = revoking.poll() {
///         break verdicts?;
///     }
///     // Other work of the loop goes here.
/// };
/// assert_eq!(verdicts.count(BlockVerdict::Valid), 0);
/// assert_eq!(room.held(5), None);
/// // A task would write `cancelling.await?`.
/// cancelling.wait()?;
/// assert_eq!(pool.held(3), None);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "blocks are free when giving their transfer up was waited for"]
pub struct Revoking<K> {
    look: Box<Look<K>>,
    engine: Engine,
    peer: PeerName,
    deadline: Deadline,
}

/// Conversion of a transfer's outcome into the result of giving it up.
pub(super) trait IntoRevoked<K> {
    /// # Errors
    ///
    /// The device failed or did not fence, so bytes of the transfer may still land.
    fn into_revoked(self) -> Result<K, KvError>;
}

impl IntoRevoked<Verdicts> for Result<Received, TransferError> {
    fn into_revoked(self) -> Result<Verdicts, KvError> {
        self.map(|received| received.verdicts).or_else(|error| match &*error.cause {
            cause @ (KvError::Quarantined { .. } | KvError::Engine(_)) => Err(cause.clone()),
            _ => Ok(error.verdicts),
        })
    }
}

impl<T> IntoRevoked<()> for Result<T, KvError> {
    fn into_revoked(self) -> Result<(), KvError> {
        match self {
            Err(error @ (KvError::Quarantined { .. } | KvError::Engine(_))) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<K> Revoking<K> {
    /// Begins to give a transfer up by `give_up`, and wraps its handle. It ends by `deadline`.
    pub(super) fn new<H, S: Service + 'static>(
        mut handle: H,
        shared: &Shared<S>,
        deadline: Deadline,
        give_up: impl FnOnce(&mut S, &mut EngineState),
    ) -> Self
    where
        H: Handle<Outcome: IntoRevoked<K>> + Send + Sync + 'static,
    {
        let (engine, peer) = (shared.engine.clone(), shared.peer);
        if !engine.is_forked() {
            engine.lock_with(|core| {
                let mut state = shared.lock();
                give_up(&mut state, core);
                state.advance(core, Instant::now());
            });
        }
        let look =
            Box::new(move |waker: Option<&Waker>| handle.look_here(waker).map(IntoRevoked::into_revoked));
        Self { look, engine, peer, deadline }
    }

    /// Drives the engine once and looks for the result; never waits. `Ready` comes once: a later poll is `Pending`.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn poll(&mut self) -> Poll<Result<K, KvError>> {
        // The error is dropped here, because a failed device ends the transfer with the same error.
        let _ = self.engine.drive(Instant::now(), BUDGET);
        (self.look)(None)
    }

    /// Waits until no byte of the transfer lands, or is read, any more.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    /// [`KvError::LinkEnded`] 2 s after the deadline, if the engine has not fenced the lane by then: the blocks stay
    /// held until it has.
    pub fn wait(self) -> Result<K, KvError> {
        let (peer, cause) = (self.peer, LaneFailure::Fenced);
        let deadline = Deadline::after(self.deadline.remaining() + 2 * CONFIRM_WITHIN);
        // The engine has fenced the lane by then, unless no thread could drive it.
        self.wait_until(deadline).unwrap_or(Err(KvError::LinkEnded { peer, cause }))
    }

    /// Waits until giving up has ended, or until `deadline`, which may differ from the one given before.
    ///
    /// # Errors
    ///
    /// The handle itself comes back at `deadline`, and giving up goes on: wait again.
    pub fn wait_until(mut self, deadline: Deadline) -> Result<Result<K, KvError>, Self> {
        let ended = match self.engine.check_process() {
            Ok(()) => self.engine.wait_for(deadline, |_, _| (self.look)(None)),
            Err(forked) => Some(Err(forked.into())),
        };
        ended.ok_or(self)
    }
}

impl<K> fmt::Debug for Revoking<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revoking")
            .field("peer", &self.peer)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The future of a [`Revoking`]. The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct RevokingFuture<K>(Revoking<K>);

impl<K> Future for RevokingFuture<K> {
    type Output = Result<K, KvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        (self.0.look)(Some(context.waker()))
    }
}

impl<K> IntoFuture for Revoking<K> {
    type Output = Result<K, KvError>;
    type IntoFuture = RevokingFuture<K>;

    fn into_future(self) -> RevokingFuture<K> {
        RevokingFuture(self)
    }
}
