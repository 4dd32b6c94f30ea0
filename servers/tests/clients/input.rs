//! Requests that are wrong: each is refused in OpenAI's shape, and the next good one is answered.

use std::net::SocketAddr;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::body;
use crate::support::pair::Pair;

const TEXT: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Asks, and returns the status and the answer.
async fn ask(pair: &Pair, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let asked =
        pair.client.post(format!("http://{}{path}", pair.router)).header("content-type", "application/json");
    let answer = asked.body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Fails unless the request is refused with this status, field and code.
async fn refused(
    pair: &Pair,
    path: &str,
    body: impl Into<reqwest::Body>,
    status: u16,
    param: Value,
    code: &str,
) {
    let (got, answer) = ask(pair, path, body).await;
    let error = &answer["error"];
    assert_eq!((got, &error["param"], &error["code"]), (status, &param, &json!(code)), "{answer}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
    assert_eq!(error["type"], "invalid_request_error", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_no_token_one_token_and_too_many() {
    let pair = Pair::start(|_, _| {}).await;
    for prompt in [json!([]), json!([[]]), json!([[1], []])] {
        refused(&pair, TEXT, json!({ "prompt": prompt }).to_string(), 400, json!("prompt"), "invalid_value")
            .await;
    }
    let messages = json!({ "messages": [] }).to_string();
    refused(&pair, CHAT, messages, 400, json!("messages"), "missing_required_parameter").await;
    // The text of no characters is the token of its begin.
    for prompt in [json!([97]), json!(""), json!("a")] {
        let (status, answer) =
            ask(&pair, TEXT, json!({ "prompt": prompt, "max_tokens": 2 }).to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }
    let code = "context_length_exceeded";
    for (prompt, param) in [(json!(vec![97; 2048]), "prompt"), (json!(vec![97; 2040]), "max_tokens")] {
        refused(&pair, TEXT, json!({ "prompt": prompt }).to_string(), 400, json!(param), code).await;
    }
    let messages = json!({ "messages": [{ "role": "user", "content": "a".repeat(3000) }] });
    refused(&pair, CHAT, messages.to_string(), 400, json!("messages"), code).await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_are_longer_than_the_pool() {
    let pair = Pair::start(|_, options| options.blocks = 8).await;
    let body = json!({ "prompt": "a".repeat(130) }).to_string();
    refused(&pair, TEXT, body, 400, json!("max_tokens"), "context_length_exceeded").await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_no_utf8() {
    let pair = Pair::start(|_, _| {}).await;
    for body in [&b"\xff\xfe"[..], b"{\"prompt\": \"\xc3\"}", b"{\"prompt\": \"\xed\xa0\x80\"}"] {
        refused(&pair, TEXT, body.to_vec(), 400, Value::Null, "invalid_json").await;
    }
    refused(&pair, TEXT, r#"{"prompt": "\ud800"}"#, 400, Value::Null, "invalid_json").await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_is_none_or_nested_without_end() {
    let pair = Pair::start(|_, _| {}).await;
    let deep = [("[", "]"), ("{\"a\":", "}")]
        .map(|(open, close)| open.repeat(100_000) + "1" + &close.repeat(100_000));
    let hidden = format!("{{\"prompt\": \"a\", \"more\": {}}}", deep[0]);
    let messages = format!("{{\"messages\": {}}}", deep[0]);
    for body in ["", "{", "]", "{\"prompt\": \"a\"} more", "\0", &deep[0], &deep[1], &hidden, &messages] {
        for path in [TEXT, CHAT] {
            refused(&pair, path, body.to_owned(), 400, Value::Null, "invalid_json").await;
        }
    }
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_another_type() {
    let pair = Pair::start(|_, _| {}).await;
    for body in ["[]", "1", "null", "\"a\""] {
        refused(&pair, TEXT, body, 400, Value::Null, "invalid_json").await;
    }
    for (field, value) in [
        ("prompt", json!({ "a": 1 })),
        ("max_tokens", json!("many")),
        ("temperature", json!([0.5])),
        ("stream", json!(1)),
        ("stop", json!(1)),
    ] {
        let mut body = json!({ "prompt": "a" });
        body[field] = value;
        refused(&pair, TEXT, body.to_string(), 400, json!(field), "invalid_value").await;
    }
    let body = json!({ "messages": "a" }).to_string();
    refused(&pair, CHAT, body, 400, json!("messages"), "invalid_value").await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_100_mb() {
    let pair = Pair::start(|_, _| {}).await;
    let body = format!("{{\"prompt\": \"{}\"}}", "a".repeat(100_000_000));
    refused(&pair, TEXT, body, 413, Value::Null, "request_too_large").await;
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_accepted() {
    let pair = Pair::start(|_, _| {}).await;
    let mut asked = body("Once", 3, 4);
    let (_, expected) = ask(&pair, TEXT, asked.to_string()).await;
    asked["a field of tomorrow"] = json!({ "deep": [1, { "a": null }] });
    let (status, answer) = ask(&pair, TEXT, asked.to_string()).await;
    assert_eq!((status, &answer["choices"]), (200, &expected["choices"]), "{answer}");
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_methods_paths_and_content_types() {
    let pair = Pair::start(|_, _| {}).await;
    let error = async |server: SocketAddr, method: Method, path: &str, kind: &str| {
        let asked =
            pair.client.request(method, format!("http://{server}{path}")).header("content-type", kind);
        let answer = asked.body(body("a", 3, 4).to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        let error: Value = answer.json().await.unwrap();
        assert_eq!(error["error"]["type"], "invalid_request_error", "{error}");
        (status, error["error"]["code"].as_str().unwrap().to_owned())
    };
    for server in [pair.router, pair.decode, pair.prefill] {
        for path in ["/", "/v1", "/v1/completions/", "/v1/embeddings", "/%ff"] {
            let found = error(server, Method::POST, path, "application/json").await;
            assert_eq!(found, (404, "not_found".to_owned()), "{path}");
        }
        let found = error(server, Method::DELETE, "/health", "application/json").await;
        assert_eq!(found, (405, "method_not_allowed".to_owned()));
    }
    for name in ["gpt-4", "a/b", "%ff"] {
        let found = error(pair.router, Method::GET, &format!("/v1/models/{name}"), "application/json").await;
        assert_eq!(found, (404, "model_not_found".to_owned()));
    }
    for method in [Method::GET, Method::PUT, Method::from_bytes(b"GARBAGE").unwrap()] {
        let found = error(pair.router, method, TEXT, "application/json").await;
        assert_eq!(found, (405, "method_not_allowed".to_owned()));
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application", "json"] {
        let found = error(pair.router, Method::POST, TEXT, kind).await;
        assert_eq!(found, (415, "unsupported_media_type".to_owned()));
    }
    for kind in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"] {
        let asked = pair.client.post(format!("http://{}{TEXT}", pair.router)).header("content-type", kind);
        assert_eq!(asked.body(body("a", 3, 4).to_string()).send().await.unwrap().status().as_u16(), 200);
    }
    pair.check().await;
}

/// Servers of a job check each other, because a token that the model does not have would fail the texts of others too.
#[tokio::test(flavor = "multi_thread")]
async fn texts_of_other_servers_that_no_model_goes_on_with() {
    let pair = Pair::start(|_, _| {}).await;
    let model = pair.health(pair.decode).await.config;
    let sampling = json!({ "temperature": 0.0, "top_p": 1.0, "seed": 1 });
    for (text, tokens_max) in
        [(vec![], 4), (vec![258], 4), (vec![97; 2049], 4), (vec![97], 0), (vec![97], u64::MAX)]
    {
        let mut ask = json!({
            "id": "a", "decode": "decode-0", "model": model, "text": text, "sampling": sampling,
            "tokens_max": tokens_max, "ignores_end": true, "within": { "secs": 30, "nanos": 0 },
        });
        let refused = async |server: SocketAddr, path: &str, ask: &Value| {
            let answer = pair.client.post(format!("http://{server}{path}")).json(ask).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 400, "{path} {ask}");
        };
        refused(pair.decode, "/generate", &ask).await;
        if text.len() != 1 {
            ask["tokens_max"] = json!(1);
            refused(pair.prefill, "/prefill", &ask).await;
        }
    }
    pair.check().await;
}
