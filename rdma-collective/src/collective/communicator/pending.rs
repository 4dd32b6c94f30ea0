//! An operation under way, as its caller holds it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::shared::Shared;
use super::state::Ended;
use crate::collective::CollectiveError;
use crate::collective::execute::Job;

/// Completions taken by one [`poll`](Pending::poll).
const BUDGET: usize = 64;

/// An operation of a communicator that is under way or done, and what it gives back.
///
/// It goes on whatever becomes of this: dropping it lets the operation finish unseen, since other ranks wait for it, and
/// frees what it owns then. It ends at its own deadline at the latest. Wait for it by [`poll`](Self::poll) from a loop,
/// by [`wait`](Self::wait), or by `.await` under any runtime: nothing here needs one, provided that something drives the
/// engine, as its [own thread](crate::engine::Driver::Thread) does.
#[must_use = "what the operation gives back is lost when this is dropped"]
pub struct Pending<T> {
    state: HandleState,
    /// Makes what the caller gets of the operation that owned it.
    give_back: fn(Box<Job>) -> T,
}

/// Where an operation is.
enum HandleState {
    /// Under way, by that number.
    UnderWay(Arc<Shared>, u64),
    /// It was done when it had begun.
    Done(Box<Job>),
    /// Its caller has it back.
    Gone,
}

/// A wait that ended before the operation did, which goes on.
pub struct StillPending<T>(pub Pending<T>);

/// Why waiting for an operation gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError<T> {
    /// The wait's deadline passed, and the operation goes on: wait again.
    #[error("the operation had not ended at the deadline of the wait; it goes on, wait for it again")]
    StillPending(StillPending<T>),
    /// The operation failed, and with it the communicator, unless it is [`CollectiveError::Unconnected`].
    #[error(transparent)]
    Failed(#[from] CollectiveError),
}

impl<T> Pending<T> {
    pub(super) fn new(shared: Arc<Shared>, id: u64, give_back: fn(Box<Job>) -> T) -> Self {
        Self { state: HandleState::UnderWay(shared, id), give_back }
    }

    #[inline]
    pub(in crate::collective) fn done(job: Box<Job>, give_back: fn(Box<Job>) -> T) -> Self {
        Self { state: HandleState::Done(job), give_back }
    }

    /// Patience, and drives the engine once unless the operation is done already; it never waits. After `Ready` it is `Ready` no more,
    /// and a [`wait`](Self::wait) gives it back at once, as one that is pending.
    ///
    /// # Errors
    ///
    /// What the operation failed with.
    pub fn poll(&mut self) -> Poll<Result<T, CollectiveError>> {
        self.look(|shared, id| {
            shared.try_finish_deferred(id, None).map(Ok).or_else(|| {
                // A device that cannot be trusted any more ends the operation with that error.
                let _ = shared.engine.drive(Instant::now(), BUDGET);
                shared.lock().take(id)
            })
        })
    }

    /// Waits until it has ended, driving the engine meanwhile, or until `deadline`.
    ///
    /// # Errors
    ///
    /// [`WaitError::StillPending`] gives this back at `deadline`; [`WaitError::Failed`] is what the operation failed with.
    pub fn wait(mut self, deadline: Deadline) -> Result<T, WaitError<T>> {
        let ended = self.look(|shared, id| {
            let deferred = shared.try_finish_deferred(id, Some(deadline)).map(Ok);
            deferred.or_else(|| {
                shared.engine.wait_for(deadline, |_, _| {
                    let mut state = shared.lock();
                    // Whoever waits for it goes on with it at once.
                    state.reclaim();
                    state.take(id).map_or(Poll::Pending, Poll::Ready)
                })
            })
        });
        match ended {
            Poll::Pending => Err(WaitError::StillPending(StillPending(self))),
            Poll::Ready(ended) => Ok(ended?),
        }
    }

    fn look_with(&mut self, waker: &Waker) -> Poll<Result<T, CollectiveError>> {
        self.look(|shared, id| {
            let mut state = shared.lock();
            let ended = state.take(id);
            let replaced = if ended.is_none() { state.set_waker(id, waker) } else { None };
            drop(state);
            drop(replaced);
            ended
        })
    }

    /// How it ended, if `look` finds that of what is under way; once.
    fn look(&mut self, look: impl FnOnce(&Shared, u64) -> Option<Ended>) -> Poll<Result<T, CollectiveError>> {
        if let HandleState::UnderWay(shared, id) = &self.state {
            let Some(ended) = look(shared, *id) else { return Poll::Pending };
            self.state = HandleState::Gone;
            return Poll::Ready(ended.map(self.give_back));
        }
        match mem::replace(&mut self.state, HandleState::Gone) {
            HandleState::Done(job) => Poll::Ready(Ok((self.give_back)(job))),
            _ => Poll::Pending,
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        // In a forked child a lock may be held for ever by a thread that it is without.
        if let HandleState::UnderWay(shared, id) = &self.state
            && !shared.engine.is_forked()
        {
            shared.hand_to_engine();
            let forgotten = shared.lock().forget(*id);
            drop(forgotten);
        }
    }
}

/// The future of a [`Pending`] operation. It is woken by whoever drives the engine.
#[must_use = "futures do nothing unless polled"]
pub struct PendingFuture<T>(Pending<T>);

impl<T> Future for PendingFuture<T> {
    type Output = Result<T, CollectiveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.look_with(context.waker())
    }
}

impl<T> IntoFuture for Pending<T> {
    type Output = Result<T, CollectiveError>;
    type IntoFuture = PendingFuture<T>;

    fn into_future(self) -> PendingFuture<T> {
        if let HandleState::UnderWay(shared, _) = &self.state {
            // It is woken by the engine alone.
            shared.hand_to_engine();
        }
        PendingFuture(self)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = match &self.state {
            HandleState::UnderWay(_, id) => Some(id),
            HandleState::Done(_) | HandleState::Gone => None,
        };
        f.debug_struct("Pending").field("id", &id).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StillPending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
