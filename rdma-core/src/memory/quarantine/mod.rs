//! Quarantine: memory that was dropped while a stopped process may still write it.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use super::{OwnProcess, Registration};
use crate::log::Hold;
use crate::metrics;

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
    let Some(entries) = entries() else { return Quarantined::default() };
    let kept = entries.lock();
    Quarantined { memories: kept.len(), bytes: kept.iter().map(|kept| kept.bytes as u64).sum() }
}

struct Entry {
    /// The memory, or a handle to it: its drop frees the bytes, unless other registrations share them.
    _memory: Box<dyn Send>,
    bytes: usize,
    registration: Box<dyn Registration>,
}

type Entries = Mutex<Vec<Entry>>;

/// Entries of the process that had the first one. A child of that process has no software device, so it has no entry
/// of its own.
static ENTRIES: OnceLock<OwnProcess<Entries>> = OnceLock::new();

/// Returns the entries; `None` if there was none so far, or if they are the parent's.
fn entries() -> Option<&'static Entries> {
    ENTRIES.get()?.get().ok()
}

/// Keeps memory until nothing can write it any more, and starts the thread that polls for that moment. `memory` owns
/// the `bytes` or is a handle to them.
pub(super) fn keep(memory: impl Send + 'static, bytes: usize, registration: Box<dyn Registration>) {
    let Ok(entries) = ENTRIES.get_or_init(|| OwnProcess::new(Mutex::default())).get() else {
        // The parent's list stays as it is, so that the memory is kept for ever.
        return std::mem::forget((memory, registration));
    };
    metrics::quarantined(bytes as i64);
    let mut kept = entries.lock();
    let first = kept.is_empty();
    kept.push(Entry { _memory: Box::new(memory), bytes, registration });
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
    let Some(entries) = entries() else { return false };
    // Looking at an entry takes the lock of the devices, whose lines must wait for this lock, too.
    let _lines = Hold::new();
    let mut kept = entries.lock();
    let ended: Vec<_> = kept.extract_if(.., |kept| kept.registration.has_ended()).collect();
    let left = !kept.is_empty();
    // Entries are dropped without the lock, because dropping a caller's memory runs the caller's code, and
    // that may call [`quarantined`].
    drop(kept);
    metrics::quarantined(-ended.iter().map(|ended| ended.bytes as i64).sum::<i64>());
    drop(ended);
    left
}

#[cfg(test)]
mod tests;
