//! Directories that answer as none does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use servers::directory::{Directory, Etcd, Http, LASTS, Role, Sealed, Table};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::LONG;
use super::{entry, token};

/// Something that answers every request with these bytes, so many times, with a pause behind each.
async fn answers(bytes: Vec<u8>, times: usize, pause: Duration) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&sent);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (bytes, count) = (bytes.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let mut request = [0; 4096];
                _ = stream.read(&mut request).await;
                for _ in 0..times {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                    count.fetch_add(bytes.len(), Ordering::Relaxed);
                    tokio::time::sleep(pause).await;
                }
                // An answer that breaks off ends its connection, and one that never comes does not.
                if times == 0 {
                    tokio::time::sleep(LONG).await;
                }
            });
        }
    });
    (address, sent)
}

/// Everything that is asked of a directory at an address fails, and in time.
async fn fails(what: &str, address: SocketAddr) {
    let sealed: Sealed = entry("a", Role::Decode).seal(&token(), LASTS).unwrap();
    let (http, etcd) =
        (Http::new(address.to_string()).unwrap(), Etcd::new(&address.to_string(), &token()).unwrap());
    let within =
        |asked| async move { tokio::time::timeout(LONG / 2, asked).await.expect("an error in time") };
    assert!(within(http.entries()).await.is_err(), "HTTP: {what}");
    assert!(within(etcd.entries()).await.is_err(), "etcd: {what}");
    let announced = tokio::time::timeout(LONG / 2, etcd.announce(&sealed)).await.expect("an error in time");
    assert!(announced.is_err(), "etcd takes an entry: {what}");
}

async fn fails_with(what: &str, answer: &[u8]) {
    fails(what, answers(answer.to_vec(), 1, Duration::ZERO).await.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_away_is_an_error_in_time() {
    fails("away", TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_never_answers_is_an_error_in_time() {
    fails("silent", answers(Vec::new(), 0, Duration::ZERO).await.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_trickles_is_an_error_in_time() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n[";
    fails("its head trickles", answers(b"H".to_vec(), 1000, Duration::from_millis(100)).await.0).await;
    let mut body = head.to_vec();
    body.extend_from_slice(b" ");
    fails("its body trickles", answers(body, 100, Duration::from_millis(300)).await.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_says_garbage_is_an_error() {
    fails_with("no HTTP", b"\xff\xff garbage").await;
    fails_with("an error", b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").await;
    fails_with("no JSON", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[[[").await;
    fails_with("other JSON", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    fails_with("a number", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").await;
    fails_with("an answer that breaks off", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n[").await;
    let mut nested = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
    nested.extend(std::iter::repeat_n(b'[', 100_000));
    fails_with("JSON that is nested", &nested).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_sends_us_elsewhere_is_an_error() {
    let (elsewhere, _) =
        answers(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]".to_vec(), 1, Duration::ZERO).await;
    assert!(Http::new(elsewhere.to_string()).unwrap().entries().await.unwrap().is_empty());
    let answer =
        format!("HTTP/1.1 307 There\r\nlocation: http://{elsewhere}/directory\r\ncontent-length: 0\r\n\r\n");
    fails_with("a redirection", answer.as_bytes()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_100_mb_of_garbage_no_more_is_read_than_a_directory_has_to_say() {
    const MB: usize = 1_000_000;
    let mut head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n".to_vec();
    head.resize(MB, b' ');
    let (address, sent) = answers(head, 100, Duration::ZERO).await;
    assert!(Http::new(address.to_string()).unwrap().entries().await.is_err());
    // The rest is in the buffers of two sockets.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 50 * MB, "{sent} bytes were taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_another_job_takes_nobodys_place_in_the_directory_of_a_server() {
    let table = Table::new(token());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = Http::new(listener.local_addr().unwrap().to_string()).unwrap();
    let routes = table.routes();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let sealed = entry("decode-0", Role::Decode).seal(&token(), LASTS * 4).unwrap();
    http.announce(&sealed).await.unwrap();
    let stranger = rdma_collective::bootstrap::JobToken::random().unwrap();
    let forged = entry("decode-0", Role::Decode).seal(&stranger, LASTS).unwrap();
    let refused = http.announce(&forged).await.unwrap_err().to_string();
    assert_eq!(refused, "the directory says 403 Forbidden");
    // An earlier entry that is said again.
    http.announce(&entry("decode-0", Role::Decode).seal(&token(), LASTS).unwrap()).await.unwrap();
    assert_eq!(http.entries().await.unwrap(), [sealed]);
    // Nobody announces it again.
    let gone = async {
        while !http.entries().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("an entry ends");
}
