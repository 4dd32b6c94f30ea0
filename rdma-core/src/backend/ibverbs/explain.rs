//! Why the device refused to create an object or to register memory, in words that end with the mend.

use std::io;

use super::Context;
use crate::error::CreateError;
use crate::memory::pinning::{PinningNeed, PinningProbe};

/// The error of a verb that creates `what`.
pub(super) fn creation(context: &Context, verb: &'static str, what: &str, source: io::Error) -> CreateError {
    let mend = match source.raw_os_error() {
        // Rings are pinned too on most NICs, and every object counts against the rdma cgroup.
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            format!(
                "the device may have no {what} left; {}",
                pinning(context, &source, PinningNeed::length(0))
            )
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (`ulimit -n`)".to_owned(),
        Some(libc::EINVAL) => "ask for less: the limits are what query_device reports".to_owned(),
        Some(libc::EIO | libc::ENODEV) => "the device was removed or reset: open it again".to_owned(),
        _ => "see the kernel's log".to_owned(),
    };
    CreateError::Refused { verb, source, mend }
}

/// Which limit on pinned memory refused. Reads them: to be called at once after the failure, on its thread.
pub(super) fn pinning(context: &Context, source: &io::Error, need: PinningNeed) -> String {
    let errno = source.raw_os_error().unwrap_or(0);
    PinningProbe::new().read().explain(errno, need, context.label()).to_string()
}
