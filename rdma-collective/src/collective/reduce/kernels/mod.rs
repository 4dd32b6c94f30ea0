//! Reduction kernels: the choice of the arithmetic by data type and operation.
//!
//! The loops are in `tiles`, and in `halves` for half precision; the arithmetic is in `number` and `extreme`. Each is
//! written once, for bytes at any alignment, and compiled for each kind of processor by `level`.
//!
//! A kernel is one instance of a generic loop, of a type, a fold and a kind of processor. Everything on the way is
//! `#[inline(always)]`, because only code that is inlined into a function with `target_feature` is compiled for that
//! processor.

mod extreme;
mod halves;
mod in_place;
mod level;
mod number;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::ops::{Add, Mul, Range};

use ::half::{bf16, f16};

use self::extreme::{brain, double, half, single};
pub(crate) use self::in_place::Operand;
pub(super) use self::in_place::{KernelChoice, MutualReduction, PairReduction};
use self::level::Level;
pub use self::level::Vectors;
use self::number::Number;
use super::{DataType, ReduceOp};

/// Bytes of a cache line.
const LINE: usize = 64;
/// The longest job, in bytes, that takes a short tile: clearing a tile of the usual size would take longer than the
/// job.
const SHORT_BYTES: usize = 128;

/// The operands and the output of a reduction of slices. All have one length, in whole elements.
pub(super) struct Job<'a> {
    pub(super) out: &'a mut [u8],
    /// Whether `out` is also the leftmost operand.
    pub(super) in_place: bool,
    /// At least one, unless `in_place`.
    pub(super) inputs: &'a [&'a [u8]],
    /// Whether `out` bypasses the caches; never with `in_place`, which has loaded `out` into them anyway.
    pub(super) streamed: bool,
}

impl<'a> Job<'a> {
    /// The ranges of at most `bytes` bytes in which the job is done, one after the other.
    ///
    /// A streamed job begins with a shorter range, so that the other ranges begin at cache lines. Where a line begins
    /// inside an element that cannot be, and then no range is stored past the caches.
    #[inline(always)]
    fn tiles<T>(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<T> {
        let len = self.out.len();
        let head = if self.streamed { self.out.as_ptr().align_offset(LINE) } else { 0 };
        let head = if head.is_multiple_of(size_of::<T>()) { head.min(len) } else { 0 };
        let rest = (head..len).step_by(bytes).map(move |begin| begin..len.min(begin + bytes));
        (head > 0).then_some(0..head).into_iter().chain(rest)
    }

    /// The leftmost operand of a range, and all other operands.
    #[inline(always)]
    fn split(&self, part: Range<usize>) -> (&[u8], &'a [&'a [u8]]) {
        match self.inputs.split_first() {
            Some((first, rest)) if !self.in_place => (&first[part], rest),
            _ => (&self.out[part], self.inputs),
        }
    }
}

/// A reduction whose element type and fold are chosen later, and which is compiled for each kind of processor. Every
/// function that it calls must be inlined (`#[inline(always)]`), otherwise the compiler builds that function for the
/// baseline processor.
trait Task {
    /// Carries the reduction out: `fold` combines two operands, from the left to the right, and `last` makes the
    /// result that is stored. Returns whether it called [`Level::stream`], so that a fence must follow.
    fn run<T: Number, V: Level>(
        self,
        level: V,
        fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
        last: impl Fn(T::Wide) -> T::Wide + Copy,
    ) -> bool;
}

/// By reference, because a copy of a job that was just stored word by word would have to wait for these stores to
/// retire.
impl Task for &mut Job<'_> {
    #[inline(always)]
    fn run<T: Number, V: Level>(
        self,
        level: V,
        fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
        last: impl Fn(T::Wide) -> T::Wide + Copy,
    ) -> bool {
        T::reduce(level, self, fold, last);
        self.streamed
    }
}

/// Runs a sum or product for a data type. Integers of one size share a kernel, because wrapping arithmetic does not
/// depend on the sign; half precision is computed in single.
macro_rules! arithmetic {
    ($data_type:expr, $run:ident, integers $integer:ident, floats $float:ident) => {
        match $data_type {
            DataType::I8 | DataType::U8 => $run!(u8, u8::$integer),
            DataType::I16 | DataType::U16 => $run!(u16, u16::$integer),
            DataType::I32 | DataType::U32 => $run!(u32, u32::$integer),
            DataType::I64 | DataType::U64 => $run!(u64, u64::$integer),
            DataType::F16 => $run!(f16, f32::$float),
            DataType::F32 => $run!(f32, f32::$float),
            DataType::F64 => $run!(f64, f64::$float),
            DataType::Bf16 => $run!(bf16, f32::$float),
        }
    };
}

/// Runs a maximum or minimum for a data type. Floats are compared by their bits, as `extreme` says.
macro_rules! extremes {
    ($data_type:expr, $run:ident, integers $integer:ident, floats $float:ident) => {
        match $data_type {
            DataType::I8 => $run!(i8, i8::$integer),
            DataType::U8 => $run!(u8, u8::$integer),
            DataType::I16 => $run!(i16, i16::$integer),
            DataType::U16 => $run!(u16, u16::$integer),
            DataType::I32 => $run!(i32, i32::$integer),
            DataType::U32 => $run!(u32, u32::$integer),
            DataType::I64 => $run!(i64, i64::$integer),
            DataType::U64 => $run!(u64, u64::$integer),
            DataType::F16 => $run!(u16, half::$float),
            DataType::F32 => $run!(u32, single::$float),
            DataType::F64 => $run!(u64, double::$float),
            DataType::Bf16 => $run!(u16, brain::$float),
        }
    };
}

/// Carries a job out by the given vectors.
pub(super) fn reduce(vectors: Vectors, job: &mut Job<'_>, data_type: DataType, op: ReduceOp) {
    carry_out(vectors, job, data_type, op);
}

fn carry_out(vectors: Vectors, task: impl Task, data_type: DataType, op: ReduceOp) {
    macro_rules! run {
        ($number:ty, $fold:expr) => {
            vectors.run::<$number>(task, $fold, |wide| wide)
        };
    }
    match op {
        ReduceOp::Sum | ReduceOp::Avg => arithmetic!(data_type, run, integers wrapping_add, floats add),
        ReduceOp::Prod => arithmetic!(data_type, run, integers wrapping_mul, floats mul),
        ReduceOp::Max => extremes!(data_type, run, integers max, floats maximum),
        ReduceOp::Min => extremes!(data_type, run, integers min, floats minimum),
    }
}

/// Carries out a sum that is divided by `ranks`, at least 1, before it is rounded. Signed integers have kernels of
/// their own here, because a quotient depends on the sign.
pub(super) fn average(vectors: Vectors, job: &mut Job<'_>, data_type: DataType, ranks: u32) {
    macro_rules! run {
        ($number:ty, $fold:expr) => {
            vectors.run::<$number>(job, $fold, |wide| <$number>::divided(wide, ranks))
        };
    }
    match data_type {
        DataType::I8 => run!(i8, i8::wrapping_add),
        DataType::I16 => run!(i16, i16::wrapping_add),
        DataType::I32 => run!(i32, i32::wrapping_add),
        DataType::I64 => run!(i64, i64::wrapping_add),
        _ => arithmetic!(data_type, run, integers wrapping_add, floats add),
    }
}
