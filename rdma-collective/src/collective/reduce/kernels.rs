//! Reduction of byte slices: checks, then one loop per data type that the compiler turns into vectors.
//!
//! Works on bytes that the processor owns, at any alignment; half precision is in `half`.

use super::{DataType, ReduceOp, half};
use crate::error::ReduceError;

/// `out[i] = out[i] op source[i]`, on the bytes of elements as they are in memory.
///
/// Neither slice needs to be aligned. Floating point is not associative: the result depends on the order in
/// which ranks are reduced, which is the schedule's to fix. A sum that overflows is an infinity.
///
/// # Errors
/// [`ReduceError`] when the lengths differ or end inside an element; `out` is then untouched.
///
/// ```
/// use rdma_collective::collective::{DataType, ReduceOp, reduce_into};
///
/// let mut out = 1.5_f32.to_ne_bytes();
/// reduce_into(&mut out, &2.0_f32.to_ne_bytes(), DataType::F32, ReduceOp::Sum)?;
/// assert_eq!(out, 3.5_f32.to_ne_bytes());
/// # Ok::<(), rdma_collective::error::ReduceError>(())
/// ```
pub fn reduce_into(
    out: &mut [u8],
    source: &[u8],
    data_type: DataType,
    op: ReduceOp,
) -> Result<(), ReduceError> {
    check(out.len(), source.len(), data_type)?;
    match (op, data_type) {
        (ReduceOp::Sum, DataType::F32) => {
            for (out, source) in out.as_chunks_mut().0.iter_mut().zip(source.as_chunks().0) {
                *out = (f32::from_ne_bytes(*out) + f32::from_ne_bytes(*source)).to_ne_bytes();
            }
        }
        (ReduceOp::Sum, DataType::F16) => half::sum_into(out, source),
    }
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
    match (op, data_type) {
        (ReduceOp::Sum, DataType::F32) => {
            let operands = left.as_chunks().0.iter().zip(right.as_chunks().0);
            for (out, (left, right)) in out.as_chunks_mut().0.iter_mut().zip(operands) {
                *out = (f32::from_ne_bytes(*left) + f32::from_ne_bytes(*right)).to_ne_bytes();
            }
        }
        (ReduceOp::Sum, DataType::F16) => half::sum(out, left, right),
    }
    Ok(())
}

fn check(left: usize, right: usize, data_type: DataType) -> Result<(), ReduceError> {
    if left != right {
        return Err(ReduceError::LengthsDiffer { left, right });
    }
    if !left.is_multiple_of(data_type.size()) {
        return Err(ReduceError::PartialElement { bytes: left, data_type });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
