//! Router: has a decode go on with each text, and another one when that fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tracing::Instrument;

use crate::api::{Backend, LONGER, Prompt, Refused};
use crate::batch::{Event, Finish};
use crate::client::{SILENCE, client};
use crate::directory::{Entry, Role};
use crate::generate::{self, Answer, Generate};
use crate::members::Members;
use crate::model::Config;
use crate::observe::Stats;
use crate::trace;

/// Time in which a request that lost its decode is tried again.
const AGAIN_WITHIN: Duration = Duration::from_secs(10);
/// Time in which a decode begins its answer: it waits for blocks, and then for a prefill.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
/// Decodes that a text may lose one behind the other, without a token between. A text that ends them would end all.
const LOST_MAX: usize = 3;
/// Pause before decodes are looked for again.
const PAUSE: Duration = Duration::from_millis(50);
/// Reason of a router that knows none.
const NO_DECODE: &str = "no decode is there";

/// Requests under way, by decode.
type Load = Arc<Mutex<HashMap<String, usize>>>;

/// A router, with the decodes that it knows. A clone is another handle to it.
#[derive(Clone)]
pub struct Router {
    config: Config,
    members: Members,
    client: reqwest::Client,
    load: Load,
    stats: Arc<Stats>,
    again_within: Duration,
    begins_within: Duration,
}

/// A request that a decode goes on with.
struct UnderWay {
    answer: Answer,
    counted: Counted,
}

/// A request that counts for a decode, from the moment it is asked, because it computes the prompt first.
struct Counted {
    decode: String,
    load: Load,
}

impl Router {
    /// A router for a model of this shape.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(config: Config, members: Members, stats: Arc<Stats>) -> Result<Self> {
        Ok(Self {
            config,
            members,
            client: client(None)?,
            load: Arc::default(),
            stats,
            again_within: AGAIN_WITHIN,
            begins_within: BEGINS_WITHIN,
        })
    }

    /// The decodes, the one with the fewest requests first.
    fn decodes(&self) -> Vec<Entry> {
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        self.members.by(Role::Decode, |decode| load.get(&decode.name).copied().unwrap_or(0))
    }

    /// The reason why no request can be answered, if so.
    #[must_use]
    pub fn cannot(&self) -> Option<String> {
        self.members.all(Role::Decode).is_empty().then(|| NO_DECODE.to_owned())
    }

    /// Has any decode go on with a text. When all have too many, a request that `waits` is tried again. Each decode is
    /// asked once, however long the others are silent, as long as the client is not left longer than [`SILENCE`].
    async fn ask(&self, ask: &Generate, headers: &HeaderMap, waits: bool) -> Result<UnderWay, Refused> {
        let started = Instant::now();
        let mut reason = NO_DECODE.to_owned();
        loop {
            let mut full = None;
            for decode in self.decodes() {
                let counted = Counted::new(decode.name, &self.load);
                let asked = generate::ask(&self.client, &decode.http, ask, headers.clone());
                let asked = timeout(self.begins_within, asked).await.context("it does not begin in time");
                match asked.flatten() {
                    Ok(Ok(answer)) => return Ok(UnderWay { answer, counted }),
                    // A decode with a larger cache may take the text, and one that is full may take it later.
                    Ok(Err(refused)) if refused.is_for_now() || refused.code == LONGER => {
                        full = full.filter(Refused::is_for_now).or(Some(refused));
                        continue;
                    }
                    Ok(Err(refused)) => return Err(refused),
                    Err(error) => reason = format!("{}: {error:#}", counted.decode),
                }
                tracing::warn!(id = ask.id, reason, "a decode does not go on, and another one is asked");
                self.members.doubt(&counted.decode);
                if started.elapsed() + self.begins_within > SILENCE {
                    break;
                }
            }
            let late = started.elapsed() >= self.again_within;
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
        let mut lost = 0;
        loop {
            let next = tokio::select! {
                next = under_way.answer.next() => next,
                () = events.closed() => return,
            };
            let error = match next {
                Ok(Event::Token(_)) if ask.tokens_max == 0 => {
                    "it says more tokens than were asked for".to_owned()
                }
                Ok(Event::Token(token)) => {
                    lost = 0;
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
            tracing::warn!(
                id = ask.id,
                decode = under_way.counted.decode,
                error,
                "a decode was lost amid an answer"
            );
            self.members.doubt(&under_way.counted.decode);
            if ask.tokens_max == 0 {
                _ = events.send(Event::Ended(Finish::Length));
                return;
            }
            self.stats.lost.add(1);
            lost += 1;
            if lost > LOST_MAX {
                _ = events.send(Event::Failed(format!(
                    "{lost} decodes were lost one behind the other; the last one: {error}"
                )));
                return;
            }
            // The id of a request that decode may still have.
            ask.id.push('+');
            let again = tokio::select! {
                again = self.ask(&ask, &headers, true) => again,
                () = events.closed() => return,
            };
            under_way = match again {
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
        let ask = Generate { id, model: self.config, text, sampling, tokens_max, ignores_end };
        let under_way = self.ask(&ask, &passed, false).await?;
        let (events, heard) = unbounded_channel();
        tokio::spawn(self.clone().pass(ask, passed, under_way, events).in_current_span());
        Ok(heard)
    }
}

impl Counted {
    fn new(decode: String, load: &Load) -> Self {
        *load.lock().unwrap_or_else(PoisonError::into_inner).entry(decode.clone()).or_default() += 1;
        Self { decode, load: Arc::clone(load) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = load.get_mut(&self.decode) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
