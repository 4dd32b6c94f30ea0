//! Pulls as callers see them: prefill offers blocks for a time, decode reads them when it wants to.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::decode::{Decode, Grant, Progress, Received};
use super::pending::Handle;
use super::prefill::{self, Prefill, Pulled};
use super::receive::END_WITHIN;
use super::revoking::Revoking;
use super::verdict::Verdicts;
use crate::engine::{Engine, Service};
use crate::kv::{KvError, TransferError};
use crate::link::LaneFailure;

/// Blocks that decode may read. Dropping it leaves them offered until they were read, or their time is up.
#[must_use = "blocks are free when their offer was waited for"]
pub struct Offer {
    shared: Arc<prefill::Shared>,
    lease: u64,
    deadline: Deadline,
    told: bool,
}

/// A pull under way. Dropping it lets it go on unseen.
#[must_use = "blocks are there when their pull was waited for"]
pub struct Pull(Grant);

impl Prefill {
    /// Offers `blocks` of all layers to whoever pulls them for `request`, which reads them in that order.
    ///
    /// It returns at once. The blocks are leased until they have been read, or until `deadline`: then decode is asked to
    /// stop, and they are free when it has.
    ///
    /// Decode remembers for a minute that an offer was taken back before it was met, and says so to the next pull of its
    /// number: blocks that are offered again have a number of their own.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless the pool is a [`SourceToPull`](super::PoolUse::SourceToPull), [`KvError::Plan`],
    /// [`KvError::Held`], [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`], [`KvError::TooManyWrites`] and
    /// [`KvError::LinkEnded`]; nothing is lost then.
    pub fn offer(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Offer, KvError> {
        let (now, shared) = (Instant::now(), self.shared());
        let lease = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let lease = state.offer(core, request, blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(lease)
        })?;
        Ok(Offer { shared: Arc::clone(shared), lease, deadline, told: false })
    }
}

impl Offer {
    /// Waits until decode has read all blocks, or their time is up.
    ///
    /// # Errors
    ///
    /// [`KvError`]: nobody has read them in time, or the peer is lost. The blocks are free again, and nothing reads them
    /// any more.
    pub fn wait(mut self) -> Result<Pulled, KvError> {
        let deadline = Deadline::after(self.deadline.remaining() + END_WITHIN);
        let peer = self.shared.peer;
        // The service has ended it at the deadline, unless the engine could not.
        let late = || Err(KvError::LinkEnded { peer, cause: LaneFailure::Fenced });
        self.outcome_by(deadline).unwrap_or_else(late)
    }

    /// Takes the blocks back: after `Ok` they are not read any more, and can be used for something else.
    ///
    /// Decode is asked to stop, and a pull of them that has begun ends with an error there; the link goes on. When it has
    /// not answered by `deadline`, the lane is fenced: then the link has ended, and every transfer on it with it.
    ///
    /// It blocks meanwhile; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: its blocks are never used again.
    pub fn revoke(self, deadline: Deadline) -> Result<(), KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to take the blocks back, as [`revoke`](Self::revoke) does, and returns at once.
    pub fn start_revoke(self, deadline: Deadline) -> Revoking<()> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.recall(core, self.lease, deadline);
            state.advance(core, Instant::now());
        });
        let peer = shared.peer;
        Revoking::new(self, peer, deadline)
    }
}

impl Handle for Offer {
    type Outcome = Result<Pulled, KvError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let mut state = self.shared.lock();
        if let Some(outcome) = state.pulled(self.lease) {
            self.told = true;
            return Poll::Ready(outcome);
        }
        let replaced = waker.and_then(|waker| state.offer_wakers.set(self.lease, waker));
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome> {
        let shared = Arc::clone(&self.shared);
        shared.engine.wait_for(deadline, |_, _| self.look(None))
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

    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome> {
        self.0.outcome_by(deadline)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.told && !self.shared.engine.is_forked() {
            self.shared.lock().forget_offer(self.lease);
        }
    }
}

impl Decode {
    /// Reads the blocks that prefill offers for `request` into `blocks` of all layers, in that order.
    ///
    /// It returns at once. The offer may have come before, or come until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::NotReadable`] unless prefill's pool is a [`SourceToPull`](super::PoolUse::SourceToPull),
    /// [`KvError::LeaseExpired`] when an offer for the request was taken back within the last minute, which is told once;
    /// otherwise as for [`grant`](Self::grant).
    pub fn pull(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Pull, KvError> {
        self.pulled(request, (blocks, None), deadline)
    }

    /// Pulls the blocks of an earlier transfer again, for what `verdicts` has of them as missing or corrupt: that alone is
    /// read, as [`grant_missing`](Self::grant_missing) says. Prefill offers the same blocks as before, in the same order.
    ///
    /// # Errors
    ///
    /// As for [`pull`](Self::pull), and [`KvError::NothingMissing`] when all is valid.
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
        let (now, shared) = (Instant::now(), self.shared());
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.add_pull(core, request, blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(id)
        })?;
        Ok(Pull(Grant::new(Arc::clone(shared), id, request, blocks.0, deadline)))
    }
}

impl Pull {
    /// Waits until all blocks have been read, and were checked when the link has checksums.
    ///
    /// # Errors
    ///
    /// [`TransferError`] with what is known of each block: [`KvError::NotOffered`] and [`KvError::LeaseExpired`] when there
    /// is nothing to read any more, the deadline, or a peer that is lost. Nothing writes the blocks any more.
    pub fn wait(self) -> Result<Received, TransferError> {
        self.0.wait()
    }

    /// Gives the pull up, and says what had arrived. After `Ok` nothing of it lands any more, and prefill's blocks are
    /// released.
    ///
    /// Reads that were posted are waited for; when they are not done by `deadline`, the lane is fenced: then the link has
    /// ended, and every transfer on it with it.
    ///
    /// It blocks meanwhile; [`start_cancel`](Self::start_cancel) does not.
    ///
    /// # Errors
    ///
    /// [`KvError::Quarantined`] when the device did not fence the lane: the blocks are never used again.
    pub fn cancel(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        self.start_cancel(deadline).wait()
    }

    /// Begins to give the pull up, as [`cancel`](Self::cancel) does, and returns at once.
    pub fn start_cancel(self, deadline: Deadline) -> Revoking<Verdicts> {
        self.0.start_revoke(deadline)
    }

    /// How far it has come, as of the engine's last drive.
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
