//! Router: has a decode go on with each text, and another one when that fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Event, Finish};
use crate::directory::{Entry, Role};
use crate::generate::{self, Answer, Generate};
use crate::members::Members;
use crate::model::Config;

/// The time in which a request that lost its decode has another one.
const AGAIN_WITHIN: Duration = Duration::from_secs(10);
/// Pause before decodes are looked for again.
const PAUSE: Duration = Duration::from_millis(50);
/// The reason of a router that knows none.
const NO_DECODE: &str = "no decode is there";
/// Headers that go on to decode: those of the trace.
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// A router, with the decodes that it knows. A clone is another handle to it.
#[derive(Clone)]
pub struct Router {
    config: Config,
    members: Members,
    client: reqwest::Client,
    /// Requests under way, by decode.
    load: Arc<Mutex<HashMap<String, usize>>>,
}

/// A request that a decode goes on with.
struct UnderWay {
    answer: Answer,
    decode: String,
    load: Arc<Mutex<HashMap<String, usize>>>,
}

impl Router {
    /// A router for a model of this shape.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(config: Config, members: Members) -> Result<Self> {
        Ok(Self { config, members, client: generate::client()?, load: Arc::default() })
    }

    /// The decodes, the one with the fewest requests first.
    fn decodes(&self) -> Vec<Entry> {
        let mut decodes = self.members.all(Role::Decode);
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        decodes.sort_by_key(|decode| load.get(&decode.name).copied().unwrap_or(0));
        decodes
    }

    /// The reason why no request can be answered, if so.
    #[must_use]
    pub fn cannot(&self) -> Option<String> {
        self.members.all(Role::Decode).is_empty().then(|| NO_DECODE.to_owned())
    }

    /// Has any decode go on with a text. When all have too many, a request that `waits` is tried again.
    async fn ask(&self, ask: &Generate, headers: &HeaderMap, waits: bool) -> Result<UnderWay, Refused> {
        let until = Instant::now() + AGAIN_WITHIN;
        let mut reason = NO_DECODE.to_owned();
        loop {
            let mut full = None;
            for decode in self.decodes() {
                match generate::ask(&self.client, &decode.http, ask, headers.clone()).await {
                    Ok(Ok(answer)) => return Ok(UnderWay::new(answer, decode.name, &self.load)),
                    Ok(Err(refused)) if refused.is_for_now() => {
                        full = Some(refused);
                        continue;
                    }
                    Ok(Err(refused)) => return Err(refused),
                    Err(error) => reason = format!("{}: {error:#}", decode.name),
                }
                tracing::warn!(id = ask.id, reason, "a decode does not go on, and another one is asked");
                self.members.forget(&decode.name);
            }
            let late = Instant::now() >= until;
            if let Some(refused) = full.filter(|_| late || !waits) {
                return Err(refused);
            }
            if late {
                return Err(Refused::unavailable(format!("no decode can go on; the last one: {reason}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Passes the tokens of an answer on. A decode that is lost is replaced, and no token is told twice.
    async fn pass(
        self,
        mut ask: Generate,
        headers: HeaderMap,
        mut under_way: UnderWay,
        events: UnboundedSender<Event>,
    ) {
        loop {
            let next = tokio::select! {
                next = under_way.answer.next() => next,
                () = events.closed() => return,
            };
            let error = match next {
                Ok(Event::Token(token)) => {
                    ask.text.push(token);
                    ask.tokens_max = ask.tokens_max.saturating_sub(1);
                    _ = events.send(Event::Token(token));
                    continue;
                }
                Ok(Event::Failed(error)) => error,
                Ok(event) => {
                    _ = events.send(event);
                    return;
                }
                Err(error) => format!("{error:#}"),
            };
            tracing::warn!(id = ask.id, decode = under_way.decode, error, "a decode was lost amid an answer");
            if ask.tokens_max == 0 {
                _ = events.send(Event::Ended(Finish::Length));
                return;
            }
            self.members.forget(&under_way.decode);
            // The id of a request that decode may still have.
            ask.id.push('+');
            under_way = match self.ask(&ask, &headers, true).await {
                Ok(under_way) => under_way,
                Err(refused) => {
                    _ = events.send(Event::Failed(refused.message));
                    return;
                }
            };
        }
    }
}

impl Backend for Router {
    fn config(&self) -> &Config {
        &self.config
    }

    async fn begin(&self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let Prompt { id, text, sampling, tokens_max, ignores_end, headers } = prompt;
        let passed = HEADERS.iter().filter_map(|name| Some((name, headers.get(*name)?)));
        let passed: HeaderMap =
            passed.map(|(name, value)| (axum::http::HeaderName::from_static(name), value.clone())).collect();
        let ask = Generate { id, model: self.config, text, sampling, tokens_max, ignores_end };
        let under_way = self.ask(&ask, &passed, false).await?;
        let (events, heard) = unbounded_channel();
        tokio::spawn(self.clone().pass(ask, passed, under_way, events));
        Ok(heard)
    }
}

impl UnderWay {
    fn new(answer: Answer, decode: String, load: &Arc<Mutex<HashMap<String, usize>>>) -> Self {
        *load.lock().unwrap_or_else(PoisonError::into_inner).entry(decode.clone()).or_default() += 1;
        Self { answer, decode, load: Arc::clone(load) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = load.get_mut(&self.decode) {
            *count = count.saturating_sub(1);
        }
    }
}
