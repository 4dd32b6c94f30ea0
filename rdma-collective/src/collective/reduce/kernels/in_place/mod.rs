//! Reduction of two operands in memory that peers may be using at the same time, without a copy of either.
//!
//! Bytes are loaded into registers, and stored, by accesses that the compiler must take as they are, like those of a
//! device. No Rust reference to such memory exists here, because a peer may change it at any time. The arithmetic is
//! the same as of slices: it runs on tiles, which are this thread's own.

#![expect(unsafe_code, reason = "loads from memory that peers may be using, and stores to it")]

use std::marker::PhantomData;
use std::ops::Range;

use rdma_core::error::RangeError;
use rdma_core::memory::InPlace;
use rdma_core::{Access, Region};

use super::level::{Level, Vectors};
use super::number::Number;
use super::{LINE, Task};
use crate::collective::reduce::{DataType, ReduceOp};

/// Bytes that are reduced at a time: two registers of AVX-512 or four of AVX2 an operand, so that tiles stay in
/// registers.
pub(super) const TILE: usize = 2 * LINE;

/// Bytes of an operand, as they were when they were loaded. Aligned, so that whole vectors are moved within a cache
/// line.
#[repr(align(64))]
pub(super) struct Tile(pub(super) [u8; TILE]);

/// The vectors, the element type and the operation, which together choose a kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective::reduce) struct KernelChoice {
    pub(in crate::collective::reduce) vectors: Vectors,
    pub(in crate::collective::reduce) data_type: DataType,
    pub(in crate::collective::reduce) op: ReduceOp,
}

/// An operand in memory of this process.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    /// Bytes of a region from an offset on; peers may be writing them.
    Region(&'a Region, usize),
    Slice(&'a [u8]),
}

impl Operand<'_> {
    /// The address of its first `len` bytes.
    ///
    /// # Errors
    ///
    /// The operand has fewer bytes.
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

/// Reduces two operands into `out`: one lies in memory of this process, and the other is the memory that it is run
/// on.
pub(crate) struct PairReduction<'a> {
    out: *mut u8,
    len: usize,
    local: *const u8,
    /// Bytes of `out` that are done, where `out` is itself an operand. They must not be reduced again when a range is
    /// repeated, because their operand is overwritten.
    done: Option<usize>,
    kernel: KernelChoice,
    borrowed: PhantomData<(&'a mut [u8], Operand<'a>)>,
}

impl<'a> PairReduction<'a> {
    /// `out[i] = local[i] op other[i]`, of whole elements; without `local`, `out[i] = out[i] op other[i]`.
    ///
    /// # Errors
    ///
    /// `local` has fewer bytes than `out`.
    pub(in crate::collective::reduce) fn new(
        out: &'a mut [u8],
        local: Option<Operand<'a>>,
        kernel: KernelChoice,
    ) -> Result<Self, RangeError> {
        let (len, out) = (out.len(), out.as_mut_ptr());
        let (local, done) = match local {
            Some(local) => (local.address(len)?, None),
            None => (out.cast_const(), Some(0)),
        };
        Ok(Self { out, len, local, done, kernel, borrowed: PhantomData })
    }

    /// Runs the reduction on memory of this process.
    ///
    /// # Errors
    ///
    /// `other` has fewer bytes than `out`.
    pub(in crate::collective::reduce) fn with(mut self, other: Operand<'_>) -> Result<(), RangeError> {
        let at = other.address(self.len)?.cast_mut();
        // SAFETY: `address` has checked that `len` bytes are at `at`; they stay there because `other` is borrowed
        // until this returns. `run` only reads them.
        unsafe { self.run(at, 0..self.len) };
        Ok(())
    }
}

