//! Children by every call: what they are refused, and what their drops leave alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::mm::{MapFlags, mmap_anonymous};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::*;

/// Adds its drops to a counter that parent and child share.
struct Counted(&'static AtomicU32);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a counter that children share with their parent.
fn shared_counter() -> &'static AtomicU32 {
    // SAFETY: the kernel chooses an unused address for zeroed pages, so nothing is replaced.
    let page = unsafe { mmap_anonymous(null_mut(), page_size(), WRITABLE, MapFlags::SHARED) }.unwrap();
    // SAFETY: the page is aligned and never unmapped, since the test leaks it, and is accessed as this atomic alone.
    unsafe { &*page.cast::<AtomicU32>() }
}

/// Returns whether `holds` is true in a child, made by the bare system call or by the C library.
pub(in crate::memory) fn in_a_child(bare: bool, holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls `holds`, which takes no lock that another thread may hold, and must end by `_exit`, so
    // it never runs the parent's tests or destructors.
    unsafe {
        let child = match bare {
            true => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
            false => libc::fork(),
        };
        if child == 0 {
            libc::_exit(i32::from(!holds()));
        }
        let child = Pid::from_raw(child).expect("the kernel makes a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status() == Some(0)
    }
}

#[test]
fn a_child_is_refused_and_its_drop_does_nothing_by_whichever_call_it_was_made() {
    for bare in [false, true] {
        if bare && std::ptr::eq(word(), &PLAIN_WORD) {
            println!("left out: this kernel empties no page in children, so the bare call is not seen");
            continue;
        }
        let drops = shared_counter();
        let mut kept = OwnProcess::new(Counted(drops));
        assert!(kept.get().is_ok() && kept.get_mut().is_ok());
        let refused = in_a_child(bare, || {
            let Err(mut kept) = copied(&kept).into_inner() else { return false };
            let refused = kept.get().is_err() && kept.get_mut().is_err();
            drop(kept);
            // The child's own values are its own.
            let own = OwnProcess::new(Arc::new(1));
            refused && own.get().is_ok() && own.clone().into_inner().is_ok()
        });
        assert!(refused, "bare: {bare}");
        assert_eq!(drops.load(Ordering::SeqCst), 0, "the child dropped it; bare: {bare}");
        assert!(kept.get().is_ok());
        drop(kept);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

/// Returns the child's copy of a value as one that it owns, because the child ends without running the parent's frames.
fn copied<T>(kept: &OwnProcess<T>) -> OwnProcess<T> {
    // SAFETY: only the child calls this; its original is never dropped there, because the child ends by `_exit`.
    unsafe { std::ptr::read(kept) }
}

#[test]
fn a_grandchild_and_a_brother_are_refused_too() {
    let kept = OwnProcess::new(1);
    for _ in 0..3 {
        assert!(in_a_child(false, || {
            let own = OwnProcess::new(2);
            own.get().is_ok()
                && in_a_child(false, || {
                    // A generation of its own must not be one that it has a copy of.
                    let last = OwnProcess::new(3);
                    kept.get().is_err() && own.get().is_err() && last.get().is_ok()
                })
        }));
    }
    assert!(kept.get().is_ok());
}

#[test]
fn a_checkpoint_sees_a_fork() {
    let checkpoint = Checkpoint::now();
    assert!(in_a_child(false, || !checkpoint.is_unforked()));
    assert!(!checkpoint.is_unforked());
    assert!(!Checkpoint::of_another_process().is_unforked());
}
