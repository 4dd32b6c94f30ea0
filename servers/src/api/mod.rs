//! The protocol of clients: OpenAI's completions and chat completions, whole or streamed by server-sent events.
//!
//! `body` and `ask` have the requests, `reply` the answers, `error` the refusals, `output` the text of an answer. A
//! [`Backend`] computes the answers: one process, a decode that has prefills, or a test.

mod ask;
mod body;
mod error;
mod output;
mod reply;

use std::future::Future;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::batch::Event;
use crate::model::{Config, Sampling, Token};
use crate::observe::{Outcome, Stats};

pub use ask::{Ask, Dialect, PROMPTS_MAX, check_prompt};
pub use error::{LONGER, Refused};

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
        .route("/v1/models", get(async || Json(json!({ "object": "list", "data": [model()] }))))
        .route("/v1/models/{*name}", get(one_model))
        .with_state(backend)
}

/// Routes which refuse other paths and methods as clients expect it.
pub fn refusing(routes: Router) -> Router {
    let refused = |status, code, message: &'static str| async move || Refused::new(status, code, message);
    routes
        .fallback(refused(StatusCode::NOT_FOUND, "not_found", "there is no such path"))
        .method_not_allowed_fallback(refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this path takes another method",
        ))
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

async fn one_model(name: Result<Path<String>, PathRejection>) -> Result<Json<Value>, Refused> {
    let Path(name) = name.map_err(|error| Refused::no_model(&error.body_text()))?;
    if name == MODEL { Ok(Json(model())) } else { Err(Refused::no_model(&name)) }
}

async fn serve<B: Backend>(backend: Arc<B>, dialect: Dialect, headers: HeaderMap, body: &[u8]) -> Response {
    match answer(backend, dialect, headers, body).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn answer<B: Backend>(
    backend: Arc<B>,
    dialect: Dialect,
    headers: HeaderMap,
    body: &[u8],
) -> Result<Response, Refused> {
    let ask = check_type(&headers).and_then(|()| Ask::read(dialect, body, backend.config()));
    let ask = ask.inspect_err(|refused| backend.stats().ended(Outcome::from(refused)))?;
    let answers = reply::begin(&*backend, &ask, &headers).await?;
    Ok(match ask.stream {
        true => reply::stream(ask, answers).into_response(),
        false => reply::whole(&ask, answers).await?.into_response(),
    })
}

/// Refuses a body that says of itself that it is something else than JSON. One that says nothing may be JSON.
fn check_type(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence == "application/json" || essence.ends_with("+json") {
        return Ok(());
    }
    let message =
        format!("the request is {essence}, and this path takes application/json; say so in content-type");
    Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

fn model() -> Value {
    json!({ "id": MODEL, "object": "model", "created": 0, "owned_by": "rdma-collective" })
}
