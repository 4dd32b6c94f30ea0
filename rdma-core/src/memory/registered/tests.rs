//! Deregistration, once and in order, and never by a forked child.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::LocalBuf;

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
        *memory.spare().unwrap() = Some((PdId(1), Box::new(Counted(Arc::clone(&spare)))));
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

#[test]
fn a_part_is_lent_when_its_owner_may_write_it_and_not_when_it_is_split_and_read() {
    let (memory, _) = registered();
    let backing = memory.mapping().backing().unwrap().clone();
    let may_be_replaced = || backing.pages.check(1, false).is_ok();
    let mut whole = LocalBuf::new(memory);
    whole[0] = 1;
    let (mut left, right) = whole.split_at(8).unwrap();
    assert_eq!((left[0], right[0]), (1, 0));
    assert!(may_be_replaced());
    left[0] = 2;
    assert!(!may_be_replaced());
    drop(left);
    assert!(!may_be_replaced(), "the right part may be lent, too");
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

/// A registration that the device does not end before it was asked so often.
struct Refusing(u32, Counted);

impl Registration for Refusing {
    fn keys(&self) -> Keys {
        self.1.keys()
    }

    fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        if self.0 > 0 {
            self.0 -= 1;
            let source = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
            return Err(CloseError { verb: "ibv_dereg_mr", source });
        }
        self.1.deregister(deadline)
    }
}

#[test]
fn registrations_in_several_domains_end_together() {
    for taken_apart in [true, false] {
        let ((mut memory, first), others) = (registered(), [0, 1].map(|_| Arc::new(AtomicU32::new(0))));
        for (pd, other) in (2..).zip(&others) {
            memory.add(Box::new(Counted(Arc::clone(other))), PdId(pd)).unwrap();
        }
        let known = [1, 2, 3, 4].map(|pd| memory.keys_in(PdId(pd)).is_some());
        assert_eq!(known, [true, true, true, false]);
        if taken_apart {
            drop(memory.into_mapping().ok().unwrap());
        } else {
            drop(memory);
        }
        for count in [&first, &others[0], &others[1]] {
            assert_eq!(count.load(Ordering::Relaxed), 1, "taken apart: {taken_apart}");
        }
    }
}

#[test]
fn a_domain_that_keeps_its_registration_keeps_the_memory_and_ends_no_other_twice() {
    let ((mut memory, first), refusing) = (registered(), Arc::new(AtomicU32::new(0)));
    memory.add(Box::new(Refusing(2, Counted(Arc::clone(&refusing)))), PdId(2)).unwrap();
    for _ in 0..2 {
        let Err(kept) = memory.into_mapping() else { panic!("a device still has the memory") };
        memory = kept.0;
        assert_eq!((first.load(Ordering::Relaxed), refusing.load(Ordering::Relaxed)), (1, 0));
    }
    assert!(memory.into_mapping().is_ok());
    assert_eq!((first.load(Ordering::Relaxed), refusing.load(Ordering::Relaxed)), (1, 1));
}

/// A registration whose peer is stopped in the middle of a write.
struct Stopped;

impl Registration for Stopped {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(3), rkey: RemoteKey(4) }
    }

    fn deregister(&mut self, _: Deadline) -> Result<(), CloseError> {
        let source = Quarantine::io_error(crate::memory::Irreplaceable::Shared);
        Err(CloseError { verb: "ibv_dereg_mr", source })
    }
}

/// Memory that a device refuses to give up has no end in sight, so it must not count as quarantined.
#[test]
fn a_refusal_of_one_domain_comes_before_a_quarantine_of_another() {
    for refuses_first in [true, false] {
        let refusing: Box<dyn Registration> = Box::new(Refusing(u32::MAX, Counted(Arc::default())));
        let (first, other) = if refuses_first {
            (refusing, Box::new(Stopped) as Box<_>)
        } else {
            (Box::new(Stopped) as _, refusing)
        };
        let mut both = Several::new(first, other);
        let error = both.deregister(Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(!Quarantine::is_cause(&error), "refuses first: {refuses_first}, {error}");
    }
    let mut stopped = Several::new(Box::new(Stopped), Box::new(Counted(Arc::default())));
    let error = stopped.deregister(Deadline::after(Duration::ZERO)).unwrap_err();
    assert!(Quarantine::is_cause(&error), "{error}");
}
