//! Traffic of queue pairs over the wire, and lost connections.

use std::net::TcpListener;

use proptest::prelude::*;
use socket2::SockRef;

use super::outflow::Outflow;
use super::*;
use crate::backend::soft::engine::message::Nak;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the sizes, every byte lands at its address, nothing else changes, and the requests arrive in order.
    #[test]
    fn messages_of_any_size_arrive_in_order(
        sizes in prop::collection::vec(prop_oneof![
            Just(0usize), 1..100usize, 8000..8400usize, 65_000..66_000usize, 260_000..400_000usize
        ], 1..40),
        bursts in 1..8usize,
    ) {
        let (mut a, mut b) = End::pair();
        let source: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|i| (i * 7 + i / 251) as u8).collect();
        b.state.target = vec![0xee; source.len() + 64];
        let mut at = 0;
        for (i, size) in sizes.iter().enumerate() {
            a.write(i as u32, &source[at..at + size], at);
            at += size;
            if i % bursts == 0 {
                a.turn();
                b.turn();
            }
        }
        let last = sizes.len() as u32 - 1;
        until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == last));
        prop_assert!(b.state.target[..at] == source[..]);
        prop_assert!(b.state.target[at..].iter().all(|byte| *byte == 0xee));
        prop_assert_eq!(&b.state.placed, &(0..=last).collect::<Vec<_>>());
    }
}

#[test]
fn acknowledgements_that_wait_together_become_one() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    let before = a.state.replies.len();
    for psn in 0..200 {
        a.write(psn, b"small", 0);
    }
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 199));
    let replies = a.state.replies.len() - before;
    assert!(replies < 100, "{replies} acknowledgements for 200 messages that came at once");
    assert!(a.state.moved > 0);
}

#[test]
fn what_a_budget_cuts_is_cut_between_two_segments() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let segment = SockRef::from(&stream).tcp_mss().unwrap() as usize;
    let a = End::new(1);
    let source = vec![1; 4 * BUDGET];
    let request = Request {
        psn: 1,
        op: RequestOp::Write,
        imm: None,
        remote_addr: 0,
        rkey: 7,
        len: source.len() as u32,
        ack_req: true,
    };
    let token = Token { qp: a.qp, right: Right::Requested { serial: 1 } };
    let payload = Payload { token, addr: source.as_ptr().expose_provenance() as u64, len: request.len };
    let mut outflow = Outflow::new();
    outflow.push(Outgoing::new(&frame::encode_request(&request), Some(payload), Class::Request)).unwrap();
    let mut write = |budget| outflow.write(stream.as_fd(), &a.state, budget).unwrap();
    assert_eq!(write(BUDGET), BUDGET - BUDGET % segment);
    assert_eq!(write(100), 0, "what is less than a segment waits for more room");
}

#[test]
fn a_payload_revoked_before_it_is_sent_is_dropped_with_its_message() {
    let (mut a, mut b) = End::pair();
    a.write(1, &[1; 100], 0);
    a.write(2, &[2; 100], 0);
    a.write(3, &[3; 100], 100);
    a.state.revoked.insert(2);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 3));
    assert_eq!(b.state.placed, [1, 3]);
    assert_eq!(b.state.target[..100], [1; 100]);
}

#[test]
fn a_payload_revoked_when_partly_sent_ends_the_connection_and_the_next_message_opens_another() {
    let (mut a, mut b) = End::pair();
    let large = vec![1; 64 << 20];
    b.state.target = vec![0; large.len()];
    a.write(1, &large, 0);
    until(&mut a, &mut b, |_, b| b.state.placing.is_some());
    a.state.revoked.insert(1);
    until(&mut a, &mut b, |a, b| a.connections() == 0 && b.connections() == 0);
    assert!(b.state.placed.is_empty());
    b.state.placing = None;
    assert_works(&mut a, &mut b);
}

#[test]
fn a_payload_acknowledged_while_it_is_sent_again_is_made_up_with_zeros_and_the_stream_goes_on() {
    let (mut a, mut b) = End::pair();
    let large = vec![1; 64 << 20];
    b.state.target = vec![0xee; large.len()];
    a.write(1, &large, 0);
    until(&mut a, &mut b, |_, b| b.state.placing.is_some());
    let link = a.tcp.requesters[a.qp].link;
    a.state.done.insert(1);
    // A request that is carried out before its first byte is sent is dropped.
    a.write(2, &[2; 10], 0);
    a.state.done.insert(2);
    let begin = large.len() - 10;
    until(&mut a, &mut b, |_, b| b.state.placed == [1]);
    let ones = b.state.target.iter().position(|byte| *byte != 1).unwrap();
    assert!(b.state.target[ones..].iter().all(|byte| *byte == 0), "memory that was given back was read");
    a.write(3, &[3; 10], begin);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 3));
    assert_eq!(b.state.placed, [1, 3]);
    assert_eq!(b.state.target[begin..], [3; 10]);
    assert_eq!((a.tcp.requesters[a.qp].link, a.connections()), (link, 1), "the connection was opened anew");
}

