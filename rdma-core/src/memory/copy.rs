//! The one place where memory that a peer may write at the same moment is copied.
//!
//! What copies is a kernel of `copy/`: one is chosen for each copy, by its length and by what the processor has.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
use portable as kernels;
use std::ptr::NonNull;
#[cfg(target_arch = "x86_64")]
use x86_64 as kernels;

/// Where the bytes of a copy are expected: it decides whether the target is written around the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheHint {
    /// In a cache, now or soon: a copy that stands alone.
    Cached,
    /// In none: a part of so many bytes that the caches hold neither source nor target until all are copied.
    Streamed,
}

impl CacheHint {
    /// What a copy can be told that is a part of both.
    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::Streamed { self } else { other }
    }

    /// For each of several copies that are `total` bytes together, however scattered.
    ///
    /// Say so only of copies made one after the other: around the caches a part alone takes up to three times as long.
    #[must_use]
    pub fn of_total(total: usize) -> Self {
        if total >= kernels::stream_from() { Self::Streamed } else { Self::Cached }
    }
}

/// Copies `len` bytes between ranges of which either may be memory that others use at this moment: a device,
/// another process, or a thread of this one that was handed the same region. The ranges may overlap.
///
/// Bytes are torn then, and nothing worse. For Rust such accesses at the same time would be a data race, so it
/// is not Rust that makes them: they are instructions in `asm!`, or the C library's, of which the compiler knows no
/// more than of a device's.
///
/// However it stores, a later release store of this thread comes after it.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes for the whole call, and no reference to what is
/// shared of them is used meanwhile.
#[inline]
pub(crate) unsafe fn copy_shared(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise is the kernels'.
    unsafe { kernels::copy(from, to, len, CacheHint::Cached) };
}

/// [`copy_shared`] for a part of a longer list of copies.
///
/// # Safety
///
/// As for [`copy_shared`].
#[inline]
pub(crate) unsafe fn copy_shared_hinted(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    // SAFETY: the caller's promise is the kernels'.
    unsafe { kernels::copy(from, to, len, hint) };
}

/// Has the line at `addr` brought into the cache, since it is about to be read. Whatever is there, this is no access to it.
#[inline]
pub(crate) fn prefetch(addr: u64) {
    kernels::prefetch(addr as usize);
}

/// The same, since it is about to be written: it is taken from the caches that have it. For the bytes there this is no access.
#[inline]
pub(crate) fn prefetch_for_write(addr: u64) {
    kernels::prefetch_for_write(addr as usize);
}

/// What the library does, between slices, for whoever measures it: as much as both have.
#[inline]
pub fn copy_slice(from: &[u8], to: &mut [u8], hint: CacheHint) {
    // SAFETY: both are valid by being references, for the shorter's length.
    unsafe { copy_shared_hinted(from.as_ptr(), to.as_mut_ptr(), from.len().min(to.len()), hint) }
}

/// Copies `dst.len()` bytes out of shared memory.
///
/// The bytes may be torn when a peer writes them meanwhile; no reference to the shared side
/// is ever made, so the compiler assumes nothing of it.
///
/// # Safety
///
/// `src` is valid for reads of `dst.len()` bytes for the whole call.
#[inline]
pub(super) unsafe fn copy_out(src: NonNull<u8>, dst: &mut [u8]) {
    // SAFETY: `src` is valid by the caller's promise, `dst` by being a reference, and no reference to shared
    // memory exists.
    unsafe { copy_shared(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}

#[cfg(test)]
mod tests;
