//! Figures of servers, as `/stats` and Prometheus have them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use servers::directory::Role;
use servers::observe::names::NAMES;
use servers::serve::Server;

use crate::support::prometheus::{Prometheus, has, promtool_has_nothing_to_say_of};
use crate::support::{LONG, ask, ask_soon, body, options, spawn, start};

/// Queries of Prometheus, and the places of the same figures in `/stats`, summed over all servers.
const SAME: [(&str, &str); 14] = [
    (r#"sum(mini_server_requests_total{outcome="answered"})"#, "/requests/answered"),
    (r#"sum(mini_server_requests_total{outcome="refused"})"#, "/requests/refused"),
    (r#"sum(mini_server_requests_total{outcome="unavailable"})"#, "/requests/unavailable"),
    (r#"sum(mini_server_requests_total{outcome="failed"})"#, "/requests/failed"),
    ("sum(mini_server_tokens_total)", "/tokens"),
    ("sum(mini_server_kv_bytes_total)", "/kv_bytes"),
    ("sum(mini_server_blocks_free)", "/blocks/free"),
    ("sum(mini_server_blocks_kept)", "/blocks/kept"),
    ("sum(mini_server_running)", "/running"),
    ("sum(mini_server_lost_total)", "/lost"),
    ("sum(mini_server_resumed_total)", "/resumed"),
    // Figures of the library beside those of the servers.
    ("sum(rdma_kv_bytes_total)", "/kv_bytes"),
    (r#"sum(rdma_kv_transfers_total{outcome="failed"}) or vector(0)"#, "/lost"),
    ("sum(rdma_kv_leases) or vector(0)", "/running"),
];

async fn get(client: &reqwest::Client, address: SocketAddr, path: &str) -> (u16, String) {
    let answer = client.get(format!("http://{address}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn stats(client: &reqwest::Client, address: SocketAddr) -> Value {
    serde_json::from_str(&get(client, address, "/stats").await.1).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_has_the_figures_that_the_servers_have() {
    if !has("prometheus") {
        return;
    }
    let client = reqwest::Client::new();
    let router = spawn("router", "router", "own").await;
    let at = router.address;
    let directory = format!("http:{at}");
    let mut servers = vec![router];
    for (role, number) in [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)] {
        servers.push(spawn(role, &format!("{role}-{number}"), &directory).await);
    }
    let targets: Vec<String> = servers.iter().map(|server| format!("'{}'", server.address)).collect();
    let prometheus = Prometheus::start(&format!("static_configs: [{{ targets: [{}] }}]", targets.join(", ")));
    let prompt = "A prompt that is longer than one block of the cache, so that a prefill computes it.";
    ask_soon(&client, at, &body(prompt, 1, 4)).await;
    for seed in 0..10 {
        ask(&client, at, &body(&format!("{seed} {prompt}"), seed, 6)).await.unwrap();
        ask(&client, at, &body("", seed, 0)).await.unwrap_err();
    }
    let began = Instant::now();
    for (query, place) in SAME {
        loop {
            let mut expected = 0.0;
            for server in &servers {
                expected += stats(&client, server.address).await.pointer(place).unwrap().as_f64().unwrap();
            }
            let found = prometheus.query(query).await;
            if found == Some(expected) {
                break;
            }
            assert!(began.elapsed() < LONG, "{query}: {found:?} at Prometheus, {expected} at the servers");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let router = stats(&client, at).await;
    assert_eq!((&router["tokens"], &router["requests"]["refused"]), (&(4 + 10 * 6).into(), &10.into()));
    let moved = prometheus.query(r#"sum(mini_server_kv_bytes_total{role="decode"})"#).await;
    assert!(moved.unwrap() > 0.0);
    let first = prometheus.query(r#"mini_server_time_to_first_token_seconds_count{role="router"}"#).await;
    assert_eq!(first, Some(11.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_has_nothing_to_say_of_the_page_which_has_each_name_with_its_help() {
    let client = reqwest::Client::new();
    let single = start(Role::Single, "single", "own").await;
    ask(&client, single, &body("Once", 1, 4)).await.unwrap();
    let (status, page) = get(&client, single, "/metrics").await;
    assert_eq!(status, 200);
    for (name, _, help) in NAMES {
        assert!(page.contains(&format!("# HELP {name} {help}\n")), "{name} in {page}");
        let line = |line: &str| line.starts_with(name) && line.contains(r#"role="single",server="single""#);
        assert!(page.lines().any(line), "{name} in {page}");
    }
    promtool_has_nothing_to_say_of(&page);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_labels_cannot_show_are_refused() {
    for name in ["a\"b\n", "a\nb", "a\"b", "a\\b", "a b", "ä", ""] {
        let refused = Server::new(Role::Router, &options(name, "own")).await;
        assert!(refused.is_err(), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_can_have_an_address_of_their_own() {
    let client = reqwest::Client::new();
    let mut options = options("router", "own");
    options.metrics = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::new(Role::Router, &options).await.unwrap();
    let [address, metrics] = [server.address, server.metrics];
    tokio::spawn(server.run());
    for path in ["/metrics", "/stats"] {
        assert_eq!(get(&client, address, path).await.0, 404, "{path}");
    }
    assert_eq!(get(&client, metrics, "/v1/models").await.0, 404);
    assert!(get(&client, metrics, "/metrics").await.1.contains("mini_server_requests_total"));
}

/// A reader that never pauses takes no more than the time of its connection, because a page is made ten times a second.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_beside_a_reader_of_metrics_that_never_pauses() {
    let client = reqwest::Client::new();
    let server = spawn("single", "single", "own").await;
    let address = server.address;
    let requests = async || {
        let began = Instant::now();
        for seed in 0..50 {
            ask(&client, address, &body("Once upon a time", seed, 8)).await.unwrap();
        }
        began.elapsed()
    };
    requests().await;
    let alone = requests().await;
    let reader = client.clone();
    let reading = tokio::spawn(async move {
        let mut bytes = 0_usize;
        loop {
            bytes += get(&reader, address, "/metrics").await.1.len();
            if bytes > 1 << 40 {
                return bytes;
            }
        }
    });
    let beside = requests().await;
    reading.abort();
    eprintln!("50 requests: {alone:?} alone, {beside:?} beside the reader");
    assert!(beside < 10 * alone + Duration::from_secs(1), "{beside:?} beside the reader, {alone:?} alone");
}
