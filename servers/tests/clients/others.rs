//! Clients of others: curl, and OpenAI's for Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::body;
use crate::support::pair::Pair;

/// The client of OpenAI, of PyPI.
const OPENAI: &str = "openai==3.57.0";

/// Runs a command to its end, and returns its output.
async fn run(mut command: Command) -> Result<String, String> {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.map_err(|error| error.to_string())?;
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.success() { Ok(said) } else { Err(format!("{said}{complained}")) }
}

/// Runs a program with these arguments to its end, and returns its output.
async fn run_program(program: impl AsRef<Path>, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program.as_ref());
    command.args(arguments);
    run(command).await
}

/// Says why a test is left out. In CI nothing may be missing.
fn left_out(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
    println!("left out: {reason}");
}

/// Python with the client, in a folder of the build that is made once.
async fn python() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(OPENAI);
    let python = folder.join("bin/python");
    if run_program(&python, &["-c", "import openai"]).await.is_err() {
        run_program("python3", &["-m", "venv", "--clear", &folder.display().to_string()]).await?;
        run_program(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENAI])
            .await?;
    }
    Ok(python)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_openai_gets_answers_and_refusals_that_it_understands() {
    let python = match python().await {
        Ok(python) => python,
        Err(reason) => return left_out(&format!("no {OPENAI}: {reason}")),
    };
    let pair = Pair::start(|_, _| {}).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/openai_client.py");
    let [router, decode, prefill] =
        [pair.router, pair.decode, pair.prefill].map(|address| address.to_string());
    let said = run_program(python, &[script, &router, &decode, &prefill]).await;
    let said = said.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(said.lines().count(), 6, "{said}");
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_gets_whole_and_streamed_answers_and_a_reason() {
    if let Err(reason) = run_program("curl", &["--version"]).await {
        return left_out(&format!("no curl: {reason}"));
    }
    let pair = Pair::start(|_, _| {}).await;
    let url = format!("http://{}/v1/completions", pair.router);
    let json = ["-H", "content-type: application/json"];
    let curl = async |more: &[&str], body: &Value| {
        let body = body.to_string();
        let arguments = [&["--silent", "--show-error"], more, &["-d", &body, &url]].concat();
        run_program("curl", &arguments).await.unwrap()
    };
    let mut asked = body("Once upon a time there was a client", 3, 8);
    let whole: Value = serde_json::from_str(&curl(&json, &asked).await).unwrap();
    asked["stream"] = true.into();
    let streamed = curl(&[&json[..], &["--no-buffer"]].concat(), &asked).await;
    let pieces =
        streamed.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|piece| *piece != "[DONE]");
    let tokens: Vec<Value> = pieces
        .map(|piece| serde_json::from_str::<Value>(piece).unwrap()["choices"][0]["token_ids"].clone())
        .flat_map(|tokens| tokens.as_array().unwrap().clone())
        .collect();
    assert_eq!(tokens.len(), 8);
    assert_eq!(Value::from(tokens), whole["choices"][0]["token_ids"]);
    // Without a header curl says that it sends a form.
    let refused: Value = serde_json::from_str(&curl(&[], &asked).await).unwrap();
    assert_eq!(refused["error"]["code"], "unsupported_media_type");
    pair.check().await;
}
