//! [`MappedRange`]: bounds-checked access to the bytes of a window, for its owner and for a peer alike.

#![expect(unsafe_code, reason = "copies from and to memory that peers write")]

use std::ptr::NonNull;

use super::super::flag::{self, Flag};
use super::super::{CacheHint, InPlace, check_needs, copy};
use crate::error::{RangeError, ReachError};

/// Bytes that [`InPlace::run`] gets at a time, at most; the same bound as on a `PeerSlice`.
const RUN_BYTES_MAX: usize = 256 * 1024;

/// The address and length of a mapped window, or of a part of one. Whoever has this value also keeps the
/// bytes mapped.
#[derive(Clone, Copy)]
pub(super) struct MappedRange {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: the memory belongs to no thread, and is only accessed by copies and flags, which allow concurrent
// writers.
unsafe impl Send for MappedRange {}
// SAFETY: `&MappedRange` gives an address and a length only, and both are immutable.
unsafe impl Sync for MappedRange {}

impl MappedRange {
    #[inline]
    fn at(self, offset: usize, len: usize) -> Result<NonNull<u8>, ReachError> {
        RangeError::check(offset as u64, len as u64, self.len as u64)?;
        // SAFETY: the range was checked, so the address is at most one past the end.
        Ok(unsafe { self.base.add(offset) })
    }

    #[inline]
    fn flag_at<F: Flag>(self, offset: usize) -> Result<NonNull<u8>, ReachError> {
        let (at, len) = (self.at(offset, F::LEN as usize)?, F::LEN as usize);
        if !at.as_ptr().addr().is_multiple_of(len) {
            return Err(ReachError::Unaligned { address: at.as_ptr().addr() as u64, len });
        }
        Ok(at)
    }

    #[inline]
    pub(super) fn copy_in(self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked the range, and the owner of this value keeps it mapped. No reference to shared
        // memory exists, because windows never give one.
        unsafe { copy::copy_shared(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    #[inline]
    pub(super) fn copy_out(self, offset: usize, bytes: &mut [u8], hint: CacheHint) -> Result<(), ReachError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked the range, and the owner of this value keeps it mapped. Only `bytes` has a
        // reference, which nobody shares.
        unsafe { copy::copy_shared_hinted(from.as_ptr(), bytes.as_mut_ptr(), bytes.len(), hint) };
        Ok(())
    }

    #[inline]
    pub(super) fn run<W: InPlace>(self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        const { check_needs(W::NEEDS) };
        let base = self.at(offset, len)?;
        for begin in (0..len).step_by(RUN_BYTES_MAX) {
            let end = len.min(begin + RUN_BYTES_MAX);
            // SAFETY: the part is inside the range that `at` checked, and the owner of this value keeps it
            // mapped and writable, so every `NEEDS` is met.
            unsafe { work.run(base.add(begin).as_ptr(), begin..end) };
        }
        Ok(())
    }

    #[inline]
    pub(super) fn store<F: Flag>(self, offset: usize, flag: F) -> Result<(), ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: `flag_at` checked range and alignment, and the owner of this value keeps it mapped, so the
        // store is valid.
        unsafe { flag::store(at.as_ptr(), F::LEN, flag.to_bits()) };
        Ok(())
    }

    #[inline]
    pub(super) fn load<F: Flag>(self, offset: usize) -> Result<F, ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: `flag_at` checked range and alignment, and the owner of this value keeps it mapped, so the
        // load is valid.
        Ok(F::from_bits(unsafe { flag::load(at.as_ptr(), F::LEN) }))
    }
}
