//! Copies of more than 128 bytes between ranges that do not overlap.
//!
//! In all of them `rsi` is the source, `rdi` the target and `rax` the place in both. Blocks have 128 bytes.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::arch::asm;

use super::small;

/// How far ahead of the copy the source is fetched. It is a page, so that its translation, too, is there in time.
const AHEAD: usize = 4096;
const BLOCK: usize = 128;

/// One block in vectors of 16 bytes, stored by the given instruction.
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

/// One block in vectors of 32 bytes, stored by the given instruction.
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

/// One block in vectors of 64 bytes, stored by the given instruction: each store is a whole line.
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

/// Copies the first bytes, then blocks at aligned addresses of the target, then the last block, which overlaps others.
macro_rules! loop_kernel {
    ($(#[$doc:meta])* $name:ident, $vector:literal, $first:literal, $block:expr, $leave:literal) => {
        $(#[$doc])*
        #[inline(never)] // the choice between kernels then saves no registers
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            let first_aligned = $vector - to.addr() % $vector;
            // SAFETY: `rax` is below `len - 128` before each block but the last, and there for that one, so all accesses are
            // within the ranges; no byte is left out between the first vector and the blocks, for the first of them begins
            // in it, at its end, or at `len - 128` before that. The registers written and the flags are
            // those that a C function may change, and declared; the stack is not used.
            unsafe {
                asm!(
                    $first,
                    "cmp rax, rcx",
                    "jae 3f",
                    ".p2align 5",
                    "2:",
                    $block,
                    "add rax, 128",
                    "cmp rax, rcx",
                    "jb 2b",
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

/// Stores blocks around the caches, and the odd bytes before and behind them as usual.
macro_rules! stream_kernel {
    ($(#[$doc:meta])* $name:ident, $block:expr, $leave:literal) => {
        $(#[$doc])*
        #[inline(never)] // the choice between kernels then saves no registers
        pub(super) unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            let head = to.addr().wrapping_neg() % 64;
            let body = (len - head) / BLOCK * BLOCK;
            let done = head + body;
            // SAFETY: `head` and what is left behind `done` are less than 128 bytes, and within `len`. In between, `rax` is
            // below `body`, a multiple of 128 and at least 128, before each block. Targets are aligned to 64 bytes, as these
            // stores need. What is fetched ahead is inside the source, and would be no access elsewhere. The registers
            // written and the flags are those that a C function may change, and declared; the stack is not used.
            // `sfence` orders the stores before all that come later, as others are by themselves.
            unsafe {
                small::copy(from, to, head);
                asm!(
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
                    "3:",
                    $block,
                    "add rax, 128",
                    "cmp rax, rcx",
                    "jb 3b",
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
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, more than 128, which do not overlap.
    loop_sse2, 16, "movups xmm0, [rsi]\nmovups [rdi], xmm0", block_sse2!("movups"), ""
}

loop_kernel! {
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, more than 128, which do not overlap. The processor
    /// has AVX.
    loop_avx, 32, "vmovdqu ymm0, [rsi]\nvmovdqu [rdi], ymm0", block_avx!("vmovdqu"), "vzeroupper"
}

stream_kernel! {
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap.
    stream_sse2, block_sse2!("movntdq"), ""
}

stream_kernel! {
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap. The processor
    /// has AVX.
    stream_avx, block_avx!("vmovntdq"), "vzeroupper"
}

stream_kernel! {
    /// # Safety
    ///
    /// `from` is valid for reads and `to` for writes of `len` bytes, at least 192, which do not overlap. The processor
    /// has AVX-512.
    stream_avx512, block_avx512!("vmovntdq"), "vzeroupper"
}

/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, which do not overlap.
#[inline(never)]
pub(super) unsafe fn rep_movsb(from: *const u8, to: *mut u8, len: usize) {
    let head = (to.addr().wrapping_neg() % 64).min(len);
    // SAFETY: the ranges are valid by the caller's promise. The direction flag is clear, as it is whenever Rust code runs;
    // the instruction changes the three registers alone, and no flag. Its stores are in no order among themselves, but
    // all before those that come later.
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
