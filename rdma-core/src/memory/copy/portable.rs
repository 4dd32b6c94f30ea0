//! Copies by the C library: all of them where there is no kernel of ours, and those between ranges that overlap.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::hint::black_box;

#[cfg(any(test, not(target_arch = "x86_64")))]
use super::CacheHint;

/// Copies between ranges that may overlap. `memmove` is called in a way that hides from the compiler what is called.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes.
pub(super) unsafe fn memmove(from: *const u8, to: *mut u8, len: usize) {
    type Memmove = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let memmove = black_box(libc::memmove as Memmove);
    // SAFETY: both ranges are valid by the caller's promise, and memmove lets them overlap.
    unsafe { memmove(to.cast(), from.cast(), len) };
}

/// See [`super::copy_shared_hinted`].
///
/// # Safety
///
/// As there.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, _: CacheHint) {
    // SAFETY: the caller's promise is the same.
    unsafe { memmove(from, to, len) };
}

/// See [`super::prefetch`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_: usize) {}

/// See [`super::prefetch_for_write`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch_for_write(_: usize) {}

/// The C library decides by itself how it stores.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) fn stream_from() -> usize {
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_copies_as_a_plain_copy_does_forwards_and_backwards() {
        for (len, from, to) in
            (0..600).flat_map(|len| [(len, 0, 700), (len, 40, 33), (len, 33, 40), (len, 5, 5)])
        {
            let mut bytes = super::super::tests::pattern(1400);
            let mut expected = bytes.clone();
            expected.copy_within(from..from + len, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: both ranges are inside `bytes`, whose borrow has ended in the pointer.
            unsafe { copy(base.add(from), base.add(to), len, CacheHint::of_total(stream_from())) };
            assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
        }
    }
}
