//! [`Quarantine`]: memory that cannot be released because a stopped process still accesses it.

use std::io;

use super::CloseError;
use crate::memory::Irreplaceable;

/// A right could not be revoked, because the peer's process is stopped (SIGSTOP) in the middle of an access.
///
/// Normally the pages that the peer accesses are replaced, so that its late write lands where nobody reads.
/// This error says that they could not be replaced. The memory is kept: reusing it would let the late write
/// corrupt other data.
///
/// This error is the source of the [`io::Error`] in a [`CloseError`] or a [`FenceError`](super::FenceError). Memory
/// that was dropped in this state is counted by [`quarantined`](crate::quarantined).
#[derive(thiserror::Error)]
#[error(
    "quarantined: a peer's process is stopped in the middle of an access, and the pages cannot be replaced: {why}; \
     resume or end that process, then try again"
)]
pub struct Quarantine {
    why: Irreplaceable,
}

impl Quarantine {
    /// Wraps the reason in an [`io::Error`], the source type of [`CloseError`] and `FenceError`.
    pub(crate) fn io_error(why: Irreplaceable) -> io::Error {
        io::Error::new(io::ErrorKind::ResourceBusy, Self { why })
    }

    /// Returns whether a quarantine is the reason why something was not released.
    pub(crate) fn is_cause(error: &CloseError) -> bool {
        error.source.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}
