//! Memory that cannot be had back yet.

use std::io;

use super::CloseError;
use crate::memory::Irreplaceable;

/// A right could not be taken back from a peer whose process is stopped in the midst of an access: the pages that it is
/// at could not be replaced, so the memory is kept.
///
/// It is the cause of the [`io::Error`] in a [`CloseError`] or [`FenceError`](super::FenceError). See
/// [`quarantined`](crate::quarantined) for what of it was dropped.
#[derive(Debug, thiserror::Error)]
#[error(
    "quarantined: a peer's process is stopped in the middle of an access, and its pages cannot be replaced: {why}; let \
     it go on, or end it, and try again"
)]
pub struct Quarantine {
    why: Irreplaceable,
}

impl Quarantine {
    pub(crate) fn io_error(why: Irreplaceable) -> io::Error {
        io::Error::new(io::ErrorKind::ResourceBusy, Self { why })
    }

    /// Whether it is why something was not released.
    pub(crate) fn is_cause(error: &CloseError) -> bool {
        error.source.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}
