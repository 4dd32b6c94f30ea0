//! Misbehaving writers: whatever a stranger sends to the listener, it is turned away, and real peers are served.

use super::owners::say;
use super::*;
use crate::alone::alone;
use crate::strangers::STRANGERS_MAX;

/// The last frame that a connection delivers before it ends.
fn answer(b: &mut End, socket: &OwnedFd) -> Option<Frame> {
    let mut heard = None;
    b.until(|_| {
        loop {
            match descriptors::receive(socket.as_fd()) {
                Ok(Some(received)) => heard = Some(received.frame),
                Ok(None) => break false,
                Err(UnmappedReason::Closed) => break true,
                Err(other) => panic!("{other}"),
            }
        }
    });
    heard
}

#[test]
fn garbage_and_half_a_hello_are_turned_away_at_once() {
    let mut b = End::new();
    let hello = Frame::Hello(End::new().hello_to(b.gid)).encode();
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 3], &[0xff; 4096], &hello[..63], &Frame::Nudge.encode()]
    {
        let socket = listener::connect(b.gid).unwrap();
        say(&socket, said, &[]);
        assert_eq!(answer(&mut b, &socket), None);
    }
    assert_works(&mut b);
}

#[test]
fn a_hello_with_descriptors_is_turned_away_and_they_are_closed() {
    let (mut b, a) = (End::new(), End::new());
    b.take(&a);
    let socket = listener::connect(b.gid).unwrap();
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    say(&socket, &Frame::Hello(a.hello_to(b.gid)).encode(), &[writer.as_fd()]);
    drop(writer);
    assert_eq!(answer(&mut b, &socket), None);
    assert!(b.state.writers.is_empty());
    // Nobody has the other end any more, because the copy was closed.
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(io::Read::read(&mut &reader, &mut [0]).unwrap(), 0);
}

#[test]
fn another_version_is_told_of_this_one() {
    let mut b = End::new();
    let mut hello = Frame::Hello(End::new().hello_to(b.gid)).encode();
    hello[4] = 9;
    let socket = listener::connect(b.gid).unwrap();
    say(&socket, &hello, &[]);
    assert_eq!(answer(&mut b, &socket), Some(Frame::Refused(Refusal::Version(frame::VERSION))));
}

#[test]
fn a_requester_of_another_user_or_one_that_cannot_be_watched_is_told_so() {
    let (mut a, mut b) = (End::new(), End::new());
    b.take(&a);
    let own = b.rendezvous.credentials;
    b.rendezvous.credentials.uid ^= 1;
    a.connect(b.gid).unwrap();
    until(&mut a, &mut b, |a, _| {
        a.state.over
            == [
                "the peer refused: the processes run as different users, or in different user namespaces: run both as one user",
            ]
    });
    b.rendezvous.credentials = own;
    b.rendezvous.credentials.pidfd = |_| Err(io::ErrorKind::Unsupported.into());
    a.connect(b.gid).unwrap();
    until(&mut a, &mut b, |a, _| a.state.over.len() == 2);
    assert!(
        a.state.over[1].starts_with("the peer refused: it cannot watch this process"),
        "{:?}",
        a.state.over
    );
    // A process without a free descriptor is reported as such, and not as one that cannot be watched.
    b.rendezvous.credentials.pidfd = |_| Err(io::Error::from_raw_os_error(libc::EMFILE));
    a.connect(b.gid).unwrap();
    until(&mut a, &mut b, |a, _| a.state.over.len() == 3);
    assert_eq!(
        a.state.over[2],
        "the peer refused: it has no descriptors or memory left (error 24): raise its limits"
    );
    assert!(b.state.writers.is_empty());
}

#[test]
fn what_the_state_refuses_is_told() {
    let (mut a, mut b) = (End::new(), End::new());
    b.take(&a);
    b.state.refuses = Some(Refusal::Limit(12));
    a.connect(b.gid).unwrap();
    until(&mut a, &mut b, |a, _| a.state.over.len() == 1);
    assert_eq!(
        a.state.over[0],
        "the peer refused: it has no descriptors or memory left (error 12): raise its limits"
    );
    assert!(b.rendezvous.strangers.is_empty() && b.rendezvous.writers.is_empty());
}

