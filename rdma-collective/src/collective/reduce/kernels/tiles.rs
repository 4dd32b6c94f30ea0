//! The loops for all types but half precision; the compiler turns them into vectors by itself.
//!
//! Two operands are one loop over all elements. More operands, and streamed output, go by tiles that stay in the
//! first-level cache, all operands of one tile before the next tile. The output is then written once, and a type that
//! is computed in a wider one is rounded once.

use super::level::Level;
use super::number::Number;
use super::{Job, SHORT_BYTES};

/// Bytes of a tile in the element type. A short job takes a shorter tile, because clearing this one would take longer
/// than the job.
const BYTES: usize = 1024;

/// A tile in the wide type, which has at most twice the bytes of the element type.
#[repr(align(64))]
struct Wide<const BYTES: usize>([[u8; 2]; BYTES]);

/// Carries a job out as [`Number::reduce`] says.
#[inline(always)]
pub(super) fn reduce<T: Number, V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    last: impl Fn(T::Wide) -> T::Wide + Copy,
) {
    match *job.inputs {
        [source] if job.in_place => fold_in_place::<T>(job.out, source, fold, last),
        [left, right] if !job.in_place && !job.streamed => fold_pair::<T>(job.out, left, right, fold, last),
        _ => by_tiles::<T, V>(level, job, fold, last),
    }
}

#[inline(always)]
fn by_tiles<T: Number, V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    last: impl Fn(T::Wide) -> T::Wide + Copy,
) {
    // Both tiles have a single loop, because the compiler instantiates each loop for each element, operation and
    // processor.
    let (mut short, mut long);
    let (bytes, wide) = if job.out.len() <= SHORT_BYTES {
        short = Wide([[0; 2]; SHORT_BYTES]);
        (SHORT_BYTES, short.0.as_flattened_mut())
    } else {
        long = Wide([[0; 2]; BYTES]);
        (BYTES, long.0.as_flattened_mut())
    };
    let wide: &mut [T::Wide] = bytemuck::cast_slice_mut(wide);
    // A line must leave in one non-temporal store, so that results are rounded into this tile first and streamed from
    // it.
    let mut near = if job.streamed { Some(Wide([[0; 2]; BYTES / 2])) } else { None };
    for range in job.tiles::<T>(bytes) {
        let wide = &mut wide[..range.len() / size_of::<T>()];
        let (first, mut rest) = job.split(range.clone());
        load::<T>(wide, first);
        while let [a, b, c, more @ ..] = rest {
            // Three slices by hand, because `map` of an array adds seven functions for each element, operation and
            // processor.
            fold_three::<T>(wide, [&a[range.clone()], &b[range.clone()], &c[range.clone()]], fold);
            rest = more;
        }
        for input in rest {
            fold_one::<T>(wide, &input[range.clone()], fold);
        }
        let out = &mut job.out[range];
        match &mut near {
            Some(near) => {
                let near = &mut near.0.as_flattened_mut()[..out.len()];
                store::<T>(near, wide, last);
                level.stream(near, out);
            }
            None => store::<T>(out, wide, last),
        }
    }
}

#[inline(always)]
fn fold_in_place<T: Number>(
    out: &mut [u8],
    source: &[u8],
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide,
    last: impl Fn(T::Wide) -> T::Wide,
) {
    let size = size_of::<T>();
    for (out, source) in out.chunks_exact_mut(size).zip(source.chunks_exact(size)) {
        write::<T>(out, last(fold(read::<T>(out), read::<T>(source))));
    }
}

/// See [`Number::pair`].
#[inline(always)]
pub(super) fn fold_pair<T: Number>(
    out: &mut [u8],
    left: &[u8],
    right: &[u8],
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide,
    last: impl Fn(T::Wide) -> T::Wide,
) {
    let size = size_of::<T>();
    let operands = left.chunks_exact(size).zip(right.chunks_exact(size));
    for (out, (left, right)) in out.chunks_exact_mut(size).zip(operands) {
        write::<T>(out, last(fold(read::<T>(left), read::<T>(right))));
    }
}

#[inline(always)]
fn load<T: Number>(wide: &mut [T::Wide], input: &[u8]) {
    for (wide, input) in wide.iter_mut().zip(input.chunks_exact(size_of::<T>())) {
        *wide = read::<T>(input);
    }
}

#[inline(always)]
fn fold_one<T: Number>(wide: &mut [T::Wide], input: &[u8], fold: impl Fn(T::Wide, T::Wide) -> T::Wide) {
    for (wide, input) in wide.iter_mut().zip(input.chunks_exact(size_of::<T>())) {
        *wide = fold(*wide, read::<T>(input));
    }
}

/// Folds three inputs in one pass, which loads and stores the wide tile once instead of three times.
#[inline(always)]
fn fold_three<T: Number>(
    wide: &mut [T::Wide],
    inputs: [&[u8]; 3],
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let elements = |input| <[u8]>::chunks_exact(input, size_of::<T>());
    let [a, b, c] = inputs;
    for (wide, ((a, b), c)) in wide.iter_mut().zip(elements(a).zip(elements(b)).zip(elements(c))) {
        *wide = fold(fold(fold(*wide, read::<T>(a)), read::<T>(b)), read::<T>(c));
    }
}

#[inline(always)]
fn store<T: Number>(out: &mut [u8], wide: &[T::Wide], last: impl Fn(T::Wide) -> T::Wide) {
    for (out, wide) in out.chunks_exact_mut(size_of::<T>()).zip(wide) {
        write::<T>(out, last(*wide));
    }
}

#[inline(always)]
fn read<T: Number>(bytes: &[u8]) -> T::Wide {
    bytemuck::pod_read_unaligned::<T>(bytes).widen()
}

#[inline(always)]
fn write<T: Number>(bytes: &mut [u8], wide: T::Wide) {
    bytes.copy_from_slice(bytemuck::bytes_of(&T::narrow(wide)));
}
