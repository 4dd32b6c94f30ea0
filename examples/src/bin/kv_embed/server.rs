//! Both servers' share: the node and its pool, contents that can be checked, and one line of JSON each way.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order};
use rdma_collective::kv::{KvNode, NodeOptions, Pool, PoolUse};
use rdma_core::{Device, SoftOptions, Wire};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::blocks::Blocks;

/// The time that a request may take. Generous: whoever waits for a request has a time of their own.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(60);
/// Blocks of a pool.
const BLOCKS: u32 = 64;

/// A node, its pool, and the free blocks of it.
#[derive(Clone)]
pub struct Server {
    pub node: KvNode,
    pub pool: Pool,
    pub blocks: Blocks,
}

/// A question to prefill.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Blob,
    Prefill { decode: String, id: String, blocks: usize },
}

impl Server {
    pub fn new(name: &str, purpose: PoolUse, wire: Wire, token: &JobToken) -> Result<Self> {
        let device = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open()?;
        let engine = Engine::new(&device, EngineOptions::default())?;
        let layout = Layout::new(Model::DEEPSEEK_V3.shape(4, BLOCKS, Order::LayerBlockPart))?;
        let pool = Pool::allocate(&engine, &layout, purpose)?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let node = KvNode::new(&engine, &[&pool], token, &NodeOptions::new(name, listen))?;
        Ok(Self { node, blocks: Blocks::of(&pool), pool })
    }

    /// Fills the blocks of a prompt, in place of a model, and returns its first token.
    pub fn compute(&self, id: &str, blocks: &[u32]) -> Result<u32> {
        self.each(id, blocks, |layer, block, bytes| Ok(self.pool.write(layer, block, 0, bytes)?))
    }

    /// Fails unless the blocks hold what [`compute`](Self::compute) fills in for this prompt.
    pub fn check(&self, id: &str, blocks: &[u32]) -> Result<u32> {
        let mut found = vec![0; self.pool.layout().layer_block_bytes() as usize];
        self.each(id, blocks, |layer, block, bytes| {
            self.pool.read(layer, block, 0, &mut found)?;
            ensure!(found == bytes, "request {id} has wrong bytes in layer {layer} of block {block}");
            Ok(())
        })
    }

    fn each(
        &self,
        id: &str,
        blocks: &[u32],
        mut act: impl FnMut(u32, u32, &[u8]) -> Result<()>,
    ) -> Result<u32> {
        let layout = self.pool.layout();
        let mut bytes = vec![0; layout.layer_block_bytes() as usize];
        for layer in 0..layout.layers() {
            for (place, block) in blocks.iter().enumerate() {
                let word = hash(&(id, layer, place)).to_le_bytes();
                bytes.iter_mut().zip(word.iter().cycle()).for_each(|(byte, of)| *byte = *of);
                act(layer, *block, &bytes)?;
            }
        }
        Ok(first_token(id))
    }
}

/// The first token of a prompt.
pub fn first_token(id: &str) -> u32 {
    hash(&id) as u32
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Says something, as a line of JSON.
pub async fn say(stream: &mut TcpStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    Ok(stream.write_all(&line).await?)
}

/// Hears a line of JSON. The peer says one line and waits, so that nothing is read beyond it.
pub async fn hear<T: DeserializeOwned>(stream: &mut TcpStream) -> Result<T> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}
