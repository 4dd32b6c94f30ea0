//! Kernels for copies of more than 128 bytes between ranges that do not overlap.
//!
//! Registers in all kernels: `rsi` is the source, `rdi` the target, and `rax` the offset into both. A block
//! is 128 bytes, two cache lines.
//!
//! Every kernel is an `asm!` block, because Rust's own loads and stores would race with concurrent writers.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::arch::asm;

use super::small;

/// Bytes between the copy and its prefetch. 4 KiB is a page, so the prefetch also brings in the translation
/// (TLB entry) of the next page in time.
const AHEAD: usize = 4096;
const BLOCK: usize = 128;

/// Copies one block in vectors of 16 bytes, stored by the given instruction.
macro_rules! block_sse2 {
    ($store:literal) => {
        concat!(
            "movups xmm0, [rsi + rax]\n",
            "movups xmm1, [rsi + rax + 16]\n",
            "movups xmm2, [rsi + rax + 32]\n",
            "movups xmm3, [rsi + rax + 48]\n",
            "movups xmm4, [rsi + rax + 64]\n",
            "movups xmm5, [rsi + rax + 80]\n",
            "movups xmm6, [rsi + rax + 96]\n",
            "movups xmm7, [rsi + rax + 112]\n",
            $store,
            " [rdi + rax], xmm0\n",
            $store,
            " [rdi + rax + 16], xmm1\n",
            $store,
            " [rdi + rax + 32], xmm2\n",
            $store,
            " [rdi + rax + 48], xmm3\n",
            $store,
            " [rdi + rax + 64], xmm4\n",
            $store,
            " [rdi + rax + 80], xmm5\n",
            $store,
            " [rdi + rax + 96], xmm6\n",
            $store,
            " [rdi + rax + 112], xmm7"
        )
    };
}

/// Copies one block in vectors of 32 bytes, stored by the given instruction.
macro_rules! block_avx {
    ($store:literal) => {
        concat!(
            "vmovdqu ymm0, [rsi + rax]\n",
            "vmovdqu ymm1, [rsi + rax + 32]\n",
            "vmovdqu ymm2, [rsi + rax + 64]\n",
            "vmovdqu ymm3, [rsi + rax + 96]\n",
            $store,
            " [rdi + rax], ymm0\n",
            $store,
            " [rdi + rax + 32], ymm1\n",
            $store,
            " [rdi + rax + 64], ymm2\n",
            $store,
            " [rdi + rax + 96], ymm3"
        )
    };
}

/// Copies one block in vectors of 64 bytes, stored by the given instruction. Each store is a whole cache
/// line.
macro_rules! block_avx512 {
    ($store:literal) => {
        concat!(
            "vmovdqu64 zmm0, [rsi + rax]\n",
            "vmovdqu64 zmm1, [rsi + rax + 64]\n",
            $store,
            " [rdi + rax], zmm0\n",
            $store,
            " [rdi + rax + 64], zmm1"
        )
    };
}

