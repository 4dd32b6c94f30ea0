//! The demo ends well. A browser finds all figures in its page, without a network and without an error, and Prometheus
//! has the figures that the demo prints.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::LONG;
use support::prometheus::{Prometheus, has, promtool_has_nothing_to_say_of};

/// The browser.
const BROWSER: &str = "chromium";

/// The part of a page behind a beginning, up to an end.
fn part<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in the page"));
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

/// The page as a browser has it when its script has run, and what the script said.
fn opened(path: &Path) -> Option<(String, Vec<String>)> {
    let mut command = Command::new(BROWSER);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]);
    command.args(["--enable-logging=stderr", "--dump-dom"]).arg(format!("file://{}", path.display()));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("skipped: {BROWSER}: {error}");
            return None;
        }
        Err(error) => panic!("{BROWSER}: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let said = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

/// Has promtool read the pages of all servers of a demo, once a file names them.
async fn pages_are_checked(targets: &Path) {
    let named = async {
        loop {
            match std::fs::read(targets) {
                Ok(named) => return serde_json::from_slice::<Value>(&named).unwrap(),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let named = tokio::time::timeout(LONG, named).await.expect("a file of servers");
    let servers = named[0]["targets"].as_array().unwrap();
    assert_eq!(servers.len(), 6);
    // All before promtool takes its time, because some of them are killed soon.
    let mut pages = Vec::new();
    for server in servers {
        let page = reqwest::get(format!("http://{}/metrics", server.as_str().unwrap())).await.unwrap();
        pages.push(page.text().await.unwrap());
    }
    pages.iter().for_each(|page| promtool_has_nothing_to_say_of(page));
}

/// Fails unless Prometheus has read the servers under load, and has at the end all figures that the demo has printed.
async fn prometheus_has_the_figures_of(said: &str, prometheus: &Prometheus) {
    let changes = prometheus.by_server("changes(mini_server_tokens_total[1h])").await;
    assert!(changes.get("router").is_some_and(|changes| *changes > 0.0), "{changes:?}");
    let mut lines = said.lines().skip_while(|line| !line.ends_with("lost  server"));
    let names: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let lives: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    for server in ["prefill-0,", "decode-0,", "router,"] {
        assert!(lives.iter().any(|life| life.get(8) == Some(&server)), "{server} up to its kill: {said}");
    }
    // The last life of each server: what one has counted just before its kill, nobody has read.
    let lives: Vec<_> = lives.iter().filter(|life| life.len() == names.len()).collect();
    assert_eq!(lives.len(), 6, "{said}");
    for (column, name) in names[..8].iter().enumerate() {
        let metric = match *name {
            "bytes" => "mini_server_kv_bytes_total".to_owned(),
            "free" | "kept" => format!("mini_server_blocks_{name}"),
            "lost" => "mini_server_lost_total".to_owned(),
            outcome => format!("mini_server_requests_total{{outcome=\"{outcome}\"}}"),
        };
        let found = prometheus.by_server(&format!("last_over_time({metric}[1h])")).await;
        for life in &lives {
            let printed: f64 = life[column].parse().unwrap();
            assert_eq!(found.get(life[8]), Some(&printed), "{name} of {}: {said}", life[8]);
        }
    }
    for some in ["bytes", "free", "kept", "answered", "aborted"] {
        let column = names.iter().position(|name| *name == some).unwrap();
        assert!(lives.iter().any(|life| life[column] != "0"), "{some}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_and_prometheus_find_each_figure_of_a_demo() {
    let [path, targets] = ["html", "json"].map(|kind| {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}.{kind}", std::process::id()))
    });
    let prometheus = has("prometheus").then(|| {
        let found = format!("{{ files: ['{}'], refresh_interval: 1s }}", targets.display());
        Prometheus::start(&format!("file_sd_configs: [{found}]"))
    });
    let mut demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_mini_server"));
    demo.args(["demo", "--seconds", "10", "--rate", "4", "--linger", "4"]).kill_on_drop(true);
    demo.arg("--page").arg(&path).arg("--targets").arg(&targets);
    let (output, ()) = tokio::join!(demo.output(), pages_are_checked(&targets));
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all equal"), "{said}");
    assert!(!targets.exists(), "servers that have ended are named");
    if let Some(prometheus) = prometheus {
        prometheus_has_the_figures_of(&said, &prometheus).await;
    }
    a_browser_finds_each_figure_in(&path);
    std::fs::remove_file(&path).unwrap();
}

fn a_browser_finds_each_figure_in(path: &Path) {
    let page = std::fs::read_to_string(path).unwrap();
    for of_the_network in ["src=", "href=", "@import"] {
        assert!(!page.contains(of_the_network), "{of_the_network}");
    }
    let Some((page, errors)) = opened(path) else { return };
    assert_eq!(errors, Vec::<String>::new());
    for (figure, lines) in [("first", 4), ("between", 4), ("bytes", 4)] {
        let figure = part(&page, &format!("<div id=\"{figure}\">"), "</div>");
        let points = figure.split("<polyline points=\"").skip(1).map(|line| part(line, "", "\""));
        let points: Vec<usize> = points.map(|line| line.split_whitespace().count()).collect();
        assert!(points.len() == lines && points.iter().all(|points| *points > 1), "{points:?}");
        for name in ["prefill-0", "decode-0", "router"] {
            assert!(figure.contains(&format!("{name} is killed")), "{figure}");
            assert!(figure.contains(&format!("{name} is connected again")), "{figure}");
        }
    }
    assert!(part(&page, "<div id=\"failed\">", "</div>").contains("</td>"));
    assert!(part(&page, "<p id=\"summary\">", "</p>").contains("all are equal"));
}

#[test]
fn the_device_of_a_demo_is_that_of_its_servers() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_mini_server"));
    let output = demo.args(["demo", "--seconds", "2", "--device", "no_such_device"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no_such_device"), "{said}");
}
