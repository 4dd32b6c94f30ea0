//! The protocol by which servers of a job go on with a text of another: `POST /generate`, answered by a line of JSON
//! for each token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Event, Finish};
use crate::directory::read_any;
use crate::model::{Sampling, Token};
use crate::observe::{self, Heard};

/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The time in which a server takes a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// The longest time between two lines of an answer. Prompts of others are computed meanwhile.
const SILENCE: Duration = Duration::from_secs(60);

/// A text to go on with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Generate {
    /// The id of the request.
    pub id: String,
    /// The tokens so far.
    pub text: Vec<Token>,
    /// The way in which tokens are chosen.
    pub sampling: Sampling,
    /// Tokens of the answer, at most.
    pub tokens_max: usize,
    /// Whether the answer goes on behind its end.
    pub ignores_end: bool,
}

/// A line of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Token(Token),
    Ended(Finish),
    Failed(String),
}

/// The answer of another server, line by line.
pub struct Answer {
    response: reqwest::Response,
    bytes: Vec<u8>,
}

/// The route by which other servers of the job go on with texts here.
pub fn routes<B: Backend>(backend: Arc<B>) -> Router {
    Router::new().route("/generate", post(generate::<B>)).with_state(backend)
}

async fn generate<B: Backend>(
    State(backend): State<Arc<B>>,
    headers: HeaderMap,
    Json(ask): Json<Generate>,
) -> Response {
    let Generate { id, text, sampling, tokens_max, ignores_end } = ask;
    let prompt = Prompt { id, text, sampling, tokens_max, ignores_end, headers };
    match observe::begin(&*backend, "generate", prompt).await {
        Ok(events) => lines(events).into_response(),
        Err(refused) => refused.into_response(),
    }
}

fn lines(events: Heard) -> Body {
    Body::from_stream(stream::unfold(Some(events), |events| async {
        let mut events = events?;
        let line = match events.recv().await {
            Some(Event::Token(token)) => Line::Token(token),
            Some(Event::Ended(finish)) => Line::Ended(finish),
            Some(Event::Failed(error)) => Line::Failed(error),
            // Layers are for a prefill.
            Some(Event::Layer(_)) | None => Line::Failed("the answer has broken off".to_owned()),
        };
        let goes_on = matches!(line, Line::Token(_));
        let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
        bytes.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(bytes)), goes_on.then_some(events)))
    }))
}

/// A client for the servers of a job.
///
/// # Errors
///
/// There is no client.
pub fn client() -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder().connect_timeout(CONNECT_WITHIN).read_timeout(SILENCE);
    Ok(builder.no_proxy().build()?)
}

/// Asks another server to go on with a text. A refusal of the request itself is one for whoever asked here.
///
/// # Errors
///
/// The server does not answer, or cannot go on now: another one may.
pub async fn ask(
    client: &reqwest::Client,
    address: &str,
    ask: &Generate,
    headers: HeaderMap,
) -> Result<Result<Answer, Refused>> {
    let response =
        client.post(format!("http://{address}/generate")).headers(headers).json(ask).send().await?;
    let status = response.status();
    if status.is_success() {
        return Ok(Ok(Answer { response, bytes: Vec::new() }));
    }
    let error: serde_json::Value = read_any(response).await.unwrap_or_default();
    let message = error["error"]["message"].as_str().unwrap_or("it says no more").to_owned();
    if status == StatusCode::BAD_REQUEST {
        return Ok(Err(Refused::request(None, message)));
    }
    bail!("it says {status}: {message}")
}

impl Answer {
    /// The next event; an error when the answer has broken off.
    ///
    /// # Errors
    ///
    /// The connection ended before the answer did, or the server says something else.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let line = serde_json::from_slice(&line).context("an answer that no server gives")?;
                return Ok(match line {
                    Line::Token(token) => Event::Token(token),
                    Line::Ended(finish) => Event::Ended(finish),
                    Line::Failed(error) => Event::Failed(error),
                });
            }
            ensure!(self.bytes.len() < LINE_BYTES_MAX, "an answer without an end of a line");
            let more = self.response.chunk().await?.context("the answer has broken off")?;
            self.bytes.extend_from_slice(&more);
        }
    }
}
