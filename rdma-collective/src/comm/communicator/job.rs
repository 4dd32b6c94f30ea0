//! What a communicator carries out in order: it knows nothing of what is computed.

use std::any::Any;
use std::task::Poll;
use std::time::Instant;

use super::Parts;
use crate::comm::Core;
use crate::error::CollectiveError;

/// One operation that owns all it works with, so that nobody's memory is used however it ends.
pub(crate) trait Job: Send {
    /// Starts it as number `sequence` of its communicator.
    fn begin(&mut self, parts: &mut Parts<'_>, core: &mut Core, sequence: u64, now: Instant);

    /// Goes on as far as it can; after `Ready` it is not called again.
    fn advance(
        &mut self,
        parts: &mut Parts<'_>,
        core: &mut Core,
        now: Instant,
    ) -> Poll<Result<(), CollectiveError>>;

    /// The deadline has passed: tells the other ranks and says what was waited for.
    fn give_up_late(&mut self, parts: &mut Parts<'_>, core: &mut Core, now: Instant) -> CollectiveError;

    /// Takes back what the engine holds of it; `false` while the device still uses some.
    fn release(&mut self, core: &mut Core) -> bool;

    /// For whoever asked for it, who knows what it is.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}
