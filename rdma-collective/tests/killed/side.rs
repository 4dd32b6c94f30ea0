//! A single end of a link, in either role.

use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::{Attention, Layout, Shape};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill, Prepared};
use rdma_core::Wire;

use crate::common::long;
use crate::pair::{self, TOKEN};

/// Some MiB, so that a transfer takes a while.
const SHAPE: Shape = Shape {
    layers: 4,
    blocks: 32,
    block_tokens: 16,
    attention: Attention::Grouped { kv_heads: 8, head_dim: 64 },
    ..pair::SHAPE
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Prefill,
    Decode,
}

impl Role {
    pub fn other(self) -> Self {
        match self {
            Self::Prefill => Self::Decode,
            Self::Decode => Self::Prefill,
        }
    }
}

/// The engine and the pools that a process has for all of its links.
pub struct Side {
    engine: Engine,
    source: Pool,
    room: Pool,
}

/// An end that is not connected.
pub enum Idle {
    Prefill(Prepared<Prefill>),
    Decode(Prepared<Decode>),
}

pub enum End {
    Prefill(Prefill),
    Decode(Decode),
}

impl Side {
    pub fn new() -> Self {
        let engine = pair::engine(Wire::Mapped, None);
        let pool = |purpose| Pool::allocate(&engine, &Layout::new(SHAPE).unwrap(), purpose).unwrap();
        let (source, room) = (pool(PoolUse::Source), pool(PoolUse::Destination));
        Self { engine, source, room }
    }

    /// Prepares one end, and returns the blob that the other end needs.
    pub fn prepare(&self, role: Role) -> (Idle, Vec<u8>) {
        let options = LinkOptions::default();
        match role {
            Role::Prefill => {
                let idle = Prefill::prepare(&self.engine, &self.source, &TOKEN, &options).unwrap();
                let blob = idle.export().to_vec();
                (Idle::Prefill(idle), blob)
            }
            Role::Decode => {
                let idle = Decode::prepare(&self.engine, &self.room, &TOKEN, &options).unwrap();
                let blob = idle.export().to_vec();
                (Idle::Decode(idle), blob)
            }
        }
    }
}

impl Idle {
    pub fn connect(self, blob: &[u8]) -> Result<End, String> {
        match self {
            Self::Prefill(mut idle) => idle.connect(blob, long()).map(End::Prefill),
            Self::Decode(mut idle) => idle.connect(blob, long()).map(End::Decode),
        }
        .map_err(|error| error.to_string())
    }
}

impl End {
    /// Moves all blocks.
    pub fn transfer(&self, request: u64) -> Result<(), String> {
        let blocks: Vec<u32> = (0..SHAPE.blocks).collect();
        match self {
            Self::Prefill(end) => {
                let pushed = end.push(request, &blocks, long()).and_then(|push| push.wait());
                pushed.map(drop).map_err(|error| error.to_string())
            }
            Self::Decode(end) => {
                let grant = end.grant(request, &blocks, long()).map_err(|error| error.to_string())?;
                grant.wait().map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Waits for what the other end does not do, which may wait likewise.
    pub fn wait(&self) -> Result<(), String> {
        self.transfer(match self {
            Self::Prefill(_) => u64::MAX,
            Self::Decode(_) => u64::MAX - 1,
        })
    }
}
