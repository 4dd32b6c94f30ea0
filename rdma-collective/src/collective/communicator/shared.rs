//! State shared by a communicator and the handles of its pending operations, and the hand-over of a deferred operation
//! to the engine. `state` and `gate` own the parts; the order in which their locks are taken is here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdma_core::Deadline;

use super::gate::{DeferredOp, FastPathGate};
use super::host::HostGroup;
use super::links::Scratch;
use super::progress::Progress;
use super::state::State;
use crate::collective::execute::{Job, Patience};
use crate::engine::{Engine, Service};
use crate::log::Held;

/// State that a communicator and its pending operations share. Lock order: the engine, then `state`, then the gate's
/// slot.
pub(crate) struct Shared {
    pub(super) engine: Engine,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) gate: Arc<FastPathGate>,
    pub(super) host: Option<Arc<HostGroup>>,
}

impl Shared {
    pub(super) fn lock(&self) -> Held<MutexGuard<'_, State>> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        Held::lock(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the engine the owner of an operation that was left to its caller.
    pub(super) fn reclaim(&self) {
        if self.gate.is(Progress::CallerOwned) {
            // Through `lock_with`, though nothing of the engine is used: on unlocking, it nudges the engine's thread,
            // which may have counted on the caller.
            self.engine.lock_with(|_| self.lock().reclaim());
        }
    }

    /// Makes the engine the owner of an operation that was left to its caller, and of a deferred one. Afterwards a new
    /// operation may be queued behind it.
    pub(super) fn hand_to_engine(&self) {
        self.reclaim();
        let gate = &self.gate;
        if !gate.is(Progress::Deferred) {
            return;
        }
        // A thread that polls the operation may finish it. Wait for that thread here, before the engine is locked:
        // otherwise every communicator on the engine would wait for it.
        drop(gate.slot());
        // Look again: the thread that polled may have finished it meanwhile.
        if gate.is(Progress::Deferred) {
            self.engine.lock_with(|core| {
                let mut state = self.lock();
                // `None` here means that the engine took it between the check and this lock.
                if let Some(begun) = gate.take() {
                    state.adopt(core, begun, Instant::now());
                }
                state.advance(core, Instant::now());
            });
        }
    }

    /// Polls operation `id`, if it is deferred, up to `until` or once, and returns its job when it is done. Otherwise
    /// the engine owns the operation from then on.
    pub(super) fn try_finish_deferred(&self, id: u64, until: Option<Deadline>) -> Option<Box<Job>> {
        let (host, gate) = (self.host.as_deref()?, &*self.gate);
        if !gate.is(Progress::Deferred) {
            return None;
        }
        let is_done = |begun: &mut DeferredOp, scratch: &mut Scratch| {
            // Bounded by the operation's own deadline too, because the engine must report that one.
            let looks = until.map_or(Patience::Once, |until| Patience::Until(until.min(begun.deadline)));
            begun.job.try_finish(host, scratch, looks)
        };
        // After a failure the engine knows the reason and reports it.
        let done = if gate.has_failed() { None } else { gate.finish(id, is_done) };
        match done {
            Some(mut job) => {
                job.counted.end(Ok(()));
                Some(job)
            }
            None => {
                self.hand_to_engine();
                None
            }
        }
    }
}
