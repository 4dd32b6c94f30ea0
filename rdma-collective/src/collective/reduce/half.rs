//! Half-precision arithmetic: in single precision, rounded once to nearest even.
//!
//! For one addition or product that is the correctly rounded result, since single precision has more than twice the
//! bits and two to spare. Conversions go by blocks: the processor's own are fast from some hundred elements on.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::extreme;

/// Elements converted at a time: small enough for the stack and the first-level cache.
const LANES: usize = 256;
const BYTES: usize = LANES * size_of::<f16>();

/// `out[i] = out[i] f source[i]`, both of one length in whole elements; neither needs to be aligned.
pub(super) fn combine_into(out: &mut [u8], source: &[u8], f: impl Fn(f32, f32) -> f32) {
    let mut block = Block::default();
    for (out, source) in out.chunks_mut(BYTES).zip(source.chunks(BYTES)) {
        block.combine(out, source, &f);
        block.narrow(out);
    }
}

/// `out[i] = left[i] f right[i]`, all of one length in whole elements; none needs to be aligned.
pub(super) fn combine(out: &mut [u8], left: &[u8], right: &[u8], f: impl Fn(f32, f32) -> f32) {
    let mut block = Block::default();
    let operands = left.chunks(BYTES).zip(right.chunks(BYTES));
    for (out, (left, right)) in out.chunks_mut(BYTES).zip(operands) {
        block.combine(left, right, &f);
        block.narrow(out);
    }
}

/// `out[i] = out[i] / ranks`, in whole elements at any alignment.
pub(super) fn divide(out: &mut [u8], ranks: u32) {
    let mut block = Block::default();
    for out in out.chunks_mut(BYTES) {
        widen(out, &mut block.halves, &mut block.wide);
        block.wide.iter_mut().for_each(|wide| *wide /= ranks as f32);
        block.narrow(out);
    }
}

/// What is computed at a time; lanes behind the last element hold anything.
struct Block {
    halves: [f16; LANES],
    wide: [f32; LANES],
    other: [f32; LANES],
}

impl Default for Block {
    fn default() -> Self {
        Self { halves: [f16::ZERO; LANES], wide: [0.0; LANES], other: [0.0; LANES] }
    }
}

impl Block {
    fn combine(&mut self, left: &[u8], right: &[u8], f: impl Fn(f32, f32) -> f32) {
        widen(left, &mut self.halves, &mut self.wide);
        widen(right, &mut self.halves, &mut self.other);
        for (wide, other) in self.wide.iter_mut().zip(&self.other) {
            *wide = f(*wide, *other);
        }
    }

    fn narrow(&mut self, out: &mut [u8]) {
        let halves = &mut self.halves[..out.len() / size_of::<f16>()];
        halves.convert_from_f32_slice(&self.wide[..halves.len()]);
        for half in &mut *halves {
            *half = if half.is_nan() { f16::from_bits(extreme::half::NAN) } else { *half };
        }
        out.copy_from_slice(bytemuck::cast_slice(halves));
    }
}

fn widen(bytes: &[u8], halves: &mut [f16; LANES], wide: &mut [f32; LANES]) {
    let halves = &mut halves[..bytes.len() / size_of::<f16>()];
    bytemuck::cast_slice_mut(halves).copy_from_slice(bytes);
    halves.convert_to_f32_slice(&mut wide[..halves.len()]);
}
