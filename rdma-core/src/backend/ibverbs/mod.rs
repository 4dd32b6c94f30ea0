//! The backend over libibverbs: NICs, and the kernel's soft-RoCE.
//!
//! Each verb has a file of its name. Every call into C states there what the C side promises. The C layouts are in
//! [`sys`], the exported functions in [`symbols`].

mod address;
mod channel;
mod context;
mod cq;
mod details;
mod device;
pub(crate) mod event;
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

/// Translates the result of a verb that returns 0 or an errno. Old providers return -1 and set `errno` instead.
fn check(returned: libc::c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        errno if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Translates the pointer that a verb returned; null means that `errno` is set.
fn not_null<T>(returned: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(returned).ok_or_else(io::Error::last_os_error)
}
