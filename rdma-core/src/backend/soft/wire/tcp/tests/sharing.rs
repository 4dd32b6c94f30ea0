//! Both directions share a connection, and acknowledgements ride with requests.

use std::io::{Read, Write};

use super::held::{HeldAcks, LOOKS_UNASKED};
use super::*;

/// Checks that messages go both ways.
fn assert_works_both_ways(a: &mut End, b: &mut End) {
    assert_works(a, b);
    assert_works(b, a);
}

/// Writes one byte from `a` to `b`, and turns both until `b` has it.
fn write(a: &mut End, b: &mut End, psn: u32) {
    a.write(psn, &[1], 0);
    a.tcp.flush(Instant::now(), &mut a.state);
    until(a, b, |_, b| b.state.placed.last() == Some(&psn));
}

#[test]
fn both_directions_take_the_connection_that_is_there() {
    let (mut a, mut b) = End::pair();
    for _ in 0..3 {
        assert_works_both_ways(&mut a, &mut b);
        assert_eq!((a.connections(), b.connections()), (1, 1));
    }
    // The connection ends, and the other end opens the next.
    let key = a.tcp.requesters[a.qp].link.unwrap();
    a.tcp.remove(key);
    until(&mut a, &mut b, |_, b| b.connections() == 0);
    assert_works_both_ways(&mut b, &mut a);
    assert_eq!((a.connections(), b.connections()), (1, 1));
}

#[test]
fn of_two_connections_opened_at_once_one_is_left_when_its_requests_are_acknowledged() {
    let (mut a, mut b) = End::pair();
    let large = vec![1; 8 << 20];
    (a.state.target, b.state.target) = (vec![0; large.len()], vec![0; large.len()]);
    a.write(1, &large, 0);
    b.write(1, &large, 0);
    until(&mut a, &mut b, |a, b| a.connections() == 2 && b.connections() == 2);
    // Outstanding requests keep their connection.
    a.write(2, &[1], 0);
    b.write(2, &[1], 0);
    until(&mut a, &mut b, |a, b| {
        [a, b].iter().all(|end| end.state.replies.last().is_some_and(|reply| reply.psn == 2))
    });
    assert_eq!((a.connections(), b.connections()), (2, 2));
    a.write(3, &[1], 0);
    b.write(3, &[1], 0);
    until(&mut a, &mut b, |a, b| {
        [a, b].iter().all(|end| end.state.replies.last().is_some_and(|reply| reply.psn == 3))
    });
    until(&mut a, &mut b, |a, b| a.connections() == 1 && b.connections() == 1);
    assert_eq!((&a.state.placed[..], &b.state.placed[..]), (&[1, 2, 3][..], &[1, 2, 3][..]));
    assert_works_both_ways(&mut a, &mut b);
}

#[test]
fn replies_overtake_requests_that_wait() {
    let (mut a, mut b) = End::pair();
    assert_works_both_ways(&mut a, &mut b);
    // The socket of `a` is full, because `b` does not read.
    let large = vec![1; 64 << 20];
    b.state.target = vec![0; large.len()];
    a.write(1, &large, 0);
    a.tcp.flush(Instant::now(), &mut a.state);
    for psn in 2..50 {
        a.write(psn, &[1], 0);
    }
    a.tcp.flush(Instant::now(), &mut a.state);
    let reply = Reply { psn: 7, kind: ReplyKind::Ack, len: 0 };
    let key = a.tcp.responders[a.qp];
    a.tcp.enqueue_reply(a.qp, &reply, None);
    let outflow = &a.tcp.link(key).unwrap().outflow;
    assert_eq!(outflow.replies(), 2, "the message that is partly sent, and the reply");
    until(&mut a, &mut b, |_, b| b.state.placed.last() == Some(&49));
    assert_eq!(b.state.replies.last(), Some(&reply));
}

#[test]
fn two_ends_that_flood_each_other_go_on() {
    let (mut a, mut b) = End::pair();
    let bytes = vec![1; 100_000];
    for psn in 0..1000 {
        a.write(psn, &bytes, 0);
        b.write(psn, &bytes, 0);
    }
    until(&mut a, &mut b, |a, b| {
        [a, b].iter().all(|end| end.state.replies.last().is_some_and(|reply| reply.psn == 999))
    });
}

