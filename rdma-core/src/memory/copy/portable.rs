//! Copies by the C library: all copies on processors without kernels of this crate, and everywhere those
//! between ranges that overlap.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::hint::black_box;

#[cfg(any(test, not(target_arch = "x86_64")))]
use super::CacheHint;

/// Copies between ranges that may overlap.
///
/// `black_box` hides from the compiler that the call is `memmove`. Otherwise the compiler could treat it as
/// an access of its own, and a concurrent write would be a data race.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes.
pub(super) unsafe fn memmove(from: *const u8, to: *mut u8, len: usize) {
    type Memmove = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let memmove = black_box(libc::memmove as Memmove);
    // SAFETY: both ranges are valid by the caller's promise, and `memmove` allows overlap, so nothing else is
    // required.
    unsafe { memmove(to.cast(), from.cast(), len) };
}

/// Copies with a hint, which the C library does not use; see [`super::copy_shared_hinted`].
///
/// # Safety
///
/// The promises of [`super::copy_shared_hinted`].
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, _: CacheHint) {
    // SAFETY: `memmove` needs only valid ranges, as the caller promises.
    unsafe { memmove(from, to, len) };
}

/// Does nothing, because there is no portable prefetch; see [`super::prefetch`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_: usize) {}

/// Does nothing, because there is no portable prefetch; see [`super::prefetch_for_write`].
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch_for_write(_: usize) {}

/// Returns the largest length, because the C library decides by itself how it stores.
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
            // SAFETY: both ranges are inside `bytes`, and only `base` is used after it was made, so no
            // reference is invalidated.
            unsafe { copy(base.add(from), base.add(to), len, CacheHint::of_total(stream_from())) };
            assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
        }
    }
}
