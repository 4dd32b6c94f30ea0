//! Detection of forks, cheap enough for every post and poll.
//!
//! A forked child shares registered memory with its parent but owns no registration, so it must neither
//! release memory nor use a device.

#![expect(
    unsafe_code,
    reason = "has the C library call back when the process forks, and a page that children have empty"
)]

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Starts watching: from now on [`is_child`] is true in forked children, and [`count`] counts forks of this
/// process.
///
/// A child that is made by the bare system call is not seen, because handlers run in the C library's `fork`
/// only.
pub(crate) fn watch() -> io::Result<()> {
    static WATCHED: OnceLock<i32> = OnceLock::new();
    // SAFETY: `fork` calls the handlers in an arbitrary state of the process, so they must not lock or
    // allocate; each one accesses a single atomic only.
    let watch = || unsafe { libc::pthread_atfork(Some(count_one), None, Some(enter_child)) };
    match *WATCHED.get_or_init(watch) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Runs in the parent before the child exists. Counting after the fork would be too late: a child could
/// already share memory that [`Checkpoint::is_unforked`] still reports as unshared.
extern "C" fn count_one() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn enter_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Returns whether this process was forked from one that watched.
///
/// The child's device state is a copy of the parent's: rings that the parent's peers write, and perhaps a lock
/// whose owning thread does not exist here. So nothing of it may be touched.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Returns [`std::process::id`] without a system call, which would take as long as a short message.
///
/// The number is cached in a page that the kernel zeroes in every child, by whichever call the child was
/// made.
pub(crate) fn pid() -> u32 {
    let Some(kept) = emptied_in_children() else { return std::process::id() };
    match kept.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            kept.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

/// Stands for "no such page": the kernel does not zero pages in children.
const NONE: *mut AtomicU32 = NonNull::dangling().as_ptr();

/// Returns the cached word, which is 0 until it is stored, and again in children; `None` where the kernel
/// cannot do that.
fn emptied_in_children() -> Option<&'static AtomicU32> {
    // A lock would not do here, because a child that is forked during the first call would inherit it locked.
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let mapped = map_emptied().unwrap_or(NONE);
        // Two threads may map a page at the same time; the first one wins, and the other unmaps its page.
        page = match PAGE.compare_exchange(null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => mapped,
            Err(first) => {
                if mapped != NONE {
                    // SAFETY: another thread was first, so the address of this page was given to nobody.
                    let _ = unsafe { munmap(mapped.cast(), page_size()) };
                }
                first
            }
        };
    }
    // SAFETY: the page is never unmapped, aligned, and zeroed by the kernel. It is accessed only as this one
    // atomic.
    (page != NONE).then(|| unsafe { &*page })
}

fn map_emptied() -> Option<*mut AtomicU32> {
    let len = page_size();
    // SAFETY: the kernel chooses an unused address, so no mapping is replaced.
    let page =
        unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // Some emulators accept every advice without obeying. They also accept -1, which no kernel knows, so that
    // an accepted -1 reveals them.
    // SAFETY: an unknown advice changes nothing, and only this function knows the page.
    let believes_all = unsafe { libc::madvise(page, len, -1) } == 0;
    // SAFETY: the advice affects only children, and nobody uses the page yet.
    if believes_all || unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: the page was given to nobody, so nothing can access it any more.
        let _ = unsafe { munmap(page, len) };
        return None;
    }
    Some(page.cast())
}

/// Returns the number of forks of this process and, before it was forked itself, of its ancestors; `None`
/// when they are not counted.
fn count() -> Option<u64> {
    watch().ok()?;
    Some(FORKS.load(Ordering::SeqCst))
}

/// A point in time, to ask later whether a child shares the memory that was mapped since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoint {
    /// The process that made the checkpoint. A child has the value, too, but must not punch out pages that
    /// its parent uses.
    pid: u32,
    /// `None` when forks are not counted; every later question is then answered with "forked".
    forks: Option<u64>,
}

impl Checkpoint {
    pub(super) fn now() -> Self {
        Self { pid: pid(), forks: count() }
    }

    #[cfg(test)]
    pub(super) fn of_another_process() -> Self {
        Self { pid: 0, ..Self::now() }
    }

    /// Returns whether this is the process that made the checkpoint, and no child was forked since.
    pub(super) fn is_unforked(&self) -> bool {
        self.pid == pid() && self.forks.is_some() && self.forks == count()
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    #[test]
    fn a_child_has_a_number_of_its_own_by_whichever_call_it_was_made() {
        assert_eq!(pid(), std::process::id());
        // SAFETY: the child makes two system calls and ends, so it needs no state of other threads; `clone`
        // runs no handlers.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let own = pid() == std::process::id();
            // SAFETY: ends the child at once, so that it never runs the parent's tests or destructors.
            unsafe { libc::_exit(i32::from(!own)) };
        }
        let child = Pid::from_raw(child as i32).expect("the kernel makes a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert_eq!(pid(), std::process::id());
    }
}
