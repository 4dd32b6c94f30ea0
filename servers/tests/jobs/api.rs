//! Answers of a server in one process, as clients get them over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use servers::api::{self, Backend};
use servers::directory::Role;
use servers::model::Config;
use servers::observe::Stats;
use servers::roles::Single;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serve() -> (Arc<Single>, SocketAddr) {
    let config =
        Config { num_hidden_layers: 2, hidden_size: 64, intermediate_size: 160, ..Config::default() };
    let single = Arc::new(Single::new(config, 160, 64, Stats::new(Role::Single, "single")).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = api::refusing(api::routes(Arc::clone(&single)));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (single, address)
}

/// Asks, and returns the status and the whole body.
async fn ask(address: SocketAddr, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nhost: servers\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn ask_json(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = ask(address, path, body.to_string().as_bytes()).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_same_whole_and_streamed() {
    let (_single, address) = serve().await;
    for (path, prompt) in [
        ("/v1/completions", json!({ "prompt": "Once upon a time" })),
        ("/v1/completions", json!({ "prompt": ["Once upon", "a time"] })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "Once" }] })),
    ] {
        let mut body = prompt.clone();
        let more = json!({ "max_tokens": 24, "seed": 3, "temperature": 0.8, "return_token_ids": true, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, whole) = ask_json(address, path, &body).await;
        assert_eq!(status, 200, "{whole}");
        let count = whole["choices"].as_array().unwrap().len();
        assert_eq!(whole["usage"]["completion_tokens"], 24 * count);
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        let (_, streamed) = ask(address, path, body.to_string().as_bytes()).await;
        let pieces: Vec<&str> = streamed.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(pieces.last(), Some(&"[DONE]"));
        let pieces: Vec<Value> =
            pieces[..pieces.len() - 1].iter().map(|piece| serde_json::from_str(piece).unwrap()).collect();
        assert_eq!(pieces.last().unwrap()["usage"], whole["usage"]);
        for index in 0..count {
            let of_choice = pieces.iter().flat_map(|piece| piece["choices"].as_array().unwrap());
            let of_choice: Vec<&Value> = of_choice.filter(|choice| choice["index"] == index).collect();
            let said = |choice: &Value| match path {
                "/v1/completions" => choice["text"].as_str().unwrap_or_default().to_owned(),
                _ => choice["delta"]["content"].as_str().unwrap_or_default().to_owned(),
            };
            let text: String = of_choice.iter().map(|choice| said(choice)).collect();
            let expected = &whole["choices"][index];
            let whole_text = if count == 1 && path != "/v1/completions" {
                &expected["message"]["content"]
            } else {
                &expected["text"]
            };
            assert_eq!(text, whole_text.as_str().unwrap());
            let tokens: Vec<&Value> =
                of_choice.iter().flat_map(|choice| choice["token_ids"].as_array().unwrap()).collect();
            assert_eq!(tokens, expected["token_ids"].as_array().unwrap().iter().collect::<Vec<_>>());
            assert_eq!(of_choice.last().unwrap()["finish_reason"], "length");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_answered_are_refused_in_the_shape_of_openai() {
    let (_single, address) = serve().await;
    for (path, body, status, words) in [
        ("/v1/completions", &b"\xff\xfe"[..], 400, "no UTF-8"),
        ("/v1/completions", b"{", 400, "no JSON"),
        ("/v1/completions", b"{}", 400, "a prompt is missing"),
        ("/v1/completions", b"{\"prompt\": [[]]}", 400, "without a token"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"max_tokens\": 9999}", 400, "shorten the prompt"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"model\": \"gpt-4\"}", 404, "there is no model gpt-4"),
        ("/v1/embeddings", b"{}", 404, "no such path"),
    ] {
        let (got, body) = ask(address, path, body).await;
        assert_eq!(got, status, "{body}");
        let error: Value = serde_json::from_str(&body).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_leaves_no_block_behind() {
    let (single, address) = serve().await;
    let idle = || single.stats().cache().unwrap().blocks.idle;
    let all = idle();
    for streams in [false, true, true] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let body =
            json!({ "prompt": "a", "max_tokens": 2000, "stream": streams, "ignore_eos": true }).to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: servers\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(stream);
    }
    let gone = async {
        while idle() < all {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("blocks are free again");
}
