//! Forks of this process, as cheaply as every post and poll can ask.

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

/// From now on [`is_child`] tells the truth in children, and [`count`] in this process. A child that is made by the system
/// call alone is not seen.
pub(crate) fn watch() -> io::Result<()> {
    static WATCHED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handlers access one word each, which is allowed in any state that a process can fork in.
    let watch = || unsafe { libc::pthread_atfork(Some(count_one), None, Some(enter_child)) };
    match *WATCHED.get_or_init(watch) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Before there is a child: what is done while none is counted, no child has seen undone.
extern "C" fn count_one() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn enter_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether it was forked from one that watched. What it has of the devices is then its parent's: rings that the parent's
/// peers write, a lock that a thread may hold that is not here.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// The number of this process, as [`std::process::id`] has it, without a system call: that takes as long as a short message.
///
/// It is kept in a page that every child has empty, whichever call it was made by.
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

/// Where there is no page that children have empty.
const NONE: *mut AtomicU32 = NonNull::dangling().as_ptr();

/// 0 until it is stored, and in children again; `None` where the kernel has no such pages.
fn emptied_in_children() -> Option<&'static AtomicU32> {
    // No lock: a child may come in the midst of the first call.
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let mapped = map_emptied().unwrap_or(NONE);
        page = match PAGE.compare_exchange(null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => mapped,
            Err(first) => {
                if mapped != NONE {
                    // SAFETY: nobody knows of it.
                    let _ = unsafe { munmap(mapped.cast(), page_size()) };
                }
                first
            }
        };
    }
    // SAFETY: mapped for ever, aligned to a page, zeroed as the kernel gives it, and accessed by nothing but this.
    (page != NONE).then(|| unsafe { &*page })
}

fn map_emptied() -> Option<*mut AtomicU32> {
    let len = page_size();
    // SAFETY: the kernel chooses where, so nothing else is there.
    let page =
        unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // Emulators of a kernel grant what they do not know, too.
    // SAFETY: no such advice is known.
    let believes_all = unsafe { libc::madvise(page, len, -1) } == 0;
    // SAFETY: it changes what children have of a page that nobody uses yet.
    if believes_all || unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: nobody knows of it.
        let _ = unsafe { munmap(page, len) };
        return None;
    }
    Some(page.cast())
}

/// How often it was, with what its parents were before; `None` when that is not known.
fn count() -> Option<u64> {
    watch().ok()?;
    Some(FORKS.load(Ordering::SeqCst))
}

/// A moment: whether a child has what came after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoint {
    /// A child leaves alone what is its parent's as well.
    pid: u32,
    /// `None` when they are not counted.
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

    /// Whether this is the same process, and no child of it has been made.
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
        // SAFETY: the child makes two system calls and ends; the call by which it is made runs no handlers.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            let own = pid() == std::process::id();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!own)) };
        }
        let child = Pid::from_raw(child as i32).expect("the kernel makes a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert_eq!(pid(), std::process::id());
    }
}
