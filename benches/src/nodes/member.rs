//! A node with its pool.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{KvError, KvNode, NodeOptions, Pool, PoolUse};
use rdma_core::{Device, SoftOptions, Wire};

use super::within;
use crate::pair;
use crate::soft::Outcome;

/// All ends are processes of this command.
pub(super) const TOKEN: JobToken = JobToken::from_bytes([7; 16]);
const SENT: u8 = 1;
const BEFORE: u8 = 2;

/// The use of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends.
    Prefill,
    /// Receives.
    Decode,
}

/// A node, its pool and its engine.
pub struct Member {
    /// The node.
    pub node: KvNode,
    pub(super) pool: Pool,
    pub(super) engine: Engine,
    pub(super) role: Role,
}

/// A member of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name of its node.
    pub name: String,
    /// Everything else that the process has said.
    pub said: String,
}

impl Member {
    /// Makes a member of this name, whose pool holds the bytes that prefill sends, or others at decode.
    ///
    /// # Errors
    ///
    /// The device's refusal.
    pub fn new(wire: Wire, name: &str, role: Role, layout: &Layout) -> Outcome<Self> {
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open()?;
        let engine = Engine::new(&context, EngineOptions::default())?;
        let (purpose, byte) = match role {
            Role::Prefill => (PoolUse::Source, SENT),
            Role::Decode => (PoolUse::Destination, BEFORE),
        };
        let pool = Pool::allocate(&engine, layout, purpose)?;
        let bytes = vec![byte; layout.layer_block_bytes() as usize];
        for (layer, block) in places(layout, &(0..layout.blocks()).collect::<Vec<_>>()) {
            pool.write(layer, block, 0, &bytes)?;
        }
        let node = KvNode::new(&engine, &[&pool], &TOKEN, &options(name))?;
        Ok(Self { node, pool, engine, role })
    }

    /// Inside an end: says the node's blob with `own`, which has no space, and connects to the others.
    ///
    /// # Errors
    ///
    /// The parent is gone, or a node is not reached.
    pub fn meet(&self, own: &str) -> Outcome<Vec<Peer>> {
        let others = pair::introduce(&format!("{},{own}", self.line()))?;
        let meet = |other: &str| {
            let (blob, said) = other.split_once(',').ok_or("the other end did not say its blob")?;
            Ok(Peer { name: self.join(blob)?, said: said.to_owned() })
        };
        others.split_whitespace().map(meet).collect()
    }

    /// The blob of the node in hexadecimal digits.
    pub(super) fn line(&self) -> String {
        self.node.export().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Connects to the node with the blob of that [`line`](Self::line).
    pub(super) fn join(&self, line: &str) -> Outcome<String> {
        let digits = line.trim().as_bytes().chunks(2).map(std::str::from_utf8);
        let blob = digits.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect::<Outcome<Vec<u8>>>()?;
        Ok(self.node.connect(&blob, within()).wait()?.to_string())
    }

    /// Moves one request: pushes it, or grants it. Returns false if the peer has given it up.
    ///
    /// # Errors
    ///
    /// The transfer fails.
    pub fn once(&self, peer: &str, request: u64, blocks: &[u32]) -> Outcome<bool> {
        let error = match self.role {
            Role::Prefill => match self.node.push(peer, request, blocks, within()).wait()?.wait() {
                Ok(_) => return Ok(true),
                Err(error) => error,
            },
            Role::Decode => match self.node.grant(peer, request, blocks, within()).wait()?.wait() {
                Ok(received) if received.verdicts.all_valid() => return Ok(true),
                Ok(_) => return Err("a block has arrived damaged".into()),
                Err(error) => (*error.cause).clone(),
            },
        };
        if matches!(error, KvError::PeerRevoked { .. }) { Ok(false) } else { Err(error.into()) }
    }

    /// Moves one request after the other, of numbers from `first` on, until `done` or until the peer has ended.
    ///
    /// # Errors
    ///
    /// The first transfer fails.
    pub fn serve(&self, peer: &str, first: u64, blocks: &[u32], done: &AtomicBool) -> Outcome<()> {
        for request in (first..).take_while(|_| !done.load(Ordering::Relaxed)) {
            match self.once(peer, request, blocks) {
                // The peer has what it wanted; it looks itself whether its transfers ended well.
                Err(_) if request > first => break,
                moved => moved.map(drop)?,
            }
        }
        Ok(())
    }

    /// Fails unless the blocks have arrived.
    pub(super) fn verify(&self, blocks: &[u32]) -> Outcome<()> {
        let mut bytes = vec![0; self.pool.layout().layer_block_bytes() as usize];
        for (layer, block) in places(self.pool.layout(), blocks) {
            self.pool.read(layer, block, 0, &mut bytes)?;
            if bytes.iter().any(|byte| *byte != SENT) {
                return Err(format!("block {block} of layer {layer} has not arrived").into());
            }
        }
        Ok(())
    }
}

/// Options of a node of this host.
pub(super) fn options(name: &str) -> NodeOptions {
    NodeOptions::new(name, SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// The blocks in all layers.
fn places(layout: &Layout, blocks: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    (0..layout.layers()).flat_map(|layer| blocks.iter().map(move |block| (layer, *block)))
}
