//! Kernels compiled for AVX2 and for AVX-512, and the instructions that plain loops do not use: conversions of half
//! precision, and stores that bypass the caches.
//!
//! Owns the proof that the processor has these instructions. The loops themselves are in `tiles` and `halves`.

#![allow(unused_unsafe, reason = "a fence is unsafe in Rust 1.89")]
#![expect(unsafe_code, reason = "runs instructions that only some processors have, after detection")]

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, __m512i, _MM_FROUND_TO_NEAREST_INT, _mm_cvtph_ps, _mm_cvtps_ph, _mm_cvtsi32_si128,
    _mm_cvtsi128_si32, _mm_cvtss_f32, _mm_set_ss, _mm_sfence, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_stream_si256, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_loadu_si512, _mm512_stream_si512,
};

use super::in_place::{TILE, Tile};
use super::level::Level;
use super::number::Number;
use super::{LINE, Task};

/// Declares a kind of processor: its features, how to detect them, how it converts half precision, how it loads and
/// stores a tile, and how it stores lines past the caches.
///
/// A value of the type is the proof of the features: its field is private, and `find` alone makes one, after
/// detection.
macro_rules! level {
    ($(#[$doc:meta])* $name:ident, $features:literal, [$($feature:tt),*], $widened:ident, $narrowed:ident, [$load:ident, $store:ident], $stream:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $name(());

        impl $name {
            /// The proof, if this processor has the features.
            pub(super) fn find() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&*).then_some(Self(()))
            }

            pub(super) fn run<T: Number>(
                self,
                task: impl Task,
                fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
                last: impl Fn(T::Wide) -> T::Wide + Copy,
            ) {
                #[target_feature(enable = $features)]
                fn compiled<T: Number>(
                    level: $name,
                    task: impl Task,
                    fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
                    last: impl Fn(T::Wide) -> T::Wide + Copy,
                ) {
                    if task.run::<T, _>(level, fold, last) {
                        // Non-temporal stores are weakly ordered. Without the fence a flag that is stored afterwards
                        // could become visible to a peer before the bytes. SAFETY: the instruction has no operands;
                        // every x86-64 processor has it, because SSE2 is baseline.
                        unsafe { _mm_sfence() };
                    }
                }
                // SAFETY: `self` exists, so `find` has detected these features on this processor.
                unsafe { compiled::<T>(self, task, fold, last) }
            }
        }

        impl Level for $name {
            #[inline(always)]
            fn widened(self, halves: &[u8], wide: &mut [f32], fold: impl Fn(f32, f32) -> f32) {
                // SAFETY: `self` exists, so the processor has the features; the conversion needs only these.
                unsafe { $widened(halves, wide, fold) }
            }

            #[inline(always)]
            fn narrowed(self, wide: &[f32], halves: &mut [u8]) {
                // SAFETY: `self` exists, so the processor has the features; the conversion needs only these.
                unsafe { $narrowed(wide, halves) }
            }

            #[inline(always)]
            unsafe fn load(self, from: *const u8) -> Tile {
                // SAFETY: `self` exists, so the processor has the features; the caller vouches that a tile lies at
                // `from`.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, tile: &Tile, to: *mut u8) {
                // SAFETY: `self` exists, so the processor has the features; the caller vouches that a tile has room
                // at `to`.
                unsafe { $store(tile, to) }
            }

            #[inline(always)]
            fn stream(self, near: &[u8], out: &mut [u8]) {
                // SAFETY: `self` exists, so the processor has the features that non-temporal stores need.
                unsafe { $stream(near, out) }
            }
        }
    };
}

level! {
    /// A processor with vectors of 32 bytes and conversions of half precision.
    Avx2, "avx2,f16c", ["avx2", "f16c"], widened_8, narrowed_8, [load_halves, store_halves], stream_halves
}

level! {
    /// A processor with vectors of 64 bytes, for integers of 8 and 16 bits, too.
    Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c",
    ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "f16c"],
    widened_16, narrowed_16, [load_lines, store_lines], stream_lines
}

/// Conversions of half precision: whole vectors, and then the elements that are left, one by one.
///
/// The rest is not padded to a vector on the stack: a vector load of bytes that were stored one by one has to wait
/// until the stores retire (no store forwarding).
macro_rules! conversions {
    ($features:literal, $lanes:literal, $widened:ident: $widen:ident, $narrowed:ident: $narrow:ident) => {
        #[inline]
        #[target_feature(enable = $features)]
        fn $widened(halves: &[u8], wide: &mut [f32], fold: impl Fn(f32, f32) -> f32) {
            let (halves, halves_rest) = halves.as_chunks::<{ 2 * $lanes }>();
            let (wide, wide_rest) = wide.as_chunks_mut::<$lanes>();
            for (wide, halves) in wide.iter_mut().zip(halves) {
                let widened: [f32; $lanes] = bytemuck::cast($widen(bytemuck::cast(*halves)));
                for (wide, widened) in wide.iter_mut().zip(widened) {
                    *wide = fold(*wide, widened);
                }
            }
            for (wide, half) in wide_rest.iter_mut().zip(halves_rest.as_chunks().0) {
                *wide = fold(
                    *wide,
                    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_ne_bytes(*half).into()))),
                );
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn $narrowed(wide: &[f32], halves: &mut [u8]) {
            let (wide, wide_rest) = wide.as_chunks::<$lanes>();
            let (halves, halves_rest) = halves.as_chunks_mut::<{ 2 * $lanes }>();
            for (halves, wide) in halves.iter_mut().zip(wide) {
                *halves = bytemuck::cast($narrow::<_MM_FROUND_TO_NEAREST_INT>(bytemuck::cast(*wide)));
            }
            for (half, wide) in halves_rest.as_chunks_mut().0.iter_mut().zip(wide_rest) {
                let narrowed = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(*wide));
                *half = (_mm_cvtsi128_si32(narrowed) as u16).to_ne_bytes();
            }
        }
    };
}

