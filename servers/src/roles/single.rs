//! A server in one process: prompts and answers are computed by the same model.

use std::sync::Arc;

use anyhow::Result;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::PoolUse;
use rdma_core::{Device, SoftOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Model;
use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Event, Job};
use crate::cache::Memory;
use crate::model::Config;
use crate::observe::{Stats, Turn};

/// A model that has no other server.
pub struct Single(Model);

impl Single {
    /// A server whose cache has so many blocks, for so many texts at most at once.
    ///
    /// # Errors
    ///
    /// No model can have this shape, or there is no memory.
    pub fn new(config: Config, blocks: u32, texts_max: usize, stats: Arc<Stats>) -> Result<Self> {
        let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
        let memory = Memory::new(&engine, &config, blocks, PoolUse::Source)?;
        Ok(Self(Model::new(config, memory, None, texts_max, stats)?))
    }
}

impl Backend for Single {
    fn config(&self) -> &Config {
        &self.0.config
    }

    fn stats(&self) -> &Arc<Stats> {
        &self.0.stats
    }

    async fn begin(&self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let turn = Turn::waits(&self.0.stats);
        let blocks = self.0.take(&prompt.text, prompt.text.len() + prompt.tokens_max).await?;
        let (job, heard) = Job::new(prompt, blocks, turn);
        self.0.add(job).await?;
        Ok(heard)
    }
}
