//! [`CloseError`]: the device refused to release an object.

use std::io;

/// A device refused to release an object; the object still exists.
///
/// The source is a [`Quarantine`](super::Quarantine) when a stopped peer still accesses the memory, and
/// [`Forked`](super::Forked) in a forked child.
#[derive(thiserror::Error)]
#[error("{verb} failed: {source}; the object still exists: close what depends on it, then close it again")]
pub struct CloseError {
    /// The C name of the verb that failed.
    pub verb: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

impl From<super::Forked> for CloseError {
    fn from(forked: super::Forked) -> Self {
        Self { verb: "ibv_dereg_mr", source: io::Error::other(forked) }
    }
}
