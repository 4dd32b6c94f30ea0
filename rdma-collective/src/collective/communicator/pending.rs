//! The caller's handle of an operation under way: polling it, waiting for it, and awaiting it. `state` owns the
//! operation itself.

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

/// Completions taken by one [`poll`](Pending::poll): a bound, so that a poll returns soon though completions keep
/// coming.
const BUDGET: usize = 64;

/// The handle of an operation that is under way or done, and of the value that it gives back.
///
/// The operation goes on whatever becomes of the handle. Dropping the handle lets the operation finish unseen, since
/// other ranks wait for it, and frees its memory then. The operation ends at its own deadline at the latest.
///
/// Wait for it by [`poll`](Self::poll) from a loop, by [`wait`](Self::wait), or by `.await` under any runtime. The
/// handle needs no runtime, but something must drive the engine, as its [own thread](crate::engine::Driver::Thread)
/// does.
#[must_use = "what the operation gives back is lost when this is dropped"]
pub struct Pending<T> {
    state: HandleState,
    /// Turns the finished job into the caller's value.
    give_back: fn(Box<Job>) -> T,
}

/// Where the operation of a handle is.
enum HandleState {
    /// Under way, with its number, and the time at which it had begun.
    UnderWay(Arc<Shared>, u64, Instant),
    /// Done on the fast path, before there was a handle.
    Done(Box<Job>),
    /// Given back to the caller.
    Gone,
}

/// A wait that ended before the operation did, which goes on.
///
/// A part of [`WaitError`].
pub struct StillPending<T>(pub Pending<T>);

/// Why waiting for an operation gave nothing.
///
/// Raised by [`Pending::wait`](crate::collective::Pending::wait).
#[derive(thiserror::Error)]
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
    pub(super) fn new(shared: Arc<Shared>, id: u64, begun: Instant, give_back: fn(Box<Job>) -> T) -> Self {
        Self { state: HandleState::UnderWay(shared, id, begun), give_back }
    }

    #[inline]
    pub(in crate::collective) fn done(job: Box<Job>, give_back: fn(Box<Job>) -> T) -> Self {
        Self { state: HandleState::Done(job), give_back }
    }

    /// Polls once and drives the engine once, unless the operation is done already; never waits. `Ready` comes once:
    /// after it, `poll` returns `Pending`, and [`wait`](Self::wait) returns the handle at once, as for one that is
    /// pending.
    ///
    /// # Errors
    ///
    /// The error with which the operation failed.
    pub fn poll(&mut self) -> Poll<Result<T, CollectiveError>> {
        self.look(|shared, id, _| {
            shared.try_finish_deferred(id, None).map(Ok).or_else(|| {
                // A device that has failed ends the operation with that error, so `take` reports it.
                let _ = shared.engine.drive(Instant::now(), BUDGET);
                shared.lock().take(id)
            })
        })
    }

    /// Waits until the operation has ended, or until `deadline`, and drives the engine meanwhile.
    ///
    /// # Errors
    ///
    /// [`WaitError::StillPending`] gives the handle back at `deadline`; [`WaitError::Failed`] has the error with which
    /// the operation failed.
    pub fn wait(mut self, deadline: Deadline) -> Result<T, WaitError<T>> {
        let ended = self.look(|shared, id, begun| {
            let deferred = shared.try_finish_deferred(id, Some(deadline)).map(Ok);
            deferred.or_else(|| {
                let pause = begun.elapsed();
                shared.engine.wait_for(deadline, |_, _| {
                    let mut state = shared.lock();
                    // The caller is back, so it drives the operation itself and the thread's grace ends.
                    state.reclaim();
                    state.habit.waits(id, pause);
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
        self.look(|shared, id, _| {
            // A task does not drive, so the engine's thread must.
            shared.reclaim();
            let mut state = shared.lock();
            let ended = state.take(id);
            let replaced = if ended.is_none() { state.set_waker(id, waker) } else { None };
            // Unlock before the old waker drops, because that may run any code, this communicator's included.
            drop(state);
            drop(replaced);
            ended
        })
    }

    /// Returns the outcome, once: the finished job, or what `look` finds of one that is under way.
    fn look(
        &mut self,
        look: impl FnOnce(&Shared, u64, Instant) -> Option<Ended>,
    ) -> Poll<Result<T, CollectiveError>> {
        if let HandleState::UnderWay(shared, id, begun) = &self.state {
            let ended = match shared.engine.check_process() {
                Ok(()) => look(shared, *id, *begun),
                Err(forked) => Some(Err(forked.into())),
            };
            let Some(ended) = ended else { return Poll::Pending };
            self.state = HandleState::Gone;
            return Poll::Ready(ended.map(self.give_back));
        }
        match mem::replace(&mut self.state, HandleState::Gone) {
            // No lock and no engine: the fast path has finished this operation before the handle existed.
            HandleState::Done(job) => Poll::Ready(Ok((self.give_back)(job))),
            _ => Poll::Pending,
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let HandleState::UnderWay(shared, id, _) = &self.state
            && !shared.engine.is_forked()
        {
            shared.hand_to_engine();
            // Bound to a name so that the lock is released first: a waker may run any code when it drops.
            let forgotten = shared.lock().forget(*id);
            drop(forgotten);
        }
    }
}

/// The future of a [`Pending`] operation. Whoever drives the engine wakes it.
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
        if let HandleState::UnderWay(shared, ..) = &self.state
            && !shared.engine.is_forked()
        {
            // Only the engine wakes tasks, so the engine must own the operation before the first poll registers a
            // waker.
            shared.hand_to_engine();
        }
        PendingFuture(self)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = match &self.state {
            HandleState::UnderWay(_, id, _) => Some(id),
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
