//! Strangers at the listener: whatever they send, they are dropped, and real traffic goes on.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

use super::*;
use crate::alone::alone;
use crate::backend::soft::wire::log_throttle;
use crate::strangers::STRANGERS_MAX;

/// Checks that the other end closes, whether or not it drops unread bytes.
fn assert_closed(a: &mut End, b: &mut End, mut stranger: TcpStream) {
    stranger.set_nonblocking(true).unwrap();
    let mut byte = [0];
    until(a, b, |_, _| match stranger.read(&mut byte) {
        Ok(0) => true,
        Ok(_) => panic!("a stranger was answered"),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    });
}

fn encoded_hello(a: &End, b: &End) -> [u8; HELLO_BYTES] {
    frame::encode_hello(&a.hello_to(b))
}

#[test]
fn garbage_is_dropped_at_once() {
    let (mut a, mut b) = End::pair();
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 3], &[0xff; 4096]] {
        let mut stranger = b.stranger();
        stranger.write_all(said).unwrap();
        assert_closed(&mut a, &mut b, stranger);
    }
    assert_works(&mut a, &mut b);
}

/// Counts the warnings of a thread.
#[derive(Default)]
struct Warnings(AtomicUsize);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_flood_of_garbage_does_not_flood_the_log() {
    const FLOOD: usize = 100;
    let (_a, mut b) = End::pair();
    let warnings = Arc::new(Warnings::default());
    let written = || warnings.0.load(Ordering::Relaxed);
    let mut garbage = |now, count| {
        let begun = Instant::now();
        for _ in 0..count {
            let mut stranger = b.stranger();
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            stranger.set_nonblocking(true).unwrap();
            while stranger.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                b.turn_at(now);
                assert!(begun.elapsed() < Duration::from_secs(60), "a stranger stays");
            }
        }
    };
    let begin = Instant::now();
    tracing::subscriber::with_default(Arc::clone(&warnings), || garbage(begin, FLOOD));
    assert_eq!(written(), log_throttle::LINES_MAX as usize);
    tracing::subscriber::with_default(Arc::clone(&warnings), || garbage(begin + log_throttle::PERIOD, 1));
    assert_eq!(written(), log_throttle::LINES_MAX as usize + 1);
}

#[test]
fn another_version_is_dropped_at_once() {
    let (mut a, mut b) = End::pair();
    let mut hello = encoded_hello(&a, &b);
    hello[8] = 99;
    let mut stranger = b.stranger();
    stranger.write_all(&hello).unwrap();
    assert_closed(&mut a, &mut b, stranger);
    assert_works(&mut a, &mut b);
}

#[test]
fn a_frame_with_an_oversized_length_is_dropped_and_nothing_is_placed() {
    let (mut a, mut b) = End::pair();
    let mut stranger = b.stranger();
    stranger.write_all(&encoded_hello(&a, &b)).unwrap();
    let request = request(RequestOp::Write, 0, 1 << 31);
    let mut frame = frame::encode_request(&request);
    frame[8..12].fill(0xff);
    stranger.write_all(&frame).unwrap();
    assert_closed(&mut a, &mut b, stranger);
    assert!(b.state.requests.is_empty());
    assert_works(&mut a, &mut b);
}

#[test]
fn a_frame_that_is_none_is_dropped() {
    let (mut a, mut b) = End::pair();
    let mut stranger = b.stranger();
    stranger.write_all(&encoded_hello(&a, &b)).unwrap();
    stranger.write_all(&[0x77; 64]).unwrap();
    assert_closed(&mut a, &mut b, stranger);
    assert!(b.state.requests.is_empty());
    assert_works(&mut a, &mut b);
}

