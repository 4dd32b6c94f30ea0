//! Router: has a decode go on with each text, and another one when that fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Instrument;

use crate::api::{Backend, Prompt, Refused};
use crate::batch::{Event, Finish};
use crate::directory::{Entry, Role};
use crate::generate::{self, Answer, Generate};
use crate::members::Members;
use crate::model::Config;
use crate::observe::Stats;
use crate::trace;

/// The time in which a request that lost its decode has another one.
const AGAIN_WITHIN: Duration = Duration::from_secs(10);
/// Pause before decodes are looked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// A router, with the decodes that it knows. A clone is another handle to it.
#[derive(Clone)]
pub struct Router {
    config: Config,
    members: Members,
    client: reqwest::Client,
    /// Requests under way, by decode.
    load: Arc<Mutex<HashMap<String, usize>>>,
    stats: Arc<Stats>,
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
    pub fn new(config: Config, members: Members, stats: Arc<Stats>) -> Result<Self> {
        Ok(Self { config, members, client: generate::client()?, load: Arc::default(), stats })
    }

    /// The decodes, the one with the fewest requests first.
    fn decodes(&self) -> Vec<Entry> {
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        self.members.by(Role::Decode, |decode| load.get(&decode.name).copied().unwrap_or(0))
    }

    /// Has any decode go on with a text.
    async fn ask(&self, ask: &Generate, headers: &HeaderMap, until: Instant) -> Result<UnderWay, Refused> {
        let mut reason = "no decode is there".to_owned();
        loop {
            for decode in self.decodes() {
                match generate::ask(&self.client, &decode.http, ask, headers.clone()).await {
                    Ok(Ok(answer)) => return Ok(UnderWay::new(answer, decode.name, &self.load)),
                    Ok(Err(refused)) => return Err(refused),
                    Err(error) => reason = format!("{}: {error:#}", decode.name),
                }
                tracing::warn!(id = ask.id, reason, "a decode does not go on, and another one is asked");
                self.members.doubt(&decode.name);
            }
            if Instant::now() >= until {
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
            self.stats.lost.add(1);
            self.members.doubt(&under_way.decode);
            // The id of a request that decode may still have.
            ask.id.push('+');
            under_way = match self.ask(&ask, &headers, Instant::now() + AGAIN_WITHIN).await {
                Ok(under_way) => {
                    self.stats.resumed.add(1);
                    under_way
                }
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

    fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    async fn begin(&self, prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let Prompt { id, text, sampling, tokens_max, ignores_end, headers } = prompt;
        let passed = trace::onward(&headers);
        let ask = Generate { id, text, sampling, tokens_max, ignores_end };
        let under_way = self.ask(&ask, &passed, Instant::now() + AGAIN_WITHIN).await?;
        let (events, heard) = unbounded_channel();
        tokio::spawn(self.clone().pass(ask, passed, under_way, events).in_current_span());
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
