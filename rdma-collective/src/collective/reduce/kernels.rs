//! Reduction of byte slices: checks, then one loop per data type and operation that the compiler turns into vectors.
//!
//! Works on bytes that the processor owns, at any alignment; the arithmetic is in `number` and `half`.

use ::half::bf16;
use bytemuck::Pod;

use super::number::Number;
use super::{DataType, ReduceOp, extreme, half};
use crate::error::ReduceError;

/// Calls a function that is generic over [`Number`] for a data type, and the other expression for half precision.
macro_rules! for_type {
    ($data_type:expr, $function:ident($($argument:expr),*), half => $half:expr) => {
        match $data_type {
            DataType::I8 => $function::<i8>($($argument),*),
            DataType::U8 => $function::<u8>($($argument),*),
            DataType::I16 => $function::<i16>($($argument),*),
            DataType::U16 => $function::<u16>($($argument),*),
            DataType::I32 => $function::<i32>($($argument),*),
            DataType::U32 => $function::<u32>($($argument),*),
            DataType::I64 => $function::<i64>($($argument),*),
            DataType::U64 => $function::<u64>($($argument),*),
            DataType::F32 => $function::<f32>($($argument),*),
            DataType::F64 => $function::<f64>($($argument),*),
            DataType::Bf16 => $function::<bf16>($($argument),*),
            DataType::F16 => $half,
        }
    };
}

/// `out[i] = out[i] op source[i]`, on the bytes of elements as they are in memory.
///
/// Neither slice needs to be aligned. Floating point is not associative: the result depends on the order in
/// which ranks are reduced, which is the schedule's to fix. What bits come out is in
/// [`numerics`](crate::collective::numerics). An average is the sum until it is [finished](finish).
///
/// # Errors
/// [`ReduceError`] when the lengths differ or end inside an element; `out` is then untouched.
///
/// ```
/// use rdma_collective::collective::{DataType, ReduceOp, reduce_into};
///
/// let mut out = 1.5_f32.to_ne_bytes();
/// reduce_into(&mut out, &2.0_f32.to_ne_bytes(), DataType::F32, ReduceOp::Prod)?;
/// assert_eq!(out, 3.0_f32.to_ne_bytes());
/// # Ok::<(), rdma_collective::error::ReduceError>(())
/// ```
pub fn reduce_into(
    out: &mut [u8],
    source: &[u8],
    data_type: DataType,
    op: ReduceOp,
) -> Result<(), ReduceError> {
    check(out.len(), source.len(), data_type)?;
    for_type!(data_type, numbers_into(out, source, op), half => match op {
        ReduceOp::Sum | ReduceOp::Avg => half::combine_into(out, source, |left, right| left + right),
        ReduceOp::Prod => half::combine_into(out, source, |left, right| left * right),
        ReduceOp::Max => combine_into(out, source, extreme::half::maximum),
        ReduceOp::Min => combine_into(out, source, extreme::half::minimum),
    });
    Ok(())
}

/// `out[i] = left[i] op right[i]`: what [`reduce_into`] does, without the copy when out of place.
///
/// # Errors
/// As [`reduce_into`].
pub fn reduce(
    out: &mut [u8],
    left: &[u8],
    right: &[u8],
    data_type: DataType,
    op: ReduceOp,
) -> Result<(), ReduceError> {
    check(out.len(), left.len(), data_type)?;
    check(left.len(), right.len(), data_type)?;
    for_type!(data_type, numbers(out, left, right, op), half => match op {
        ReduceOp::Sum | ReduceOp::Avg => half::combine(out, left, right, |left, right| left + right),
        ReduceOp::Prod => half::combine(out, left, right, |left, right| left * right),
        ReduceOp::Max => combine(out, left, right, extreme::half::maximum),
        ReduceOp::Min => combine(out, left, right, extreme::half::minimum),
    });
    Ok(())
}

/// What `op` does once with elements that are reduced over all `ranks`: an average is divided, others are as they are.
///
/// One rank does it, before the others get the elements, so that all have the same bits. No ranks are taken as one.
///
/// # Errors
/// [`ReduceError::PartialElement`]; `out` is then untouched.
///
/// ```
/// use rdma_collective::collective::{DataType, ReduceOp, finish, reduce_into};
///
/// let mut out = (-8_i64).to_ne_bytes();
/// reduce_into(&mut out, &1_i64.to_ne_bytes(), DataType::I64, ReduceOp::Avg)?;
/// finish(&mut out, DataType::I64, ReduceOp::Avg, 2)?;
/// assert_eq!(out, (-3_i64).to_ne_bytes());
/// # Ok::<(), rdma_collective::error::ReduceError>(())
/// ```
pub fn finish(out: &mut [u8], data_type: DataType, op: ReduceOp, ranks: u32) -> Result<(), ReduceError> {
    check_whole(out.len(), data_type)?;
    if op == ReduceOp::Avg {
        let ranks = ranks.max(1);
        for_type!(data_type, divide(out, ranks), half => half::divide(out, ranks));
    }
    Ok(())
}

fn check(left: usize, right: usize, data_type: DataType) -> Result<(), ReduceError> {
    if left != right {
        return Err(ReduceError::LengthsDiffer { left, right });
    }
    check_whole(left, data_type)
}

fn check_whole(bytes: usize, data_type: DataType) -> Result<(), ReduceError> {
    if bytes.is_multiple_of(data_type.size()) {
        Ok(())
    } else {
        Err(ReduceError::PartialElement { bytes, data_type })
    }
}

fn divide<T: Number>(out: &mut [u8], ranks: u32) {
    for out in out.chunks_exact_mut(size_of::<T>()) {
        let divided = bytemuck::pod_read_unaligned::<T>(out).divided(ranks);
        out.copy_from_slice(bytemuck::bytes_of(&divided));
    }
}

fn numbers_into<T: Number>(out: &mut [u8], source: &[u8], op: ReduceOp) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => combine_into(out, source, T::sum),
        ReduceOp::Prod => combine_into(out, source, T::product),
        ReduceOp::Max => combine_into(out, source, T::maximum),
        ReduceOp::Min => combine_into(out, source, T::minimum),
    }
}

fn numbers<T: Number>(out: &mut [u8], left: &[u8], right: &[u8], op: ReduceOp) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => combine(out, left, right, T::sum),
        ReduceOp::Prod => combine(out, left, right, T::product),
        ReduceOp::Max => combine(out, left, right, T::maximum),
        ReduceOp::Min => combine(out, left, right, T::minimum),
    }
}

fn combine_into<T: Pod>(out: &mut [u8], source: &[u8], f: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (out, source) in out.chunks_exact_mut(size).zip(source.chunks_exact(size)) {
        let combined = f(bytemuck::pod_read_unaligned(out), bytemuck::pod_read_unaligned(source));
        out.copy_from_slice(bytemuck::bytes_of(&combined));
    }
}

fn combine<T: Pod>(out: &mut [u8], left: &[u8], right: &[u8], f: impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    let operands = left.chunks_exact(size).zip(right.chunks_exact(size));
    for (out, (left, right)) in out.chunks_exact_mut(size).zip(operands) {
        let combined = f(bytemuck::pod_read_unaligned(left), bytemuck::pod_read_unaligned(right));
        out.copy_from_slice(bytemuck::bytes_of(&combined));
    }
}

#[cfg(test)]
mod tests;
