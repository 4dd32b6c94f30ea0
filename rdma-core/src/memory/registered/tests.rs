//! Deregistration, once and in order, and never by a forked child.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A registration that counts its deregistrations.
struct Counted(Arc<AtomicU32>);

impl Registration for Counted {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
    }

    fn deregister(&mut self, _: Deadline) -> Result<(), CloseError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn registered() -> (Registered, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let registration = Box::new(Counted(Arc::clone(&count)));
    let mapping = Mapping::allocate(16).unwrap();
    (Registered::new(mapping, registration, Access::LOCAL_WRITE, PdId(1)), count)
}

#[test]
fn it_is_deregistered_once_whether_it_is_taken_apart_or_dropped() {
    let (memory, count) = registered();
    assert_eq!(memory.into_mapping().ok().unwrap().len(), 16);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let (memory, count) = registered();
    drop(memory);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn what_is_put_by_for_the_next_export_goes_with_it() {
    for taken_apart in [true, false] {
        let ((memory, _), spare) = (registered(), Arc::new(AtomicU32::new(0)));
        *memory.spare().unwrap() = Some(Box::new(Counted(Arc::clone(&spare))));
        if taken_apart {
            drop(memory.into_mapping().ok().unwrap());
        } else {
            drop(memory);
        }
        assert_eq!(Arc::strong_count(&spare), 1, "taken apart: {taken_apart}");
    }
}

#[test]
fn a_forked_child_deregisters_nothing_and_is_told_why() {
    let (mut memory, count) = registered();
    memory.kept.pretend_forked(true);
    let Err(kept) = memory.into_mapping() else { panic!("the child has the memory") };
    let (mut memory, error) = *kept;
    assert!(error.to_string().contains("forked"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 0, "the parent's device was touched");
    // Back in the parent, the memory can be released as usual.
    memory.kept.pretend_forked(false);
    assert!(memory.into_mapping().is_ok());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// A registration of the parent's. It must own no memory, because the child leaks it.
struct Parents;

static TOUCHED: AtomicU32 = AtomicU32::new(0);

impl Registration for Parents {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
    }

    fn deregister(&mut self, _: Deadline) -> Result<(), CloseError> {
        TOUCHED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn what_a_forked_child_drops_stays_its_parents() {
    let mapping = Mapping::allocate(16).unwrap();
    let mut memory = Registered::new(mapping, Box::new(Parents), Access::LOCAL_WRITE, PdId(1));
    memory.kept.pretend_forked(true);
    drop(memory);
    assert_eq!(TOUCHED.load(Ordering::Relaxed), 0);
}