// SAFETY: bytes at `at` are only loaded, by `Level::load` and `load_rest`, and never stored, as `NEEDS` says. `run`
// neither panics nor waits, because it is arithmetic. A repeated range changes no result, because `out` is no
// operand, or its done bytes are left alone.
unsafe impl InPlace for PairReduction<'_> {
    const NEEDS: Access = Access::REMOTE_READ;

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        if let Some(done) = &mut self.done {
            if range.end <= *done {
                return;
            }
            *done = range.end;
        }
        // SAFETY: the range is cut to `len`, and `new` has checked that `out` and `local` both have `len` bytes. The
        // two may coincide, since each tile is loaded before it is stored.
        let (local, out) = unsafe { (self.local.add(range.start), self.out.add(range.start)) };
        let operands = [local, at.cast_const()];
        let KernelChoice { vectors, data_type, op } = self.kernel;
        super::carry_out(vectors, Tiles { operands, outs: [out], len: range.len() }, data_type, op);
    }
}

/// Reduces two operands and stores the result in place of both: one lies in a region of this process, and the other
/// is the memory that it is run on.
pub(in crate::collective::reduce) struct MutualReduction<'a> {
    local: *mut u8,
    len: usize,
    /// Bytes that are done.
    done: usize,
    kernel: KernelChoice,
    borrowed: PhantomData<&'a Region>,
}

impl<'a> MutualReduction<'a> {
    /// A reduction of `len` bytes, of whole elements, from an offset of the region on.
    ///
    /// # Errors
    ///
    /// The region has fewer bytes.
    pub(in crate::collective::reduce) fn new(
        (region, at): (&'a Region, usize),
        len: usize,
        kernel: KernelChoice,
    ) -> Result<Self, RangeError> {
        let local = region.address_of(at, len)?.as_ptr();
        Ok(Self { local, len, done: 0, kernel, borrowed: PhantomData })
    }

    /// Whether the region holds the whole result, whether or not the peer has it, too.
    pub(in crate::collective::reduce) fn is_made(&self) -> bool {
        self.done == self.len
    }
}

// SAFETY: bytes at `at` and of the region are loaded and stored by `Level`, and a rest shorter than a tile by
// volatile words and bytes, never through references. The region stays mapped, because it is borrowed; its pages are
// not replaced meanwhile, because `run` is called only while the peer is reached. `run` neither panics nor waits,
// because it is arithmetic. A repeated range is copied from the region, since its operands are gone.
unsafe impl InPlace for MutualReduction<'_> {
    const NEEDS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        let range = range.start.min(self.len)..range.end.min(self.len);
        // SAFETY: the range is cut to `len`, and `new` has checked that the region has `len` bytes there, so the sum
        // stays inside.
        let local = unsafe { self.local.add(range.start) };
        if range.end <= self.done {
            // SAFETY: the caller of `run` vouches for the range at `at`, and the region has as many bytes at `local`,
            // since the range is cut to `len`.
            unsafe { copy(local, at, range.len()) };
            return;
        }
        let tiles =
            Tiles { operands: [local.cast_const(), at.cast_const()], outs: [local, at], len: range.len() };
        let KernelChoice { vectors, data_type, op } = self.kernel;
        super::carry_out(vectors, tiles, data_type, op);
        self.done = range.end;
    }
}

/// Two operands and the places of the result. Whoever makes one vouches that all pointers are valid for `len` bytes
/// until it has run.
struct Tiles<const OUTS: usize> {
    operands: [*const u8; 2],
    outs: [*mut u8; OUTS],
    len: usize,
}

impl<const OUTS: usize> Task for Tiles<OUTS> {
    #[inline(always)]
    fn run<T: Number, V: Level>(
        self,
        level: V,
        fold: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
        last: impl Fn(T::Wide) -> T::Wide + Copy,
    ) -> bool {
        let Self { operands, outs, len } = self;
        let whole = len / TILE * TILE;
        let mut made = Tile([0; TILE]);
        for at in (0..whole).step_by(TILE) {
            // SAFETY: `at + TILE` is at most `len`, because `whole` is a multiple of `TILE`; all operands have `len`
            // bytes.
            let (left, right) = unsafe { (level.load(operands[0].add(at)), level.load(operands[1].add(at))) };
            T::pair(level, &mut made.0, [&left.0, &right.0], fold, last);
            for out in outs {
                // SAFETY: `at + TILE` is at most `len`, and all outputs have room for `len` bytes, since the maker of
                // `Tiles` vouches so.
                unsafe { level.store(&made, out.add(at)) };
            }
        }
        if whole < len {
            let rest = len - whole;
            // SAFETY: `rest` bytes are left of each operand, because all have `len`.
            let (left, right) =
                unsafe { (load_rest(operands[0].add(whole), rest), load_rest(operands[1].add(whole), rest)) };
            T::pair(level, &mut made.0[..rest], [&left.0[..rest], &right.0[..rest]], fold, last);
            for out in outs {
                // SAFETY: `rest` bytes are left of each output, because all have room for `len`.
                unsafe { store_rest(&made.0[..rest], out.add(whole)) };
            }
        }
        false
    }
}