#[test]
fn the_silent_the_slow_and_the_unknown_are_dropped_in_time() {
    let (mut a, mut b) = End::pair();
    let silent = b.stranger();
    let mut slow = b.stranger();
    slow.write_all(&encoded_hello(&a, &b)[..20]).unwrap();
    let mut unknown = b.stranger();
    let mut hello = encoded_hello(&a, &b);
    hello[30] ^= 1;
    unknown.write_all(&hello).unwrap();
    until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 3);
    assert_works(&mut a, &mut b);
    assert_eq!(b.tcp.strangers.len(), 3, "real traffic made strangers go");
    while let Some(deadline) = b.tcp.poll_timeout() {
        assert!(deadline <= Instant::now() + HELLO_WAIT);
        b.tcp.handle_timeout(deadline, &mut b.state);
    }
    for stranger in [silent, slow, unknown] {
        assert_closed(&mut a, &mut b, stranger);
    }
    assert_works(&mut a, &mut b);
}

#[test]
fn a_late_event_does_not_end_who_waits_for_its_queue_pair() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let mut stranger = b.stranger();
    stranger.write_all(&encoded_hello(&a, &b)).unwrap();
    until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 1);
    let key = b.tcp.strangers[0];
    let waits =
        |b: &End| matches!(&b.tcp.sockets[key].kind, Kind::Stranger(stranger) if stranger.is_complete());
    until(&mut a, &mut b, |_, b| waits(b));
    // Two threads were told of the hello, and the second one comes now.
    b.tcp.ready(Instant::now(), data(key).u64(), &mut b.state);
    assert_eq!(b.tcp.strangers, [key]);
    stranger.shutdown(std::net::Shutdown::Write).unwrap();
    SockRef::from(&stranger).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stranger);
    until(&mut a, &mut b, |_, b| b.tcp.strangers.is_empty());
}

#[test]
fn a_connection_that_a_child_process_holds_on_to_is_not_watched_once_closed() {
    let (mut a, mut b) = End::pair();
    let mut stranger = b.stranger();
    until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 1);
    let key = b.tcp.strangers[0];
    let copy = b.tcp.sockets[key].fd.try_clone().unwrap();
    b.tcp.remove(key);
    stranger.write_all(b"?").unwrap();
    let mut events = Vec::with_capacity(1);
    let soon = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    epoll::wait(&b.epoll, rustix::buffer::spare_capacity(&mut events), Some(&soon)).unwrap();
    assert_eq!(events.len(), 0);
    drop(copy);
}

#[test]
fn a_half_open_connection_does_not_outlive_its_queue_pair() {
    let (mut a, mut b) = End::pair();
    // A peer that sends its hello, half of a request, and then nothing.
    let mut half = b.stranger();
    half.write_all(&encoded_hello(&a, &b)).unwrap();
    let request = request(RequestOp::Write, 0, 1000);
    half.write_all(&frame::encode_request(&request)).unwrap();
    half.write_all(&[1; 500]).unwrap();
    until(&mut a, &mut b, |_, b| b.state.requests.len() == 1);
    // The requester itself comes again, and replaces that connection.
    assert_works(&mut a, &mut b);
    assert_closed(&mut a, &mut b, half);
}

#[test]
fn more_strangers_than_may_wait_push_out_the_oldest() {
    alone(module_path!(), "more_strangers_than_may_wait_push_out_the_oldest", || {
        let (mut a, mut b) = End::pair();
        let oldest = b.stranger();
        until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 1);
        let crowd: Vec<_> = (0..STRANGERS_MAX).map(|_| b.stranger()).collect();
        assert_closed(&mut a, &mut b, oldest);
        until(&mut a, &mut b, |_, b| b.tcp.strangers.len() > STRANGERS_MAX / 4);
        assert_works(&mut a, &mut b);
        assert!(b.tcp.strangers.len() <= STRANGERS_MAX);
        drop(crowd);
        until(&mut a, &mut b, |_, b| b.tcp.strangers.is_empty());
        assert_works(&mut a, &mut b);
    });
}

