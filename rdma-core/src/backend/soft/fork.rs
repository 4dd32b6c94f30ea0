//! Whether this process was forked from one that uses software devices, as cheaply as every post and poll can ask.

#![expect(unsafe_code, reason = "has the C library call back when the process forks")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// From now on [`is_child`] tells the truth in children.
pub(super) fn watch() -> io::Result<()> {
    // SAFETY: the handler stores one word, which is allowed in any state that a child can find itself in.
    match unsafe { libc::pthread_atfork(None, None, Some(enter_child)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

extern "C" fn enter_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether it was. What it has of the devices is then its parent's: rings that the parent's peers write, a lock that a thread
/// may hold that is not here.
pub(super) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// What it is told.
pub(super) fn refusal() -> io::Error {
    io::Error::other("this process was forked from one that uses a software device")
}
