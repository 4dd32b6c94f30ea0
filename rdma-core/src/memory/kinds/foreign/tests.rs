//! Owners and their pages when the system refuses to put the pages back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, setrlimit};

use super::super::replaced_pages::tests::limit;
use super::*;
use crate::alone::alone;

/// An owner that lends two whole pages of its bytes, and counts its drops.
struct Counted {
    bytes: Vec<u8>,
    /// The shareable pages. At the drop, the bytes must not be on them any more.
    shared: Arc<OnceLock<Backing>>,
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
        if let Some(shared) = self.shared.get().cloned() {
            let before = self.as_mut()[0];
            rustix::io::pwrite(&shared.memfd, &[before + 1], 0).unwrap();
            assert_eq!(self.as_mut()[0], before, "the owner is told before its pages are its own");
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn shared() -> (Foreign, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bytes = vec![7; 3 * rustix::param::page_size()];
    let pages = Arc::new(OnceLock::new());
    let owner = Counted { bytes, shared: Arc::clone(&pages), dropped: Arc::clone(&dropped) };
    let mut memory = Foreign::adopt(owner);
    // SAFETY: only this test knows the bytes, so nobody else accesses them or changes their mapping.
    unsafe { memory.allow() };
    memory.share();
    assert_eq!(memory.sharing(), Sharing::InPlace);
    assert!(pages.set(memory.backing().unwrap().clone()).is_ok());
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
    alone(module_path!(), "what_is_dropped_on_shared_pages_is_leaked_and_given_to_nobody", || {
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
    alone(module_path!(), "an_owner_is_given_back_on_pages_of_its_own_or_not_at_all", || {
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
