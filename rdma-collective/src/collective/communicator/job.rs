//! What a communicator carries out in order: it knows nothing of what is computed.

use std::any::Any;
use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;

use super::{HostGroup, Parts, Scratch};
use crate::collective::CollectiveError;
use crate::engine::Core;

/// Among whom an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// It has a number, the same on all ranks.
    All,
    /// The same, and was begun in the caller's thread: it cannot be too late to begin.
    AllTold,
    /// It has none, and lies before the next of all ranks.
    Some,
}

/// For how long messages are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    Once,
    /// As long as those take that come at once, at most until then.
    Until(Deadline),
}

/// One operation that owns all it works with, so that nobody's memory is used however it ends.
pub(crate) trait Job: Send + Sync {
    /// Among whom it is.
    fn among(&self) -> Among {
        Among::All
    }

    /// Starts it as number `sequence` of its communicator.
    fn begin(&mut self, parts: &mut Parts<'_>, core: &mut Core, sequence: u64, now: Instant);

    /// Looks for the others' messages; whether it is done.
    fn end_at_once(&mut self, _host: &HostGroup, _scratch: &mut Scratch, _looks: Looks) -> bool {
        false
    }

    /// Whether it goes on by nothing but being driven, since no completion tells of what it waits for: then whoever waits for it
    /// does that best.
    fn can_be_left(&self) -> bool {
        false
    }

    /// Goes on as far as it can; after `Ready` it is not called again.
    fn advance(
        &mut self,
        parts: &mut Parts<'_>,
        core: &mut Core,
        now: Instant,
    ) -> Poll<Result<(), CollectiveError>>;

    /// The deadline has passed: tells the other ranks and says what was waited for.
    fn give_up_late(&mut self, parts: &mut Parts<'_>, core: &mut Core, now: Instant) -> CollectiveError;

    /// It has failed: no other rank has a right to what it owns any more.
    fn revoke(&mut self);

    /// Takes back what the engine holds of it; `false` while the device still uses some.
    fn release(&mut self, core: &mut Core) -> bool;

    /// For whoever asked for it, who knows what it is.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}
