//! The description of a pool that one end of a link puts into its blob.

use rdma_core::{RemoteKey, RemoteMemory};

use crate::engine::SetupError;
use crate::kv::LinkError;
use crate::kv::layout::{Layout, put_runs, take_runs};
use crate::kv::pool::{Pieces, PoolUse};
use crate::link::codec::Reader;

/// The use of a pool at one end of a link, its layout, and its memory if the peer may use that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) purpose: PoolUse,
    /// Whether each grant brings keys of its own, and the memory has none.
    pub(super) strict: bool,
    pub(super) layout: Layout,
    pub(super) memory: Option<Pieces<RemoteMemory>>,
}

/// Nothing is exported.
const NONE: u8 = 0;
/// All tensors lie in one region.
const ONE: u8 = 1;
/// Each tensor has an address and a key.
const EACH: u8 = 2;

impl Payload {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.purpose.code(), self.strict.into(), 0, 0];
        self.layout.encode_to(&mut bytes);
        let Some(memory) = &self.memory else {
            bytes.push(NONE);
            return bytes;
        };
        bytes.push(if memory.is_one() { ONE } else { EACH });
        put_runs(&mut bytes, memory.iter().map(|memory| memory.addr));
        put_runs(&mut bytes, memory.iter().map(|memory| u64::from(memory.rkey.0)));
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        let mut reader = Reader::new(bytes);
        let wrong = || LinkError::from(SetupError::Peer { field: "description of its pool" });
        let (purpose, strict) = match reader.array() {
            Ok([code, strict @ (0 | 1), 0, 0]) => (PoolUse::from_code(code).ok_or_else(wrong)?, strict == 1),
            _ => return Err(wrong()),
        };
        if strict && purpose != PoolUse::Destination {
            return Err(wrong());
        }
        let layout = Layout::decode_from(&mut reader)?;
        let memory = match (reader.u8(), purpose) {
            (Ok(NONE), PoolUse::Source) => None,
            (Ok(kind @ (ONE | EACH)), PoolUse::SourceToPull | PoolUse::Destination) => {
                Some(memory(&mut reader, &layout, kind)?)
            }
            _ => return Err(wrong()),
        };
        if !reader.rest().is_empty() {
            return Err(wrong());
        }
        Ok(Self { purpose, strict, layout, memory })
    }
}

/// Reads the memory of a pool: an address and a key for all tensors, or for each.
fn memory(reader: &mut Reader<'_>, layout: &Layout, kind: u8) -> Result<Pieces<RemoteMemory>, LinkError> {
    let wrong = || LinkError::from(SetupError::Peer { field: "memory of its pool" });
    let count = if kind == ONE { 1 } else { layout.tensors().len() };
    let addresses = take_runs(reader, count, "addresses")?;
    let keys = take_runs(reader, count, "remote keys")?;
    if addresses.len() != count || keys.len() != count {
        return Err(wrong());
    }
    let mut pieces = Vec::with_capacity(count);
    for (addr, rkey) in addresses.into_iter().zip(keys) {
        let rkey = RemoteKey(u32::try_from(rkey).map_err(|_| wrong())?);
        pieces.push(RemoteMemory { addr, len: 0, rkey });
    }
    let pieces = match &pieces[..] {
        [only] if kind == ONE => Pieces::one(*only),
        _ => Pieces::each(layout, pieces),
    };
    let memory = pieces.with_lengths(layout);
    if memory.iter().any(|piece| piece.addr.checked_add(piece.len).is_none()) {
        return Err(wrong());
    }
    Ok(memory)
}

#[cfg(test)]
mod tests;
