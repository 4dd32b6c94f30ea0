//! Owners and their pages when the system refuses to put the pages back.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, setrlimit};

use super::super::replaced_pages::tests::{alone_in, limit};
use super::*;

/// An owner that lends two whole pages of its bytes, and counts its drops.
struct Counted {
    bytes: Vec<u8>,
    dropped: Arc<AtomicUsize>,
}

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        let page = rustix::param::page_size();
        let begin = self.bytes.as_ptr().align_offset(page);
        &mut self.bytes[begin..begin + 2 * page]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn shared() -> (Foreign, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bytes = vec![7; 3 * rustix::param::page_size()];
    let mut memory = Foreign::adopt(Counted { bytes, dropped: Arc::clone(&dropped) });
    // SAFETY: only this test knows the bytes, so nobody else accesses them or changes their mapping.
    unsafe { memory.allow() };
    memory.share();
    assert_eq!(memory.sharing(), Sharing::InPlace);
    (memory, dropped)
}

/// Runs `call` while the process may not map any more pages.
fn crowded<T>(call: impl FnOnce() -> T) -> T {
    let before = limit(Resource::As, 1);
    let done = call();
    setrlimit(Resource::As, before).unwrap();
    done
}

#[test]
fn what_is_dropped_on_shared_pages_is_leaked_and_given_to_nobody() {
    alone_in(module_path!(), "what_is_dropped_on_shared_pages_is_leaked_and_given_to_nobody", || {
        let (memory, dropped) = shared();
        crowded(|| drop(memory));
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "the allocator has pages that others have mapped");
        let (memory, dropped) = shared();
        drop(memory);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_owner_is_given_back_on_pages_of_its_own_or_not_at_all() {
    alone_in(module_path!(), "an_owner_is_given_back_on_pages_of_its_own_or_not_at_all", || {
        let (memory, dropped) = shared();
        let Err(mut memory) = crowded(|| memory.into_owner::<Counted>()) else { panic!("on shared pages") };
        let refused = crowded(|| memory.put_back()).unwrap_err();
        assert!(refused.to_string().contains("ulimit -v"), "{refused}");
        // Memory that is shareable only in part must not be reported as shareable.
        assert!(matches!(memory.sharing(), Sharing::Unshared(Unshared::Denied { .. })));
        assert!(memory.backing().is_none());
        memory.share();
        assert_eq!(memory.sharing(), Sharing::InPlace);
        let Ok(mut owner) = memory.into_owner::<Counted>() else { panic!("it is lost") };
        assert_eq!(owner.as_mut(), vec![7; 2 * rustix::param::page_size()]);
        drop(owner);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}
