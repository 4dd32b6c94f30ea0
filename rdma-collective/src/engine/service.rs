//! The interface between an engine and the protocols on it: communicators and KV links are services.

use std::time::Instant;

use super::EngineState;

/// A protocol over lanes of an engine. It makes progress when the engine is driven, whichever thread drives: on every
/// drive, or [for a cause](super::services) if it was registered for a lane.
pub(crate) trait Service: Send {
    /// Takes arrivals, acts on them and on the time, and queues the requests to send. Returns whether it did anything.
    ///
    /// Must not wait: the engine's lock is held, and heartbeats to all peers stop meanwhile.
    fn advance(&mut self, core: &mut EngineState, now: Instant) -> bool;

    /// The latest time for the next [`advance`](Self::advance), though nothing arrives; `None` while nothing is
    /// pending.
    fn next_deadline(&self) -> Option<Instant>;

    /// The time up to which the pending operation is its caller's: the caller goes on with it when it waits, so that
    /// the engine's thread need not wake before.
    fn caller_owned_until(&self) -> Option<Instant> {
        None
    }
}
