//! Clients that are slow, silent, gone or too many.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use servers::directory::Role;
use servers::serve::Options;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::support::pair::Pair;
use crate::support::{LONG, ask, body};

/// The time of clients, so short that a test sees its end.
fn hurried(_: Role, options: &mut Options) {
    options.client_within = Duration::from_secs(2);
}

/// A connection whose buffer for answers is as small as can be.
async fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpStream::from_std(socket.into()).unwrap()
}

/// A connection that has sent a request.
async fn send(address: SocketAddr, body: &Value) -> TcpStream {
    let mut stream = connect(address).await;
    let body = body.to_string();
    let head =
        format!("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// All that comes before the end of a connection, which may end by an error.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    _ = timeout(LONG, stream.read_to_end(&mut said)).await.expect("the connection ends");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_never_end() {
    let pair = Pair::start(hurried).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\n";
    let body = "content-length: 100\r\n\r\n{\"prompt\": \"";
    let chunks = "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n";
    for (begin, drip, status) in [
        (String::new(), "", None),
        (head.to_owned(), "a: b\r\n", None),
        (format!("{head}{body}"), "a", Some("408")),
        (format!("{head}{chunks}"), "1\r\n \r\n", Some("408")),
    ] {
        let mut stream = connect(pair.router).await;
        stream.write_all(begin.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let dripping = async {
            // So slowly that the request would take minutes.
            while writer.write_all(drip.as_bytes()).await.is_ok() {
                sleep(Duration::from_millis(200)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut said = Vec::new();
        let ended = async {
            tokio::select! {
                ended = reader.read_to_end(&mut said) => drop(ended),
                () = dripping => {}
            }
        };
        timeout(LONG, ended).await.expect("the connection ends");
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.split(' ').nth(1), status, "{said}");
        assert!(status.is_none() || said.contains("request_timeout"), "{said}");
    }
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_slowly_or_never() {
    let pair = Pair::start(|role, options| {
        hurried(role, options);
        options.blocks = 2048;
    })
    .await;
    let before = pair.health(pair.decode).await.cache.unwrap().computed;
    // Much more than the system takes for a client that does not read.
    let asked = json!({ "prompt": vec!["Once"; 24], "max_tokens": 500, "stream": true, "ignore_eos": true });
    let mut never = send(pair.router, &asked).await;
    let mut slow = send(pair.router, &asked).await;
    let reading = async {
        let mut byte = [0];
        while matches!(slow.read(&mut byte).await, Ok(1)) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let idle = async {
        loop {
            let cache = pair.health(pair.decode).await.cache.unwrap();
            if cache.blocks.texts == 0 && cache.computed > before {
                return cache.computed - before;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let computed = timeout(LONG, async {
        tokio::select! {
            computed = idle => computed,
            () = reading => panic!("a byte at a time is no way to the end of an answer"),
        }
    });
    let computed = computed.await.expect("the requests end");
    assert!(computed < 2 * 24 * 500, "{computed} tokens: the answers were computed to their end");
    for stream in [&mut never, &mut slow] {
        assert!(!read_to_end(stream).await.contains("[DONE]"));
    }
    pair.check().await;
}

/// A client that never reads costs its connection, and nobody else anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_delays_no_other() {
    let pair = Pair::start(|_, _| {}).await;
    let mut asked = body("Once", 2, 1500);
    asked["stream"] = true.into();
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(send(pair.router, &asked).await);
    }
    let other = body("another one", 5, 8);
    let tokens = timeout(LONG, ask(&pair.client, pair.router, &other)).await.unwrap().unwrap();
    assert_eq!(tokens.len(), 8);
    drop(silent);
    pair.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_before_the_first_token_ends_the_prefill_of_its_prompt() {
    let pair = Pair::start(|_, _| {}).await;
    for (number, streams) in [(1, true), (2, false)] {
        let before = pair.health(pair.prefill).await.cache.unwrap().computed;
        let prompt = format!("{number}{}", "a".repeat(2000));
        let asked = json!({ "prompt": prompt, "max_tokens": 16, "stream": streams, "ignore_eos": true });
        let stream = send(pair.router, &asked).await;
        let computed = async || pair.health(pair.prefill).await.cache.unwrap().computed - before;
        let begun = async {
            while computed().await == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LONG, begun).await.expect("the prefill computes");
        drop(stream);
        pair.check().await;
        let computed = computed().await;
        assert!(computed < 2000, "{computed} tokens: the prompt was computed to its end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_in_the_stream_ends_its_answer() {
    let pair = Pair::start(|_, _| {}).await;
    let before = pair.health(pair.decode).await.cache.unwrap().computed;
    let asked = json!({ "prompt": "Once upon a time there was", "max_tokens": 2000, "stream": true, "ignore_eos": true });
    let mut stream = send(pair.router, &asked).await;
    let mut said = [0; 300];
    stream.read_exact(&mut said).await.unwrap();
    drop(stream);
    pair.check().await;
    let computed = pair.health(pair.decode).await.cache.unwrap().computed - before;
    assert!(computed < 2000, "{computed} tokens: the answer was computed to its end");
}

/// Has 200 clients ask at once, each with a prompt of its own, and returns how many were refused.
async fn crowd(pair: &Pair) -> usize {
    let requests: Vec<_> = (0..200)
        .map(|number| {
            let asked = body(&format!("{number} clients before this one in the queue"), 3, 32);
            let asked = pair.client.post(format!("http://{}/v1/completions", pair.router)).json(&asked);
            tokio::spawn(timeout(LONG, async move {
                let answer = asked.send().await.unwrap();
                let (status, again) =
                    (answer.status().as_u16(), answer.headers().get("retry-after").cloned());
                (status, again, answer.json::<Value>().await.unwrap())
            }))
        })
        .collect();
    let mut refused = 0;
    for request in requests {
        let (status, again, answer) = request.await.unwrap().expect("an answer or a refusal in time");
        if status == 200 {
            assert_eq!(answer["usage"]["completion_tokens"], 32);
            continue;
        }
        refused += 1;
        let found = (status, again.as_ref().and_then(|again| again.to_str().ok()), &answer["error"]["type"]);
        assert_eq!(found, (429, Some("1"), &json!("rate_limit_error")), "{answer}");
    }
    pair.check().await;
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_queue_of_a_decode_are_told_to_come_again() {
    let pair = Pair::start(|role, options| {
        if role == Role::Decode {
            options.requests = 8;
        }
    });
    let refused = crowd(&pair.await).await;
    assert!((1..=192).contains(&refused), "{refused} were refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_queue_of_a_prefill_are_told_to_come_again() {
    let pair = Pair::start(|role, options| {
        if role == Role::Prefill {
            options.requests = 2;
        }
    });
    let refused = crowd(&pair.await).await;
    assert!((1..=198).contains(&refused), "{refused} were refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http() {
    let pair = Pair::start(hurried).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let length = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n{}";
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\xff\xff"[..],
        &[0; 5000],
        b"\r\n",
        long.as_bytes(),
        many.as_bytes(),
        length.as_bytes(),
    ] {
        let mut stream = connect(pair.router).await;
        // The server may have ended the connection before it has all.
        _ = stream.write_all(bytes).await;
        let said = read_to_end(&mut stream).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    pair.check().await;
}