conversions!("f16c", 8, widened_8: _mm256_cvtph_ps, narrowed_8: _mm256_cvtps_ph);
conversions!("avx512f,f16c", 16, widened_16: _mm512_cvtph_ps, narrowed_16: _mm512_cvtps_ph);

/// Loads and stores of a tile by vectors, each one `asm!` instruction.
///
/// Assembly, because a peer may be writing these bytes: a Rust load of them would be a data race, which is undefined,
/// and a volatile access is not guaranteed to be one vector instruction. The compiler must take an `asm!` block as it
/// is, like an access by a device: it may neither assume that two loads agree nor repeat a load.
macro_rules! accesses {
    ($features:literal, $load:ident, $store:ident: $vector:ty, $instruction:literal, $class:ident) => {
        /// # Safety
        ///
        /// `TILE` bytes must be readable at `from`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $load(from: *const u8) -> Tile {
            const LEN: usize = size_of::<$vector>();
            let mut vectors = [[0_u8; LEN]; TILE / LEN];
            for (at, bytes) in vectors.iter_mut().enumerate() {
                let vector: $vector;
                // SAFETY: the caller vouches for the tile at `from`, and `at * LEN` is within it because there are
                // `TILE / LEN` vectors. The instruction only loads, from any alignment; it changes neither stack nor
                // flags.
                unsafe {
                    asm!(
                        concat!($instruction, " {vector}, [{from}]"),
                        vector = out($class) vector,
                        from = in(reg) from.add(at * LEN),
                        options(nostack, preserves_flags, readonly)
                    );
                }
                *bytes = bytemuck::cast(vector);
            }
            Tile(bytemuck::cast(vectors))
        }

        /// # Safety
        ///
        /// `TILE` bytes must be writable at `to`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $store(tile: &Tile, to: *mut u8) {
            const LEN: usize = size_of::<$vector>();
            for (at, bytes) in tile.0.as_chunks::<LEN>().0.iter().enumerate() {
                let vector: $vector = bytemuck::cast(*bytes);
                // SAFETY: the caller vouches for a tile's room at `to`, and `at * LEN` is within it because there are
                // `TILE / LEN` vectors. The instruction only stores, to any alignment; it changes neither stack nor
                // flags.
                unsafe {
                    asm!(
                        concat!($instruction, " [{to}], {vector}"),
                        vector = in($class) vector,
                        to = in(reg) to.add(at * LEN),
                        options(nostack, preserves_flags)
                    );
                }
            }
        }
    };
}

accesses!("avx", load_halves, store_halves: __m256i, "vmovdqu", ymm_reg);
accesses!("avx512f", load_lines, store_lines: __m512i, "vmovdqu64", zmm_reg);

/// Copies whole lines by non-temporal stores, one half after the other, and the bytes behind them by ordinary stores.
///
/// Both halves of a line follow each other, so that the write-combining buffer goes out as one full line.
#[inline]
#[target_feature(enable = "avx")]
fn stream_halves(near: &[u8], out: &mut [u8]) {
    let (lines, rest) = lines_of(out);
    for (near, half) in
        near.as_chunks().0.iter().zip(lines.as_flattened_mut().as_chunks_mut::<{ LINE / 2 }>().0)
    {
        let half: *mut [u8; LINE / 2] = half;
        // SAFETY: `half` was a reference, so 32 bytes are writable there; it is aligned, because lines are. `run`
        // fences after the kernel, so that later stores do not overtake this one.
        unsafe { _mm256_stream_si256(half.cast::<__m256i>(), bytemuck::cast::<[u8; LINE / 2], _>(*near)) };
    }
    rest.copy_from_slice(&near[near.len() - rest.len()..]);
}

/// Copies whole lines by non-temporal stores, and the bytes behind them by ordinary stores.
#[inline]
#[target_feature(enable = "avx512f")]
fn stream_lines(near: &[u8], out: &mut [u8]) {
    let (lines, rest) = lines_of(out);
    for (near, line) in near.as_chunks::<LINE>().0.iter().zip(lines) {
        let line: *mut [u8; LINE] = line;
        // SAFETY: both were references, so 64 bytes are readable and writable there; the line is aligned, because
        // `lines_of` gives aligned ones only. `run` fences after the kernel, so that later stores do not overtake
        // this one.
        unsafe { _mm512_stream_si512(line.cast(), _mm512_loadu_si512(near.as_ptr().cast())) };
    }
    rest.copy_from_slice(&near[near.len() - rest.len()..]);
}

/// The cache lines of `out`, and the bytes behind them; no lines if `out` does not begin at one, because non-temporal
/// stores must be aligned.
fn lines_of(out: &mut [u8]) -> (&mut [[u8; LINE]], &mut [u8]) {
    if out.as_ptr().addr().is_multiple_of(LINE) { out.as_chunks_mut() } else { (&mut [], out) }
}