#[test]
fn a_request_before_the_hello_ends_the_connection_and_a_second_hello_does_too() {
    let (mut a, mut b) = End::pair();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    a.tcp.requesters[a.qp].address = match listener.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        other => panic!("{other}"),
    };
    let hello = frame::encode_hello(&b.hello_to(&a));
    let request = frame::encode_request(&request(RequestOp::Write, 1, 0));
    for said in [&request[..], &[hello, hello].concat()[..]] {
        a.write(1, &[1], 0);
        a.turn();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(said).unwrap();
        until(&mut a, &mut b, |a, _| a.connections() == 0);
        let mut rest = Vec::new();
        // A reset says the same.
        let _ = peer.read_to_end(&mut rest);
        assert!(a.state.requests.is_empty());
    }
}

/// Two ends of which the second has answered a message at once, so that its acknowledgements are held back.
fn answering() -> (End, End) {
    let (mut a, mut b) = End::pair();
    assert_works_both_ways(&mut a, &mut b);
    write(&mut a, &mut b, 1);
    write(&mut b, &mut a, 1);
    b.tcp.held_acks.allow(true);
    (a, b)
}

/// Looks until an acknowledgement that the peer has asked for is due, and checks that it is in time.
fn assert_due_if_asked(end: &End) {
    for look in 1..=HeldAcks::LOOKS_IF_ASKED {
        assert_eq!(end.tcp.held_acks.look(), look == HeldAcks::LOOKS_IF_ASKED, "look {look}");
    }
}

#[test]
fn an_acknowledgement_rides_with_the_next_request() {
    let (mut a, mut b) = answering();
    for psn in 2..10 {
        let acknowledged = a.state.replies.len();
        write(&mut a, &mut b, psn);
        for _ in 0..3 {
            a.turn();
            b.turn();
        }
        assert_eq!(a.state.replies.len(), acknowledged, "it was not held back");
        write(&mut b, &mut a, psn);
        assert_eq!(a.state.replies.last().map(|reply| reply.psn), Some(psn));
        assert!(!b.tcp.held_acks.any());
    }
}

#[test]
fn an_acknowledgement_that_nothing_follows_leaves_after_some_looks_and_the_next_at_once() {
    let (mut a, mut b) = answering();
    write(&mut a, &mut b, 2);
    let acknowledged = a.state.replies.len();
    assert_due_if_asked(&b);
    b.tcp.send_held(Instant::now(), &mut b.state);
    assert!(!b.tcp.held_acks.look() && !b.tcp.held_acks.any());
    until(&mut a, &mut b, |a, _| a.state.replies.len() > acknowledged);
    write(&mut a, &mut b, 3);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 3));
}

#[test]
fn what_the_process_does_not_notice_and_what_is_long_is_acknowledged_at_once() {
    for len in [0, 100_000] {
        let (mut a, mut b) = answering();
        let source = vec![1; len];
        a.write(2, &source, 0);
        until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 2));
    }
}

#[test]
fn an_acknowledgement_that_nobody_has_asked_for_waits_for_a_request_however_late() {
    for len in [0, 1, 100_000] {
        let (mut a, mut b) = End::pair();
        assert_works_both_ways(&mut a, &mut b);
        b.tcp.held_acks.allow(true);
        let (source, acknowledged) = (vec![1; len], a.state.replies.len());
        a.write_asking(2, &source, 0, false);
        until(&mut a, &mut b, |_, b| b.tcp.held_acks.any());
        for _ in 0..LOOKS_UNASKED - 1 {
            a.turn();
            assert!(!b.tcp.held_acks.look());
        }
        assert_eq!(a.state.replies.len(), acknowledged, "{len}");
        write(&mut b, &mut a, 1);
        assert_eq!(a.state.replies.last().map(|reply| reply.psn), Some(2), "{len}");
        assert!(!b.tcp.held_acks.any());
    }
}

