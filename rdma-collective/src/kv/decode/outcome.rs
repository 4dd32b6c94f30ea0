//! The outcome of a grant: [`Handle`] for [`Grant`], for polls and waits.

use std::task::{Poll, Waker};

use super::{Grant, Received};
use crate::engine::Engine;
use crate::kv::pending::Handle;
use crate::kv::receive::{Outcome, Receives};
use crate::kv::{KvError, TransferError};

impl Handle for Grant {
    type Outcome = Result<Received, TransferError>;

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn look(&mut self, waker: Option<&Waker>) -> Poll<Self::Outcome> {
        let take = |state: &mut Receives| Some(state.outcome(self.id)?.map(Received::from));
        let looked = self.shared.look(self.id, waker, take, |state| &mut state.wakers);
        self.taken |= looked.is_ready();
        looked
    }

    fn refused(&self, cause: KvError) -> Self::Outcome {
        Err(self.layer_error(cause))
    }
}

impl From<Outcome> for Received {
    fn from(outcome: Outcome) -> Self {
        let Outcome { verdicts, bytes, writes, waited, moved } = outcome;
        Self { verdicts, bytes, writes, elapsed: waited, moving: moved }
    }
}
