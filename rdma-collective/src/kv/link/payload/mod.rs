//! The description of a pool that one end of a link puts into its blob.

use crate::engine::SetupError;
use crate::kv::LinkError;
use crate::kv::layout::Layout;
use crate::kv::pool::{Pool, PoolUse};

/// The use and the layout of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) purpose: PoolUse,
    pub(super) layout: Layout,
}

impl Payload {
    pub(super) fn of(pool: &Pool) -> Self {
        Self { purpose: pool.purpose(), layout: pool.layout().clone() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            PoolUse::Source => 1,
            PoolUse::Destination => 2,
            PoolUse::SourceToPull => 3,
        };
        [&[purpose, 0, 0, 0][..], &self.layout.encode()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        let (purpose, layout) = match bytes.split_first_chunk() {
            Some(([1, 0, 0, 0], layout)) => (PoolUse::Source, layout),
            Some(([2, 0, 0, 0], layout)) => (PoolUse::Destination, layout),
            Some(([3, 0, 0, 0], layout)) => (PoolUse::SourceToPull, layout),
            _ => return Err(SetupError::Peer { field: "description of its pool" }.into()),
        };
        Ok(Self { purpose, layout: Layout::decode(layout)? })
    }
}

#[cfg(test)]
mod tests;
