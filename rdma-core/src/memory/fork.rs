//! Forks of this process, as cheaply as every post and poll can ask.

#![expect(unsafe_code, reason = "has the C library call back when the process forks")]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// How often it was, with what its parents were before; `None` when that is not known.
fn count() -> Option<u64> {
    watch().ok()?;
    Some(FORKS.load(Ordering::SeqCst))
}

/// A moment: whether a child has what came after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    /// A child leaves alone what is its parent's as well.
    pid: u32,
    /// `None` when they are not counted.
    forks: Option<u64>,
}

impl Since {
    pub(super) fn now() -> Self {
        Self { pid: std::process::id(), forks: count() }
    }

    #[cfg(test)]
    pub(super) fn of_another() -> Self {
        Self { pid: 0, ..Self::now() }
    }

    /// Whether this is the same process, and no child of it has been made.
    pub(super) fn is_alone(&self) -> bool {
        self.pid == std::process::id() && self.forks.is_some() && self.forks == count()
    }
}
