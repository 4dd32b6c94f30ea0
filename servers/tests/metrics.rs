//! Figures of servers, as `/stats` and Prometheus have them.

mod support;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use servers::directory::Role;
use servers::observe::names::NAMES;
use servers::serve::Server;
use support::process::Process;
use support::{LONG, ask, ask_soon, body, options, start};

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

/// Whether a program of Debian's `prometheus` is here. In CI it must be.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(
        found || std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{program} is missing; install prometheus"
    );
    if !found {
        eprintln!("left out, because {program} is not installed");
    }
    found
}

async fn get(client: &reqwest::Client, address: SocketAddr, path: &str) -> (u16, String) {
    let answer = client.get(format!("http://{address}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn stats(client: &reqwest::Client, address: SocketAddr) -> Value {
    serde_json::from_str(&get(client, address, "/stats").await.1).unwrap()
}

/// A Prometheus that reads servers, and ends with this.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Prometheus {
    fn start(servers: &[Process]) -> Self {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let targets: Vec<String> = servers.iter().map(|server| format!("'{}'", server.address)).collect();
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\nscrape_configs:\n- job_name: servers\n  \
             static_configs: [{{ targets: [{}] }}]\n",
            targets.join(", ")
        );
        std::fs::write(&config, text).unwrap();
        // Prometheus takes a port by its number alone.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        Self { child, address, folder }
    }

    /// The value of a query; `None` as long as there is none.
    async fn query(&self, client: &reqwest::Client, query: &str) -> Option<f64> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let asked = client.get(format!("http://{}/api/v1/query?query={query}", self.address)).send();
        let answer: Value = asked.await.ok()?.json().await.ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_has_the_figures_that_the_servers_have() {
    if !has("prometheus") {
        return;
    }
    let client = reqwest::Client::new();
    let router = Process::start("router", "router", "own");
    let at = router.address;
    let directory = format!("http:{at}");
    let mut servers = vec![router];
    for (role, number) in [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)] {
        servers.push(Process::start(role, &format!("{role}-{number}"), &directory));
    }
    let prometheus = Prometheus::start(&servers);
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
            let found = prometheus.query(&client, query).await;
            if found == Some(expected) {
                break;
            }
            assert!(began.elapsed() < LONG, "{query}: {found:?} at Prometheus, {expected} at the servers");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let router = stats(&client, at).await;
    assert_eq!((&router["tokens"], &router["requests"]["refused"]), (&(4 + 10 * 6).into(), &10.into()));
    let moved = prometheus.query(&client, r#"sum(mini_server_kv_bytes_total{role="decode"})"#).await;
    assert!(moved.unwrap() > 0.0);
    let first =
        prometheus.query(&client, r#"mini_server_time_to_first_token_seconds_count{role="router"}"#).await;
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
    if !has("promtool") {
        return;
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
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
    let server = Process::start("single", "single", "own");
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
