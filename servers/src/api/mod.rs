//! The protocol of clients: OpenAI's completions and chat completions, whole or streamed by server-sent events.
//!
//! `ask` has the requests, `reply` the answers, `error` the refusals, `output` the text of an answer. A [`Backend`] is
//! what answers: one process, a decode that has prefills, or a test.

mod ask;
mod error;
mod output;
mod reply;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::batch::Event;
use crate::model::{Config, Sampling, Token};
use crate::observe::{Outcome, Stats};

pub use ask::{Ask, Dialect};
pub use error::Refused;

/// The longest request: 4 MiB, several times the longest prompt.
const BODY_BYTES_MAX: usize = 4 << 20;

/// A text to go on with.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// The id of the request, unique in the job.
    pub id: String,
    /// The tokens so far.
    pub text: Vec<Token>,
    /// The way in which tokens are chosen.
    pub sampling: Sampling,
    /// Tokens of the answer, at most.
    pub tokens_max: usize,
    /// Whether the answer goes on behind its end.
    pub ignores_end: bool,
    /// The headers of the request, among them those of its trace and of a router.
    pub headers: HeaderMap,
}

/// Something that goes on with texts.
pub trait Backend: Send + Sync + 'static {
    /// The model.
    fn config(&self) -> &Config;

    /// The figures of the server.
    fn stats(&self) -> &Arc<Stats>;

    /// Goes on with a text. Dropping what comes back, or the future, aborts the request.
    fn begin(&self, prompt: Prompt)
    -> impl Future<Output = Result<UnboundedReceiver<Event>, Refused>> + Send;
}

/// The name by which clients know the model.
pub const MODEL: &str = "mini-llama";

/// The routes that clients use.
pub fn routes<B: Backend>(backend: Arc<B>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions::<B>))
        .route("/v1/chat/completions", post(chat_completions::<B>))
        .route("/v1/models", get(models))
        .fallback(async || Refused::not_found("there is no such path"))
        .method_not_allowed_fallback(async || Refused::method())
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(backend)
}

async fn completions<B: Backend>(State(backend): State<Arc<B>>, headers: HeaderMap, body: Bytes) -> Response {
    serve(backend, Dialect::Text, headers, &body).await
}

async fn chat_completions<B: Backend>(
    State(backend): State<Arc<B>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(backend, Dialect::Chat, headers, &body).await
}

async fn serve<B: Backend>(backend: Arc<B>, dialect: Dialect, headers: HeaderMap, body: &[u8]) -> Response {
    let ask = match Ask::read(dialect, body, backend.config()) {
        Ok(ask) => ask,
        Err(refused) => {
            backend.stats().ended(Outcome::from(&refused));
            return refused.into_response();
        }
    };
    match reply::begin(&*backend, &ask, &headers).await {
        Ok(answers) if ask.stream => reply::stream(ask, answers).into_response(),
        Ok(answers) => match reply::whole(&ask, answers).await {
            Ok(reply) => reply.into_response(),
            Err(refused) => refused.into_response(),
        },
        Err(refused) => refused.into_response(),
    }
}

async fn models() -> Response {
    let model = json!({ "id": MODEL, "object": "model", "created": 0, "owned_by": "rdma-collective" });
    axum::Json(json!({ "object": "list", "data": [model] })).into_response()
}
