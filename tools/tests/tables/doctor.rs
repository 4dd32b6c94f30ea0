//! Two doctors on the software device, and one whose peer ends at each step.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::free_port::free_port;
use super::run::{Ended, rdma_tools};

/// Bytes of an address on the wire, the zero at its end included.
const ADDRESS: usize = 52;

fn peer(port: u16, flags: &str) -> Ended {
    rdma_tools(&format!("doctor --soft --peer 127.0.0.1:{port} {flags}"))
}

/// Runs a doctor whose peer is `play`.
fn against(play: impl FnOnce(&mut std::net::TcpStream) + Send) -> Ended {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        scope.spawn(|| play(&mut listener.accept().unwrap().0));
        peer(port, "--timeout 3")
    })
}

#[test]
fn two_doctors_walk_all_steps() {
    let port = free_port();
    let [listened, came] = thread::scope(|scope| {
        let listens = scope.spawn(|| rdma_tools(&format!("doctor --soft --listen {port}")));
        let comes = peer(port, "");
        [listens.join().unwrap(), comes]
    });
    for ended in [listened, came] {
        assert!(ended.stdout.ends_with("step 6 of 6: compare the bytes that arrived: done\n"), "{ended:?}");
        assert_eq!(ended.stdout.matches(": done\n").count(), 6, "{ended:?}");
        assert!(!ended.stderr.contains("step"), "{ended:?}");
    }
}

#[test]
fn a_peer_that_does_not_listen_ends_the_second_step() {
    let ended = peer(free_port(), "--timeout 1");
    let stdout = ended.failed_with(&["step 2 of 6: meet the other doctor over TCP", "not RDMA"]);
    assert!(
        stdout.ends_with("step 1 of 6: open the device, register a buffer, create a queue pair: done\n"),
        "{stdout}"
    );
}

#[test]
fn a_peer_that_ends_before_its_address_ends_the_third_step() {
    against(|_| {}).failed_with(&["step 3 of 6: exchange the addresses"]);
}

#[test]
fn a_peer_whose_queue_pair_is_gone_ends_the_fifth_step() {
    let ended = against(|stream| {
        let mut address = [0; ADDRESS];
        stream.read_exact(&mut address).unwrap();
        // LID, then the number of a queue pair that nobody has.
        address[5..11].copy_from_slice(b"00dead");
        stream.write_all(&address).unwrap();
        stream.write_all(b"done\0").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let stdout = ended.failed_with(&["step 5 of 6: send messages in turns", "UDP port 4791"]);
    assert_eq!(stdout.matches(": done\n").count(), 4, "{stdout}");
}

#[test]
fn a_peer_without_a_port_is_refused() {
    rdma_tools("doctor --soft --peer localhost").failed_with(&["--peer is HOST:PORT"]);
    rdma_tools("doctor --soft --peer localhost:x").failed_with(&["--peer localhost:x has no port"]);
    // A host is no flag.
    rdma_tools("doctor --soft --peer=--help:1").failed_with(&["step 2 of 6", "--help:1"]);
}
