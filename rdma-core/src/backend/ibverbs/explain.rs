//! Why the device refused to create an object or to register memory, in words that end with the mend.

use std::io;

use super::Context;
use crate::error::CreateError;
use crate::memory::pinning::{PinningNeed, PinningProbe};

/// The error of a verb that creates `what`, for which the driver may pin `rings`.
pub(super) fn creation(
    context: &Context,
    verb: &'static str,
    what: &str,
    rings: PinningNeed,
    source: io::Error,
) -> CreateError {
    let mend = match source.raw_os_error() {
        // Every object counts against the rdma cgroup, rings pinned or not.
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            format!("the device may have no {what} left; {}", pinning(context, &source, rings))
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (`ulimit -n`)".to_owned(),
        Some(libc::EINVAL) => "ask for less: the limits are what query_device reports".to_owned(),
        Some(libc::EIO | libc::ENODEV) => "the device was removed or reset: open it again".to_owned(),
        _ => "see the kernel's log".to_owned(),
    };
    CreateError::Refused { verb, source, mend }
}

/// What the driver of a NIC pins for `entries` of a ring; each takes a cache line unless it carries more.
pub(super) fn ring(entries: u32, entry_bytes: u32) -> u64 {
    u64::from(entries).next_power_of_two().saturating_mul(u64::from(entry_bytes).next_multiple_of(64))
}

/// Which limit on pinned memory refused. Reads them: to be called at once after the failure, on its thread.
pub(super) fn pinning(context: &Context, source: &io::Error, need: PinningNeed) -> String {
    let errno = source.raw_os_error().unwrap_or(0);
    PinningProbe::new().read().explain(errno, need, context.label()).to_string()
}
