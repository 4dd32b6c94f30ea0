//! CRC-32C of a block in one layer, read through a piece of the processor's cache.

use super::pool::Pool;
use crate::error::PoolError;

/// Bytes that are read at a time.
pub(super) const SCRATCH_BYTES: usize = 16 * 1024;

/// The checksum of all bytes of `block` in `layer`.
pub(super) fn of_block(pool: &Pool, layer: u32, block: u32, scratch: &mut [u8]) -> Result<u32, PoolError> {
    let bytes = pool.layout().layer_block_bytes();
    let (mut at, mut checksum) = (0, 0);
    while at < bytes {
        let len = (bytes - at).min(scratch.len() as u64) as usize;
        pool.read(layer, block, at, &mut scratch[..len])?;
        checksum = crc32c::crc32c_append(checksum, &scratch[..len]);
        at += len as u64;
    }
    Ok(checksum)
}
