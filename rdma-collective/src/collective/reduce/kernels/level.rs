//! Kinds of processors: a kernel is compiled once for each kind, and runs by the widest vectors that this processor
//! has.
//!
//! Owns the choice. The instructions of each kind are in `x86_64`, and the loops in `tiles` and `halves`.

use std::fmt;
use std::sync::OnceLock;

use ::half::f16;

use super::Task;
use super::in_place::{self, Tile};
use super::number::Number;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{Avx2, Avx512};

/// A kind of processor, with the operations for which it has better instructions than the compiler finds for plain
/// loops.
///
/// A value must exist only on a processor of that kind, because the methods run its instructions without asking
/// again.
pub(super) trait Level: Copy {
    /// Folds half precision, of any alignment, into as many elements of single precision.
    #[inline(always)]
    fn widened(self, halves: &[u8], wide: &mut [f32], fold: impl Fn(f32, f32) -> f32) {
        for (half, wide) in halves.as_chunks::<2>().0.iter().zip(wide) {
            *wide = fold(*wide, f16::widen(bytemuck::cast(*half)));
        }
    }

    /// Rounds single precision to half, of any alignment. Callers must have replaced NaNs by the one bit pattern,
    /// because conversion instructions keep the payload of a NaN.
    #[inline(always)]
    fn narrowed(self, wide: &[f32], halves: &mut [u8]) {
        for (half, wide) in halves.as_chunks_mut::<2>().0.iter_mut().zip(wide) {
            *half = bytemuck::cast(f16::narrow(*wide));
        }
    }

    /// Loads a tile from memory that peers may be writing.
    ///
    /// # Safety
    ///
    /// `TILE` bytes must be readable at `from`.
    #[expect(unsafe_code, reason = "loads from memory that others may be writing")]
    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> Tile {
        // SAFETY: the caller vouches that a tile is readable at `from`; `load` must be given no more.
        unsafe { in_place::load(from) }
    }

    /// Stores a tile to memory that peers may be using.
    ///
    /// # Safety
    ///
    /// `TILE` bytes must be writable at `to`.
    #[expect(unsafe_code, reason = "stores to memory that others may be using")]
    #[inline(always)]
    unsafe fn store(self, tile: &Tile, to: *mut u8) {
        // SAFETY: the caller vouches that a tile is writable at `to`; `store` must be given no more.
        unsafe { in_place::store(tile, to) };
    }

    /// Copies; whole lines bypass the caches where the processor can. A task that calls this must say so by
    /// what [`Task::run`] returns.
    #[inline(always)]
    fn stream(self, near: &[u8], out: &mut [u8]) {
        out.copy_from_slice(near);
    }
}

/// The baseline processor of the target.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Level for Portable {}

/// The vectors that a reduction computes with. All of them give the same bits, at different speeds.
///
/// A reduction takes the widest by itself; the others exist for measurements and tests.
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
    /// All vectors that this processor has, the widest last. The first are those of the baseline processor.
    pub fn all() -> impl Iterator<Item = Self> {
        let portable = Some(Kind::Portable);
        #[cfg(target_arch = "x86_64")]
        let kinds = [portable, Avx2::find().map(Kind::Avx2), Avx512::find().map(Kind::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let kinds = [portable];
        kinds.into_iter().flatten().map(Self)
    }

    /// The last of [`all`](Self::all); detection runs once a process.
    pub(in crate::collective::reduce) fn widest() -> Self {
        static WIDEST: OnceLock<Vectors> = OnceLock::new();
        *WIDEST.get_or_init(|| Self::all().last().unwrap_or(Self(Kind::Portable)))
    }

    /// Runs a task with these vectors, on elements of type `T`, as [`Task::run`] says.
    pub(super) fn run<T: Number>(
        self,
        task: impl Task,
        fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
        last: impl Fn(T::Wide) -> T::Wide + Copy,
    ) {
        match self.0 {
            // The baseline stores nothing past the caches, so no fence follows.
            Kind::Portable => {
                task.run::<T, _>(Portable, fold, last);
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(level) => level.run::<T>(task, fold, last),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(level) => level.run::<T>(task, fold, last),
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
