//! Clients of others: curl, and OpenAI's for Python.

mod support;

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use servers::directory::Role;
use support::{LONG, body, start};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

async fn run(mut command: Command) -> String {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn single() -> SocketAddr {
    start(Role::Single, "single", "own").await
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_gets_whole_and_streamed_answers() {
    let address = single().await;
    let curl = |path: &str, body: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "-H", "content-type: application/json"]);
        curl.args(["-d", body, &format!("http://{address}{path}")]);
        curl
    };
    let whole: Value =
        serde_json::from_str(&run(curl("/v1/completions", &body("Once", 3, 8).to_string())).await).unwrap();
    let mut streamed = body("Once", 3, 8);
    streamed["stream"] = true.into();
    let streamed = run(curl("/v1/completions", &streamed.to_string())).await;
    let pieces = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
    let tokens: Vec<Value> = pieces
        .filter(|piece| *piece != "[DONE]")
        .map(|piece| serde_json::from_str::<Value>(piece).unwrap()["choices"][0]["token_ids"].clone())
        .flat_map(|tokens| tokens.as_array().unwrap().clone())
        .collect();
    assert_eq!(Value::from(tokens), whole["choices"][0]["token_ids"]);
}

/// A client that never reads costs its connection, and nobody else anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_delays_no_other() {
    let address = single().await;
    let mut body_of_silent = body("Once", 2, 1500);
    body_of_silent["stream"] = true.into();
    let body_of_silent = body_of_silent.to_string();
    let mut silent = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
            body_of_silent.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body_of_silent.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let client = reqwest::Client::new();
    let body = body("another one", 5, 8);
    let asked = support::ask(&client, address, &body);
    assert_eq!(tokio::time::timeout(LONG, asked).await.unwrap().unwrap().len(), 8);
}
