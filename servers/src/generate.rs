//! The protocol by which servers of a job go on with a text of another: `POST /generate`, answered by a line of JSON
//! for each token.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::api::{Backend, Prompt, Refused, check_prompt};
use crate::batch::{Event, Finish};
use crate::client::{CONNECT_WITHIN, SHORT, read, read_json};
use crate::health::Health;
use crate::model::{Config, Sampling, Token, VOCABULARY};
use crate::observe::{self, Heard, Outcome};

/// A text to go on with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Generate {
    /// The id of the request.
    pub id: String,
    /// The model, because another one would go on in another way.
    pub model: Config,
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
    let Generate { id, model, text, sampling, tokens_max, ignores_end } = ask;
    if let Err(refused) = check(&text, tokens_max, &model, backend.config()) {
        backend.stats().ended(Outcome::from(&refused));
        return refused.into_response();
    }
    let prompt = Prompt { id, text, sampling, tokens_max, ignores_end, headers };
    match observe::begin(&*backend, "generate", prompt).await {
        Ok(events) => lines(events).into_response(),
        Err(refused) => refused.into_response(),
    }
}

/// Refuses a text that the model here cannot go on with, or that another model has begun.
///
/// # Errors
///
/// The refusal names both models.
pub fn check(text: &[Token], tokens_max: usize, asked: &Config, own: &Config) -> Result<(), Refused> {
    if asked != own {
        return Err(Refused::new(
            StatusCode::CONFLICT,
            "other_model",
            format!("the model is {own}, not {asked}"),
        ));
    }
    check_prompt(text, tokens_max, own)
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

/// Asks another server to go on with a text. A refusal is one of the request itself, or says that the server has too
/// many.
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
    let refused = refusal(response).await?;
    if matches!(status, StatusCode::BAD_REQUEST | StatusCode::TOO_MANY_REQUESTS) {
        return Ok(Err(refused));
    }
    bail!("it says {status}: {refused}")
}

/// The refusal that another server has answered with.
///
/// # Errors
///
/// The errors of [`read`].
pub async fn refusal(response: reqwest::Response) -> Result<Refused> {
    let status = response.status();
    Ok(Refused::read(status, &serde_json::from_slice(&read(response, SHORT).await?).unwrap_or_default()))
}

/// The shape of the model that another server has.
///
/// # Errors
///
/// The server does not say.
pub async fn model_of(client: &reqwest::Client, address: &str) -> Result<Config> {
    let asked = client.get(format!("http://{address}/health")).timeout(CONNECT_WITHIN).send();
    Ok(read_json::<Health>(asked.await?, SHORT).await?.config)
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
                    Line::Token(token) if token >= VOCABULARY => {
                        bail!("a token {token} that the model has not")
                    }
                    Line::Token(token) => Event::Token(token),
                    Line::Ended(finish) => Event::Ended(finish),
                    Line::Failed(error) => Event::Failed(error),
                });
            }
            ensure!(self.bytes.len() < SHORT, "an answer without an end of a line");
            let more = self.response.chunk().await?.context("the answer has broken off")?;
            self.bytes.extend_from_slice(&more);
        }
    }
}