#[test]
fn strangers_take_a_quarter_of_the_free_descriptors_and_leave_the_rest() {
    alone(module_path!(), "strangers_take_a_quarter_of_the_free_descriptors_and_leave_the_rest", || {
        const FREE: usize = 80;
        let (mut a, mut b) = End::pair();
        // The strangers' own ends are in this process too, so they connect before the limit is set.
        let crowd: Vec<_> = (0..100).map(|_| b.stranger()).collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some((open + FREE) as u64), ..before }).unwrap();
        for _ in 0..100 {
            b.turn();
            assert!(b.tcp.strangers.len() <= FREE / 4, "{} strangers", b.tcp.strangers.len());
        }
        assert!(b.tcp.strangers.len() > FREE / 8, "{} strangers", b.tcp.strangers.len());
        let rest: Vec<_> = std::iter::from_fn(|| rustix::io::dup(&b.epoll).ok()).collect();
        assert!(rest.len() >= FREE / 2, "{} descriptors were left", rest.len());
        drop(rest);
        assert_works(&mut a, &mut b);
        drop(crowd);
    });
}

#[test]
fn a_listener_without_descriptors_left_pauses_and_goes_on() {
    let (mut a, mut b) = End::pair();
    let now = Instant::now();
    b.tcp.pause_accepting(now);
    let waiting = b.stranger();
    for _ in 0..5 {
        b.turn();
    }
    assert!(b.tcp.strangers.is_empty());
    assert_eq!(b.tcp.poll_timeout(), Some(now + ACCEPT_PAUSE));
    b.tcp.handle_timeout(now + ACCEPT_PAUSE, &mut b.state);
    until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 1);
    drop(waiting);
    assert_works(&mut a, &mut b);
}

#[test]
fn whoever_asks_and_reads_no_answer_is_not_heard_until_it_does() {
    const READS: u32 = 20_000;
    const BYTES: u32 = 4096;
    let (mut a, mut b) = End::pair();
    let mut asker = b.stranger();
    asker.write_all(&encoded_hello(&a, &b)).unwrap();
    asker.set_nonblocking(true).unwrap();
    let read = |psn| frame::encode_request(&request(RequestOp::Read, psn, BYTES));
    let asked: Vec<u8> = (0..READS).flat_map(read).collect();
    let (mut sent, mut heard) = (0, 0);
    let mut waiting = 0;
    let mut longest = 0;
    let mut answer = vec![0; 1 << 20];
    until(&mut a, &mut b, |_, b| {
        sent += asker.write(&asked[sent..]).unwrap_or(0);
        let queued = b.tcp.sockets.values().map(|socket| match &socket.kind {
            Kind::Link(link) => link.outflow.replies(),
            _ => 0,
        });
        longest = longest.max(queued.max().unwrap_or(0));
        // The peer begins to read when nothing has happened for a while.
        waiting = if b.state.requests.len() == heard { waiting + 1 } else { 0 };
        heard = b.state.requests.len();
        waiting > 50
    });
    assert!(heard < READS as usize, "it was heard to the end");
    assert!(longest < 64 + STAGING_BYTES / frame::REQUEST_BYTES + 1, "{longest} replies waited");
    let mut received = 0;
    until(&mut a, &mut b, |_, _| {
        sent += asker.write(&asked[sent..]).unwrap_or(0);
        received += asker.read(&mut answer).unwrap_or(0);
        received == READS as usize * (frame::REPLY_BYTES + BYTES as usize)
    });
    assert_eq!(b.state.requests.len(), READS as usize);
    assert_works(&mut a, &mut b);
}

/// A forked child has a copy of each descriptor, which must not keep a connection open.
#[test]
fn what_is_closed_is_closed_though_a_copy_is_held() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    let held: Vec<_> = b.tcp.sockets.values().map(|socket| socket.fd.try_clone().unwrap()).collect();
    let address = gid::listens_at(b.gid).unwrap();
    let before = a.connections();
    b.tcp.unlisten(b.device);
    until(&mut a, &mut b, |a, _| a.connections() < before);
    assert!(TcpStream::connect(address).is_err(), "the listener takes connections");
    assert_eq!(b.tcp.listen(b.device, address).unwrap(), address.port());
    drop(held);
}
