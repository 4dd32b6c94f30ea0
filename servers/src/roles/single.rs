//! A server in one process: prompts and answers are computed by the same model.

use std::sync::Arc;

use anyhow::Result;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::PoolUse;
use rdma_core::{Device, SoftOptions};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Batch, Event, Job};
use crate::cache::{Blocks, Memory};
use crate::model::{Config, Llama};
use crate::observe::{Stats, Turn};

/// A model, its cache and its batch.
pub struct Single {
    config: Config,
    blocks: Blocks,
    batch: Batch,
    stats: Arc<Stats>,
}

impl Single {
    /// A server whose cache has so many blocks, for so many texts at most at once.
    ///
    /// # Errors
    ///
    /// No model can have this shape, or there is no memory.
    pub fn new(config: Config, blocks: u32, texts_max: usize, stats: Arc<Stats>) -> Result<Self> {
        let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
        let memory = Memory::new(&engine, &config, blocks, PoolUse::Source)?;
        let blocks = Blocks::of(memory.pool(), texts_max);
        let batch = Batch::start(Arc::new(Llama::new(config)?), memory)?;
        stats.watch(&blocks, batch.computed(), None);
        Ok(Self { config, blocks, batch, stats })
    }
}

impl Backend for Single {
    fn config(&self) -> &Config {
        &self.config
    }

    fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    async fn begin(&self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let Prompt { text, sampling, tokens_max, ignores_end, .. } = prompt;
        let turn = Turn::waits(&self.stats);
        let blocks = self.blocks.take(&text, text.len() + tokens_max).await?;
        let (events, heard) = unbounded_channel();
        let (ready, tokens_left, tells_layers) = (blocks.ready(), tokens_max, false);
        let job = Job { text, blocks, ready, sampling, tokens_left, ignores_end, tells_layers, events, turn };
        self.batch.add(job).await.map_err(|error| Refused::unavailable(format!("{error:#}")))?;
        Ok(heard)
    }
}
