//! Transfers that are given up without a thread that waits for it: what is left of their handles meanwhile.
//!
//! Giving up goes on at both ends' state machines, `receive` and `push`, which fence the lane at the deadline whoever
//! looks; here it is only looked at.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::decode::Received;
use super::pending::{BUDGET, Handle};
use super::receive::TELL_WITHIN;
use super::verdict::Verdicts;
use crate::engine::Engine;
use crate::kv::{KvError, TransferError};
use crate::link::{LaneFailure, PeerName};

/// What is known in the end, once; otherwise the task is woken then.
type Look<K> = dyn FnMut(Option<&Waker>) -> Poll<Result<K, KvError>> + Send + Sync;

/// A transfer that is being given up, and what is known of it in the end: the [`Verdicts`] of a grant or a pull.
///
/// After `Ok` nothing of it lands, or is read, any more. That comes when the peer has answered, or by fencing the lane at
/// the deadline that was given: the engine does so when it is driven, by its [own
/// thread](crate::engine::Driver::Thread) or by whoever polls, whether or not anybody looks at this. Dropping it lets that
/// go on unseen.
///
/// Look at it by [`poll`](Self::poll) from a loop, [`wait`](Self::wait) for it, or `.await` it under any runtime.
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
/// // Both at once, and neither keeps the thread.
/// let (mut revoking, cancelling) = (grant.start_revoke(deadline), push.start_cancel(deadline));
/// let verdicts = loop {
///     if let std::task::Poll::Ready(verdicts) = revoking.poll() {
///         break verdicts?;
///     }
///     // Whatever else there is to do.
/// };
/// assert_eq!(verdicts.count(BlockVerdict::Valid), 0);
/// assert_eq!(room.held(5), None);
/// // As `cancelling.await?` does in a task.
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

/// What outcomes leave of a transfer that was given up.
pub(super) trait Leaves<K> {
    /// # Errors
    ///
    /// It is not known that nothing of it lands any more.
    fn leaves(self) -> Result<K, KvError>;
}

impl Leaves<Verdicts> for Result<Received, TransferError> {
    fn leaves(self) -> Result<Verdicts, KvError> {
        self.map(|received| received.verdicts).or_else(|error| match &*error.cause {
            cause @ (KvError::Quarantined { .. } | KvError::Engine(_)) => Err(cause.clone()),
            _ => Ok(error.verdicts),
        })
    }
}

impl<T> Leaves<()> for Result<T, KvError> {
    fn leaves(self) -> Result<(), KvError> {
        match self {
            Err(error @ (KvError::Quarantined { .. } | KvError::Engine(_))) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<K> Revoking<K> {
    /// Looks at a transfer that is given up by `deadline`.
    pub(super) fn new<H>(mut handle: H, peer: PeerName, deadline: Deadline) -> Self
    where
        H: Handle<Outcome: Leaves<K>> + Send + Sync + 'static,
    {
        let engine = handle.engine().clone();
        let look = Box::new(move |waker: Option<&Waker>| handle.look(waker).map(Leaves::leaves));
        Self { look, engine, peer, deadline }
    }

    /// Drives the engine once and looks; it never waits. After `Ready` it is `Ready` no more.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub fn poll(&mut self) -> Poll<Result<K, KvError>> {
        // A device that cannot be trusted any more ends the transfer with that error.
        let _ = self.engine.drive(Instant::now(), BUDGET);
        (self.look)(None)
    }

    /// Waits until nothing of the transfer lands, or is read, any more.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: its blocks are never used again.
    /// [`KvError::LinkEnded`] two seconds after the deadline, if the engine has not got to it: they are held until it has.
    pub fn wait(self) -> Result<K, KvError> {
        let (peer, cause) = (self.peer, LaneFailure::Fenced);
        let deadline = Deadline::after(self.deadline.remaining() + 2 * TELL_WITHIN);
        // The engine has fenced the lane by then, unless it could not.
        self.wait_until(deadline).unwrap_or(Err(KvError::LinkEnded { peer, cause }))
    }

    /// Waits until it has ended, or until `deadline`, whatever its own is.
    ///
    /// # Errors
    ///
    /// It comes back at `deadline`, and goes on: wait again.
    pub fn wait_until(mut self, deadline: Deadline) -> Result<Result<K, KvError>, Self> {
        let ended = self.engine.wait_for(deadline, |_, _| (self.look)(None));
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

/// The future of a [`Revoking`]. It is woken by whoever drives the engine.
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
