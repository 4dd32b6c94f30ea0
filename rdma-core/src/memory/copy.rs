//! The one place where memory that a peer may write at the same moment is copied.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::ptr::NonNull;

/// Copies `dst.len()` bytes out of shared memory.
///
/// The bytes may be torn when a peer writes them meanwhile; no reference to the shared side
/// is ever made, so the compiler assumes nothing of it.
///
/// # Safety
///
/// `src` is valid for reads of `dst.len()` bytes for the whole call.
pub(super) unsafe fn copy_out(src: NonNull<u8>, dst: &mut [u8]) {
    // SAFETY: `src` is valid by the caller's promise, `dst` by being a reference, and they do
    // not overlap since no reference to shared memory exists. A device or another process may
    // write `src` meanwhile: that is outside the abstract machine, as for any mapped file, and
    // yields torn bytes at worst. Threads of this process that copy to the same range race in
    // the same way; callers order such copies by completions.
    unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}

/// Copies `src` into shared memory.
///
/// # Safety
///
/// `dst` is valid for writes of `src.len()` bytes for the whole call.
pub(super) unsafe fn copy_in(src: &[u8], dst: NonNull<u8>) {
    // SAFETY: as in `copy_out`, with the roles exchanged.
    unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_ptr(), src.len()) }
}
