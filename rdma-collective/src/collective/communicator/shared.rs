//! What a communicator and the handles of its pending operations share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdma_core::Deadline;

use super::gate::FastPathGate;
use super::host::HostGroup;
use super::state::State;
use crate::collective::execute::Job;
use crate::engine::{Engine, Service};

/// What a communicator and its pending operations have in common.
pub(crate) struct Shared {
    pub(super) engine: Engine,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) gate: Arc<FastPathGate>,
    pub(super) host: Option<Arc<HostGroup>>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left to its caller, if anything is, becomes the engine's.
    pub(super) fn hand_to_engine(&self) {
        if self.gate.is_caller_owned() {
            self.engine.lock_with(|_| self.lock().reclaim());
        }
        let deferred = &self.gate.deferred;
        if !deferred.is_occupied() {
            return;
        }
        // Who looks for it now may find it done, and is not waited for with the engine locked.
        drop(deferred.lock());
        if deferred.is_occupied() {
            self.engine.lock_with(|core| {
                let mut state = self.lock();
                if let Some(begun) = deferred.take() {
                    state.adopt(core, begun, Instant::now());
                }
                state.advance(core, Instant::now());
            });
        }
    }

    /// Patience for the messages of operation `id` if it is under way without the engine, and gives its job when it is done; else
    /// it is the engine's from then on.
    pub(super) fn try_finish_deferred(&self, id: u64, until: Option<Deadline>) -> Option<Box<Job>> {
        let (host, FastPathGate { deferred, .. }) = (self.host.as_deref()?, &*self.gate);
        // A forked child would take what its parent is left.
        if !deferred.is_occupied() || host.check().is_err() {
            return None;
        }
        // What has failed meanwhile is the engine's to tell.
        let done = if self.gate.is_open() { deferred.end(id, host, until) } else { None };
        if done.is_none() {
            self.hand_to_engine();
        }
        done
    }
}
