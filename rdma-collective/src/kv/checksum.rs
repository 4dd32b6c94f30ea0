//! CRC-32C of blocks in one layer, read through a piece of the processor's cache, a bounded part at a time.

use std::task::Poll;

use super::pool::Pool;
use crate::kv::PoolError;

/// Bytes that are read at a time.
pub(super) const SCRATCH_BYTES: usize = 16 * 1024;
/// Bytes that are summed before others have a turn.
pub(super) const TURN_BYTES_MAX: u64 = 1 << 20;

/// The checksum of a block in one layer, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Sum {
    at: u64,
    sum: u32,
}

impl Sum {
    /// Goes on by no more than `left` bytes, and takes them off; once all bytes of `block` in `layer` are in, that is the
    /// checksum, and the next block can begin.
    pub(super) fn add(
        &mut self,
        pool: &Pool,
        (layer, block): (u32, u32),
        scratch: &mut [u8],
        left: &mut u64,
    ) -> Poll<Result<u32, PoolError>> {
        let bytes = pool.layout().layer_block_bytes();
        while self.at < bytes {
            let len = (bytes - self.at).min(*left).min(scratch.len() as u64) as usize;
            if len == 0 {
                return Poll::Pending;
            }
            if let Err(error) = pool.read(layer, block, self.at, &mut scratch[..len]) {
                *self = Self::default();
                return Poll::Ready(Err(error));
            }
            self.sum = crc32c::crc32c_append(self.sum, &scratch[..len]);
            self.at += len as u64;
            *left -= len as u64;
        }
        Poll::Ready(Ok(std::mem::take(self).sum))
    }
}