#[test]
fn a_placement_revoked_on_the_way_writes_nothing_more_and_the_stream_goes_on() {
    let (mut a, mut b) = End::pair();
    let large = vec![1; 64 << 20];
    b.state.target = vec![0; large.len()];
    a.write(1, &large, 0);
    until(&mut a, &mut b, |_, b| b.state.placing.is_some());
    b.state.revoked.insert(1);
    let landed = b.state.target.iter().position(|byte| *byte == 0).unwrap();
    a.write(2, &[2; 10], 5);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 2));
    assert_eq!(b.state.placed, [1, 2]);
    assert!(b.state.target[landed..].iter().all(|byte| *byte == 0), "bytes landed after the revocation");
}

#[test]
fn a_reset_forgets_what_is_not_on_its_way() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    for psn in 1..4 {
        a.write(psn, &[9; 50], 0);
    }
    a.tcp.reset(a.qp);
    a.write(4, &[4; 50], 0);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 4));
    assert_eq!(b.state.placed[1..], [4]);
}

#[test]
fn a_reset_before_the_connection_is_made_leaves_it_its_hello() {
    let (mut a, mut b) = End::pair();
    a.write(1, &[9; 50], 0);
    a.tcp.reset(a.qp);
    a.write(2, &[2; 50], 0);
    until(&mut a, &mut b, |a, _| a.state.replies.last().is_some_and(|reply| reply.psn == 2));
    assert_eq!(b.state.placed, [2]);
}

#[test]
fn the_refusal_that_ends_a_queue_pair_reaches_the_peer() {
    let many = vec![1; 100_000]; // read for as long as it is not sent
    let (mut a, mut b) = End::pair();
    b.state.silent = true;
    a.write(1, &[1; 10], 0);
    until(&mut a, &mut b, |_, b| b.state.placed == [1]);
    // Unread bytes here would make the kernel reset the connection.
    a.write(2, &many, 0);
    a.turn();
    let nak = Reply { psn: 1, kind: ReplyKind::Nak(Nak::RemoteAccess), len: 0 };
    b.tcp.enqueue_reply(b.qp, &nak, None);
    b.tcp.close(b.qp);
    b.state.takes.clear();
    until(&mut a, &mut b, |a, _| a.state.replies == [nak]);
    assert_eq!(b.state.requests.len(), 1, "a request was heard after the queue pair was closed");
    a.tcp.close(a.qp);
    until(&mut a, &mut b, |a, b| a.connections() == 0 && b.connections() == 0);
}

#[test]
fn a_peer_that_never_closes_does_not_keep_a_closed_queue_pairs_connection() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    b.tcp.close(b.qp);
    b.turn();
    let deadline = b.tcp.poll_timeout().unwrap();
    b.tcp.handle_timeout(deadline, &mut b.state);
    assert_eq!((b.connections(), b.tcp.poll_timeout()), (0, None));
}

#[test]
fn a_peer_that_is_gone_is_silence_and_one_that_comes_back_is_found() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    let address = gid::listens_at(b.gid).unwrap();
    b.tcp.unlisten(b.device);
    assert_eq!(b.connections(), 0);
    a.write(1, &[1; 10], 0);
    until(&mut a, &mut b, |a, _| a.connections() == 0);
    a.write(2, &[1; 10], 0);
    until(&mut a, &mut b, |a, _| a.connections() == 0);
    b.tcp.listen(b.device, address).unwrap();
    assert_works(&mut a, &mut b);
}

#[test]
fn a_requester_that_connects_again_replaces_its_connection() {
    let (mut a, mut b) = End::pair();
    assert_works(&mut a, &mut b);
    let key = a.tcp.requesters[a.qp].link.unwrap();
    a.tcp.remove(key);
    assert_works(&mut a, &mut b);
    until(&mut a, &mut b, |a, b| a.connections() == 1 && b.connections() == 1);
}

#[test]
fn a_requester_that_is_early_waits_until_its_peer_is_ready() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    a.join(&b);
    a.write(1, &[1; 10], 0);
    until(&mut a, &mut b, |_, b| b.tcp.strangers.len() == 1);
    for _ in 0..5 {
        a.turn();
        b.turn();
    }
    assert!(b.state.requests.is_empty());
    b.join(&a);
    until(&mut a, &mut b, |a, _| a.state.replies.len() == 1);
    assert_eq!(b.state.placed, [1]);
}
