//! Traces: the W3C headers that go with a request from server to server, and the spans that OpenTelemetry hears of.
//!
//! Without a collector the headers of a client go on unchanged. With one, each server puts its own span into them, so
//! that the spans of router, decode and prefill are one trace.

#[cfg_attr(not(feature = "otel"), path = "none.rs")]
mod otel;

use anyhow::Result;
use axum::http::{HeaderMap, HeaderValue};
use tracing::Span;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::directory::Role;

/// The header with the ids of the trace and of the span that asks.
const PARENT: &str = "traceparent";
/// The header with what other tracing systems say of the trace.
const STATE: &str = "tracestate";

/// Traces that are under way to a collector. Call [`end`](Self::end) before the process ends.
pub struct Traces(Option<otel::Provider>);

impl Traces {
    /// Writes warnings to the standard error, and sends spans to the collector at `otlp`, or to that of
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; to none if neither is there.
    ///
    /// A collector that is away or slow costs spans, and no request: 2048 spans wait at most, and others are dropped.
    ///
    /// # Errors
    ///
    /// `otlp` is no address of a collector, or the program was built without the feature `otel`.
    pub fn start(role: Role, name: &str, otlp: Option<&str>) -> Result<Self> {
        let lines =
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(LevelFilter::WARN);
        let lines = tracing_subscriber::registry().with(lines);
        let provider = otel::provider(role, name, otlp)?;
        lines.with(provider.as_ref().map(otel::layer)).init();
        Ok(Self(provider))
    }

    /// Sends the last spans. Takes as long as the collector does, up to some seconds.
    pub fn end(self) {
        self.0.into_iter().for_each(otel::end);
    }
}

/// Makes a span a part of the trace of a request's headers. Headers that break the rules are ignored, and a new trace
/// begins.
pub fn set_parent(span: &Span, headers: &HeaderMap) {
    otel::set_parent(span, &of_request(headers));
}

/// The headers by which another server goes on with the trace of a request: those of the current span, or of the
/// request itself if nobody hears of spans.
#[must_use]
pub fn onward(headers: &HeaderMap) -> HeaderMap {
    otel::of_current_span().unwrap_or_else(|| of_request(headers))
}

/// Records on a span that it has failed.
pub fn fail(span: &Span, error: &dyn std::fmt::Display) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", tracing::field::display(error));
}

/// The headers of the trace of a request; none if they break the rules.
fn of_request(headers: &HeaderMap) -> HeaderMap {
    let mut found = HeaderMap::new();
    let mut parents = headers.get_all(PARENT).iter();
    if let (Some(parent), None) = (parents.next(), parents.next())
        && is_parent(parent.as_bytes())
    {
        found.insert(PARENT, parent.clone());
        let states: Vec<_> = headers.get_all(STATE).iter().map(HeaderValue::as_bytes).collect();
        let state = HeaderValue::from_bytes(&states.join(&b','));
        if let Some(state) = state.ok().filter(|state| !state.is_empty()) {
            found.insert(STATE, state);
        }
    }
    found
}

/// Whether a `traceparent` is right: <https://www.w3.org/TR/trace-context/#traceparent-header>. Later versions may have
/// more behind the four fields of version 0.
fn is_parent(text: &[u8]) -> bool {
    let Some((fields, more)) = text.split_at_checked(55) else { return false };
    let mut fields = fields.split(|byte| *byte == b'-');
    let mut next = |length| {
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == length && field.iter().all(is_hex))
    };
    let (Some(version), Some(trace), Some(span), Some(_flags)) = (next(2), next(32), next(16), next(2))
    else {
        return false;
    };
    let is_some = |id: &[u8]| id.iter().any(|digit| *digit != b'0');
    let ends = more.is_empty() || version != b"00" && more.first() == Some(&b'-');
    version != b"ff" && is_some(trace) && is_some(span) && ends
}

#[cfg(test)]
mod tests;
