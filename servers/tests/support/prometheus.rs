//! A Prometheus of a test, and its promtool.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Whether a program of Debian's `prometheus` is here. In CI it must be.
pub fn has(program: &str) -> bool {
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

/// Fails unless a page of metrics is as promtool wants it, if there is a promtool.
pub fn promtool_has_nothing_to_say_of(page: &str) {
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

/// A Prometheus that reads servers, and ends with this.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
    client: reqwest::Client,
}

impl Prometheus {
    /// Starts one, with the part of its configuration that names the servers.
    pub fn start(servers: &str) -> Self {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- job_name: servers\n  \
             {servers}\n"
        );
        std::fs::write(&config, text).unwrap();
        // Prometheus takes a port by its number alone.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        // Servers that it has found are read at once, not 5 s later.
        command.arg("--scrape.discovery-reload-interval=100ms");
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        Self { child, address, folder, client: reqwest::Client::new() }
    }

    /// The value of a query; `None` as long as there is none.
    pub async fn query(&self, query: &str) -> Option<f64> {
        value(self.results(query).await.first()?)
    }

    /// The values of a query, by the label `server`.
    pub async fn by_server(&self, query: &str) -> BTreeMap<String, f64> {
        let results = self.results(query).await;
        let named = |result: &Value| Some((result["metric"]["server"].as_str()?.to_owned(), value(result)?));
        results.iter().filter_map(named).collect()
    }

    async fn results(&self, query: &str) -> Vec<Value> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let asked = self.client.get(format!("http://{}/api/v1/query?query={query}", self.address)).send();
        let answer = async { asked.await.ok()?.json::<Value>().await.ok() }.await.unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

fn value(result: &Value) -> Option<f64> {
    result["value"][1].as_str()?.parse().ok()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
