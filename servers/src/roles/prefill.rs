//! Prefill: computes prompts, and pushes their blocks to the decode that asks, layer by layer.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use rdma_collective::kv::{KvNode, Request};
use rdma_core::Deadline;
use serde::{Deserialize, Serialize};
use tracing::Instrument;

use super::Model;
use super::decode::PREFILL_WITHIN;
use crate::api::{Prompt, Refused};
use crate::batch::{Event, Job};
use crate::generate::check;
use crate::model::{Config, END, Sampling, Token, VOCABULARY};
use crate::observe::{Outcome, Turn, Watch};

/// A prefill.
pub struct Prefill {
    node: KvNode,
    model: Model,
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
    /// Time until the grant ends.
    pub within: Duration,
}

/// A prompt that was computed, and whose blocks are at decode.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prefilled {
    /// Bytes that were pushed.
    pub bytes: u64,
    /// Tokens that need not be computed, because their blocks were kept here.
    pub kept: usize,
}

/// The first token of an answer, as the note of its push has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    pub token: Token,
    /// Microseconds since 1970 at which the token was known, and with it all layers.
    known: u64,
}

impl First {
    fn now(token: Token) -> Self {
        Self { token, known: microseconds() }
    }

    fn note(self) -> [u8; 12] {
        let mut note = [0; 12];
        let (token, known) = note.split_at_mut(4);
        token.copy_from_slice(&self.token.to_le_bytes());
        known.copy_from_slice(&self.known.to_le_bytes());
        note
    }

    /// Reads a note; `None` when it is none, or its token is none of the model.
    pub fn read(note: &[u8]) -> Option<Self> {
        let (token, known) = note.split_first_chunk()?;
        let token = Some(Token::from_le_bytes(*token)).filter(|token| *token < VOCABULARY)?;
        Some(Self { token, known: u64::from_le_bytes(known.try_into().ok()?) })
    }

    /// The time since then, by the clock of this host.
    pub fn age(self) -> Duration {
        Duration::from_micros(microseconds().saturating_sub(self.known))
    }
}

fn microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl Prefill {
    /// A prefill whose model has the pool of its node.
    #[must_use]
    pub fn new(model: Model, node: KvNode) -> Self {
        Self { node, model }
    }

    /// The route by which decodes ask.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new().route("/prefill", post(prefill)).with_state(Arc::clone(self))
    }

    /// Computes a prompt and pushes its blocks. Dropping this future gives the push up.
    async fn compute(&self, ask: ToCompute) -> Result<Prefilled> {
        let ToCompute { decode, id, text, sampling, within, .. } = ask;
        let turn = Turn::waits(&self.model.stats);
        // The grant's deadline, and no longer than a decode of these sources gives.
        let deadline = Deadline::after(within.min(PREFILL_WITHIN));
        let blocks = self.model.take(&text, 0).await?;
        let kept = blocks.ready();
        let request = Request::new(&id).note_later();
        // Before the text runs, because its blocks are anyone's once it has ended, unless they are leased.
        let mut push = self.node.push_layers(&decode, request, blocks.list(), deadline).await?;
        let (tokens_max, ignores_end, headers) = (1, false, HeaderMap::new());
        let prompt = Prompt { id, text, sampling, tokens_max, ignores_end, headers };
        let (mut job, mut heard) = Job::new(prompt, blocks, turn);
        job.tells_layers = true;
        self.model.add(job).await?;
        let mut layers = 0;
        let first = loop {
            match heard.recv().await.context("the prompt was not computed")? {
                // Pushed already, with the same bytes.
                Event::Layer(layer) if layer < layers => {}
                Event::Layer(layer) => {
                    push.layer_ready(layer)?;
                    layers = layer + 1;
                }
                Event::Token(token) => break First::now(token),
                Event::Ended(_) => break First::now(END),
                Event::Failed(error) => bail!(error),
            }
        };
        push.set_note(&first.note())?;
        let sent = (&mut push).await?;
        self.model.stats.moved(&format!("{} to {decode}", self.node.name()), sent.bytes);
        Ok(Prefilled { bytes: sent.bytes, kept })
    }
}

async fn prefill(
    State(prefill): State<Arc<Prefill>>,
    headers: HeaderMap,
    Json(ask): Json<ToCompute>,
) -> Response {
    let mut watch = Watch::begin(&prefill.model.stats, "prefill", &ask.id, &headers);
    let computed = async {
        check(&ask.text, 1, &ask.model, &prefill.model.config)?;
        let failed = |error| Refused::internal(format!("{error:#}"));
        prefill.compute(ask).await.map_err(|error| error.downcast().unwrap_or_else(failed))
    };
    match computed.instrument(watch.span().clone()).await {
        Ok(prefilled) => {
            watch.span().record("bytes", prefilled.bytes);
            watch.end(Outcome::Answered, None);
            Json(prefilled).into_response()
        }
        Err(refused) => {
            watch.end(Outcome::from(&refused), Some(&refused.message));
            refused.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_first_token_and_its_time_and_nothing_else_is_a_note() {
        let first = First::now(97);
        assert_eq!(First::read(&first.note()), Some(first));
        assert!(first.age() < Duration::from_secs(60));
        assert_eq!(First::read(&First::now(VOCABULARY).note()), None);
        assert!([&[][..], &[1; 4], &[0; 11], &[0; 13]].iter().all(|note| First::read(note).is_none()));
    }
}