#[test]
fn a_request_that_asks_is_answered_in_time_whatever_comes_behind_it_in_one_read() {
    for len in [1, 100_000] {
        let (mut a, mut b) = End::pair();
        assert_works_both_ways(&mut a, &mut b);
        b.tcp.held_acks.allow(true);
        let source = vec![1; len];
        a.write_asking(2, &source, 0, true);
        a.write_asking(3, &[1], 0, false);
        a.tcp.flush(Instant::now(), &mut a.state);
        let begun = Instant::now();
        // Not `until`, which turns both ends in turn: what `a` has sent must be read at once.
        while b.state.placed.last() != Some(&3) {
            a.tcp.flush(Instant::now(), &mut a.state);
            b.turn();
            a.turn();
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        let acknowledged = |a: &End| a.state.replies.last().is_some_and(|reply| (2..=3).contains(&reply.psn));
        if len == 1 {
            assert!(!acknowledged(&a));
            assert_due_if_asked(&b);
            b.tcp.send_held(Instant::now(), &mut b.state);
        }
        until(&mut a, &mut b, |a, _| acknowledged(a));
    }
}

#[test]
fn an_acknowledgement_waits_for_no_request_that_takes_another_connection() {
    let (mut a, mut b) = End::pair();
    a.write(1, &[1], 0);
    b.write(1, &[1], 0);
    until(&mut a, &mut b, |a, b| {
        [a, b].iter().all(|end| end.state.replies.last().is_some_and(|reply| reply.psn == 1))
    });
    assert_eq!((a.connections(), b.connections()), (2, 2));
    // The end that yields moves to the other connection with its next request, and has none here.
    let (mut from, mut to) = if b.tcp.requesters[b.qp].yields { (a, b) } else { (b, a) };
    to.tcp.held_acks.allow(true);
    from.write_asking(2, &[1], 0, false);
    until(&mut from, &mut to, |from, _| from.state.replies.last().is_some_and(|reply| reply.psn == 2));
    assert_eq!((from.connections(), to.connections()), (2, 2));
}

#[test]
fn an_acknowledgement_that_is_asked_for_takes_along_one_that_is_not() {
    let (mut a, mut b) = answering();
    a.write_asking(2, &[1], 0, false);
    until(&mut a, &mut b, |_, b| b.tcp.held_acks.any());
    write(&mut a, &mut b, 3);
    assert_due_if_asked(&b);
    b.tcp.send_held(Instant::now(), &mut b.state);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 3));
}

#[test]
fn the_only_connection_is_read_without_a_question_but_not_for_ever() {
    fn look(end: &mut End) -> Option<bool> {
        end.tcp.read_the_only_one(Instant::now(), &mut end.state)
    }
    let (mut a, mut b) = End::pair();
    assert_eq!(look(&mut b), None);
    assert_works(&mut a, &mut b);
    for came in [false, true] {
        let mut asked = 0;
        for psn in 1..=4 * (LOOKS_AT_ONE + 1) {
            if came {
                a.write(psn, &[1], 0);
                a.tcp.flush(Instant::now(), &mut a.state);
            }
            match look(&mut b) {
                Some(found) => assert_eq!(found, came),
                None => {
                    asked += 1;
                    b.turn();
                }
            }
        }
        assert_eq!(asked, 4);
    }
    // Beside a second connection, each is one of several.
    let stranger = b.stranger();
    until(&mut a, &mut b, |_, b| b.connections() == 2);
    for _ in 0..=LOOKS_AT_ONE {
        assert_eq!(look(&mut b), None);
    }
    drop(stranger);
    until(&mut a, &mut b, |_, b| b.connections() == 1);
    // The end of the connection is noticed there, too.
    a.tcp.remove(a.tcp.requesters[a.qp].link.unwrap());
    assert_eq!(look(&mut b).or_else(|| look(&mut b)), Some(true));
    assert_eq!((b.connections(), look(&mut b)), (0, None));
}

#[test]
fn a_held_acknowledgement_leaves_with_its_queue_pair() {
    let (mut a, mut b) = answering();
    write(&mut a, &mut b, 2);
    b.tcp.close(b.qp);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 2));
}

#[test]
fn a_device_that_closes_closes_the_connections_that_it_has_opened() {
    let (mut a, mut b) = End::pair();
    assert_works_both_ways(&mut a, &mut b);
    // A last reply, for which the connection lingers.
    let reply = Reply { psn: 9, kind: ReplyKind::Ack, len: 0 };
    a.tcp.enqueue_reply(a.qp, &reply, None);
    a.tcp.close(a.qp);
    assert_eq!(a.tcp.lingering.len(), 1);
    a.tcp.unlisten(a.device);
    assert!(!a.tcp.is_connected());
}
