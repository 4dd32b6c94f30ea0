//! Copies of memory that a peer may write at the same moment; all such copies of the crate are made here.
//!
//! The kernels that copy are in `copy/`. Each copy selects one by its length and by the features of the
//! processor.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
use portable as kernels;
use std::ptr::NonNull;
#[cfg(target_arch = "x86_64")]
use x86_64 as kernels;

/// Hint whether the bytes of a copy will be in the caches. It decides whether the copy stores around the
/// caches (non-temporal stores).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheHint {
    /// The bytes are cached, or will be read soon: a copy that stands alone.
    Cached,
    /// The bytes are not cached: the copy is part of a list that is longer than the caches, so every line is
    /// evicted before its next use.
    Streamed,
}

impl CacheHint {
    /// Combines the hints of two lists that a copy belongs to.
    #[inline]
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::Streamed { self } else { other }
    }

    /// Returns the hint for each copy of a list that copies `total` bytes, however scattered.
    ///
    /// The trap: use it only if the copies follow each other closely. A single short copy takes up to three
    /// times as long around the caches.
    #[must_use]
    pub fn of_total(total: usize) -> Self {
        if total >= kernels::stream_from() { Self::Streamed } else { Self::Cached }
    }
}

/// Copies `len` bytes, where other threads, processes or devices may access both ranges at the same moment.
/// The ranges may overlap.
///
/// Concurrent writes tear the bytes, and nothing worse happens. In Rust such accesses would be a data race,
/// which is undefined behaviour. So Rust does not make them: the loads and stores are instructions in `asm!`,
/// or the C library's. The compiler knows no more about those than about accesses of a device.
///
/// A release store that this thread makes later is ordered after the copy, whichever kernel ran.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes during the whole call. During the call,
/// nobody uses a reference to bytes that others share.
#[inline]
pub(crate) unsafe fn copy_shared(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the kernels need only valid ranges, as the caller promises, and make no reference to them.
    unsafe { kernels::copy(from, to, len, CacheHint::Cached) };
}

/// [`copy_shared`] with a hint, for a copy that is part of a list.
///
/// # Safety
///
/// The promises of [`copy_shared`].
#[inline]
pub(crate) unsafe fn copy_shared_hinted(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    // SAFETY: the kernels need only valid ranges, as the caller promises, and make no reference to them.
    unsafe { kernels::copy(from, to, len, hint) };
}

/// Prefetches the line at `addr` for a read. Prefetching is no access, so `addr` may be any address.
#[inline]
pub(crate) fn prefetch(addr: u64) {
    kernels::prefetch(addr as usize);
}

/// Prefetches the line at `addr` for a write: other caches give the line up, so that the store does not wait
/// for them. Prefetching is no access, so `addr` may be any address.
#[inline]
pub(crate) fn prefetch_for_write(addr: u64) {
    kernels::prefetch_for_write(addr as usize);
}

/// Copies between slices by the kernels of this crate, as many bytes as both slices have. Meant for
/// benchmarks and for callers that own both sides.
#[inline]
pub fn copy_slice(from: &[u8], to: &mut [u8], hint: CacheHint) {
    // SAFETY: both ranges are valid because they are references, and the copy is as long as the shorter one
    // only.
    unsafe { copy_shared_hinted(from.as_ptr(), to.as_mut_ptr(), from.len().min(to.len()), hint) }
}

/// Copies `dst.len()` bytes out of shared memory.
///
/// The bytes may be torn when a peer writes them meanwhile. No reference to the shared side is made, so the
/// compiler assumes nothing about it.
///
/// # Safety
///
/// `src` is valid for reads of `dst.len()` bytes during the whole call.
#[inline]
pub(super) unsafe fn copy_out(src: NonNull<u8>, dst: &mut [u8]) {
    // SAFETY: the caller promises that `src` is valid, and `dst` is valid because it is a reference. Only
    // `dst` has a reference, and nobody else can reach `dst`.
    unsafe { copy_shared(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}

#[cfg(test)]
mod tests;