#[test]
fn the_silent_and_the_unknown_are_turned_away_in_time() {
    let mut b = End::new();
    let silent = listener::connect(b.gid).unwrap();
    let unknown = listener::connect(b.gid).unwrap();
    say(&unknown, &Frame::Hello(End::new().hello_to(b.gid)).encode(), &[]);
    b.until(|b| b.rendezvous.strangers.len() == 2);
    assert_works(&mut b);
    assert_eq!(b.rendezvous.strangers.len(), 2, "real requesters made strangers go");
    while let Some(deadline) = b.rendezvous.poll_timeout() {
        assert!(deadline <= Instant::now() + HELLO_WAIT);
        b.rendezvous.handle_timeout(deadline, &mut b.state);
    }
    for socket in [silent, unknown] {
        assert_eq!(answer(&mut b, &socket), None);
    }
    assert_works(&mut b);
}

#[test]
fn one_that_waits_and_vanishes_is_forgotten_and_a_late_event_does_not_end_it() {
    let mut b = End::new();
    let stranger = listener::connect(b.gid).unwrap();
    say(&stranger, &Frame::Hello(End::new().hello_to(b.gid)).encode(), &[]);
    b.until(|b| b.rendezvous.strangers.len() == 1);
    let key = b.rendezvous.strangers[0];
    b.until(|b| format!("{:?}", b.rendezvous.sockets[key].kind).contains("hello: Some"));
    // Two threads were told of the hello, and the second one comes now.
    b.rendezvous.ready(Instant::now(), epoll_data(key, 0).u64(), &mut b.state);
    assert_eq!(b.rendezvous.strangers, [key]);
    drop(stranger);
    b.until(|b| b.rendezvous.strangers.is_empty());
}

#[test]
fn more_than_may_wait_push_out_the_oldest() {
    alone(module_path!(), "more_than_may_wait_push_out_the_oldest", || {
        let mut b = End::new();
        let oldest = listener::connect(b.gid).unwrap();
        b.until(|b| b.rendezvous.strangers.len() == 1);
        let mut crowd = Vec::new();
        for _ in 0..STRANGERS_MAX {
            crowd.push(listener::connect(b.gid).unwrap());
            if crowd.len() % 16 == 0 {
                b.turn();
            }
        }
        assert_eq!(answer(&mut b, &oldest), None);
        assert_works(&mut b);
        assert!(b.rendezvous.strangers.len() <= STRANGERS_MAX);
        drop(crowd);
        b.until(|b| b.rendezvous.strangers.is_empty());
    });
}

#[test]
fn a_hello_that_has_come_is_heard_though_a_crowd_comes_behind_it() {
    alone(module_path!(), "a_hello_that_has_come_is_heard_though_a_crowd_comes_behind_it", || {
        let (mut b, a) = (End::new(), End::new());
        b.take(&a);
        let peer = listener::connect(b.gid).unwrap();
        say(&peer, &Frame::Hello(a.hello_to(b.gid)).encode(), &[]);
        let crowd: Vec<_> = (0..STRANGERS_MAX).map(|_| listener::connect(b.gid).unwrap()).collect();
        // The listener accepts the crowd before it is told that the peer has said something.
        let listener = b.rendezvous.sockets.iter().find(|(_, socket)| matches!(socket.kind, Kind::Listener));
        let listener = listener.map(|(key, _)| key).unwrap();
        for _ in 0..=STRANGERS_MAX.div_ceil(ACCEPTS) {
            b.rendezvous.accept(Instant::now(), listener, &mut b.state);
        }
        assert_eq!(b.rendezvous.writers.len(), 1, "the crowd pushed the peer out unheard");
        drop(crowd);
    });
}

#[test]
fn an_invited_one_that_says_anything_but_a_nudge_is_parted_with() {
    for said in [Frame::Forget { id: 1 }.encode().to_vec(), vec![7; 64], vec![1]] {
        let (mut b, a) = (End::new(), End::new());
        b.take(&a);
        let socket = listener::connect(b.gid).unwrap();
        say(&socket, &Frame::Hello(a.hello_to(b.gid)).encode(), &[]);
        b.until(|b| b.rendezvous.writers.len() == 1);
        say(&socket, &Frame::Nudge.encode(), &[]);
        b.until(|b| b.state.nudges == 1);
        say(&socket, &said, &[]);
        b.until(|b| b.state.left.len() == 1);
        assert!(b.rendezvous.writers.is_empty());
        assert_works(&mut b);
    }
}

#[test]
fn a_writer_that_nudges_without_end_fills_its_own_socket_alone() {
    let (mut a, mut b) = pair();
    for _ in 0..10_000 {
        a.rendezvous.nudge(a.qp);
    }
    until(&mut a, &mut b, |_, b| b.state.nudges > 0);
    assert_works(&mut b);
    assert!(a.rendezvous.is_connected(a.qp));
}
