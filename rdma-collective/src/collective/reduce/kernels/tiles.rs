//! The loops for all that the compiler turns into vectors by itself.
//!
//! Two operands are one loop over all. More of them, and what is streamed, go by tiles that stay in the first cache, all
//! operands of one tile before the next: the output is then written once, and a type that is computed in a wider one is
//! rounded once.

use super::level::Level;
use super::number::Number;
use super::{Job, SHORT_BYTES};

/// Bytes of a tile, as it is stored. That of a short job is shorter and cleared sooner.
const BYTES: usize = 1024;

/// A tile as it is computed: each element in twice its bytes at most.
#[repr(align(64))]
struct Wide<const BYTES: usize>([[u8; 2]; BYTES]);

/// See [`Number::reduce`].
#[inline(always)]
pub(super) fn reduce<T: Number, V: Level>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    last: impl Fn(T::Wide) -> T::Wide + Copy,
) {
    match *job.inputs {
        [source] if job.in_place => into::<T>(job.out, source, fold, last),
        [left, right] if !job.in_place && !job.streamed => apart::<T>(job.out, left, right, fold, last),
        _ if job.out.len() <= SHORT_BYTES => by_tiles::<T, V, SHORT_BYTES>(level, job, fold, last),
        _ => by_tiles::<T, V, BYTES>(level, job, fold, last),
    }
}

#[inline(always)]
fn by_tiles<T: Number, V: Level, const BYTES: usize>(
    level: V,
    job: &mut Job<'_>,
    fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    last: impl Fn(T::Wide) -> T::Wide + Copy,
) {
    let mut wide = Wide([[0; 2]; BYTES]);
    let wide: &mut [T::Wide] = bytemuck::cast_slice_mut(&mut wide.0);
    let mut near = if job.streamed { Some(Wide([[0; 2]; BYTES])) } else { None };
    for range in job.tiles::<T>(BYTES) {
        let wide = &mut wide[..range.len() / size_of::<T>()];
        let (first, mut rest) = job.split(range.clone());
        load::<T>(wide, first);
        while let [a, b, c, more @ ..] = rest {
            // Each by itself: `map` of an array is seven functions more, for each kind of element, operation and processor.
            three::<T>(wide, [&a[range.clone()], &b[range.clone()], &c[range.clone()]], fold);
            rest = more;
        }
        for input in rest {
            one::<T>(wide, &input[range.clone()], fold);
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
fn into<T: Number>(
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
pub(super) fn apart<T: Number>(
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
fn one<T: Number>(wide: &mut [T::Wide], input: &[u8], fold: impl Fn(T::Wide, T::Wide) -> T::Wide) {
    for (wide, input) in wide.iter_mut().zip(input.chunks_exact(size_of::<T>())) {
        *wide = fold(*wide, read::<T>(input));
    }
}

/// The same for three at once, which loads and stores what is wide once.
#[inline(always)]
fn three<T: Number>(wide: &mut [T::Wide], inputs: [&[u8]; 3], fold: impl Fn(T::Wide, T::Wide) -> T::Wide) {
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
