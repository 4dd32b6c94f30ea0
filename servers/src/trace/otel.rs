//! OpenTelemetry: spans go to a collector by OTLP over HTTP.

use anyhow::{Context as _, Result};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::directory::Role;

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The way to a collector.
pub(super) type Provider = SdkTracerProvider;

/// The way to the collector, if one is named. A thread of its own sends spans, a batch every five seconds.
pub(super) fn provider(role: Role, name: &str, otlp: Option<&str>) -> Result<Option<Provider>> {
    let is_named = |variable: &&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let exporter = SpanExporter::builder().with_http();
    let exporter = match otlp {
        Some(url) => exporter.with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/'))),
        None if ENDPOINTS.iter().any(is_named) => exporter,
        None => return Ok(None),
    };
    let exporter = exporter.build().context("the collector of --otlp or OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let instance = KeyValue::new("service.instance.id", name.to_owned());
    let resource = Resource::builder().with_service_name(role.to_string()).with_attribute(instance).build();
    Ok(Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
}

/// The layer that tells a provider of spans.
pub(super) fn layer<S>(provider: &Provider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("mini_server"));
    let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
    layer.with_filter(FilterFn::new(is_traced).with_max_level_hint(LevelFilter::DEBUG))
}

/// Whether the collector hears of such a span or event: of spans of the servers and of the library, and of their
/// warnings. Other crates have spans of each export, too.
fn is_traced(of: &Metadata<'_>) -> bool {
    let own = ["servers", "rdma_"].iter().any(|crates| of.target().starts_with(crates));
    own && (of.is_span() || *of.level() <= Level::WARN)
}

/// Sends the last spans.
pub(super) fn end(provider: Provider) {
    // Whoever ends can do nothing about spans that are lost.
    _ = provider.shutdown();
}

/// Makes a span a child of the one that these headers name.
pub(super) fn set_parent(span: &Span, headers: &HeaderMap) {
    let parent =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers.clone()));
    // Fails when nobody hears of spans.
    _ = span.set_parent(parent);
}

/// The headers that name the current span; `None` when nobody hears of it.
pub(super) fn of_current_span() -> Option<HeaderMap> {
    let mut headers = Headers(HeaderMap::new());
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    (!headers.0.is_empty()).then_some(headers.0)
}

struct Headers(HeaderMap);

impl Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        if let (false, Ok(key), Ok(value)) =
            (value.is_empty(), HeaderName::try_from(key), HeaderValue::try_from(value))
        {
            self.0.insert(key, value);
        }
    }
}

impl Extractor for Headers {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
