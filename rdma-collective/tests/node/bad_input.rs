//! Bad input, and peers and runtimes that misbehave: each gets an error by name, and nothing is lost.
//!
//! Input, and the test that has it (`module::test` here, `executable: module::test` elsewhere):
//!
//! - A blob of another job, or altered: `meet::blobs_that_are_none_altered_or_of_others_are_refused_by_name`.
//! - A blob that has expired: `meet::a_blob_expires`.
//! - A blob of a process that is gone:
//!   `meet::the_blob_of_a_node_that_is_gone_finds_nobody_even_where_another_listens`.
//! - Two processes of one name: `meet::the_name_of_a_living_peer_is_refused_and_that_of_one_that_left_is_free`.
//! - 10,000 strangers: `ten_thousand_strangers_take_little_and_keep_no_peer_out`.
//! - A wish whose connection a crowd pushes out: `a_wish_that_is_lost_before_it_is_heard_is_made_again`.
//! - A grant to a peer that has left: `a_grant_to_a_peer_that_has_left_is_refused_and_holds_no_block`.
//! - Blocks granted twice: `blocks_that_one_peer_may_fill_are_granted_to_no_other`.
//! - A peer that claims 4,294,967,295 blocks:
//!   `lib: kv::tests::the_length_of_a_list_that_is_only_announced_takes_no_memory`.
//! - A deadline that moves after the end:
//!   `transfers: extended::a_transfer_that_has_ended_or_is_given_up_cannot_be_extended`.
//! - A note of 64 KiB and a byte: `transfers: notes::a_note_that_is_too_long_is_refused_and_holds_no_block`.
//! - A handler dropped at every await: `requests::a_request_that_is_dropped_at_any_poll_of_either_end_leaves_nothing`.
//! - A runtime that stalls: `requests::a_runtime_that_stalls_for_five_seconds_hurts_nobody`.
//! - A decode that never revokes or pulls: `a_peer_that_is_silent_costs_no_block_beyond_the_deadline`, and
//!   `transfers: pull::a_reader_that_does_not_answer_a_revocation_is_fenced_at_its_deadline`.
//! - A prefill that never stops: `revocation`, on both wires, and
//!   `transfers: revoke::a_grant_whose_peer_does_not_answer_at_its_deadline_ends_the_link`.
//! - `strict` on a device that cannot: `on_device: ends_that_exchange_blobs_connect_in_either_order`.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rdma_collective::kv::{KvError, NodeError, NodeOptions};
use rdma_core::{Deadline, Wire};

use crate::common::{assert_books, block_on, books, long};
use crate::job::{Role, listen, member, member_with, options};
use crate::pair::{TOKEN, assert_freed};

const STRANGERS: usize = 10_000;
/// Threads that bring strangers, and the connections that each of them keeps open.
const CROWDS: usize = 4;
const OPEN: usize = 400;
/// The most that strangers may take, as `rdma_core::strangers` says, and the room that the real peers need.
const STRANGERS_MAX: usize = 256;
const ROOM: usize = 150;
/// Resident memory that may come, in KiB: a stranger takes no more than its blob, of at most 64 KiB.
const MEMORY: usize = 64 << 10;

/// The words of strangers: nothing, garbage, half a greeting, another token, and the right one with nothing behind it.
fn words() -> [Vec<u8>; 5] {
    let greeting = |token: &[u8]| [&b"RDMH\x01\0\0\0"[..], token].concat();
    let half = greeting(TOKEN.as_bytes());
    [
        Vec::new(),
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(),
        half.iter().copied().take(11).collect(),
        greeting(&[9; 16]),
        greeting(TOKEN.as_bytes()),
    ]
}

