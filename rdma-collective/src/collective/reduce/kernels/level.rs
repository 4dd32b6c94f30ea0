//! For which kind of processor a kernel is compiled, and which kinds this one is of.

use std::fmt;
use std::sync::OnceLock;

use ::half::f16;

use super::in_place::{self, Tile};
use super::number::Number;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{Avx2, Avx512};

/// What can be compiled for a kind of processor. All that it calls has to be inlined, or it is compiled for any.
pub(super) trait Kernel {
    /// Whether it streams.
    fn is_streamed(&self) -> bool;

    fn run<V: Level>(self, level: V);
}

/// What a kind of processor does better than the compiler makes of plain loops. A value of it is there only where the
/// processor is.
pub(super) trait Level: Copy {
    /// Folds half precision, of any alignment, into as many of single.
    #[inline(always)]
    fn widened(self, halves: &[u8], wide: &mut [f32], fold: impl Fn(f32, f32) -> f32) {
        for (half, wide) in halves.as_chunks::<2>().0.iter().zip(wide) {
            *wide = fold(*wide, f16::widen(bytemuck::cast(*half)));
        }
    }

    /// Single precision rounded to half, of any alignment. Of what is not a number it is handed one bit pattern.
    #[inline(always)]
    fn narrowed(self, wide: &[f32], halves: &mut [u8]) {
        for (half, wide) in halves.as_chunks_mut::<2>().0.iter_mut().zip(wide) {
            *half = bytemuck::cast(f16::narrow(*wide));
        }
    }

    /// Loads a tile that others may be writing.
    ///
    /// # Safety
    ///
    /// There are that many bytes at `from`.
    #[expect(unsafe_code, reason = "loads from memory that others may be writing")]
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> Tile {
        // SAFETY: the caller's promise.
        unsafe { in_place::load(from) }
    }

    /// Stores one to memory that others may be using.
    ///
    /// # Safety
    ///
    /// There is room for that many bytes at `to`.
    #[expect(unsafe_code, reason = "stores to memory that others may be using")]
    #[inline(always)]
    unsafe fn store(self, tile: &Tile, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { in_place::store(tile, to) };
    }

    /// Copies, whole lines around the caches where that can be. A kernel that does so says that it streams.
    #[inline(always)]
    fn stream(self, near: &[u8], out: &mut [u8]) {
        out.copy_from_slice(near);
    }
}

/// Any processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Level for Portable {}

/// The vectors that a reduction computes with: the same bits by all of them, at other speeds.
///
/// A reduction takes the widest by itself; the others are there to be measured and tested.
///
/// ```
/// use rdma_collective::collective::{DataType, ReduceOp, Reduction, Vectors};
///
/// for vectors in Vectors::all() {
///     let mut out = 1_u32.to_ne_bytes();
///     let sum = Reduction::new(DataType::U32, ReduceOp::Sum).with(vectors);
///     sum.reduce_into(&mut out, &[&2_u32.to_ne_bytes()])?;
///     assert_eq!(out, 3_u32.to_ne_bytes(), "{vectors}");
/// }
/// # Ok::<(), rdma_collective::collective::ReduceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vectors(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Vectors {
    /// Those that this processor has, the widest last. The first are what the compiler takes for any processor.
    pub fn all() -> impl Iterator<Item = Self> {
        let portable = Some(Kind::Portable);
        #[cfg(target_arch = "x86_64")]
        let kinds = [portable, Avx2::find().map(Kind::Avx2), Avx512::find().map(Kind::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let kinds = [portable];
        kinds.into_iter().flatten().map(Self)
    }

    /// The last of all, found once.
    pub(in crate::collective::reduce) fn widest() -> Self {
        static WIDEST: OnceLock<Vectors> = OnceLock::new();
        *WIDEST.get_or_init(|| Self::all().last().unwrap_or(Self(Kind::Portable)))
    }

    pub(super) fn run(self, kernel: impl Kernel) {
        match self.0 {
            Kind::Portable => kernel.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(level) => level.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(level) => level.run(kernel),
        }
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "AVX-512",
        })
    }
}
