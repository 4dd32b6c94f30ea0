//! Meeting, and everything that can be at the other end instead.

use rdma_core::strangers::{Door, Place};

use super::strangers::BLOB_WITHIN;
use super::*;
use crate::alone::alone;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Runs one side: meets, exchanges `blob`, sends READY, and returns the blob of the other side.
fn side(how: &Meet<'_>, token: &JobToken, blob: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let (met, theirs) = exchange(how, token, blob, soon())?;
    met.ready()?;
    Ok(theirs)
}

/// Bytes that have a blob's header and checksum.
fn blob(len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len - 4];
    bytes[..4].copy_from_slice(b"RDML");
    bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes
}

/// A connection that has shown the token, and been welcomed.
fn welcomed(address: SocketAddr) -> TcpStream {
    connect(address, &TOKEN, soon()).unwrap().into_stream()
}

const TOKEN: JobToken = JobToken::from_bytes([3; 16]);

#[test]
fn blobs_are_exchanged_and_strangers_before_do_not_matter() {
    let (listener, address) = listener();
    let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(100)));
    for garbage in
        [&b""[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[0; 24], b"RDMH\x09\0\0\0aaaaaaaaaaaaaaaa"]
    {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(garbage).unwrap();
    }
    let other = JobToken::from_bytes([4; 16]);
    let error = side(&Meet::Connect(address), &other, &blob(16)).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherToken { .. }), "{error}");
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(2048)).unwrap(), blob(100));
    assert_eq!(server.join().unwrap().unwrap(), blob(2048));
}

#[test]
fn a_silent_stranger_holds_nobody_up_for_long() {
    let (listener, address) = listener();
    let _silent = TcpStream::connect(address).unwrap();
    let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(20)));
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
    assert_eq!(server.join().unwrap().unwrap(), blob(30));
}

#[test]
fn what_is_no_peer_of_ours_is_told_from_nobody() {
    let (listener, address) = listener();
    let answer = |bytes: &'static [u8]| {
        let listener = listener.try_clone().unwrap();
        thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap())
    };
    let answering = answer(b"SSH-2.0-OpenSSH_9.2 and so on and on\r\n");
    let error = side(&Meet::Connect(address), &TOKEN, &blob(20)).unwrap_err();
    assert!(matches!(error, HandshakeError::Garbage { .. }), "{error}");
    answering.join().unwrap();
    let answering = answer(b"RDMH\x02\0\0\0aaaaaaaaaaaaaaaa");
    let error = side(&Meet::Connect(address), &TOKEN, &blob(20)).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherVersion { ours: 1, theirs: 2, .. }), "{error}");
    answering.join().unwrap();
    drop(listener);
    let late = Deadline::after(Duration::from_millis(200));
    let error = meet(&Meet::Connect(address), &TOKEN, late).unwrap_err();
    assert!(matches!(error, HandshakeError::Unreachable { .. }), "{error}");
}

#[test]
fn who_is_sent_away_before_it_is_welcomed_comes_again() {
    let (listener, address) = listener();
    let server = thread::spawn(move || {
        for said in [&b""[..], b"short"] {
            listener.accept().unwrap().0.write_all(said).unwrap();
        }
        side(&Meet::Accept(&listener), &TOKEN, &blob(20))
    });
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
    assert_eq!(server.join().unwrap().unwrap(), blob(30));
}

#[test]
fn nobody_and_a_peer_that_stops_are_errors_at_the_deadline() {
    let (listener, address) = listener();
    let late = Deadline::after(Duration::from_millis(50));
    let error = meet(&Meet::Accept(&listener), &TOKEN, late).unwrap_err();
    assert!(matches!(error, HandshakeError::NobodyCame { .. }), "{error}");
    // Somebody accepts and says nothing.
    let late = Deadline::after(Duration::from_millis(50));
    let error = meet(&Meet::Connect(address), &TOKEN, late).unwrap_err();
    assert!(matches!(error, HandshakeError::Silent { .. }), "{error}");
}

#[test]
fn whoever_has_the_token_and_sends_no_blob_is_not_the_peer() {
    let mut huge = blob(BLOB_BYTES_MAX);
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut altered = blob(100);
    altered[50] ^= 1;
    let shorter = blob(40)[..30].to_vec();
    for said in [&b""[..], b"RDM", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &huge, &altered, &shorter] {
        let (listener, address) = listener();
        let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(20)));
        let mut stranger = welcomed(address);
        // Closed in the middle of it, perhaps.
        let _ = stranger.write_all(said);
        assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20), "{said:?}");
        assert_eq!(server.join().unwrap().unwrap(), blob(30));
        // The blob of this side names memory, so nobody but the peer is sent it.
        assert!(!matches!(stranger.read(&mut [0]), Ok(1..)), "{said:?}");
    }
}

