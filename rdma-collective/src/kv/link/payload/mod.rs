//! The description of a pool that one end of a link puts into its blob.

use crate::engine::SetupError;
use crate::kv::LinkError;
use crate::kv::layout::Shape;
use crate::kv::pool::{Pool, PoolUse};
use crate::link::codec::{Ended, Reader};

/// The use, shape and layout hash of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) purpose: PoolUse,
    pub(super) shape: Shape,
    /// Hash of the shape; a blob whose shape and hash disagree was damaged or comes from another release.
    pub(super) hash: u64,
}

impl Payload {
    pub(super) fn of(pool: &Pool) -> Self {
        let shape = *pool.layout().shape();
        Self { purpose: pool.purpose(), shape, hash: shape.layout_hash().0 }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            PoolUse::Source => 1,
            PoolUse::Destination => 2,
            PoolUse::SourceToPull => 3,
        };
        [&[purpose, 0, 0, 0][..], &self.shape.encode(), &self.hash.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        let ended = |Ended| SetupError::Peer { field: "description of its pool" };
        let mut reader = Reader::new(bytes);
        let purpose = match reader.array().map_err(ended)? {
            [1, 0, 0, 0] => PoolUse::Source,
            [2, 0, 0, 0] => PoolUse::Destination,
            [3, 0, 0, 0] => PoolUse::SourceToPull,
            _ => return Err(ended(Ended).into()),
        };
        let shape = Shape::decode(&reader.array().map_err(ended)?)?;
        let hash = reader.u64().map_err(ended)?;
        if !reader.rest().is_empty() {
            return Err(ended(Ended).into());
        }
        if hash != shape.layout_hash().0 {
            return Err(SetupError::Peer { field: "layout hash" }.into());
        }
        Ok(Self { purpose, shape, hash })
    }
}

#[cfg(test)]
mod tests;
