//! [`CreateError`]: creating a protection domain, a worker or a queue pair.

use std::io;

/// A protection domain, a worker or a queue pair could not be created.
///
/// Raised by [`Context::alloc_pd`](crate::Context::alloc_pd), [`Context::worker`](crate::Context::worker) and
/// [`Worker::create_queue_pair`](crate::Worker::create_queue_pair).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The device refused to create the object.
    #[error("{verb} failed: {source}; {mend}")]
    Refused {
        /// The C name of the verb that failed.
        verb: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The usual remedy; for a limit on pinned memory, which limit refused and how to raise it.
        mend: String,
    },
    /// An option exceeds a limit of the device.
    #[error("{option} is {asked}, the device allows {limit}: ask for at most that")]
    BeyondLimit {
        /// Name of the option.
        option: &'static str,
        /// The requested value.
        asked: u64,
        /// The largest value that the device allows.
        limit: u64,
    },
    /// The worker's completion queue has too few free entries for another queue pair.
    #[error(
        "the completion queue has {free} of {max_cqe} entries free and the queue pair may need {needed}: \
         give the worker a larger max_cqe or the queue pair smaller queues"
    )]
    CompletionQueueTooSmall {
        /// Entries that the queue pair may need at once.
        needed: u64,
        /// Entries that no queue pair has reserved.
        free: u64,
        /// Entries of the queue in all.
        max_cqe: u32,
    },
    /// The protection domain belongs to another device than the worker.
    #[error("the protection domain belongs to another device: create both from one context")]
    ForeignProtectionDomain,
    /// The installed libibverbs lacks a symbol that the call needs.
    #[error(transparent)]
    Library(#[from] super::LibraryUnavailable),
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}
