//! The blocks of a push that decode has already, which prefill need not have.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rdma_core::Deadline;

use super::{Sending, Transfer};
use crate::kv::KvError;
use crate::kv::push::Pushes;

/// The blocks of this end's pool of which decode wants nothing, in the order of the request.
type Skipped = Result<Vec<u32>, KvError>;

impl Transfer<Sending> {
    /// A future of the blocks of which decode wants no byte in any layer, for any runtime: those that decode
    /// [has](crate::kv::Blocks::having), and those that a transfer which is resumed does not owe any more. One task at
    /// a time may await them.
    ///
    /// The push knows them once it has met its grant, and reads no byte of them, so that prefill need not load or
    /// compute them. Begin the push with [`push_layers`](crate::kv::Prefill::push_layers) then, because the other
    /// blocks are read only once their layers are announced. A block of prefill is skipped when decode has all blocks
    /// that its tokens go to. An offer is not told, and skips nothing.
    ///
    /// # Errors
    ///
    /// The error of a push that has ended badly; [`KvError::OutcomeTaken`] once the outcome was taken.
    ///
    /// ```
    /// # use rdma_collective::kv::{KvError, Prefill};
    /// # use rdma_core::Deadline;
    /// async fn run(prefill: &Prefill, layers: u32, deadline: Deadline) -> Result<(), KvError> {
    ///     let push = prefill.push_layers(7, &[3, 1, 6], deadline)?;
    ///     let skipped = push.skipped().await?;
    ///     for layer in 0..layers {
    ///         // The layer is computed into those of the blocks 3, 1 and 6 that are not in `skipped`.
    ///         push.layer_ready(layer)?;
    ///     }
    ///     push.await.map(drop)
    /// }
    /// ```
    pub fn skipped(&self) -> SkippedFuture<'_> {
        SkippedFuture { transfer: self }
    }

    /// Waits until the push has met its grant, and returns the blocks of which decode wants nothing. Otherwise like
    /// [`skipped`](Self::skipped).
    ///
    /// # Errors
    ///
    /// [`KvError::GrantLate`] at `deadline`, while the push goes on; otherwise the errors of
    /// [`skipped`](Self::skipped).
    pub fn wait_skipped(&self, deadline: Deadline) -> Result<Vec<u32>, KvError> {
        self.check_open()?;
        let skipped = self.shared.engine.wait_for(deadline, |_, _| self.look_skipped(None));
        skipped.unwrap_or(Err(KvError::GrantLate { request: self.request }))
    }

    /// Drives the engine once and looks whether the push has met its grant; never waits. Otherwise like
    /// [`skipped`](Self::skipped).
    pub fn poll_skipped(&self) -> Poll<Result<Vec<u32>, KvError>> {
        self.shared.engine.try_drive();
        self.look_skipped(None)
    }

    fn look_skipped(&self, waker: Option<&Waker>) -> Poll<Skipped> {
        self.check_open()?;
        let take = |state: &mut Pushes| state.skipped(self.id);
        self.shared.look((self.id, None), waker, take, |state| &mut state.layer_wakers)
    }
}

/// The future of the blocks that a push [skips](Transfer::skipped). The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct SkippedFuture<'a> {
    transfer: &'a Transfer<Sending>,
}

impl Future for SkippedFuture<'_> {
    type Output = Result<Vec<u32>, KvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.transfer.look_skipped(Some(context.waker()))
    }
}
