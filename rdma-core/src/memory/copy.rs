//! The one place where memory that a peer may write at the same moment is copied.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::hint::black_box;
use std::ptr::NonNull;

/// Copies `len` bytes between ranges of which either may be memory that others use at this moment: a device,
/// another process, or a thread of this one that was handed the same region.
///
/// Bytes are torn then, and nothing worse. For Rust such accesses at the same time would be a data race, so it
/// is not Rust that makes them: the C library's `memmove` is called in a way that hides from the compiler what
/// is called, as a device is hidden from it.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes for the whole call, and no reference to what is
/// shared of them is used meanwhile.
pub(crate) unsafe fn copy_shared(from: *const u8, to: *mut u8, len: usize) {
    type Memmove = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let memmove = black_box(libc::memmove as Memmove);
    // SAFETY: both ranges are valid by the caller's promise, and memmove lets them overlap.
    unsafe { memmove(to.cast(), from.cast(), len) };
}

/// Copies `dst.len()` bytes out of shared memory.
///
/// The bytes may be torn when a peer writes them meanwhile; no reference to the shared side
/// is ever made, so the compiler assumes nothing of it.
///
/// # Safety
///
/// `src` is valid for reads of `dst.len()` bytes for the whole call.
pub(super) unsafe fn copy_out(src: NonNull<u8>, dst: &mut [u8]) {
    // SAFETY: `src` is valid by the caller's promise, `dst` by being a reference, and no reference to shared
    // memory exists.
    unsafe { copy_shared(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}

/// Copies `src` into shared memory.
///
/// # Safety
///
/// `dst` is valid for writes of `src.len()` bytes for the whole call.
pub(super) unsafe fn copy_in(src: &[u8], dst: NonNull<u8>) {
    // SAFETY: as in `copy_out`, with the roles exchanged.
    unsafe { copy_shared(src.as_ptr(), dst.as_ptr(), src.len()) }
}
