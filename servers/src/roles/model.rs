//! The model of a server, with the cache and the texts that it computes.

use std::sync::Arc;

use anyhow::Result;
use rdma_collective::kv::KvNode;

use crate::api::Refused;
use crate::batch::{Batch, Job};
use crate::cache::{Blocks, Memory, Taken};
use crate::model::{Config, Llama, Token};
use crate::observe::Stats;

/// A model, its cache and its batch, which prefill, decode and a single process have.
pub struct Model {
    pub(super) config: Config,
    pub(super) stats: Arc<Stats>,
    blocks: Blocks,
    batch: Batch,
}

impl Model {
    /// A model whose cache is in `memory`, the pool of `node` if there is one, for so many texts at most at once.
    ///
    /// # Errors
    ///
    /// No model can have this shape, or the system has no thread left.
    pub fn new(
        config: Config,
        memory: Memory,
        node: Option<&KvNode>,
        texts_max: usize,
        stats: Arc<Stats>,
    ) -> Result<Self> {
        let blocks = Blocks::of(memory.pool(), texts_max);
        let batch = Batch::start(Arc::new(Llama::new(config)?), memory)?;
        stats.watch(&blocks, batch.computed(), node);
        Ok(Self { config, stats, blocks, batch })
    }

    /// Takes blocks for a text, with room for `room` tokens in all.
    pub(super) async fn take(&self, text: &[Token], room: usize) -> Result<Taken, Refused> {
        Ok(self.blocks.take(text, room).await?)
    }

    /// Computes a text.
    pub(super) async fn add(&self, job: Job) -> Result<(), Refused> {
        self.batch.add(job).await.map_err(|error| Refused::unavailable(format!("{error:#}")))
    }
}
