//! Choice of the copy kernel on x86-64. The kernels are in `small` and `kernels`, the processor's features in
//! `cpu`.

#![expect(unsafe_code, reason = "calls the kernels")]

mod cpu;
mod kernels;
mod small;

use cpu::Cpu;
pub(super) use cpu::stream_from;

use super::{CacheHint, portable};

/// The longest copy that is inlined: 128 bytes, because 8 vectors of 16 bytes hold all of it. All loads come
/// before the first store, so the ranges may overlap.
const SMALL_BYTES_MAX: usize = 128;
/// The longest copy by a loop of vectors, where `rep movsb` is fast: 16 KiB, because source and target then
/// fit a 32 KiB L1 cache. Beyond it `rep movsb` is faster, because it does not fetch the lines that it
/// overwrites.
const LOOP_BYTES_MAX: usize = 16 << 10;
/// Address bits that processors compare first (12) when they check whether a load reads an earlier store.
const PAGE: usize = 4096;
const LINE: usize = 64;
/// The shortest part of a list that is stored around the caches: 4 KiB, because each copy ends in an `sfence`
/// that waits for the last store.
const STREAM_BYTES_MIN: usize = 4 << 10;

/// Copies with a hint; see [`super::copy_shared_hinted`].
///
/// # Safety
///
/// The promises of [`super::copy_shared_hinted`].
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    if len <= SMALL_BYTES_MAX {
        // SAFETY: both ranges are valid by the caller's promise, and `len` was just checked, so the copy is
        // short enough.
        unsafe { small::copy(from, to, len) }
    } else {
        // SAFETY: both ranges are valid by the caller's promise, and `len` was just checked, so the copy is
        // long enough.
        unsafe { copy_long(from, to, len, hint) }
    }
}

/// Prefetches a line for a read; see [`super::prefetch`].
#[inline]
pub(super) fn prefetch(addr: usize) {
    // SAFETY: a prefetch never faults and is no access for the memory model, whatever the address.
    unsafe { std::arch::asm!("prefetcht0 [{}]", in(reg) addr, options(nostack, preserves_flags)) };
}

/// Prefetches a line for a write; see [`super::prefetch_for_write`].
#[inline]
pub(super) fn prefetch_for_write(addr: usize) {
    // SAFETY: a prefetch never faults and changes no byte. 64-bit processors without `prefetchw` ignore it,
    // since Intel reserved the opcode as a no-op (all but the first models of 2004).
    unsafe { std::arch::asm!("prefetchw [{}]", in(reg) addr, options(nostack, preserves_flags)) };
}

/// Copies more than [`SMALL_BYTES_MAX`] bytes by the kernel that suits length, hint and processor.
///
/// # Safety
///
/// The promises of [`super::copy_shared_hinted`], and `len` is more than [`SMALL_BYTES_MAX`].
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
    let apart = from.addr().abs_diff(to.addr()) >= len;
    let cpu = Cpu::this();
    // A copy with 4K aliasing takes a loop of vectors instead.
    let cpu = Cpu { fast_rep_movsb: cpu.fast_rep_movsb && !has_4k_aliasing(from.addr(), to.addr()), ..cpu };
    // SAFETY: both ranges are valid by the caller's promise. `choose` returns only kernels that the processor
    // can run, and `Memmove` for ranges that overlap.
    unsafe { Kernel::choose(cpu, len, hint, apart).copy(from, to, len) }
}

/// Returns whether the target is up to a line behind the source in its 4 KiB page (4K aliasing).
///
/// `rep movsb` then loads from addresses whose low 12 bits equal those of a store just before. AMD's Zen 3
/// waits for that store: 3 GB/s instead of 50 and more, with the target up to 31 bytes behind. A whole line
/// (64 bytes) is avoided, because the comparison may be by lines.
#[inline]
fn has_4k_aliasing(from: usize, to: usize) -> bool {
    matches!(to.wrapping_sub(from) % PAGE, 1..LINE)
}

/// The kernels for more than [`SMALL_BYTES_MAX`] bytes. `Loop` kernels store through the caches, `Stream`
/// kernels around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// The C library's `memmove`; the only kernel for ranges that overlap.
    Memmove,
    LoopSse2,
    LoopAvx,
    /// The `rep movsb` instruction, where the processor has fast strings (ERMS).
    RepMovsb,
    StreamSse2,
    StreamAvx,
    /// Stores a whole cache line by one instruction, so that no line waits for a second store.
    StreamAvx512,
}

impl Kernel {
    /// Returns the fastest kernel that `cpu` has. `apart` says that the ranges do not overlap.
    fn choose(cpu: Cpu, len: usize, hint: CacheHint, apart: bool) -> Self {
        let streamed = len >= cpu.stream_from || hint == CacheHint::Streamed && len >= STREAM_BYTES_MIN;
        // The order of the arms matters: overlapping ranges need `memmove`, then the hint decides, then the
        // length.
        match cpu.avx {
            _ if !apart => Self::Memmove,
            true if streamed && cpu.slow_streams => Self::LoopAvx,
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
    /// - `from` is valid for reads and `to` for writes of `len` bytes. `len` is more than
    ///   [`SMALL_BYTES_MAX`], and at least 192 for `Stream` kernels.
    /// - The ranges do not overlap, except for `Memmove`.
    /// - The processor has AVX or AVX-512 for the kernels that are named after it.
    unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller promises ranges, lengths and features, so each kernel's requirements are met.
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
