//! Transfers without a thread that waits: polled from a loop, waited for a while, or awaited under any runtime.
//!
//! Whoever drives the engine wakes the tasks whose transfers have ended; dropping a future is dropping its handle.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::decode::{Grant, Received};
use super::prefill::{Pulled, Push, Pushed};
use super::pull::{Offer, Pull};
use crate::engine::{Core, Engine};
use crate::kv::{KvError, TransferError};

/// Completions taken by one poll.
pub(super) const BUDGET: usize = 64;

/// Tasks that wait for transfers, by their numbers, or for parts of them.
#[derive(Debug)]
pub(super) struct Wakers<Id = u64>(Vec<(Id, Waker)>);

impl<Id> Default for Wakers<Id> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Id: Copy + PartialEq> Wakers<Id> {
    /// Wakes a task when the transfer has ended; one task each. Drop what comes back when nothing is locked: that may run
    /// what it likes.
    #[must_use]
    pub(super) fn set(&mut self, id: Id, waker: &Waker) -> Option<Waker> {
        match self.0.iter_mut().find(|(of, _)| *of == id) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                self.0.push((id, waker.clone()));
                None
            }
        }
    }

    /// Wakes the tasks whose transfers do not go on any more.
    pub(super) fn wake(&mut self, core: &mut Core, goes_on: impl Fn(Id) -> bool) {
        let mut at = 0;
        while let Some((id, _)) = self.0.get(at) {
            if goes_on(*id) {
                at += 1;
            } else {
                core.wake(self.0.swap_remove(at).1);
            }
        }
    }
}

/// What the handles have in common.
pub(super) trait Handle: Sized {
    type Outcome;

    fn engine(&self) -> &Engine;

    /// The outcome, once; otherwise the task is woken when there is one.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome>;

    /// The outcome, unless `deadline` passes first.
    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome>;
}

fn poll<H: Handle>(handle: &mut H) -> Poll<H::Outcome> {
    // A device that cannot be trusted any more ends the transfer with that error.
    let _ = handle.engine().drive(Instant::now(), BUDGET);
    handle.look(None)
}

fn wait_until<H: Handle>(mut handle: H, deadline: Deadline) -> Result<H::Outcome, H> {
    handle.outcome_by(deadline).ok_or(handle)
}

macro_rules! handles {
    ($($handle:ident, $future:ident, $outcome:ty;)*) => {$(
        impl $handle {
            /// Drives the engine once and looks; it never waits. After `Ready` it is `Ready` no more.
            ///
            /// On a link with checksums whoever drives checks blocks that have arrived, at most 1 MiB each time, with more
            /// to do [at once](Engine::drive): it takes some drives more until all is known.
            pub fn poll(&mut self) -> Poll<$outcome> {
                poll(self)
            }

            /// Waits until it has ended, or until `deadline`, whatever its own is.
            ///
            /// # Errors
            ///
            /// It comes back at `deadline`, and goes on: wait again.
            pub fn wait_until(self, deadline: Deadline) -> Result<$outcome, Self> {
                wait_until(self, deadline)
            }
        }

        #[doc = concat!("The future of a [`", stringify!($handle), "`]. It is woken by whoever drives the engine.")]
        #[derive(Debug)]
        #[must_use = "futures do nothing unless polled"]
        pub struct $future($handle);

        impl Future for $future {
            type Output = $outcome;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<$outcome> {
                self.0.look(Some(context.waker()))
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
