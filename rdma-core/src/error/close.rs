//! The kernel refuses to release something.

use std::io;

/// The device refused to release an object; the object is still there.
#[derive(Debug, thiserror::Error)]
#[error("{verb} failed: {source}; the object still exists: close what depends on it, then close it again")]
pub struct CloseError {
    /// The verb that failed, by its C name.
    pub verb: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}
