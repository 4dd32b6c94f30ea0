//! Helpers that many cases use.

use rdma_core::{Access, LocalBuf, Region, RemoteKey, RemoteMemory, Segment, Work};

use crate::{CaseResult, End, Lab};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The rights of a region that peers may read and write.
pub(crate) const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Returns `len` bytes that depend on `seed` and on their offset.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 29) as u8)
        .collect()
}

/// Allocates a buffer that holds `bytes`.
pub(crate) fn filled(end: &End, bytes: &[u8]) -> Result<LocalBuf> {
    let mut buffer = end.pd.alloc_local(bytes.len().max(1))?;
    buffer[..bytes.len()].copy_from_slice(bytes);
    Ok(buffer.slice(0..bytes.len())?)
}

/// Returns all bytes of a region.
pub(crate) fn bytes_of(region: &Region) -> Result<Vec<u8>> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes)?;
    Ok(bytes)
}

/// Posts `work` on `end` and fails unless it is accepted.
pub(crate) fn post(end: &mut End, work: Work) -> CaseResult {
    end.worker.post(&end.qp, work).map_err(|refused| refused.error)?;
    Ok(())
}

/// Posts a receive of `len` bytes on `end`.
pub(crate) fn post_recv(end: &mut End, len: usize) -> CaseResult {
    let segment = if len == 0 { Segment::Empty } else { Segment::Owned(end.pd.alloc_local(len)?) };
    end.worker.post_recv(&end.qp, segment).map_err(|refused| refused.error)?;
    Ok(())
}

/// Writes `bytes` from `left` to `to` and waits until it is done.
pub(crate) fn write(lab: &Lab, left: &mut End, bytes: &[u8], to: RemoteMemory) -> CaseResult {
    let buffer = filled(left, bytes)?;
    post(left, Work::write(buffer, to))?;
    left.done(lab)?;
    Ok(())
}

/// Returns `memory` under another key.
pub(crate) fn with_key(memory: RemoteMemory, rkey: u32) -> RemoteMemory {
    RemoteMemory { rkey: RemoteKey(rkey), ..memory }
}
