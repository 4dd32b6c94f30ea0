//! Peers that do wrong: each ends the program in time, with an error that says what is wrong.

use std::cmp::Ordering;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::free_port::free_port;
use super::peer::Peer;
use super::run::{Ended, Running, await_listening, pingpong};

/// A server that listens, and its port.
fn server(flags: &str) -> (Running, u16) {
    let port = free_port();
    let mut server = pingpong(&format!("--soft -p {port} {flags}"));
    await_listening(&mut server, port);
    (server, port)
}

/// Runs a server against a client that sends `text` and then stays.
fn server_that_hears(text: &[u8], flags: &str) -> Ended {
    let (server, port) = server(flags);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(text).unwrap();
    server.finish()
}

/// Runs a client against a server that reads its address, sends `text` and then stays.
fn client_that_hears(text: &[u8], flags: &str) -> Ended {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = pingpong(&format!("--soft -p {port} {flags} 127.0.0.1"));
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 52]).unwrap();
    stream.write_all(text).unwrap();
    client.finish()
}

#[test]
fn an_old_text_is_told_at_once_on_both_sides() {
    let begin = Instant::now();
    for ended in [
        server_that_hears(b"0000:001234:58320b\0", "--timeout 60"),
        client_that_hears(b"0000:001234:58320b\0", "--timeout 60"),
    ] {
        ended.failed_with(&["127.0.0.1", "old text `0000:001234:58320b`", "without a GID"]);
    }
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn another_text_is_quoted_on_both_sides() {
    let text = b"GET / HTTP/1.1\r\nHost: a name that is long enough\r\n\r\n";
    for ended in [server_that_hears(text, ""), client_that_hears(text, "")] {
        ended.failed_with(&["127.0.0.1", "`GET / HTTP/1.1", "no address of ibv_rc_pingpong"]);
    }
}

#[test]
fn a_peer_that_sends_nothing_is_waited_for_until_the_deadline_on_both_sides() {
    for ended in [server_that_hears(b"", "--timeout 1"), client_that_hears(b"", "--timeout 1")] {
        ended.failed_with(&["127.0.0.1", "sent nothing of an address within 1s", "--timeout"]);
    }
}

#[test]
fn a_peer_that_sends_half_an_address_is_quoted() {
    let ended = server_that_hears(b"0000:001", "--timeout 1");
    ended.failed_with(&["sent only `0000:001` of an address within 1s"]);
}

#[test]
fn a_client_that_never_comes_is_waited_for_until_the_deadline() {
    let port = free_port();
    let ended = pingpong(&format!("--soft -p {port} --timeout 1")).finish();
    ended.failed_with(&[&format!("no client came to TCP port {port} within 1s"), "--timeout"]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let port = free_port();
    let ended = pingpong(&format!("--soft -p {port} --timeout 1 127.0.0.1")).finish();
    ended.failed_with(&[&format!("127.0.0.1:{port}"), "start the server first"]);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let listener = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    pingpong(&format!("--soft -p {port}")).finish().failed_with(&[&format!("TCP port {port}"), "-p"]);
}

#[test]
fn a_peer_that_ends_before_its_address_is_told() {
    let (server, port) = server("");
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    server.finish().failed_with(&["ended before it sent an address"]);
}

#[test]
fn a_peer_that_ends_after_its_address_is_told() {
    let (server, port) = server("");
    let mut peer = Peer::new(port, 4096);
    peer.tell();
    drop(peer);
    server.finish().failed_with(&["ended before it sent `done`"]);
}

#[test]
fn a_peer_that_ends_in_between_is_told_with_the_number_of_exchanges() {
    let (server, port) = server("--timeout 5");
    let mut peer = Peer::new(port, 4096).meet();
    for _ in 0..3 {
        peer.exchange(4096);
    }
    drop(peer);
    server.finish().failed_with(&["after 3 of 1000 exchanges", "the peer"]);
}

#[test]
fn a_client_that_is_killed_ends_its_server_with_an_error() {
    for flags in ["-n 4000000000 --timeout 5", "-n 4000000000 -e --timeout 5"] {
        let (server, port) = server(flags);
        let mut client = pingpong(&format!("--soft -p {port} {flags} 127.0.0.1"));
        client.await_line("remote address");
        client.kill();
        server.finish().failed_with(&["of 4000000000 exchanges", "the peer"]);
    }
}

#[test]
fn a_peer_that_never_sends_its_message_is_waited_for_until_the_deadline() {
    for flags in ["--timeout 1", "--timeout 1 -e"] {
        let (server, port) = server(flags);
        let _peer = Peer::new(port, 4096).meet();
        server.finish().failed_with(&[
            "after 0 of 1000 exchanges",
            "the peer sent nothing for 1s",
            "--timeout",
        ]);
    }
}

#[test]
fn another_size_is_told_on_the_side_that_sees_it() {
    for (ours, theirs) in [(4096, 2048), (2048, 4096), (1, 1 << 20), (1 << 20, 1)] {
        let (server, port) = server(&format!("-s {ours} --timeout 5"));
        let client = pingpong(&format!("--soft -p {port} -s {theirs} --timeout 5 127.0.0.1")).finish();
        let told = match ours.cmp(&theirs) {
            Ordering::Less => format!("the peer sends messages of more than {ours} bytes, which -s is here"),
            _ => format!("the peer sends messages of {theirs} bytes, and -s is {ours} here"),
        };
        server.finish().failed_with(&["after 0 of 1000 exchanges", &told, "give both sides the same -s"]);
        client.failed_with(&["after 0 of 1000 exchanges", "the peer"]);
    }
}

#[test]
fn a_wrong_byte_is_found() {
    let (server, port) = server("-c -s 9000 -n 2");
    let mut peer = Peer::new(port, 9000).meet();
    for page in [0, 4096, 8192] {
        peer.region.copy_in(page, &[0]).unwrap();
    }
    peer.region.copy_in(5000, &[0x7a]).unwrap();
    peer.exchange(9000);
    peer.exchange(9000);
    let ended = server.finish();
    ended.failed_with(&["-c found wrong bytes in 1 of the pages"]);
    assert!(ended.stdout.ends_with("invalid data in page 1\n"), "{ended:?}");
}
