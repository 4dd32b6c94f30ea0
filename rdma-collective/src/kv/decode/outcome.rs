//! The outcome of a grant: [`Handle`] for [`Grant`], for polls and waits.

use std::sync::Arc;
use std::task::{Poll, Waker};

use rdma_core::Deadline;

use super::{Grant, Received};
use crate::engine::Engine;
use crate::kv::TransferError;
use crate::kv::pending::Handle;
use crate::kv::receive::Outcome;

impl Handle for Grant {
    type Outcome = Result<Received, TransferError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let mut state = self.shared.lock();
        if let Some(outcome) = state.outcome(self.id) {
            self.taken = true;
            return Poll::Ready(outcome.map(Received::from));
        }
        let replaced = waker.and_then(|waker| state.wakers.set(self.id, waker));
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    fn outcome_by(&mut self, deadline: Deadline) -> Option<Self::Outcome> {
        let shared = Arc::clone(&self.shared);
        shared.engine.wait_for(deadline, |_, _| self.look(None))
    }
}

impl From<Outcome> for Received {
    fn from(outcome: Outcome) -> Self {
        let Outcome { verdicts, bytes, writes, waited, moved } = outcome;
        Self { verdicts, bytes, writes, elapsed: waited, moving: moved }
    }
}
