//! The span and the figures of a text from its begin to its end.

use std::sync::Arc;
use std::time::Instant;

use axum::http::HeaderMap;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{Instrument, Span, field::Empty};

use super::{Outcome, Stats};
use crate::api::{Backend, Prompt, Refused};
use crate::batch::Event;
use crate::trace;

/// A text that a server answers. Dropping this before the text has ended counts it as aborted.
pub struct Watch {
    stats: Arc<Stats>,
    span: Span,
    began: Instant,
    /// The moment of the last token.
    last: Option<Instant>,
    tokens: u64,
    outcome: Option<Outcome>,
}

/// The events of an answer, which are counted as they are heard.
pub struct Heard {
    events: UnboundedReceiver<Event>,
    watch: Watch,
}

/// Has a backend go on with a text, in a span of this name that belongs to the trace of the request.
///
/// # Errors
///
/// The backend refuses the text.
pub async fn begin<B: Backend>(backend: &B, name: &'static str, prompt: Prompt) -> Result<Heard, Refused> {
    let mut watch = Watch::begin(backend.stats(), name, &prompt.id, &prompt.headers);
    match backend.begin(prompt).instrument(watch.span.clone()).await {
        Ok(events) => Ok(Heard { events, watch }),
        Err(refused) => {
            watch.end(Outcome::from(&refused), Some(&refused.message));
            Err(refused)
        }
    }
}

impl Watch {
    /// Begins a span of this name, for a text with these headers.
    #[must_use]
    pub fn begin(stats: &Arc<Stats>, name: &'static str, id: &str, headers: &HeaderMap) -> Self {
        let span = tracing::info_span!(
            parent: None,
            "request",
            otel.name = name,
            otel.kind = "server",
            otel.status_code = Empty,
            otel.status_description = Empty,
            id,
            tokens = Empty,
            bytes = Empty,
            outcome = Empty,
        );
        trace::set_parent(&span, headers);
        Self { stats: Arc::clone(stats), span, began: Instant::now(), last: None, tokens: 0, outcome: None }
    }

    /// The span.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Hears of a token.
    fn token(&mut self) {
        let now = Instant::now();
        match self.last.replace(now) {
            None => self.stats.first.record(now.duration_since(self.began)),
            Some(last) => self.stats.between.record(now.duration_since(last)),
        }
        self.tokens += 1;
        self.stats.tokens.add(1);
    }

    /// Hears of the end, with the reason of a bad one. Only the first end counts.
    pub fn end(&mut self, outcome: Outcome, error: Option<&str>) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        self.stats.ended(outcome);
        self.span.record("outcome", outcome.name());
        self.span.record("tokens", self.tokens);
        if let Some(error) = error {
            trace::fail(&self.span, &error);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end(Outcome::Aborted, None);
    }
}

impl Heard {
    /// The next event.
    pub async fn recv(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        match &event {
            Some(Event::Token(_)) => self.watch.token(),
            Some(Event::Layer(_)) => {}
            Some(Event::Ended(_)) => self.watch.end(Outcome::Answered, None),
            Some(Event::Failed(error)) => self.watch.end(Outcome::Failed, Some(error)),
            None => self.watch.end(Outcome::Failed, Some("the answer has broken off")),
        }
        event
    }

    /// Hears that the answer has all that was asked for, because a text that ends it has come.
    pub fn stop(&mut self) {
        self.watch.end(Outcome::Answered, None);
    }
}
