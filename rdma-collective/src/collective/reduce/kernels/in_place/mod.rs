//! Two operands where they lie, in memory that others may be using: loaded and stored by instructions of which the compiler knows no
//! more than of a device's, and reduced tile by tile.

#![expect(unsafe_code, reason = "loads from memory that others may be using, and stores to it")]

use std::marker::PhantomData;
use std::ops::Range;

use rdma_core::error::RangeError;
use rdma_core::memory::InPlace;
use rdma_core::{Access, Region};

use super::level::{Level, Vectors};
use super::number::Number;
use super::{LINE, Task};
use crate::collective::reduce::{DataType, ReduceOp};

/// Bytes that are reduced at a time: few enough for registers.
pub(super) const TILE: usize = 2 * LINE;

/// Bytes of such an operand, as they were when they were loaded.
#[repr(align(64))]
pub(super) struct Tile(pub(super) [u8; TILE]);

/// By which vectors which elements are reduced, and how.
#[derive(Clone, Copy)]
pub(in crate::collective::reduce) struct How {
    pub(in crate::collective::reduce) vectors: Vectors,
    pub(in crate::collective::reduce) data_type: DataType,
    pub(in crate::collective::reduce) op: ReduceOp,
}

/// An operand of this process.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    /// From that offset on; peers may be writing it.
    Region(&'a Region, usize),
    Slice(&'a [u8]),
}

impl Operand<'_> {
    /// Where so many bytes of it are.
    ///
    /// # Errors
    ///
    /// It has fewer.
    fn address(self, len: usize) -> Result<*const u8, RangeError> {
        match self {
            Self::Region(region, at) => Ok(region.address_of(at, len)?.as_ptr().cast_const()),
            Self::Slice(bytes) if bytes.len() < len => {
                Err(RangeError { start: 0, end: len as u64, len: bytes.len() as u64 })
            }
            Self::Slice(bytes) => Ok(bytes.as_ptr()),
        }
    }
}

/// What makes `out` of two operands: one lies in memory of this process, and the other is what it is run on.
pub(crate) struct Both<'a> {
    out: *mut u8,
    len: usize,
    near: *const u8,
    /// Of how many bytes `out` is made, where that is an operand itself: they are not made again.
    made: Option<usize>,
    how: How,
    borrowed: PhantomData<(&'a mut [u8], Operand<'a>)>,
}

impl<'a> Both<'a> {
    /// Of whole elements.
    ///
    /// # Errors
    ///
    /// `near` has fewer bytes than `out`.
    pub(in crate::collective::reduce) fn new(
        out: &'a mut [u8],
        near: Operand<'a>,
        how: How,
    ) -> Result<Self, RangeError> {
        let (len, near) = (out.len(), near.address(out.len())?);
        Ok(Self { out: out.as_mut_ptr(), len, near, made: None, how, borrowed: PhantomData })
    }

    /// Of `out` itself.
    pub(in crate::collective::reduce) fn onto(out: &'a mut [u8], how: How) -> Self {
        let (len, out) = (out.len(), out.as_mut_ptr());
        Self { out, len, near: out.cast_const(), made: Some(0), how, borrowed: PhantomData }
    }

    /// Runs it on memory of this process.
    ///
    /// # Errors
    ///
    /// There are fewer bytes.
    pub(in crate::collective::reduce) fn with(mut self, other: Operand<'_>) -> Result<(), RangeError> {
        let at = other.address(self.len)?.cast_mut();
        // SAFETY: that many bytes are there, for as long as they are borrowed, and it only reads.
        unsafe { self.run(at, 0..self.len) };
        Ok(())
    }
}

// SAFETY: bytes at `at` are loaded by `Level::load` and `load_rest` alone, and none is stored. It is arithmetic without panics and without
// waiting, and makes the same of the same bytes each time: `out` is no operand, or is left as it was made.
unsafe impl InPlace for Both<'_> {
    const NEEDS: Access = Access::REMOTE_READ;

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        if let Some(made) = &mut self.made {
            if range.end <= *made {
                return;
            }
            *made = range.end;
        }
        // SAFETY: the range is one of `out` and of `near`, which have as many bytes. Where they are the same each tile is loaded before it is stored.
        let (near, out) = unsafe { (self.near.add(range.start), self.out.add(range.start)) };
        let operands = [near, at.cast_const()];
        let tiles = Tiles { operands, outs: [out], len: range.len() };
        let How { vectors, data_type, op } = self.how;
        super::carry_out(vectors, tiles, data_type, op);
    }
}

/// What makes one of two operands in place of both: one lies in a region of this process, and the other is what it is run on.
pub(in crate::collective::reduce) struct Alike<'a> {
    near: *mut u8,
    len: usize,
    /// Of how many bytes it is made.
    made: usize,
    how: How,
    borrowed: PhantomData<&'a Region>,
}

