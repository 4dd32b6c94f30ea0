//! Which kernel copies on x86-64: the choice. The kernels are in `small` and `kernels`, the processor in `cpu`.

#![expect(unsafe_code, reason = "calls the kernels")]

mod cpu;
mod kernels;
mod small;

use cpu::Cpu;
pub(super) use cpu::stream_from;

use super::{CacheHint, portable};

/// The most bytes that are copied inline, all loaded before the first is stored, so that they may overlap.
const SMALL_BYTES_MAX: usize = 128;
/// The most bytes that a loop of vectors copies where strings are fast: both ranges are then in the first cache.
/// Beyond it `rep movsb` is ahead: it fetches no line that it overwrites.
const LOOP_BYTES_MAX: usize = 16 << 10;
/// By so much processors tell at first whether a load is of what was stored just before.
const PAGE: usize = 4096;
const LINE: usize = 64;
/// The fewest bytes of a list's part that are worth storing around the caches: one wait for the last store a page.
const STREAM_BYTES_MIN: usize = 4 << 10;

/// See [`super::copy_shared_hinted`].
///
/// # Safety
///
/// As there.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    if len <= SMALL_BYTES_MAX {
        // SAFETY: both ranges are valid by the caller's promise, and are short enough.
        unsafe { small::copy(from, to, len) }
    } else {
        // SAFETY: the caller's promise is the same, and they are not short.
        unsafe { copy_long(from, to, len, hint) }
    }
}

/// See [`super::prefetch`].
#[inline]
pub(super) fn prefetch(addr: usize) {
    // SAFETY: a hint, which is no access and raises no fault.
    unsafe { std::arch::asm!("prefetcht0 [{}]", in(reg) addr, options(nostack, preserves_flags)) };
}

/// See [`super::prefetch_for_write`].
#[inline]
pub(super) fn prefetch_for_write(addr: usize) {
    // SAFETY: a hint, which changes no byte and raises no fault. Of processors of 64 bits those that do not have it take it
    // for nothing, but for the very first of Intel's, of 2004.
    unsafe { std::arch::asm!("prefetchw [{}]", in(reg) addr, options(nostack, preserves_flags)) };
}

/// # Safety
///
/// As for [`super::copy_shared_hinted`], and `len` is more than [`SMALL_BYTES_MAX`].
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    let apart = from.addr().abs_diff(to.addr()) >= len;
    let cpu = Cpu::this();
    let cpu = Cpu { fast_rep_movsb: cpu.fast_rep_movsb && !has_4k_aliasing(from.addr(), to.addr()), ..cpu };
    // SAFETY: the ranges are valid by the caller's promise; what else a kernel needs, `choose` has looked at.
    unsafe { Kernel::choose(cpu, len, hint, apart).copy(from, to, len) }
}

/// Whether `rep movsb` would load what looks, by the last 12 bits of its address, like what it has stored just before: on AMD's Zen 3 it
/// copies 3 GB/s then, in place of 50 and more, where the target is up to 31 bytes behind. A line is avoided, since they compare by lines, too.
#[inline]
fn has_4k_aliasing(from: usize, to: usize) -> bool {
    matches!(to.wrapping_sub(from) % PAGE, 1..LINE)
}

/// What can copy more than [`SMALL_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// The C library's `memmove`, for ranges that overlap.
    Memmove,
    LoopSse2,
    LoopAvx,
    /// `rep movsb`.
    RepMovsb,
    StreamSse2,
    StreamAvx,
    /// With a line a store, of which no part waits for the rest.
    StreamAvx512,
}

impl Kernel {
    /// The fastest for `len` bytes, of those that `cpu` has, and that can copy ranges that are `apart` or not.
    fn choose(cpu: Cpu, len: usize, hint: CacheHint, apart: bool) -> Self {
        let streamed = len >= cpu.stream_from || hint == CacheHint::Streamed && len >= STREAM_BYTES_MIN;
        match cpu.avx {
            _ if !apart => Self::Memmove,
            _ if streamed && cpu.avx512 => Self::StreamAvx512,
            true if streamed => Self::StreamAvx,
            false if streamed => Self::StreamSse2,
            _ if cpu.fast_rep_movsb && len > LOOP_BYTES_MAX => Self::RepMovsb,
            true => Self::LoopAvx,
            false => Self::LoopSse2,
        }
    }

    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, which are more than [`SMALL_BYTES_MAX`], and at least 192
    /// for streams. The ranges do not overlap, except for `Memmove`. The processor has AVX, or AVX-512, for the kernels named after it.
    unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: what each needs is a part of the caller's promise.
        unsafe {
            match self {
                Self::Memmove => portable::memmove(from, to, len),
                Self::LoopSse2 => kernels::loop_sse2(from, to, len),
                Self::LoopAvx => kernels::loop_avx(from, to, len),
                Self::RepMovsb => kernels::rep_movsb(from, to, len),
                Self::StreamSse2 => kernels::stream_sse2(from, to, len),
                Self::StreamAvx => kernels::stream_avx(from, to, len),
                Self::StreamAvx512 => kernels::stream_avx512(from, to, len),
            }
        }
    }
}

#[cfg(test)]
mod tests;
