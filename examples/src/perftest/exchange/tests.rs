//! Two ends on loopback; whatever bytes one end sends, the other has an error in time.

use super::*;
use std::thread;

const LONG: Duration = Duration::from_secs(60);

fn pair(within: Duration) -> (Exchange, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    (Exchange::over(stream, within).unwrap(), raw)
}

fn hello() -> Hello {
    Hello {
        test: Test::WriteBw,
        size: 65_536,
        all: false,
        iters: 5000,
        queue_pairs: 1,
        mtu: 1024,
        reads: 16,
        rx_depth: 512,
        wire: "tcp".into(),
    }
}

fn frame(magic: &[u8; 4], version: u16, length: u32, body: &[u8]) -> Vec<u8> {
    [&magic[..], &version.to_be_bytes(), &length.to_be_bytes(), body].concat()
}

#[test]
fn what_is_sent_arrives() {
    let (mut left, raw) = pair(LONG);
    let right = thread::spawn(move || Exchange::over(raw, LONG).unwrap().swap("hello", &hello()).unwrap());
    let theirs: Hello = left.swap("hello", &Hello { mtu: 4096, ..hello() }).unwrap();
    assert_eq!((theirs, right.join().unwrap().mtu), (hello(), 4096));
}

#[test]
fn the_endpoints_of_the_most_queue_pairs_fit() {
    let (mut left, raw) = pair(LONG);
    let endpoint = Endpoint {
        lid: u16::MAX,
        qpn: 0xff_ffff,
        psn: 0xff_ffff,
        rkey: u32::MAX,
        addr: u64::MAX,
        gid: Some([255; 16]),
    };
    let all = vec![endpoint; 1024];
    let sent = all.clone();
    let right = thread::spawn(move || Exchange::over(raw, LONG).unwrap().send("endpoints", &sent).unwrap());
    assert_eq!(left.receive::<Vec<Endpoint>>("endpoints").unwrap(), all);
    right.join().unwrap();
}

#[test]
fn flags_that_differ_are_named() {
    hello().agree(&Hello { mtu: 4096, reads: 1, rx_depth: 1, ..hello() }).unwrap();
    let error = hello().agree(&Hello { size: 8, ..hello() }).unwrap_err();
    assert_eq!(error.to_string(), "-s differs: 65536 here, 8 there; give both sides the same flags");
    for theirs in [
        Hello { test: Test::WriteLat, ..hello() },
        Hello { all: true, ..hello() },
        Hello { iters: 6, ..hello() },
        Hello { queue_pairs: 2, ..hello() },
        Hello { wire: "RoCE v2".into(), ..hello() },
    ] {
        assert!(matches!(hello().agree(&theirs), Err(ExchangeError::Differs { .. })), "{theirs:?}");
    }
}

#[test]
fn garbage_another_version_and_an_oversized_message_are_refused() {
    let refused = |bytes: &[u8]| {
        let (mut left, mut raw) = pair(LONG);
        raw.write_all(bytes).unwrap();
        left.receive::<Hello>("hello").unwrap_err()
    };
    assert!(matches!(refused(b"GET / HTTP/1.1\r\n\r\n"), ExchangeError::Garbage(_)));
    assert!(matches!(refused(&frame(&MAGIC, 1, 0, b"")), ExchangeError::Version { theirs: 1 }));
    assert!(matches!(
        refused(&frame(&MAGIC, VERSION, u32::MAX, b"")),
        ExchangeError::Oversized { length: 0xffff_ffff }
    ));
    assert!(matches!(refused(&frame(&MAGIC, VERSION, 3, b"{\"}")), ExchangeError::Garbage(_)));
    assert!(matches!(refused(&frame(&MAGIC, VERSION, 0, b"")), ExchangeError::Garbage(_)));
}

#[test]
fn a_message_cut_short_is_a_lost_peer() {
    let whole = frame(&MAGIC, VERSION, 4, b"null");
    for length in 0..whole.len() {
        let (mut left, mut raw) = pair(LONG);
        raw.write_all(&whole[..length]).unwrap();
        drop(raw);
        assert!(matches!(left.receive::<()>("end"), Err(ExchangeError::Lost { .. })), "{length}");
    }
}

#[test]
fn a_silent_or_trickling_peer_runs_into_the_deadline() {
    let (mut left, mut raw) = pair(Duration::from_millis(200));
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let trickle = thread::spawn(move || {
        for byte in frame(&MAGIC, VERSION, 1000, &[b' '; 1000]) {
            if stopped.recv_timeout(Duration::from_millis(50)).is_ok() || raw.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    assert!(matches!(left.receive::<()>("end"), Err(ExchangeError::Timeout { what: "end", .. })));
    stop.send(()).unwrap();
    trickle.join().unwrap();
}

#[test]
fn nobody_there_says_to_start_the_server() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = Exchange::connect("127.0.0.1", port, LONG).unwrap_err();
    assert!(error.to_string().contains("start the server first"), "{error}");
}