impl<'a> Alike<'a> {
    /// Of so many bytes of whole elements from an offset of the region on.
    ///
    /// # Errors
    ///
    /// It has fewer.
    pub(in crate::collective::reduce) fn new(
        (region, at): (&'a Region, usize),
        len: usize,
        how: How,
    ) -> Result<Self, RangeError> {
        let near = region.address_of(at, len)?.as_ptr();
        Ok(Self { near, len, made: 0, how, borrowed: PhantomData })
    }

    /// Whether the region has all that is made, and the peer has it or not.
    pub(in crate::collective::reduce) fn is_made(&self) -> bool {
        self.made == self.len
    }
}

// SAFETY: bytes at `at` and of the region are loaded and stored by `Level` and for a rest that is no tile by words and bytes, with accesses that
// the compiler knows nothing of; it runs where the peer is reached, and no pages of the region are replaced meanwhile. It is arithmetic
// without panics and without waiting. When it is run again what was made is stored again.
unsafe impl InPlace for Alike<'_> {
    const NEEDS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        // SAFETY: the range is one of the region's.
        let near = unsafe { self.near.add(range.start) };
        if range.end <= self.made {
            // SAFETY: as many bytes are at both.
            unsafe { copy(near, at, range.len()) };
            return;
        }
        let tiles =
            Tiles { operands: [near.cast_const(), at.cast_const()], outs: [near, at], len: range.len() };
        let How { vectors, data_type, op } = self.how;
        super::carry_out(vectors, tiles, data_type, op);
        self.made = range.end;
    }
}

/// Operands and where to put what is made of them, all of one length, which the one who makes it vouches for.
struct Tiles<const OUTS: usize> {
    operands: [*const u8; 2],
    outs: [*mut u8; OUTS],
    len: usize,
}

impl<const OUTS: usize> Task for Tiles<OUTS> {
    fn is_streamed(&self) -> bool {
        false
    }

    #[inline(always)]
    fn run<T: Number, V: Level>(
        self,
        level: V,
        fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
        last: impl Fn(T::Wide) -> T::Wide + Copy,
    ) {
        let Self { operands, outs, len } = self;
        let whole = len / TILE * TILE;
        let mut made = Tile([0; TILE]);
        for at in (0..whole).step_by(TILE) {
            // SAFETY: a whole tile is left of each.
            let (left, right) = unsafe { (level.load(operands[0].add(at)), level.load(operands[1].add(at))) };
            T::pair(level, &mut made.0, [&left.0, &right.0], fold, last);
            for out in outs {
                // SAFETY: as above.
                unsafe { level.store(&made, out.add(at)) };
            }
        }
        if whole < len {
            let rest = len - whole;
            // SAFETY: that many bytes are left of each.
            let (left, right) =
                unsafe { (load_rest(operands[0].add(whole), rest), load_rest(operands[1].add(whole), rest)) };
            T::pair(level, &mut made.0[..rest], [&left.0[..rest], &right.0[..rest]], fold, last);
            for out in outs {
                // SAFETY: as above.
                unsafe { store_rest(&made.0[..rest], out.add(whole)) };
            }
        }
    }
}

/// A word at any address.
#[repr(C, packed)]
struct Word(u64);

/// Loads a tile, by whatever processor.
///
/// # Safety
///
/// There are that many bytes at `from`.
#[inline(always)]
pub(super) unsafe fn load(from: *const u8) -> Tile {
    let mut tile = Tile([0; TILE]);
    for (at, word) in tile.0.as_chunks_mut().0.iter_mut().enumerate() {
        // SAFETY: it is one of the tile's.
        *word = unsafe { from.cast::<Word>().add(at).read_volatile() }.0.to_ne_bytes();
    }
    tile
}

/// Stores one.
///
/// # Safety
///
/// There is room for that many bytes at `to`.
#[inline(always)]
pub(super) unsafe fn store(tile: &Tile, to: *mut u8) {
    for (at, word) in tile.0.as_chunks().0.iter().enumerate() {
        // SAFETY: it is one of the tile's.
        unsafe { to.cast::<Word>().add(at).write_volatile(Word(u64::from_ne_bytes(*word))) };
    }
}

/// Loads fewer bytes than a tile has.
///
/// # Safety
///
/// There are that many at `from`.
unsafe fn load_rest(from: *const u8, len: usize) -> Tile {
    let mut tile = Tile([0; TILE]);
    let (words, bytes) = tile.0[..len].as_chunks_mut();
    let done = len - bytes.len();
    for (at, word) in words.iter_mut().enumerate() {
        // SAFETY: it is of them.
        *word = unsafe { from.cast::<Word>().add(at).read_volatile() }.0.to_ne_bytes();
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: it is one of them.
        *byte = unsafe { from.add(done + at).read_volatile() };
    }
    tile
}

/// Stores them.
///
/// # Safety
///
/// There is room for them at `to`.
unsafe fn store_rest(bytes: &[u8], to: *mut u8) {
    let (words, rest) = bytes.as_chunks();
    let done = bytes.len() - rest.len();
    for (at, word) in words.iter().enumerate() {
        // SAFETY: it is of them.
        unsafe { to.cast::<Word>().add(at).write_volatile(Word(u64::from_ne_bytes(*word))) };
    }
    for (at, byte) in rest.iter().enumerate() {
        // SAFETY: it is one of them.
        unsafe { to.add(done + at).write_volatile(*byte) };
    }
}

/// Copies bytes from and to memory that others may be using.
///
/// # Safety
///
/// There are that many at both.
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(TILE) {
        let part = TILE.min(len - at);
        // SAFETY: that many are left of both.
        unsafe { store_rest(&load_rest(from.add(at), part).0[..part], to.add(at)) };
    }
}

#[cfg(test)]
mod tests;