/// Comes as strangers until enough have come and `stop` says so.
fn crowd(at: SocketAddr, come: &AtomicUsize, stop: &AtomicBool) {
    let words = words();
    let mut open = VecDeque::new();
    while come.load(Ordering::Relaxed) < STRANGERS || !stop.load(Ordering::Relaxed) {
        // A listener whose queue is full lets a stranger wait; a thread that waits brings no crowd.
        let Ok(mut stranger) = TcpStream::connect_timeout(&at, Duration::from_millis(200)) else { continue };
        let which = come.fetch_add(1, Ordering::Relaxed) % words.len();
        // A stranger may have been sent away already.
        _ = stranger.write_all(&words[which]);
        open.push_back(stranger);
        if open.len() > OPEN {
            open.pop_front();
        }
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Alone, because it reads the books of its process.
#[test]
#[ignore = "alone: processes::what_nodes_have_taken_goes_with_them starts it"]
fn ten_thousand_strangers_take_little_and_keep_no_peer_out() {
    let decode = member(Wire::Local, "d", Role::Decode);
    let come_and_move = |round: usize| {
        let prefill = member(Wire::Local, &format!("p{round}"), Role::Prefill);
        // The peer dials the node that strangers besiege, which grants the wishes of the peer.
        prefill.meet(&decode);
        let name = prefill.node.name();
        let grant = decode.node.grant(name.as_str(), 1, &[3], long()).wait().unwrap();
        prefill.node.push("d", 1, &[0], long()).wait().unwrap().wait().unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        let left = decode.node.left(name.as_str());
        block_on(prefill.node.closed(long())).unwrap();
        block_on(left);
    };
    // The first round fills what is kept for ever.
    come_and_move(0);
    thread::sleep(Duration::from_millis(500));
    let (before, memory) = (books(), resident());
    let (come, stop, at) = (AtomicUsize::new(0), AtomicBool::new(false), decode.node.addresses()[0]);
    let (mut most, mut most_memory, mut rounds) = (0, 0, 0);
    thread::scope(|scope| {
        (0..CROWDS).for_each(|_| _ = scope.spawn(|| crowd(at, &come, &stop)));
        while come.load(Ordering::Relaxed) < STRANGERS || rounds < 10 {
            rounds += 1;
            come_and_move(rounds);
            most = most.max(books()["descriptors"]);
            most_memory = most_memory.max(resident());
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "{rounds} peers among {come:?} strangers: {most} descriptors, {most_memory} KiB, {memory} KiB before"
    );
    let bound = before["descriptors"] + CROWDS * (OPEN + 1) + STRANGERS_MAX + ROOM;
    assert!(most <= bound, "{most} descriptors of at most {bound}");
    assert!(most_memory <= memory + MEMORY, "{most_memory} KiB, and {memory} KiB before");
    assert_books(&before, "after the strangers have gone");
}

/// An address whose port nobody has taken. Another process may take it before it is used, which is an error then.
fn a_free_port() -> SocketAddr {
    TcpListener::bind(listen()).unwrap().local_addr().unwrap()
}

/// Passes connections on for as long as the process lives, but for those whose place in the order is listed: they are
/// welcomed, and then lost, as when a crowd of strangers pushes them out.
fn between(proxy: &TcpListener, to: SocketAddr, lost: &[usize]) -> io::Result<()> {
    for (place, near) in (0..).zip(proxy.incoming()) {
        let (mut near, mut far) = (near?, TcpStream::connect(to)?);
        let mut greeting = [0; 24];
        near.read_exact(&mut greeting)?;
        far.write_all(&greeting)?;
        far.read_exact(&mut greeting)?;
        near.write_all(&greeting)?;
        if lost.contains(&place) {
            continue;
        }
        let (mut from_near, mut to_far) = (near.try_clone()?, far.try_clone()?);
        thread::spawn(move || io::copy(&mut from_near, &mut to_far).and(to_far.shutdown(Shutdown::Both)));
        thread::spawn(move || io::copy(&mut far, &mut near).and(near.shutdown(Shutdown::Both)));
    }
    Ok(())
}

#[test]
fn a_wish_that_is_lost_before_it_is_heard_is_made_again() {
    let proxy = TcpListener::bind(listen()).unwrap();
    let (at, own) = (proxy.local_addr().unwrap(), a_free_port());
    // The first connection is the introduction.
    thread::spawn(move || between(&proxy, own, &[1, 2, 4]));
    let told = NodeOptions { addresses: vec![at], listen: own, ..options("b") };
    let (a, b) = (member(Wire::Local, "a", Role::Both), member_with(Wire::Local, &told, Role::Both));
    a.meet(&b);
    // Each node needs a link, and the one that has dialed makes both.
    a.push_to(&b, 1, &[(0, 3)]);
    b.push_to(&a, 2, &[(1, 4)]);
}

#[test]
fn a_grant_to_a_peer_that_has_left_is_refused_and_holds_no_block() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    a.meet(&b);
    a.push_to(&b, 1, &[(0, 3)]);
    // The handle of a future that was made before the peer left, too.
    let early = b.node.grant("a", 2, &[4], long());
    let left = b.node.left("a");
    drop(a);
    block_on(left);
    for grant in [early, b.node.grant("a", 3, &[4], long())] {
        let error = grant.wait().unwrap_err();
        assert!(matches!(error, NodeError::Unknown { .. } | NodeError::Left { .. }), "{error}");
        assert!(error.to_string().contains("connect to its"), "{error}");
    }
    assert_freed(b.destination.as_ref().unwrap(), &[3, 4]);
    let next = member(Wire::Local, "a", Role::Prefill);
    next.meet(&b);
    next.push_to(&b, 4, &[(0, 3)]);
}

#[test]
fn blocks_that_one_peer_may_fill_are_granted_to_no_other() {
    let b = member(Wire::Local, "b", Role::Decode);
    let peers = ["p", "q"].map(|name| member(Wire::Local, name, Role::Prefill));
    peers.iter().for_each(|peer| peer.meet(&b));
    let grant = b.node.grant("p", 1, &[3, 4], long()).wait().unwrap();
    for (peer, request) in [("p", 2), ("q", 1)] {
        let error = b.node.grant(peer, request, &[5, 4], long()).wait().unwrap_err();
        let held = matches!(&error, NodeError::Transfer { source: KvError::Held { .. }, .. });
        assert!(held && error.to_string().contains("block 4"), "{error}");
    }
    assert!(b.destination.as_ref().unwrap().held(5).is_none(), "a refused grant holds no block");
    // The peer that was refused pushes in vain, and the one that was granted fills its blocks.
    let soon = Deadline::after(Duration::from_millis(200));
    let error = peers[1].node.push("b", 1, &[2, 3], soon).wait().unwrap().wait().unwrap_err();
    assert!(matches!(error, KvError::DeadlineExceeded { .. }), "{error}");
    peers[0].node.push("b", 1, &[0, 1], long()).wait().unwrap().wait().unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    crate::pair::assert_moved(b.destination.as_ref().unwrap(), &[(0, 3), (1, 4)]);
}

#[test]
fn a_peer_that_is_silent_costs_no_block_beyond_the_deadline() {
    let (a, b) = (member(Wire::Local, "a", Role::Both), member(Wire::Local, "b", Role::Both));
    a.meet(&b);
    a.push_to(&b, 1, &[(0, 3)]);
    let soon = || Deadline::after(Duration::from_millis(200));
    // A prefill that never pushes or offers, and a decode that never grants, pulls or revokes.
    let grant = b.node.grant("a", 2, &[4], soon()).wait().unwrap();
    let pull = b.node.pull("a", 3, &[5], soon()).wait().unwrap();
    let push = b.node.push("a", 4, &[6], soon()).wait().unwrap();
    let offer = b.node.offer("a", 5, &[7], soon()).wait().unwrap();
    // Nobody looks at the handles.
    assert_freed(b.destination.as_ref().unwrap(), &[4, 5]);
    assert_freed(b.source.as_ref().unwrap(), &[6, 7]);
    for error in [grant.wait().unwrap_err(), pull.wait().unwrap_err()] {
        assert!(matches!(*error.cause, KvError::GrantExpired { .. } | KvError::NotOffered { .. }), "{error}");
    }
    let errors = [push.wait().unwrap_err(), offer.wait().unwrap_err()];
    assert!(matches!(errors[0], KvError::DeadlineExceeded { .. }), "{}", errors[0]);
    assert!(
        matches!(errors[1], KvError::LeaseExpired { .. } | KvError::DeadlineExceeded { .. }),
        "{}",
        errors[1]
    );
    a.push_to(&b, 6, &[(0, 3)]);
}
