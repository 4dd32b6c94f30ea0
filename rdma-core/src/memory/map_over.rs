//! Mapping a memfd over a mapping of this process; [`map_over`] leaves no hole when the kernel refuses.

#![expect(unsafe_code, reason = "maps pages over pages")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Protection of memory that this process reads and writes.
pub(super) const WRITABLE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Maps `len` bytes of a memfd from `offset` on, shared and writable, at `at`. `flags` says what becomes of a mapping
/// that is there.
///
/// # Safety
///
/// The caller owns the mapping at `at..at + len`, in whole pages, or knows that there is none, and its users do not
/// mind other pages.
pub(super) unsafe fn map_shared(
    at: NonNull<u8>,
    len: usize,
    flags: MapFlags,
    memfd: impl AsFd,
    offset: u64,
) -> Result<(), Errno> {
    let (at, flags) = (at.as_ptr().cast(), MapFlags::SHARED | flags);
    // SAFETY: the caller owns what is mapped there, or the address is free, so nobody else's mapping is replaced.
    unsafe { rustix::mm::mmap(at, len, WRITABLE, flags, memfd, offset) }.map(drop)
}

/// Maps the first `len` bytes of a memfd, shared, over the mapping at `at`. After an error the old pages are still
/// there.
///
/// Kernels before 6.12 unmap the old pages before they know that they can map the new ones: a refusal left a hole, in
/// which another thread could map something, and the owner's later `munmap` would take that away. So the memfd is
/// mapped at a free address first, which finds every refusal but a lack of kernel memory in the second call. After
/// such a lack the pages are mapped into the hole by a third.
///
/// # Safety
///
/// The caller owns the mapping at `at..at + len`, in whole pages, and its users do not mind other pages.
pub(crate) unsafe fn map_over(
    at: *mut libc::c_void,
    len: usize,
    protection: ProtFlags,
    memfd: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let map = |at, flags| {
        // SAFETY: without MAP_FIXED the kernel picks a free range, so nothing is replaced; with MAP_FIXED_NOREPLACE it
        // takes `at` only if that is free; with MAP_FIXED the caller owns the range, by this function's contract.
        unsafe { rustix::mm::mmap(at, len, protection, MapFlags::SHARED | flags, memfd, 0) }
    };
    let trial = map(std::ptr::null_mut(), MapFlags::empty())?;
    // SAFETY: the range was mapped just now at a free address, and nobody else knows of it, so nobody uses it.
    let _ = unsafe { rustix::mm::munmap(trial, len) };
    // EEXIST means that the old pages are still there.
    map(at, MapFlags::FIXED)
        .or_else(|refused| map(at, MapFlags::FIXED_NOREPLACE).map_err(|_| refused))
        .map(drop)
}
