//! The loops for half precision: tiles are converted, computed in single precision and rounded once.
//!
//! They are separate from `tiles`, because the compiler does not use the conversion instructions by itself. For one
//! addition or product the result is correctly rounded, because single precision has more than twice the bits of half
//! and two to spare (24 >= 2 * 11 + 2).

use ::half::f16;

use super::level::Level;
use super::number::Number;
use super::{Job, SHORT_BYTES};

/// Elements computed at a time: 1 KiB in single precision, which stays in the first-level cache.
const LANES: usize = 256;
/// Elements computed at a time in a short job: clearing a whole tile would take longer than the job.
const SHORT_LANES: usize = SHORT_BYTES / size_of::<f16>();

/// Elements of two operands that are computed at a time: two registers of AVX-512 or four of AVX2, so that nothing
/// spills.
const FEW: usize = 32;
const FEW_BYTES: usize = FEW * size_of::<f16>();

/// A tile in single precision.
#[repr(align(64))]
struct Wide<const LANES: usize>([f32; LANES]);

/// Carries a job out as [`Number::reduce`] says.
#[inline(always)]
pub(super) fn reduce<V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    match *job.inputs {
        [left, right] if !job.in_place && !job.streamed => {
            fold_pair(level, job.out, [left, right], fold, last)
        }
        [right] if job.in_place => fold_in_place(level, job.out, right, fold, last),
        _ => by_tiles(level, job, fold, last),
    }
}

/// Folds two operands, few elements at a time, so that intermediate results stay in registers.
#[inline(always)]
pub(super) fn fold_pair<V: Level>(
    level: V,
    out: &mut [u8],
    operands: [&[u8]; 2],
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    let [(left, left_rest), (right, right_rest)] = operands.map(|operand| operand.as_chunks::<FEW_BYTES>());
    let (out, out_rest) = out.as_chunks_mut::<FEW_BYTES>();
    for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
        pair(level, &mut [0.0; FEW], [left, right], out, &fold, &last);
    }
    let wide = &mut [0.0; FEW][..out_rest.len() / size_of::<f16>()];
    pair(level, wide, [left_rest, right_rest], out_rest, fold, last);
}

/// Folds `right` into `out`, which is the left operand.
#[inline(always)]
fn fold_in_place<V: Level>(
    level: V,
    out: &mut [u8],
    right: &[u8],
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    let (right, right_rest) = right.as_chunks::<FEW_BYTES>();
    let (out, out_rest) = out.as_chunks_mut::<FEW_BYTES>();
    for (out, right) in out.iter_mut().zip(right) {
        // A copy of a few registers, because `out` cannot be borrowed as an operand while it is stored to.
        let left = *out;
        pair(level, &mut [0.0; FEW], [&left, right], out, &fold, &last);
    }
    let left = &mut [0; FEW_BYTES][..out_rest.len()];
    left.copy_from_slice(out_rest);
    let wide = &mut [0.0; FEW][..out_rest.len() / size_of::<f16>()];
    pair(level, wide, [left, right_rest], out_rest, fold, last);
}

#[inline(always)]
fn pair<V: Level>(
    level: V,
    wide: &mut [f32],
    [left, right]: [&[u8]; 2],
    out: &mut [u8],
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    level.widened(left, wide, |_, left| left);
    level.widened(right, wide, fold);
    for wide in &mut *wide {
        *wide = f32::narrow(last(*wide));
    }
    level.narrowed(wide, out);
}

#[inline(always)]
fn by_tiles<V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    // As in `tiles`, one loop for both tiles.
    let (mut short, mut long);
    let wide: &mut [f32] = if job.out.len() <= SHORT_BYTES {
        short = Wide([0.0; SHORT_LANES]);
        &mut short.0
    } else {
        long = Wide([0.0; LANES]);
        &mut long.0
    };
    let mut near = if job.streamed { Some([[0; 2]; LANES]) } else { None };
    for range in job.tiles::<f16>(wide.len() * size_of::<f16>()) {
        let wide = &mut wide[..range.len() / size_of::<f16>()];
        let (first, rest) = job.split(range.clone());
        level.widened(first, wide, |_, first| first);
        for input in rest {
            level.widened(&input[range.clone()], wide, &fold);
        }
        for wide in &mut *wide {
            *wide = f32::narrow(last(*wide));
        }
        let out = &mut job.out[range];
        match &mut near {
            Some(near) => {
                let near = &mut near.as_flattened_mut()[..out.len()];
                level.narrowed(wide, near);
                level.stream(near, out);
            }
            None => level.narrowed(wide, out),
        }
    }
}
