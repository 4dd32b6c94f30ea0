//! The public handles of pulls: prefill makes an [`Offer`] for a time, and decode reads its blocks by a [`Pull`] when
//! it wants to.
//!
//! This file owns the handles. Offers are part of the state machine in `push`, and pulls of the one in `receive`.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rdma_core::Deadline;

use super::decode::{Decode, Grant};
use super::outcome::{Progress, Pulled, Received};
use super::pending::{self, Handle};
use super::prefill::Prefill;
use super::push::Pushes;
use super::revoking::Revoking;
use super::shared::Shared;
use super::verdict::Verdicts;
use crate::engine::Engine;
use crate::kv::{KvError, TransferError};

/// Blocks that decode may read. Dropping the handle leaves them offered until they were read or their deadline
/// passes.
///
/// Returned by [`Prefill::offer`](crate::kv::Prefill::offer).
#[must_use = "blocks are free when their offer was waited for"]
pub struct Offer {
    shared: Arc<Shared<Pushes>>,
    lease: u64,
    deadline: Deadline,
    taken: bool,
}

/// A pull under way. Dropping the handle lets the pull go on; its outcome is lost.
///
/// Returned by [`Decode::pull`](crate::kv::Decode::pull).
#[must_use = "blocks are there when their pull was waited for"]
pub struct Pull(Grant);

impl Prefill {
    /// Offers `blocks`, in all layers, to the pull of `request`, which reads them in that order.
    ///
    /// The call returns at once. The blocks are leased until decode has read them, or until `deadline`: then decode
    /// is asked to stop, and the blocks are free when it has.
    ///
    /// Decode remembers for 60 s that an offer was taken back before a pull met it, and the next pull of that request
    /// fails once. So give blocks that are offered again another request number.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless the pool is a [`SourceToPull`](super::PoolUse::SourceToPull),
    /// [`KvError::Plan`], [`KvError::Held`], [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`],
    /// [`KvError::TooManyWrites`] and [`KvError::LinkEnded`]. After any error no block is leased.
    pub fn offer(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Offer, KvError> {
        let shared = self.shared();
        let lease = shared.change(|state, core, now| state.offer(core, request, blocks, deadline, now))?;
        Ok(Offer { shared: Arc::clone(shared), lease, deadline, taken: false })
    }
}

impl Offer {
    /// Waits until decode has read all blocks, or the offer has expired.
    ///
    /// # Errors
    ///
    /// [`KvError::LeaseExpired`] when decode has not read the blocks in time, [`KvError::PeerRevoked`] when decode
    /// gave its pull up, [`KvError::PeerFailed`] for a lost peer. The blocks are free again and no longer read,
    /// unless the error is [`KvError::Quarantined`].
    pub fn wait(self) -> Result<Pulled, KvError> {
        let (deadline, peer) = (self.deadline, self.shared.peer);
        pending::wait(self, deadline, peer)
    }

    /// Takes the blocks back. After `Ok` they are not read any more, and can be used for something else.
    ///
    /// Decode is asked to stop, and a pull that has begun ends with an error there; the link goes on. When decode has
    /// not answered by `deadline`, the lane is fenced: the link has ended then, and every transfer on it too.
    ///
    /// The call blocks; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    pub fn revoke(self, deadline: Deadline) -> Result<(), KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to take the blocks back like [`revoke`](Self::revoke), and returns at once.
    pub fn start_revoke(self, deadline: Deadline) -> Revoking<()> {
        let (shared, lease) = (Arc::clone(&self.shared), self.lease);
        Revoking::new(self, &shared, deadline, |state, core| state.recall(core, lease, deadline))
    }
}

impl Handle for Offer {
    type Outcome = Result<Pulled, KvError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let take = |state: &mut Pushes| state.pulled(self.lease);
        let looked = self.shared.look(self.lease, waker, take, |state| &mut state.offer_wakers);
        self.taken |= looked.is_ready();
        looked
    }

    fn refused(&self, cause: KvError) -> Self::Outcome {
        Err(cause)
    }
}

impl Handle for Pull {
    type Outcome = Result<Received, TransferError>;

    fn engine(&self) -> &Engine {
        self.0.engine()
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        self.0.look(waker)
    }

    fn refused(&self, cause: KvError) -> Self::Outcome {
        self.0.refused(cause)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.taken && !self.shared.engine.is_forked() {
            self.shared.lock().forget_offer(self.lease);
        }
    }
}

impl Decode {
    /// Reads the blocks that prefill offers for `request` into `blocks`, in all layers and in that order.
    ///
    /// The call returns at once. The offer may have come before the pull, or come until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless the pool of prefill is a [`SourceToPull`](super::PoolUse::SourceToPull);
    /// [`KvError::LeaseExpired`] when prefill took back an offer for the request within the last 60 s, which is
    /// reported once; otherwise the errors of [`grant`](Self::grant).
    pub fn pull(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Pull, KvError> {
        self.pulled(request, (blocks, None), deadline)
    }

    /// Pulls again the blocks of an earlier transfer that `verdicts` has as missing or corrupt, so that only those
    /// are read. The rules of [`grant_missing`](Self::grant_missing) apply: prefill must offer the same blocks as
    /// before, in the same order.
    ///
    /// # Errors
    ///
    /// The errors of [`pull`](Self::pull), and [`KvError::NothingMissing`] when all verdicts are valid.
    pub fn pull_missing(
        &self,
        request: u64,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Pull, KvError> {
        self.check_layers(verdicts)?;
        self.pulled(request, (verdicts.blocks(), Some(verdicts)), deadline)
    }

    fn pulled(
        &self,
        request: u64,
        blocks: (&[u32], Option<&Verdicts>),
        deadline: Deadline,
    ) -> Result<Pull, KvError> {
        let shared = self.shared();
        let id = shared.change(|state, core, now| state.add_pull(core, request, blocks, deadline, now))?;
        Ok(Pull(Grant::new(Arc::clone(shared), id, request, blocks.0, deadline)))
    }
}

impl Pull {
    /// Waits until all blocks have been read, and were checked if the link has checksums.
    ///
    /// # Errors
    ///
    /// [`TransferError`] with the verdict on each block: [`KvError::NotOffered`] and [`KvError::LeaseExpired`] when
    /// there is nothing to read, [`KvError::DeadlineExceeded`], or [`KvError::PeerFailed`]. No read writes the blocks
    /// any more, unless the cause is [`KvError::Quarantined`].
    pub fn wait(self) -> Result<Received, TransferError> {
        self.0.wait()
    }

    /// Gives the pull up, and returns verdicts on what had arrived. After `Ok` no byte of the pull lands any more,
    /// and the blocks of prefill are released.
    ///
    /// Reads that were posted are waited for. When they are not done by `deadline`, the lane is fenced: the link has
    /// ended then, and every transfer on it too.
    ///
    /// The call blocks; [`start_cancel`](Self::start_cancel) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    pub fn cancel(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        self.start_cancel(deadline).wait()
    }

    /// Begins to give the pull up like [`cancel`](Self::cancel), and returns at once.
    pub fn start_cancel(self, deadline: Deadline) -> Revoking<Verdicts> {
        self.0.start_revoke(deadline)
    }

    /// The progress of the pull, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pull").field(&self.0).finish()
    }
}
