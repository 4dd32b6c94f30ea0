//! Quarantine: memory that was dropped while a stopped process may still write it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Mapping, Registered, Registration, fork};
use crate::log::Hold;

/// Time between two attempts to release an entry. A stopped process gives no event when it goes on, so it is
/// polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Memory that is kept because a peer's process is stopped in the middle of an access to it and its pages
/// could not be replaced.
///
/// Only dropped memory is counted; memory whose `deregister` failed still belongs to the caller. Each entry
/// is released by itself once the process has gone on or has ended. A process can be in the middle of one
/// access for each queue pair, so the number of entries is at most the number of queue pairs there were.
///
/// See [`quarantined`] for the current values.
///
/// ```
/// assert_eq!(rdma_core::quarantined(), rdma_core::Quarantined::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Quarantined {
    /// Number of registrations that are kept.
    pub memories: usize,
    /// Their bytes in all.
    pub bytes: u64,
}

/// Returns what is in quarantine now. A child that was forked from this process has nothing in quarantine.
///
/// [`error::Quarantine`](crate::error::Quarantine) says when memory goes there.
#[must_use]
pub fn quarantined() -> Quarantined {
    release();
    let kept = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = || kept.iter().filter(|kept| kept.is_ours());
    Quarantined { memories: ours().count(), bytes: ours().map(|kept| kept.memory.len() as u64).sum() }
}

/// The memory of an entry: owned by the entry alone, or shared with other registrations of it.
pub(super) enum KeptMemory {
    Own(Mapping),
    Shared(Arc<Registered>),
}

impl KeptMemory {
    fn len(&self) -> usize {
        match self {
            Self::Own(mapping) => mapping.len(),
            Self::Shared(memory) => memory.len(),
        }
    }
}

struct Entry {
    memory: KeptMemory,
    registration: Box<dyn Registration>,
    /// The process that registered the memory. A child has a copy of the entry, but neither the mailboxes nor
    /// the right to release the memory.
    pid: u32,
}

impl Entry {
    fn is_ours(&self) -> bool {
        self.pid == fork::pid()
    }
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Keeps memory until nothing can write it any more, and starts the thread that polls for that moment.
pub(super) fn keep(memory: KeptMemory, registration: Box<dyn Registration>) {
    let mut kept = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let first = !kept.iter().any(Entry::is_ours);
    kept.push(Entry { memory, registration, pid: fork::pid() });
    // The new thread takes this lock at once, and a subscriber of the log may do so, too.
    drop(kept);
    if first && let Err(error) = std::thread::Builder::new().name("rdma-quarantine".to_owned()).spawn(watch) {
        crate::log::warn!(%error, "the quarantine thread did not start; memory is released only by calls of quarantined()");
    }
}

/// Polls until no entry of this process is left, so that the thread ends with the quarantine.
fn watch() {
    while release() {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Releases every entry that nobody can write any more; returns whether entries are left.
fn release() -> bool {
    // Looking at an entry takes the lock of the devices, whose lines must wait for this lock, too.
    let _lines = Hold::new();
    let mut kept = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
    let ended: Vec<_> = kept.extract_if(.., |kept| kept.is_ours() && kept.registration.has_ended()).collect();
    let left = kept.iter().any(Entry::is_ours);
    // Entries are dropped without the lock, because dropping a caller's memory runs the caller's code, and
    // that may call [`quarantined`].
    drop(kept);
    drop(ended);
    left
}

#[cfg(test)]
mod tests;
