//! [`UnshareError`]: putting a caller's own pages back.

use std::io;

use super::limit_advice;

/// Memory stays, at least in part, on the shared pages that
/// [`Memory::share_in_place`](crate::Memory::share_in_place) put in place of its own.
///
/// No byte is lost, and the call can be repeated.
#[derive(thiserror::Error)]
#[error("the pages could not be put back, and stay shared: {what} failed: {source}; {}, and try again",
    limit_advice(source).unwrap_or("see what the system is short of"))]
pub struct UnshareError {
    /// The system call that failed.
    pub what: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}
