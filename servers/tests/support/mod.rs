//! Servers of a test, and a client of theirs.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod pair;
pub mod prometheus;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use servers::directory::Role;
use servers::process::{Process, Starter};
use servers::serve::{Options, Server};

/// The token of a test's job.
pub const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";
/// The time that anything may take.
pub const LONG: Duration = Duration::from_secs(60);

/// Options of a server in a job.
pub fn options(name: &str, directory: &str) -> Options {
    let local = "127.0.0.1:0".parse().unwrap();
    Options {
        name: Some(name.to_owned()),
        listen: local,
        address: None,
        kv_listen: local,
        token: TOKEN.parse().unwrap(),
        directory: directory.to_owned(),
        model: None,
        blocks: 512,
        requests: 256,
        client_within: Duration::from_secs(30),
        device: None,
        metrics: None,
        otlp: None,
    }
}

/// Starts servers in processes of their own, in the job of [`TOKEN`].
pub fn starter() -> Starter {
    let options = ["--token", TOKEN, "--blocks", "512"].map(Into::into).into();
    Starter { program: env!("CARGO_BIN_EXE_mini_server").into(), options }
}

/// Starts a server in a process of its own.
pub async fn spawn(role: &'static str, name: &str, directory: &str) -> Process {
    starter().start(role, name, directory).await.unwrap()
}

/// Starts a server in this process.
pub async fn start(role: Role, name: &str, directory: &str) -> SocketAddr {
    start_with(role, name, directory, &|_, _| {}).await
}

/// Starts a server in this process, with options that were changed.
pub async fn start_with(
    role: Role,
    name: &str,
    directory: &str,
    change: &impl Fn(Role, &mut Options),
) -> SocketAddr {
    let mut options = options(name, directory);
    change(role, &mut options);
    let server = Server::new(role, &options).await.unwrap();
    let address = server.address;
    tokio::spawn(server.run());
    address
}

/// The body of a request, whose answer is the same from every server.
pub fn body(prompt: &str, seed: u64, tokens: usize) -> Value {
    let temperature = if seed.is_multiple_of(2) { 0.0 } else { 0.8 };
    json!({
        "prompt": prompt, "seed": seed, "temperature": temperature, "max_tokens": tokens, "return_token_ids": true,
        "ignore_eos": true,
    })
}

/// Asks, and returns the tokens of the answer.
pub async fn ask(client: &reqwest::Client, address: SocketAddr, body: &Value) -> Result<Vec<u32>, String> {
    let url = format!("http://{address}/v1/completions");
    let answer = client.post(url).json(body).send().await.map_err(|error| error.to_string())?;
    let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
    let tokens = serde_json::from_value(answer["choices"][0]["token_ids"].clone());
    tokens.map_err(|_| answer.to_string())
}

/// Asks until an answer comes, because servers that have just started do not know each other yet.
pub async fn ask_soon(client: &reqwest::Client, address: SocketAddr, body: &Value) -> Vec<u32> {
    let asked = async {
        loop {
            match ask(client, address, body).await {
                Ok(tokens) => return tokens,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(LONG, asked).await.expect("an answer in time")
}
