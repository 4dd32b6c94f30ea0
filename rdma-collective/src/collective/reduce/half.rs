//! Half-precision arithmetic: in single precision, rounded once to nearest even.
//!
//! For one addition that is the correctly rounded sum, since single precision has more than twice the bits
//! and two to spare.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Elements converted at a time: small enough for the stack, large enough for the vector conversions.
const LANES: usize = 64;

/// `out[i] += source[i]`, both of one length in whole elements; neither needs to be aligned.
pub(super) fn sum_into(out: &mut [u8], source: &[u8]) {
    for (out, source) in out.chunks_mut(LANES * 2).zip(source.chunks(LANES * 2)) {
        let mut wide = widen(out);
        add(&mut wide, &widen(source));
        narrow(&wide, out);
    }
}

/// `out[i] = left[i] + right[i]`, all of one length in whole elements; none needs to be aligned.
pub(super) fn sum(out: &mut [u8], left: &[u8], right: &[u8]) {
    let operands = left.chunks(LANES * 2).zip(right.chunks(LANES * 2));
    for (out, (left, right)) in out.chunks_mut(LANES * 2).zip(operands) {
        let mut wide = widen(left);
        add(&mut wide, &widen(right));
        narrow(&wide, out);
    }
}

fn add(wide: &mut [f32; LANES], other: &[f32; LANES]) {
    for (wide, other) in wide.iter_mut().zip(other) {
        *wide += other;
    }
}

/// Unused lanes are zero, so that every conversion and addition has one length that the compiler knows.
fn widen(bytes: &[u8]) -> [f32; LANES] {
    let mut halves = [f16::ZERO; LANES];
    for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *half = f16::from_ne_bytes(*bytes);
    }
    let mut wide = [0.0; LANES];
    halves.convert_to_f32_slice(&mut wide);
    wide
}

fn narrow(wide: &[f32; LANES], bytes: &mut [u8]) {
    let mut halves = [f16::ZERO; LANES];
    halves.convert_from_f32_slice(wide);
    for (bytes, half) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
        *bytes = half.to_ne_bytes();
    }
}
