//! Explanations of a refusal to create an object or to register memory, each of which ends with the mend.

#![expect(unsafe_code, reason = "asks the kernel which pages are resident")]

use std::io;

use super::Context;
use crate::backend::register;
use crate::error::{CreateError, OpenError};
use crate::log;
use crate::memory::pinning::{PinningNeed, PinningProbe};

/// Makes the error of a verb that creates `what`; the driver may pin `rings` for it.
pub(super) fn creation(
    context: &Context,
    verb: &'static str,
    what: &str,
    rings: PinningNeed,
    source: io::Error,
) -> CreateError {
    let mend = match source.raw_os_error() {
        // Every object counts against the rdma cgroup, even one that pins no memory.
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            format!("the device may have no {what} left; {}", pinning(context, &source, rings))
        }
        Some(libc::EINVAL) => {
            "ask for less: the limits are what query_device reports, and that of max_inline_data is \
                               the driver's own, often a few hundred bytes"
                .to_owned()
        }
        Some(libc::EIO | libc::ENODEV) => "the device was removed or reset: open it again".to_owned(),
        _ => other(&source),
    };
    CreateError::Refused { verb, source, mend }
}

/// Makes the error of opening the device `name`, whose node is `/dev/infiniband/NODE`.
pub(super) fn opening(name: &str, node: &str, source: io::Error) -> OpenError {
    let mend = match source.raw_os_error() {
        Some(errno @ libc::EAGAIN) => PinningProbe::new().read().explain_open(errno, name).to_string(),
        Some(libc::EACCES | libc::EPERM) => format!(
            "let this user read and write /dev/infiniband/{node} (mode 0666 is usual), and let the container use it \
             (`--device=/dev/infiniband/{node}`, or the pod's `rdma/...` resource)"
        ),
        Some(libc::ENOENT | libc::ENXIO) => format!(
            "/dev/infiniband/{node} is not here: load ib_uverbs (`modprobe ib_uverbs`), and give the container the node \
             (`--device=/dev/infiniband/{node}`, or the pod's `rdma/...` resource)"
        ),
        Some(libc::EIO | libc::ENODEV) => {
            "the device was removed or reset: list the devices again".to_owned()
        }
        _ => other(&source),
    };
    OpenError::Refused { name: name.to_owned(), source, mend }
}

/// The mend of a refusal whose cause is not known.
fn other(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (`ulimit -n`)".to_owned(),
        _ => "see the kernel's log".to_owned(),
    }
}

/// Estimates the bytes that the driver of a NIC pins for a ring: a power of two entries, each in whole cache lines.
pub(super) fn ring(entries: u32, entry_bytes: u32) -> u64 {
    u64::from(entries).next_power_of_two().saturating_mul(u64::from(entry_bytes).next_multiple_of(64))
}

/// The pinning need of registering a range, which must be mapped.
pub(super) fn registration(addr: *mut u8, len: usize) -> PinningNeed {
    let need = PinningNeed::range(addr as u64, len as u64);
    if is_resident(addr as usize, len) { need.resident() } else { need }
}

/// Warns when a large registration will probably be refused. Pinning it may take seconds, and running out of memory
/// ends in a killed process without an explanation.
///
/// The check costs about as much as pinning a few MiB, so shorter registrations go without it.
pub(super) fn warn_before(context: &Context, need: PinningNeed, len: usize) {
    const LEN_MIN: usize = 64 << 20;
    if len < LEN_MIN || !log::is_wanted(log::Level::WARN) {
        return;
    }
    if let Err(diagnosis) = PinningProbe::new().read().check_before(need, context.name()) {
        crate::log::warn!(device = context.name(), bytes = len, "this registration may fail: {diagnosis}");
    }
}

/// Whether all of a range is resident, judged by at most 64 pages spread evenly over it.
fn is_resident(addr: usize, len: usize) -> bool {
    const SAMPLES: usize = 64;
    let page = rustix::param::page_size();
    let pages = len.div_ceil(page);
    let step = pages.div_ceil(SAMPLES).max(1);
    (0..pages).step_by(step).all(|at| {
        let mut resident = 0;
        let start = (addr & !(page - 1)) + at * page;
        // SAFETY: `mincore` only reads the page tables of one page, and writes only the one byte of `resident`.
        let answered = unsafe { libc::mincore(start as *mut libc::c_void, page, &mut resident) } == 0;
        answered && resident & 1 == 1
    })
}

/// Explains why the device did not register `len` bytes: its own bound on one registration, or a limit on pinned
/// memory.
pub(super) fn refused(context: &Context, source: &io::Error, need: PinningNeed, len: usize) -> String {
    let bound = context.query_device().ok();
    let beyond =
        bound.and_then(|device| register::beyond_device(context.name(), len as u64, device.max_mr_size));
    beyond.unwrap_or_else(|| pinning(context, source, need))
}

/// Explains which limit on pinned memory refused. Must be called right after the failure and on its thread, because it
/// reads the limits as they are now.
pub(super) fn pinning(context: &Context, source: &io::Error, need: PinningNeed) -> String {
    let errno = source.raw_os_error().unwrap_or(0);
    PinningProbe::new().read().explain(errno, need, context.name()).to_string()
}

#[cfg(test)]
mod tests;
