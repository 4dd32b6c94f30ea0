//! Where a window lies in this process.

#![expect(unsafe_code, reason = "copies from and to memory that peers write")]

use std::ptr::NonNull;

use super::super::flag::{self, Flag};
use super::super::{CacheHint, InPlace, check_needs, copy};
use crate::error::{RangeError, ReachError};

/// Bytes that are [worked on](InPlace::run) at a time, at most.
const RUN_BYTES_MAX: usize = 256 * 1024;

/// Where it is; whoever has one keeps it mapped.
#[derive(Clone, Copy)]
pub(super) struct MappedRange {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: an address and a length of memory that is no thread's own, and is accessed as memory that others write.
unsafe impl Send for MappedRange {}
// SAFETY: the same.
unsafe impl Sync for MappedRange {}

impl MappedRange {
    #[inline]
    fn at(self, offset: usize, len: usize) -> Result<NonNull<u8>, ReachError> {
        RangeError::check(offset as u64, len as u64, self.len as u64)?;
        // SAFETY: no further than the end.
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
        // SAFETY: checked, and mapped for as long as there is a window; of shared memory no reference exists.
        unsafe { copy::copy_shared(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    #[inline]
    pub(super) fn copy_out(self, offset: usize, bytes: &mut [u8], hint: CacheHint) -> Result<(), ReachError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: as in `copy_in`.
        unsafe { copy::copy_shared_hinted(from.as_ptr(), bytes.as_mut_ptr(), bytes.len(), hint) };
        Ok(())
    }

    #[inline]
    pub(super) fn run<W: InPlace>(self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        const { check_needs(W::NEEDS) };
        let base = self.at(offset, len)?;
        for begin in (0..len).step_by(RUN_BYTES_MAX) {
            let end = len.min(begin + RUN_BYTES_MAX);
            // SAFETY: inside what was checked, and mapped for as long as there is a window.
            unsafe { work.run(base.add(begin).as_ptr(), begin..end) };
        }
        Ok(())
    }

    #[inline]
    pub(super) fn store<F: Flag>(self, offset: usize, flag: F) -> Result<(), ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: checked, aligned, and mapped for as long as there is a window.
        unsafe { flag::store(at.as_ptr(), F::LEN, flag.to_bits()) };
        Ok(())
    }

    #[inline]
    pub(super) fn load<F: Flag>(self, offset: usize) -> Result<F, ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: as in `store`.
        Ok(F::from_bits(unsafe { flag::load(at.as_ptr(), F::LEN) }))
    }
}
