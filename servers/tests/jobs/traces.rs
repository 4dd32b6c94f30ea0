//! The spans of router, decode and prefill are one trace, as a collector hears of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::Value;
use servers::process::Process;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::support::{LONG, ask, ask_soon, body, starter};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const PROMPT: &str = "A prompt that is longer than one block of the cache, so that a prefill computes it.";

/// A collector that keeps all spans.
#[derive(Clone)]
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    /// An export is answered once it has a permit.
    open: Arc<Semaphore>,
}

/// A span as it came.
#[derive(Debug, Clone)]
struct Span {
    service: String,
    instance: String,
    json: Value,
}

impl Span {
    fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }

    fn attribute(&self, key: &str) -> Value {
        attribute(&self.json["attributes"], key)
    }
}

/// The value of an attribute, whose numbers come as text.
fn attribute(of: &Value, key: &str) -> Value {
    let found = of.as_array().into_iter().flatten().find(|attribute| attribute["key"] == key);
    let value = found.and_then(|found| found["value"].as_object()).and_then(|value| value.values().next());
    value.cloned().unwrap_or_default()
}

impl Collector {
    async fn start(permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, spans: Arc::default(), open: Arc::new(Semaphore::new(permits)) };
        let own = collector.clone();
        let take = post(async move |axum::Json(export): axum::Json<Value>| {
            own.open.acquire().await.unwrap().forget();
            own.take(&export);
            axum::Json(serde_json::json!({}))
        });
        let routes = Router::new().route("/v1/traces", take);
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        collector
    }

    fn take(&self, export: &Value) {
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        for resource in list(&export["resourceSpans"]) {
            let of = |key| {
                attribute(&resource["resource"]["attributes"], key).as_str().unwrap_or_default().to_owned()
            };
            let (service, instance) = (of("service.name"), of("service.instance.id"));
            for json in list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
                let span = Span { service: service.clone(), instance: instance.clone(), json };
                self.spans.lock().unwrap().push(span);
            }
        }
    }

    /// The spans that `is` finds, once they are `count`.
    async fn spans(&self, count: usize, is: impl Fn(&Span) -> bool) -> Vec<Span> {
        let began = Instant::now();
        loop {
            let found: Vec<Span> =
                self.spans.lock().unwrap().iter().filter(|span| is(span)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            let names = || found.iter().map(|span| (&span.service, span.text("name"))).collect::<Vec<_>>();
            assert!(began.elapsed() < LONG, "{count} spans in time, and not {:?}", names());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn start(role: &'static str, directory: &str, url: &str) -> Process {
    start_with(role, directory, url, |_| ()).await
}

async fn start_with(
    role: &'static str,
    directory: &str,
    url: &str,
    more: impl FnOnce(&mut Command),
) -> Process {
    let otlp = |command: &mut Command| {
        command.args(["--otlp", url]);
        command.envs([("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("OTEL_BSP_SCHEDULE_DELAY", "100")]);
        more(command);
    };
    starter().start_with(role, &format!("{role}-0"), directory, otlp).await.unwrap()
}

/// Asks in a trace, and returns what the server says to it.
async fn ask_in(client: &reqwest::Client, router: &Process, seed: u64, parent: &str) -> StatusCode {
    let url = format!("http://{}/v1/completions", router.address);
    let asked =
        client.post(url).header("traceparent", parent).json(&body(&format!("{seed} {PROMPT}"), seed, 4));
    asked.send().await.unwrap().status()
}

/// Bytes that a server has moved, by its own figures.
async fn moved(client: &reqwest::Client, server: &Process) -> u64 {
    let stats: Value =
        client.get(format!("http://{}/stats", server.address)).send().await.unwrap().json().await.unwrap();
    stats["kv_bytes"].as_u64().unwrap()
}

/// The only span of a service with this name.
fn only<'a>(spans: &'a [Span], service: &str, name: &str) -> &'a Span {
    let found: Vec<&Span> =
        spans.iter().filter(|span| span.service == service && span.text("name") == name).collect();
    assert_eq!(found.len(), 1, "{service} {name} among {spans:#?}");
    found[0]
}

/// Spans of a request: three of whole requests, two stages of the model on each side, the transfer as decode sees it,
/// and as the library does on both sides.
const SPANS: usize = 3 + 2 * 2 + 1 + 2;

fn check_tree(spans: &[Span]) {
    for (service, name, parent_service, parent) in [
        ("decode", "generate", "router", "request"),
        ("decode", "transfer", "decode", "generate"),
        ("decode", "kv_transfer", "decode", "transfer"),
        ("decode", "queue", "decode", "generate"),
        ("decode", "compute", "decode", "generate"),
        ("prefill", "prefill", "decode", "transfer"),
        ("prefill", "kv_transfer", "prefill", "prefill"),
        ("prefill", "queue", "prefill", "prefill"),
        ("prefill", "compute", "prefill", "prefill"),
    ] {
        let (child, parent) = (only(spans, service, name), only(spans, parent_service, parent));
        assert_eq!(child.text("parentSpanId"), parent.text("spanId"), "{service} {name}");
        assert_eq!(child.instance, format!("{service}-0"));
    }
    assert_eq!(spans.len(), SPANS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_trace_of_three_services_below_the_span_of_its_client() {
    let client = reqwest::Client::new();
    let collector = Collector::start(Semaphore::MAX_PERMITS).await;
    let router = start("router", "own", &collector.url).await;
    let directory = format!("http:{}", router.address);
    let prefill = start("prefill", &directory, &collector.url).await;
    let decode = start("decode", &directory, &collector.url).await;
    ask_soon(&client, router.address, &body("Once upon a time", 1, 4)).await;

    let before = [moved(&client, &prefill).await, moved(&client, &decode).await];
    assert_eq!(ask_in(&client, &router, 2, &format!("00-{TRACE}-{CALLER}-01")).await, StatusCode::OK);
    let spans = collector.spans(SPANS, |span| span.text("traceId") == TRACE).await;
    check_tree(&spans);
    let root = only(&spans, "router", "request");
    assert_eq!(root.text("parentSpanId"), CALLER);
    assert_eq!((root.attribute("outcome"), root.attribute("tokens")), ("answered".into(), "4".into()));
    // All spans have come, so the figures are those of the end.
    let after = [moved(&client, &prefill).await, moved(&client, &decode).await];
    let bytes = [after[0] - before[0], after[1] - before[1]];
    assert!(bytes[0] > 0 && bytes[0] == bytes[1]);
    for (service, name) in [
        ("decode", "kv_transfer"),
        ("decode", "transfer"),
        ("prefill", "kv_transfer"),
        ("prefill", "prefill"),
    ] {
        assert_eq!(
            only(&spans, service, name).attribute("bytes"),
            bytes[0].to_string().as_str(),
            "{service} {name}"
        );
    }
    for service in ["decode", "prefill"] {
        assert_eq!(only(&spans, service, "kv_transfer").attribute("outcome"), "Done");
    }

    // A parent that breaks the rules: a new trace, without one.
    assert_eq!(
        ask_in(&client, &router, 4, &format!("00-{}-{CALLER}-01", TRACE.to_uppercase())).await,
        StatusCode::OK
    );
    let roots = |span: &Span| span.service == "router" && span.text("parentSpanId").is_empty();
    let root = collector.spans(2, roots).await.pop().unwrap();
    let trace = root.text("traceId");
    assert!(trace.len() == 32 && !trace.eq_ignore_ascii_case(TRACE), "{trace}");
    check_tree(&collector.spans(SPANS, |span| span.text("traceId") == trace).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_a_request_that_fails_says_why() {
    let client = reqwest::Client::new();
    let collector = Collector::start(Semaphore::MAX_PERMITS).await;
    let router = start("router", "own", &collector.url).await;
    let decode = start("decode", &format!("http:{}", router.address), &collector.url).await;
    // Without a prefill, decode refuses; the router looks for another decode, and finds none.
    let short = body("Hi", 1, 2);
    ask_soon(&client, router.address, &short).await;
    assert_eq!(
        ask_in(&client, &router, 2, &format!("00-{TRACE}-{CALLER}-01")).await,
        StatusCode::SERVICE_UNAVAILABLE
    );
    let of_trace = |span: &Span| span.text("traceId") == TRACE && span.text("parentSpanId") == CALLER;
    let root = collector.spans(1, of_trace).await.pop().unwrap();
    assert_eq!((&root.json["status"]["code"], root.attribute("outcome")), (&2.into(), "unavailable".into()));
    assert!(root.json["status"]["message"].as_str().unwrap().contains("no prefill is there"), "{root:?}");
    drop(decode);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_or_refuses_costs_no_request() {
    let client = reqwest::Client::new();
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refuses = format!("http://{}", refusing.local_addr().unwrap());
    let refuse = Router::new().fallback(async || StatusCode::SERVICE_UNAVAILABLE);
    tokio::spawn(async move { axum::serve(refusing, refuse).await.unwrap() });
    for url in ["http://127.0.0.1:1", &refuses] {
        let single = start("single", "own", url).await;
        for seed in 0..20 {
            ask(&client, single.address, &body("Hi", seed, 2)).await.unwrap();
        }
    }
}

/// The spans that wait for a collector are bounded: those above the bound never come.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_slow_loses_spans_and_no_request() {
    const BOUND: usize = 64;
    const BATCH: usize = 16;
    const REQUESTS: u64 = 100;
    let client = reqwest::Client::new();
    let collector = Collector::start(0).await;
    let mut single = start_with("single", "own", &collector.url, |command| {
        command.env("OTEL_BSP_MAX_QUEUE_SIZE", BOUND.to_string());
        command.env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH.to_string());
    })
    .await;
    for seed in 0..REQUESTS {
        ask(&client, single.address, &body("Hi", seed, 2)).await.unwrap();
    }
    collector.open.add_permits(Semaphore::MAX_PERMITS / 2);
    let pid = single.child().id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let ended = single.child().wait();
    assert!(tokio::time::timeout(LONG, ended).await.expect("an end in time").unwrap().success());
    let came = collector.spans.lock().unwrap().len();
    // A batch may be on its way, and a second one gathered, when the bound is reached.
    assert!((1..=BOUND + 2 * BATCH).contains(&came), "{came} of {} spans came", 3 * REQUESTS);
}
