//! What lives on an engine and makes progress whenever it is driven, whoever drives it.

use std::time::Instant;

use super::Core;

/// A protocol over lanes of the engine.
pub(crate) trait Service: Send {
    /// Takes arrivals, acts on them and on the time, and queues what is to be sent; never waits.
    ///
    /// Returns whether it did anything.
    fn advance(&mut self, core: &mut Core, now: Instant) -> bool;

    /// When it has to be advanced at the latest, though nothing arrives.
    fn next_deadline(&self) -> Option<Instant>;

    /// Until when what is pending is left to a caller, who goes on with it when it waits: the engine's thread need not come
    /// before.
    fn caller_owned_until(&self) -> Option<Instant> {
        None
    }
}
