//! Handles of transfers without a waiting thread: polled from a loop, waited for a while, or awaited under any
//! runtime.
//!
//! The thread that drives the engine wakes the tasks whose transfers have ended. Dropping a future drops its handle.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::decode::Grant;
use super::fence::END_WITHIN;
use super::outcome::{Pulled, Pushed, Received};
use super::prefill::Push;
use super::pull::{Offer, Pull};
use crate::engine::Engine;
use crate::kv::{KvError, TransferError};
use crate::link::{LaneFailure, PeerName};

/// Most completions that one poll takes, so that a poll stays short.
pub(super) const BUDGET: usize = 64;

/// The common part of the handles of transfers.
pub(super) trait Handle: Sized {
    type Outcome;

    fn engine(&self) -> &Engine;

    /// Takes the outcome, which is there once; otherwise registers the waker, if there is one.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome>;

    /// The outcome of a transfer that cannot go on here because of `cause`.
    fn refused(&self, cause: KvError) -> Self::Outcome;

    /// [`look`](Self::look), or the refusal in a forked child, which must not take the lock.
    fn look_here(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        match self.engine().check_process() {
            Ok(()) => self.look(waker),
            Err(forked) => Poll::Ready(self.refused(forked.into())),
        }
    }

    /// Waits for the outcome until `deadline`; `None` when the deadline passes first.
    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome> {
        let engine = self.engine().clone();
        if let Err(forked) = engine.check_process() {
            return Some(self.refused(forked.into()));
        }
        engine.wait_for(deadline, |_, _| self.look(None))
    }
}

/// Waits for a transfer that its service ends at `deadline`.
pub(super) fn wait<T, H>(mut handle: H, deadline: Deadline, peer: PeerName) -> Result<T, KvError>
where
    H: Handle<Outcome = Result<T, KvError>>,
{
    let deadline = Deadline::after(deadline.remaining() + END_WITHIN);
    // Only an engine that cannot go on leaves the transfer open.
    handle.outcome_by(deadline).unwrap_or(Err(KvError::LinkEnded { peer, cause: LaneFailure::Fenced }))
}

fn poll<H: Handle>(handle: &mut H) -> Poll<H::Outcome> {
    // The error is dropped here, because a failed device ends the transfer with the same error.
    let _ = handle.engine().drive(Instant::now(), BUDGET);
    handle.look_here(None)
}

fn wait_until<H: Handle>(mut handle: H, deadline: Deadline) -> Result<H::Outcome, H> {
    handle.outcome_by(deadline).ok_or(handle)
}

macro_rules! handles {
    ($($handle:ident, $future:ident, $outcome:ty;)*) => {$(
        impl $handle {
            /// Drives the engine once and looks for the outcome; never waits. `Ready` comes once: a later poll is
            /// `Pending`.
            ///
            /// On a link with checksums the driving thread checks blocks that have arrived, at most 1 MiB in one
            /// drive, and the engine asks to be driven again [at once](Engine::drive): a large transfer takes several
            /// drives more.
            pub fn poll(&mut self) -> Poll<$outcome> {
                poll(self)
            }

            /// Waits until the transfer has ended, or until `deadline`, which may be earlier or later than the
            /// transfer's own.
            ///
            /// # Errors
            ///
            /// The handle itself comes back at `deadline`, and the transfer goes on: wait again.
            pub fn wait_until(self, deadline: Deadline) -> Result<$outcome, Self> {
                wait_until(self, deadline)
            }
        }

        #[doc = concat!("The future of a [`", stringify!($handle), "`]. The thread that drives the engine wakes it.")]
        #[derive(Debug)]
        #[must_use = "futures do nothing unless polled"]
        pub struct $future($handle);

        impl Future for $future {
            type Output = $outcome;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<$outcome> {
                self.0.look_here(Some(context.waker()))
            }
        }

        impl IntoFuture for $handle {
            type Output = $outcome;
            type IntoFuture = $future;

            fn into_future(self) -> $future {
                $future(self)
            }
        }
    )*};
}

handles! {
    Push, PushFuture, Result<Pushed, KvError>;
    Offer, OfferFuture, Result<Pulled, KvError>;
    Grant, GrantFuture, Result<Received, TransferError>;
    Pull, PullFuture, Result<Received, TransferError>;
}
