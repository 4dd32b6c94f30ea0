//! CRC-32C of one block in one layer, computed in bounded parts.
//!
//! The bytes are read through a small buffer that stays in the processor's cache.

use std::task::Poll;

use super::layout::Extent;
use super::pool::Pool;
use crate::kv::PoolError;

/// Cost of skipping a block that is not wanted, in bytes that could be summed meanwhile; it bounds a drive that only
/// skips.
pub(super) const PASS_BYTES: u64 = 64;
/// Bytes read at a time: 16 KiB, which fits the first-level cache (32 KiB or more) beside other data.
pub(super) const SCRATCH_BYTES: usize = 16 * 1024;
/// Bytes summed in one drive: 1 MiB, so that polls and heartbeats of other lanes do not wait for a large transfer.
pub(super) const DRIVE_BYTES_MAX: u64 = 1 << 20;

/// A checksum in progress.
#[derive(Debug, Default)]
pub(super) struct Sum {
    at: u64,
    sum: u32,
}

impl Sum {
    /// Sums up to `left` bytes more and subtracts them from `left`. Returns the checksum once all bytes of `pieces` are
    /// summed; the next block can begin then.
    pub(super) fn add(
        &mut self,
        pool: &Pool,
        pieces: impl Iterator<Item = Extent>,
        scratch: &mut [u8],
        left: &mut u64,
    ) -> Poll<Result<u32, PoolError>> {
        // End of the pieces before.
        let mut end = 0;
        for piece in pieces {
            let start = end;
            end += piece.len;
            while self.at < end {
                let len = (end - self.at).min(*left).min(scratch.len() as u64) as usize;
                if len == 0 {
                    return Poll::Pending;
                }
                if let Err(error) = pool.copy_out(piece.offset + self.at - start, &mut scratch[..len]) {
                    *self = Self::default();
                    return Poll::Ready(Err(error));
                }
                self.sum = crc32c::crc32c_append(self.sum, &scratch[..len]);
                self.at += len as u64;
                *left -= len as u64;
            }
        }
        Poll::Ready(Ok(std::mem::take(self).sum))
    }
}
