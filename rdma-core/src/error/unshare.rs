//! The system refuses to put pages back.

use std::io;

use super::limit_advice;

/// Memory stays on the pages that [`Memory::share_in_place`](crate::Memory::share_in_place) had put in place of its own, or
/// some of it does; all bytes are there.
#[derive(Debug, thiserror::Error)]
#[error("the pages could not be put back, and stay shared: {what} failed: {source}; {}, and try again",
    limit_advice(source).unwrap_or("see what the system is short of"))]
pub struct UnshareError {
    /// What was asked for.
    pub what: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}
