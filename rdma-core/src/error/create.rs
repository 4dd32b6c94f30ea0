//! Creating protection domains, workers and queue pairs.

use std::io;

/// An object could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The device refused.
    #[error("{verb} failed: {source}; {mend}")]
    Refused {
        /// The verb, by its C name.
        verb: &'static str,
        /// What the kernel said.
        source: io::Error,
        /// What usually mends it.
        mend: String,
    },
    /// An option is beyond what the device can do.
    #[error("{option} is {asked}, the device allows {limit}: ask for at most that")]
    BeyondLimit {
        /// The option's name.
        option: &'static str,
        /// What was asked for.
        asked: u64,
        /// What there is.
        limit: u64,
    },
    /// The worker's completion queue has no room for another queue pair's completions.
    #[error(
        "the completion queue has {free} of {max_cqe} entries free and the queue pair may need {needed}: \
         give the worker a larger max_cqe or the queue pair smaller queues"
    )]
    CompletionQueueTooSmall {
        /// Entries that the queue pair may need.
        needed: u64,
        /// Entries not reserved.
        free: u64,
        /// All entries.
        max_cqe: u32,
    },
    /// The protection domain is of another device than the worker.
    #[error("the protection domain belongs to another device: create both from one context")]
    ForeignProtectionDomain,
    /// A symbol that the call needs is not in the library found.
    #[error(transparent)]
    Library(#[from] super::LibraryUnavailable),
}
