//! The loops for half precision, which the compiler has no vectors for: tiles are converted, computed in single precision
//! and rounded once.
//!
//! For one addition or product that is the correctly rounded result, since single precision has more than twice the
//! bits and two to spare.

use ::half::f16;

use super::level::Level;
use super::number::Number;
use super::{Job, SHORT_BYTES};

/// Elements computed at a time: few enough for the first cache.
const LANES: usize = 256;
/// The same of a short job, which are cleared sooner.
const SHORT_LANES: usize = SHORT_BYTES / size_of::<f16>();

/// Elements of two operands that are computed at a time, and their bytes.
const FEW: usize = 32;
const FEW_BYTES: usize = FEW * size_of::<f16>();

/// A tile as it is computed.
#[repr(align(64))]
struct Wide<const LANES: usize>([f32; LANES]);

/// See [`Number::reduce`].
#[inline(always)]
pub(super) fn reduce<V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    match *job.inputs {
        [left, right] if !job.in_place && !job.streamed => apart(level, job.out, [left, right], fold, last),
        [right] if job.in_place => onto(level, job.out, right, fold, last),
        _ if job.out.len() <= SHORT_BYTES => by_tiles::<V, SHORT_LANES>(level, job, fold, last),
        _ => by_tiles::<V, LANES>(level, job, fold, last),
    }
}

/// Two operands, few elements at a time, so that what is computed stays in registers.
#[inline(always)]
pub(super) fn apart<V: Level>(
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

/// The same where the left one is the output, too.
#[inline(always)]
fn onto<V: Level>(
    level: V,
    out: &mut [u8],
    right: &[u8],
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    let (right, right_rest) = right.as_chunks::<FEW_BYTES>();
    let (out, out_rest) = out.as_chunks_mut::<FEW_BYTES>();
    for (out, right) in out.iter_mut().zip(right) {
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
fn by_tiles<V: Level, const LANES: usize>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(f32, f32) -> f32,
    last: impl Fn(f32) -> f32,
) {
    let mut wide = Wide([0.0; LANES]);
    let mut near = if job.streamed { Some([[0; 2]; LANES]) } else { None };
    for range in job.tiles::<f16>(LANES * size_of::<f16>()) {
        let wide = &mut wide.0[..range.len() / size_of::<f16>()];
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
