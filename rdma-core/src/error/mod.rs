//! Errors of the crate: one small enum for each area.
//!
//! Every message says what happened, to which object, and what to do about it. Errors of calls that consumed
//! an object give the object back: [`Refused`](crate::Refused), [`PostRefused`], [`PartialPost`].

mod close;
mod connect;
mod create;
mod debug;
mod forked;
mod open;
mod poll;
mod post;
mod quarantine;
mod range;
mod reach;
mod register;
mod unshare;

use std::io;

pub use close::CloseError;
pub use connect::{ConnectError, GidRejection, NoUsableGid};
pub use create::CreateError;
pub use forked::Forked;
pub use open::{LibraryUnavailable, OpenError, QueryError};
pub use poll::{FenceError, PollError};
pub use post::{DetachError, PartialPost, PostError, PostRefused};
pub use quarantine::Quarantine;
pub use range::RangeError;
pub use reach::ReachError;
pub use register::RegisterError;
pub use unshare::UnshareError;

/// Returns the remedy when `error` says that the system has run out of some resource; `None` for other
/// errors.
///
/// The text names a limit that its reader can raise, because the bare error ("Too many open files") does not.
pub(crate) fn limit_advice(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some("raise the limit on open files (ulimit -n)"),
        libc::ENFILE => Some("raise the system's limit on open files (fs.file-max)"),
        libc::EAGAIN => Some(
            "raise the limit on threads (ulimit -u, pids.max), or, after mlockall(MCL_FUTURE), on locked memory (ulimit -l)",
        ),
        libc::EFBIG => Some("raise the limit on the size of a file (ulimit -f)"),
        libc::ENOMEM => Some(
            "ask for less, or raise the memory limit, that on address space (ulimit -v), or vm.max_map_count",
        ),
        _ => None,
    }
}