#[test]
fn whoever_sends_its_blob_slowly_holds_nobody_up_and_is_sent_away_in_time() {
    let (listener, address) = listener();
    let late = Deadline::after(BLOB_WITHIN * 4);
    let server = thread::spawn(move || exchange(&Meet::Accept(&listener), &TOKEN, &blob(20), late).map(drop));
    let mut slow = welcomed(address);
    let began = Instant::now();
    let said = blob(BLOB_BYTES_MAX);
    let sent_away = said.iter().position(|byte| {
        thread::sleep(Duration::from_millis(100));
        slow.write_all(&[*byte]).is_err()
    });
    assert!(
        sent_away.is_some() && !late.expired(),
        "a byte now and then keeps it alive: {:?}",
        began.elapsed()
    );
    assert_eq!(
        exchange(&Meet::Connect(address), &TOKEN, &blob(30), soon()).map(|(_, theirs)| theirs).unwrap(),
        blob(20)
    );
    server.join().unwrap().unwrap();
}

#[test]
fn whoever_shares_a_listener_keeps_its_deadline_though_another_takes_the_connection() {
    let (listener, address) = listener();
    let late = Deadline::after(Duration::from_millis(700));
    let (done, ends) = mpsc::channel();
    for _ in 0..4 {
        let (shared, done) = (listener.try_clone().unwrap(), done.clone());
        thread::spawn(move || done.send(meet(&Meet::Accept(&shared), &TOKEN, late).map(drop)));
    }
    // All of them see each stranger come, and one gets it.
    while late.remaining() > Duration::from_millis(100) {
        drop(TcpStream::connect(address).unwrap());
    }
    for _ in 0..4 {
        let outcome = ends.recv_timeout(Duration::from_secs(20)).expect("it waits for ever");
        assert!(matches!(outcome, Err(HandshakeError::NobodyCame { .. })), "{outcome:?}");
    }
    let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(20)));
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
    assert_eq!(server.join().unwrap().unwrap(), blob(30));
}

#[test]
fn a_crowd_of_silent_strangers_holds_nobody_up() {
    let (listener, address) = listener();
    let mut crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    // A peer that sends half of it counts as silent, too.
    crowd[39].write_all(b"RDMH\x01\0\0\0abc").unwrap();
    let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(20)));
    let other = JobToken::from_bytes([4; 16]);
    let error = meet(&Meet::Connect(address), &other, soon()).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherToken { .. }), "{error}");
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
    assert_eq!(server.join().unwrap().unwrap(), blob(30));
    drop(crowd);
}

#[test]
fn a_listener_hears_its_peer_though_a_crowd_at_another_listener_has_all_places() {
    let name = "a_listener_hears_its_peer_though_a_crowd_at_another_listener_has_all_places";
    alone(module_path!(), name, || {
        let crowd: Vec<_> = std::iter::from_fn(|| Place::take(Door::Handshake)).collect();
        assert!(!crowd.is_empty());
        let (listener, address) = listener();
        let _silent = TcpStream::connect(address).unwrap();
        let server = thread::spawn(move || side(&Meet::Accept(&listener), &TOKEN, &blob(20)));
        assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
        assert_eq!(server.join().unwrap().unwrap(), blob(30));
    });
}

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

#[test]
fn a_crowd_that_has_the_token_does_not_flood_the_log() {
    let (listener, address) = listener();
    let count = Arc::new(AtomicUsize::new(0));
    let warnings = Warnings(Arc::clone(&count));
    let server = thread::spawn(move || {
        tracing::subscriber::with_default(warnings, || side(&Meet::Accept(&listener), &TOKEN, &blob(20)))
    });
    for _ in 0..20 {
        let mut stranger = welcomed(address);
        stranger.write_all(&[0; HEADER_BYTES]).unwrap();
        assert!(!matches!(stranger.read(&mut [0]), Ok(1..)));
    }
    assert_eq!(side(&Meet::Connect(address), &TOKEN, &blob(30)).unwrap(), blob(20));
    assert_eq!(server.join().unwrap().unwrap(), blob(30));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
