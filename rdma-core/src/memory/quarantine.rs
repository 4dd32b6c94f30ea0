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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::super::{Keys, PdId, Registered};
    use super::*;
    use crate::error::{CloseError, Quarantine};
    use crate::memory::Irreplaceable;
    use crate::{Access, LocalKey, RemoteKey};

    /// Ends when it is told to.
    struct Stopped(Arc<AtomicBool>);

    impl Registration for Stopped {
        fn keys(&self) -> Keys {
            Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
        }

        fn deregister(&mut self) -> Result<(), CloseError> {
            Err(CloseError { verb: "ibv_dereg_mr", source: Quarantine::since(Irreplaceable::Shared) })
        }

        fn has_ended(&mut self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn what_is_dropped_too_early_is_counted_and_released_by_itself() {
        let (ended, before) = (Arc::new(AtomicBool::new(false)), quarantined());
        let registration = Box::new(Stopped(Arc::clone(&ended)));
        let memory = Mapping::allocate(100).unwrap();
        let memory = Registered::new(memory, registration, Access::LOCAL_WRITE, PdId(1));
        let Err((memory, error)) = memory.into_mapping() else { panic!("it was released") };
        assert!(error.to_string().contains("quarantined"), "{error}");
        assert_eq!(quarantined(), before, "it is the caller's still");
        drop(memory);
        let kept = quarantined();
        assert_eq!((kept.memories, kept.bytes), (before.memories + 1, before.bytes + 100));
        assert_eq!(Arc::strong_count(&ended), 2);
        ended.store(true, Ordering::Relaxed);
        // Nobody asks for it.
        let begun = Instant::now();
        while Arc::strong_count(&ended) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is kept");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
