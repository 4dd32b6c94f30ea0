//! The backend over libibverbs: NICs, and the kernel's soft-RoCE.
//!
//! One file a verb, under the verb's name. What a C call promises is written where it is called; what the layouts are
//! is in [`sys`], what the library exports in [`symbols`].

mod address;
mod channel;
mod context;
mod cq;
mod device;
mod event;
mod explain;
mod gid;
mod library;
mod mr;
mod pd;
mod port;
mod post;
mod qp;
mod symbols;
mod sys;
#[cfg(test)]
mod tests;
mod transition;
mod worker;

use std::io;

pub(crate) use context::Context;
pub(crate) use device::Device;
pub(crate) use pd::ProtectionDomain;
pub(crate) use worker::Worker;

/// The result of a verb that returns 0, an errno, or (as old providers do) -1 with the errno in its place.
fn check(returned: libc::c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        errno if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A pointer that a verb returned, or the errno where it is null.
fn not_null<T>(returned: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(returned).ok_or_else(io::Error::last_os_error)
}