/// A word at any address: operands may begin at any byte, and a packed type lets the compiler pick an access that
/// allows this.
#[repr(C, packed)]
struct Word(u64);

/// Loads a tile on any processor, by volatile words.
///
/// # Safety
///
/// `TILE` bytes must be readable at `from`.
#[inline(always)]
pub(super) unsafe fn load(from: *const u8) -> Tile {
    let mut tile = Tile([0; TILE]);
    for (at, word) in tile.0.as_chunks_mut().0.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `TILE` bytes at `from`, and `at` is below `TILE / 8`, so the word is within
        // them.
        *word = unsafe { from.cast::<Word>().add(at).read_volatile() }.0.to_ne_bytes();
    }
    tile
}

/// Stores a tile on any processor, by volatile words.
///
/// # Safety
///
/// `TILE` bytes must be writable at `to`.
#[inline(always)]
pub(super) unsafe fn store(tile: &Tile, to: *mut u8) {
    for (at, word) in tile.0.as_chunks().0.iter().enumerate() {
        // SAFETY: the caller vouches for `TILE` bytes at `to`, and `at` is below `TILE / 8`, so the word is within
        // them.
        unsafe { to.cast::<Word>().add(at).write_volatile(Word(u64::from_ne_bytes(*word))) };
    }
}

/// Loads `len` bytes, fewer than a tile has; the others are 0.
///
/// # Safety
///
/// `len` bytes must be readable at `from`.
unsafe fn load_rest(from: *const u8, len: usize) -> Tile {
    let mut tile = Tile([0; TILE]);
    let (words, bytes) = tile.0[..len].as_chunks_mut();
    let done = len - bytes.len();
    for (at, word) in words.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `len` bytes at `from`; there are `len / 8` words, so each is within them.
        *word = unsafe { from.cast::<Word>().add(at).read_volatile() }.0.to_ne_bytes();
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `len` bytes at `from`; `done + at` is below `len`, since `bytes` is what
        // words have left.
        *byte = unsafe { from.add(done + at).read_volatile() };
    }
    tile
}

/// Stores fewer bytes than a tile has.
///
/// # Safety
///
/// `bytes.len()` bytes must be writable at `to`.
unsafe fn store_rest(bytes: &[u8], to: *mut u8) {
    let (words, rest) = bytes.as_chunks();
    let done = bytes.len() - rest.len();
    for (at, word) in words.iter().enumerate() {
        // SAFETY: the caller vouches for `bytes.len()` bytes at `to`; `words` are a part of `bytes`, so each is
        // within them.
        unsafe { to.cast::<Word>().add(at).write_volatile(Word(u64::from_ne_bytes(*word))) };
    }
    for (at, byte) in rest.iter().enumerate() {
        // SAFETY: the caller vouches for `bytes.len()` bytes at `to`; `done + at` is below that, since `rest` is the
        // end of `bytes`.
        unsafe { to.add(done + at).write_volatile(*byte) };
    }
}

/// Copies bytes from and to memory that peers may be using.
///
/// # Safety
///
/// `len` bytes must be readable at `from` and writable at `to`.
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(TILE) {
        let part = TILE.min(len - at);
        // SAFETY: `at + part` is at most `len`, and the caller vouches for `len` bytes at both, so `part` are left.
        unsafe { store_rest(&load_rest(from.add(at), part).0[..part], to.add(at)) };
    }
}

#[cfg(test)]
mod tests;