/// Copies one vector at the begin, then blocks at aligned addresses of the target, then the last block. The
/// last block ends at the end of the ranges and overlaps the block before, so no remainder loop is needed.
macro_rules! loop_kernel {
    ($(#[$doc:meta])* $name:ident, $vector:literal, $first:literal, $block:expr, $leave:literal) => {
        $(#[$doc])*
        #[inline(never)] // the choice between kernels then saves no registers
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            let first_aligned = $vector - to.addr() % $vector;
            // SAFETY: each block but the last begins below `len - 128`, and the last one begins there, so all
            // accesses are within the ranges. No byte is left out: the first block begins inside the first
            // vector or at its end, or is the last block. The kernel declares all registers and flags that it
            // changes, since `clobber_abi` covers what a C function may change. The stack is not used.
            unsafe {
                asm!(
                    // A single unaligned vector covers the bytes before the first aligned address of the target.
                    $first,
                    "cmp rax, rcx",
                    "jae 3f",
                    ".p2align 5",
                    "2:",
                    $block,
                    "add rax, 128",
                    "cmp rax, rcx",
                    "jb 2b",
                    // The last block overlaps the one before and stores equal bytes again: no remainder loop.
                    "3:",
                    "mov rax, rcx",
                    $block,
                    $leave,
                    in("rsi") from,
                    in("rdi") to,
                    in("rcx") len - BLOCK,
                    inout("rax") first_aligned => _,
                    clobber_abi("sysv64"),
                    options(nostack),
                )
            }
        }
    };
}

/// Copies blocks around the caches, and the bytes before and behind them by `small`. Non-temporal stores need
/// an aligned target; a partly written line would be flushed in pieces.
macro_rules! stream_kernel {
    ($(#[$doc:meta])* $name:ident, $block:expr, $leave:literal) => {
        $(#[$doc])*
        #[inline(never)] // the choice between kernels then saves no registers
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            let head = to.addr().wrapping_neg() % 64;
            let body = (len - head) / BLOCK * BLOCK;
            let done = head + body;
            // SAFETY: `head` and the bytes behind `done` are less than 128 and within `len`. `rax` is below
            // `body`, a multiple of 128 that is at least 128, before each block, so all accesses are within
            // the ranges. Targets are aligned to 64 bytes, as non-temporal stores require. A prefetch is no
            // access, so it may reach beyond the source. `clobber_abi` covers all registers and flags that
            // the kernel changes; the stack is not used. `sfence` orders the non-temporal stores before later
            // stores; without it a flag that is stored next could be seen first.
            unsafe {
                small::copy(from, to, head);
                asm!(
                    // `rdx` is a page before the end: up to there a prefetch stays inside the source.
                    "cmp rax, rdx",
                    "jae 3f",
                    ".p2align 5",
                    "2:",
                    "prefetcht0 [rsi + rax + {ahead}]",
                    "prefetcht0 [rsi + rax + {ahead} + 64]",
                    $block,
                    "add rax, 128",
                    "cmp rax, rdx",
                    "jb 2b",
                    // The blocks of the last page, for which nothing is left to prefetch.
                    "3:",
                    $block,
                    "add rax, 128",
                    "cmp rax, rcx",
                    "jb 3b",
                    // Without this fence a flag that is stored next could be seen before these bytes.
                    "sfence",
                    $leave,
                    ahead = const AHEAD,
                    in("rsi") from.add(head),
                    in("rdi") to.add(head),
                    in("rcx") body,
                    in("rdx") body.saturating_sub(AHEAD),
                    inout("rax") 0_usize => _,
                    clobber_abi("sysv64"),
                    options(nostack),
                );
                small::copy(from.add(done), to.add(done), len - done);
            }
        }
    };
}

loop_kernel! {
    /// Loop of 16-byte vectors, for every x86-64 processor.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, more than 128, which do not overlap.
    loop_sse2, 16, "movups xmm0, [rsi]\nmovups [rdi], xmm0", block_sse2!("movups"), ""
}

loop_kernel! {
    /// Loop of 32-byte vectors.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, more than 128, which do not overlap. The processor
    /// has AVX.
    loop_avx, 32, "vmovdqu ymm0, [rsi]\nvmovdqu [rdi], ymm0", block_avx!("vmovdqu"), "vzeroupper"
}

stream_kernel! {
    /// Non-temporal stores of 16 bytes, for every x86-64 processor.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap.
    stream_sse2, block_sse2!("movntdq"), ""
}

stream_kernel! {
    /// Non-temporal stores of 32 bytes.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap. The processor
    /// has AVX.
    stream_avx, block_avx!("vmovntdq"), "vzeroupper"
}

stream_kernel! {
    /// Non-temporal stores of 64 bytes.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap. The processor
    /// has AVX-512.
    stream_avx512, block_avx512!("vmovntdq"), "vzeroupper"
}

/// Copies by `rep movsb`, after a head that aligns the target to a cache line.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, which do not overlap.
#[inline(never)]
pub(super) unsafe fn rep_movsb(from: *const u8, to: *mut u8, len: usize) {
    let head = (to.addr().wrapping_neg() % 64).min(len);
    // SAFETY: both ranges are valid by the caller's promise. The direction flag is clear, because the ABI
    // requires it. The instruction changes three registers, which are declared, and no flag. Its stores have
    // no order among themselves, but all come before later stores.
    unsafe {
        small::copy(from, to, head);
        asm!(
            "rep movsb",
            inout("rcx") len - head => _,
            inout("rdi") to.add(head) => _,
            inout("rsi") from.add(head) => _,
            options(nostack, preserves_flags),
        )
    }
}
