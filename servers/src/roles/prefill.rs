//! Prefill: computes prompts, and pushes their blocks to the decode that asks, layer by layer.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use rdma_collective::kv::{KvNode, Request};
use rdma_core::Deadline;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::unbounded_channel;

use super::decode::PREFILL_WITHIN;
use crate::api::Refused;
use crate::batch::{Batch, Computed, Event, Job};
use crate::cache::{Blocks, Memory, NoBlocks};
use crate::generate::check;
use crate::model::{Config, END, Llama, Sampling, Token};

/// A prefill.
pub struct Prefill {
    config: Config,
    node: KvNode,
    blocks: Blocks,
    batch: Batch,
}

/// A prompt to compute.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToCompute {
    /// The name of the decode that has granted blocks.
    pub decode: String,
    /// The id of the request, by which it has granted them.
    pub id: String,
    /// The model, because keys and values of another one mean something else.
    pub model: Config,
    /// The prompt.
    pub text: Vec<Token>,
    /// The way in which the first token is chosen.
    pub sampling: Sampling,
}

/// A prompt that was computed, and whose blocks are at decode.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prefilled {
    /// Bytes that were pushed.
    pub bytes: u64,
    /// Tokens that need not be computed, because their blocks were kept here.
    pub kept: usize,
}

impl Prefill {
    /// A prefill whose cache is in `memory`, the pool of its node, for so many texts at most at once.
    ///
    /// # Errors
    ///
    /// No model can have this shape, or the system has no thread left.
    pub fn new(config: Config, memory: Memory, node: KvNode, texts_max: usize) -> Result<Self> {
        let blocks = Blocks::of(memory.pool(), texts_max);
        let batch = Batch::start(Arc::new(Llama::new(config)?), memory)?;
        Ok(Self { config, node, blocks, batch })
    }

    /// The blocks of the cache.
    #[must_use]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The count of tokens that were computed.
    #[must_use]
    pub fn computed(&self) -> &Computed {
        self.batch.computed()
    }

    /// The route by which decodes ask.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new().route("/prefill", post(prefill)).with_state(Arc::clone(self))
    }

    /// Computes a prompt and pushes its blocks. Dropping this future gives the push up.
    async fn compute(&self, ask: ToCompute) -> Result<Prefilled> {
        let blocks = self.blocks.take(&ask.text, 0).await?;
        let kept = blocks.ready();
        let request = Request::new(&ask.id).note_later();
        let deadline = Deadline::after(PREFILL_WITHIN);
        let mut push = self.node.push_layers(&ask.decode, request, blocks.list(), deadline).await?;
        let (events, mut heard) = unbounded_channel();
        let ToCompute { text, sampling, .. } = ask;
        let (tokens_left, ignores_end, tells_layers) = (1, false, true);
        let job = Job { text, blocks, ready: kept, sampling, tokens_left, ignores_end, tells_layers, events };
        self.batch.add(job).await?;
        let first = loop {
            match heard.recv().await.context("the prompt was not computed")? {
                Event::Layer(layer) => push.layer_ready(layer)?,
                Event::Token(token) => break token,
                Event::Ended(_) => break END,
                Event::Failed(error) => bail!(error),
            }
        };
        push.set_note(&first.to_le_bytes())?;
        let sent = (&mut push).await?;
        Ok(Prefilled { bytes: sent.bytes, kept })
    }
}

async fn prefill(State(prefill): State<Arc<Prefill>>, Json(ask): Json<ToCompute>) -> Response {
    if let Err(refused) = check(&ask.text, 1, &ask.model, &prefill.config) {
        return refused.into_response();
    }
    match prefill.compute(ask).await {
        Ok(prefilled) => Json(prefilled).into_response(),
        Err(error) => match error.downcast::<NoBlocks>() {
            Ok(none) => Refused::from(none).into_response(),
            Err(error) => Refused::internal(format!("{error:#}")).into_response(),
        },
    }
}
