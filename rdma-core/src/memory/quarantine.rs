//! Memory that was dropped while something that is stopped might still write it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Mapping, Registration};

/// Between two looks whether something can be released.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Memory that is kept, since a peer's process is stopped in the midst of an access to it, and its pages could not be
/// replaced.
///
/// It was dropped; what `deregister` refused is the caller's still, and not among it. It is released by itself once the
/// process has gone on or is dead. A process can be in the midst of one access a queue pair, so that no more is kept than
/// there were queue pairs.
///
/// ```
/// assert_eq!(rdma_core::quarantined(), rdma_core::Quarantined::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Quarantined {
    /// How many.
    pub memories: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What is kept of this process now: see [`Quarantined`].
#[must_use]
pub fn quarantined() -> Quarantined {
    let kept = release();
    Quarantined { memories: kept.len(), bytes: kept.iter().map(|kept| kept.mapping.len() as u64).sum() }
}

struct Kept {
    mapping: Mapping,
    registration: Box<dyn Registration>,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Keeps memory until nothing writes it any more.
pub(super) fn keep(mapping: Mapping, registration: Box<dyn Registration>) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push(Kept { mapping, registration });
    if kept.len() > 1 {
        return;
    }
    drop(kept);
    let looks = || {
        while !release().is_empty() {
            std::thread::sleep(LOOK_EVERY);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("rdma-quarantine".to_owned()).spawn(looks) {
        tracing::warn!(%error, "quarantined memory is released only when it is asked for");
    }
}

/// Releases what nobody is at any more; what is left.
fn release() -> MutexGuard<'static, Vec<Kept>> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain_mut(|kept| !kept.registration.has_ended());
    kept
}
