//! Garbage, oversized, silent and half-open connections, before and after the token.

use super::*;

#[test]
fn garbage_and_oversized_first_frames_are_dropped_at_once() {
    // Strangers may stay for a minute here: whoever is dropped was dropped for what it sent.
    let options = StoreOptions { hello_timeout: LONG, ..StoreOptions::new(TOKEN, 2) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let mut oversized = hello(0).encode();
    oversized[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let set = Request::Set { key: "k".into(), value: b"v".into() }.encode(0).encode();
    let mut unknown = hello(0).encode();
    unknown[6] = 99;
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 16],
        vec![0xff; 100_000],
        oversized,
        set,
        unknown,
    ] {
        let mut stream = stranger(server.address());
        // Dropped in the middle of it, perhaps.
        let _ = stream.write_all(&bytes);
        assert_dropped(&stream);
    }
    client(&server, 0, 2);
}

#[test]
fn garbage_and_oversized_frames_after_joining_are_dropped_and_the_rank_has_left() {
    let server = server(2);
    let mut other = client(&server, 1, 2);
    let mut stream = stranger(server.address());
    let number = join_by_hand(&stream, 0);
    let set = Request::Set { key: "k".into(), value: b"v".into() };
    let set = |id| message::with_number(number, &set.encode(id)).encode();
    stream.write_all(&set(1)).unwrap();
    assert_eq!(other.get("k", long()).unwrap(), b"v");
    let mut oversized = set(2);
    oversized[12..16].copy_from_slice(&(message::REQUEST_BYTES_MAX as u32 + 1).to_le_bytes());
    stream.write_all(&oversized).unwrap();
    assert_dropped(&stream);
    assert!(matches!(other.barrier("end", long()), Err(BootstrapError::RankLeft { rank: 0, .. })));
}

#[test]
fn silent_and_half_open_strangers_are_dropped_when_their_time_is_over() {
    let options = StoreOptions { hello_timeout: SHORT, ..StoreOptions::new(TOKEN, 2) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let silent = stranger(server.address());
    let mut begun = stranger(server.address());
    begun.write_all(&hello(0).encode()[..20]).unwrap();
    let half_open = stranger(server.address());
    half_open.shutdown(Shutdown::Write).unwrap();
    for stream in [&silent, &begun, &half_open] {
        assert_dropped(stream);
    }
    client(&server, 0, 2);
}

#[test]
fn a_request_that_is_begun_and_not_ended_is_dropped_when_its_time_is_over() {
    let options = StoreOptions { transfer_timeout: SHORT, ..StoreOptions::new(TOKEN, 2) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let mut stream = stranger(server.address());
    let number = join_by_hand(&stream, 0);
    // Having joined, a rank may be silent for as long as it likes.
    std::thread::sleep(SHORT * 2);
    let set = Request::Set { key: "k".into(), value: vec![1; 1000] };
    let set = message::with_number(number, &set.encode(1)).encode();
    stream.write_all(&set).unwrap();
    stream.read_exact(&mut [0; frame::HEADER_BYTES]).unwrap();
    stream.write_all(&set[..500]).unwrap();
    assert_dropped(&stream);
}

/// Says `bytes` one at a time, so slowly that it takes eight times as long as is allowed, until it is dropped.
fn say_slowly(mut stream: &TcpStream, bytes: &[u8]) -> usize {
    let pause = SHORT * 8 / bytes.len() as u32;
    for (at, byte) in bytes.iter().enumerate() {
        if stream.write_all(&[*byte]).is_err() {
            return at;
        }
        std::thread::sleep(pause);
    }
    bytes.len()
}

#[test]
fn slow_bytes_are_dropped_when_their_time_is_over_before_and_after_the_token() {
    let options = StoreOptions { hello_timeout: SHORT, ..StoreOptions::new(TOKEN, 2) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let slow = stranger(server.address());
    let hello = hello(0).encode();
    assert!(say_slowly(&slow, &hello) < hello.len(), "a byte now and then keeps it alive");
    assert_dropped(&slow);
    client(&server, 0, 2);

    let options = StoreOptions { transfer_timeout: SHORT, ..StoreOptions::new(TOKEN, 2) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let slow = stranger(server.address());
    let number = join_by_hand(&slow, 0);
    let set = Request::Set { key: "k".into(), value: vec![1; 20] }.encode(1);
    let set = message::with_number(number, &set).encode();
    assert!(say_slowly(&slow, &set) < set.len(), "a byte now and then keeps it alive");
    assert_dropped(&slow);
    client(&server, 1, 2);
}

#[test]
fn strangers_that_stay_silent_keep_no_rank_out() {
    // They may stay for longer than the test takes, and there is room for 8.
    let options = StoreOptions { hello_timeout: LONG * 2, connections_max: 8, ..StoreOptions::new(TOKEN, 4) };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let mut strangers: Vec<TcpStream> = (0..50).map(|_| stranger(server.address())).collect();
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = client(server, rank, 4);
                client.barrier("all here", long()).unwrap();
                client.barrier("end", long()).unwrap();
            });
        }
        strangers.extend((0..50).map(|_| stranger(server.address())));
    });
    // 8 at most are left of 100; the first to come were the first to go.
    for stream in &strangers[..92] {
        assert_dropped(stream);
    }
}
