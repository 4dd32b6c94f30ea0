//! Memory that is dropped too early, and released later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::super::kinds::Foreign;
use super::super::{Keys, Mapping, PdId, Registered, fork};
use super::*;
use crate::error::{CloseError, Quarantine};
use crate::memory::Irreplaceable;
use crate::{Access, Deadline, LocalKey, RemoteKey};

/// A registration that ends when the flag is set.
struct Stopped(Arc<AtomicBool>);

impl Registration for Stopped {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
    }

    fn deregister(&mut self, _: Deadline) -> Result<(), CloseError> {
        Err(CloseError { verb: "ibv_dereg_mr", source: Quarantine::io_error(Irreplaceable::Shared) })
    }

    fn has_ended(&mut self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An owner that calls `quarantined` in its `Drop`, as a caller's may.
struct Asks(Vec<u8>);

impl AsMut<[u8]> for Asks {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let _ = quarantined();
    }
}

#[test]
fn what_is_dropped_too_early_is_counted_and_released_by_itself() {
    let (ended, before) = (Arc::new(AtomicBool::new(false)), quarantined());
    let registration = Box::new(Stopped(Arc::clone(&ended)));
    let memory = Mapping::Foreign(Foreign::adopt(Asks(vec![0; 100])));
    let memory = Registered::new(memory, registration, Access::LOCAL_WRITE, PdId(1));
    let Err(kept) = memory.into_mapping() else { panic!("it was released") };
    let (memory, error) = *kept;
    assert!(error.to_string().contains("quarantined"), "{error}");
    assert_eq!(quarantined(), before, "it is the caller's still");
    drop(memory);
    let kept = quarantined();
    assert_eq!((kept.memories, kept.bytes), (before.memories + 1, before.bytes + 100));
    assert_eq!(Arc::strong_count(&ended), 2);
    let is_empty = || quarantined() == Quarantined::default();
    assert!(fork::tests::in_a_child(false, is_empty), "a child has nothing of it");
    // Nor does a child wait for a lock that it was forked with.
    let locked = entries().unwrap().lock();
    assert!(fork::tests::in_a_child(false, is_empty));
    drop(locked);
    ended.store(true, Ordering::Relaxed);
    // The thread must release it, although nobody calls `quarantined`.
    let begun = Instant::now();
    while Arc::strong_count(&ended) > 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is kept");
        std::thread::sleep(Duration::from_millis(1));
    }
}
