//! Ranks that meet, wait, leave and end.

use super::*;

#[test]
fn ranks_meet_by_keys_gatherings_and_barriers() {
    let server = server(4);
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = client(server, rank, 4);
                assert_eq!((client.rank(), client.world()), (rank, 4));
                client.set(&format!("address {rank}"), &[rank as u8; 100], long()).unwrap();
                let next = (rank + 1) % 4;
                assert_eq!(client.get(&format!("address {next}"), long()).unwrap(), [next as u8; 100]);
                for round in 0..20_u8 {
                    let value = vec![round; rank as usize * 1000];
                    let all = client.all_gather("sizes", &value, long()).unwrap();
                    assert_eq!(all, [0, 1000, 2000, 3000].map(|len| vec![round; len]));
                }
                client.barrier("end", long()).unwrap();
            });
        }
    });
    server.close(long()).unwrap();
}

#[test]
fn the_largest_values_and_gatherings_go_through() {
    let server = server(2);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let mut client = client(server, rank, 2);
                let value = vec![rank as u8; VALUE_BYTES_MAX];
                let all = client.all_gather(&"n".repeat(KEY_BYTES_MAX), &value, long()).unwrap();
                assert_eq!(all, [vec![0; VALUE_BYTES_MAX], vec![1; VALUE_BYTES_MAX]]);
                client.set("k", &value, long()).unwrap();
                assert_eq!(client.get("k", long()).unwrap().len(), VALUE_BYTES_MAX);
            });
        }
    });
}

#[test]
fn a_key_that_nobody_sets_is_named_with_the_ranks_that_have_not_joined() {
    let server = server(3);
    let mut client = client(&server, 1, 3);
    match client.get("leader", Deadline::after(SECOND)).unwrap_err() {
        BootstrapError::KeyMissing { key, waited, absent } => {
            assert_eq!((key.as_str(), absent.first()), ("leader", [0, 2].as_slice()));
            assert!(waited >= SECOND / 2);
        }
        other => panic!("{other}"),
    }
    client.set("leader", b"here", long()).unwrap();
    assert_eq!(client.get("leader", long()).unwrap(), b"here");
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let server = server(40);
    let mut client = client(&server, 5, 40);
    match client.barrier("start", Deadline::after(SECOND)).unwrap_err() {
        BootstrapError::RanksMissing { name, missing, .. } => {
            assert_eq!((name.as_str(), missing.count()), ("start", 39));
            assert!(
                missing.to_string().starts_with("ranks 0, 1, 2, 3, 4, 6, ")
                    && missing.to_string().ends_with("15, 16 and 23 more")
            );
        }
        other => panic!("{other}"),
    }
    client.set("still", b"usable", long()).unwrap();
}

#[test]
fn a_rank_that_ends_is_named_at_once() {
    let server = server(2);
    let mut stays = client(&server, 0, 2);
    let mut goes = client(&server, 1, 2);
    goes.set("here", b"", long()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The other one is most likely waiting by then; if not, the answer is the same.
            std::thread::sleep(SHORT);
            drop(goes);
        });
        match stays.barrier("end", long()).unwrap_err() {
            BootstrapError::RankLeft { rank: 1, name } => assert_eq!(name, "end"),
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_rank_that_ends_right_after_it_has_joined_has_left() {
    let server = server(2);
    let mut stays = client(&server, 0, 2);
    drop(client(&server, 1, 2));
    let error = stays.barrier("start", Deadline::after(LONG / 6)).unwrap_err();
    assert!(matches!(error, BootstrapError::RankLeft { rank: 1, .. }), "{error}");
}

#[test]
fn a_store_that_ends_because_a_rank_has_left_names_that_rank() {
    let server = server(3);
    let [mut first, mut other, goes] = [0, 1, 2].map(|rank| client(&server, rank, 3));
    drop(goes);
    first.barrier("start", long()).unwrap_err();
    // Rank 0 ends, and the store with it, before another rank asks.
    drop((first, server));
    let error = other.barrier("start", long()).unwrap_err();
    assert!(matches!(error, BootstrapError::RankLeft { rank: 2, .. }), "{error}");
}

#[test]
fn a_client_waits_for_a_store_that_starts_late() {
    // A port that was free a moment ago; binding it again is the test's luck, and tried until it is.
    for _ in 0..20 {
        let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            StoreServer::bind(address, StoreOptions::new(TOKEN, 1))
        });
        let join = Join { address, token: TOKEN, rank: 0, world: 1 };
        let joined = StoreClient::connect(join, Deadline::after(LONG / 6));
        match late.join().unwrap() {
            Ok(_server) => {
                joined.unwrap().set("k", b"v", long()).unwrap();
                return;
            }
            Err(BootstrapError::Listen { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no port was free twice");
}

#[test]
fn a_server_that_is_dropped_ends_every_wait() {
    let server = server(2);
    let mut waits = client(&server, 0, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SHORT);
            drop(server);
        });
        assert!(matches!(waits.get("k", long()), Err(BootstrapError::Lost { .. })));
    });
    assert!(matches!(waits.set("k", b"v", long()), Err(BootstrapError::Lost { .. })));
}

#[test]
fn closing_waits_for_the_ranks_and_names_those_that_stay() {
    let one = server(2);
    let stays = client(&one, 1, 2);
    match one.close(Deadline::after(SHORT)).unwrap_err() {
        BootstrapError::StillJoined { ranks } => assert_eq!(ranks.to_string(), "rank 1"),
        other => panic!("{other}"),
    }
    drop(stays);

    let other = server(2);
    let mut first = client(&other, 0, 2);
    let mut second = client(&other, 1, 2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(SHORT);
            first.barrier("end", long()).unwrap();
        });
        scope.spawn(move || second.barrier("end", long()).unwrap());
        other.close(long()).unwrap();
    });
}

#[test]
fn times_without_end_are_no_times() {
    let options = StoreOptions {
        hello_timeout: Duration::MAX,
        transfer_timeout: Duration::MAX,
        ..StoreOptions::new(TOKEN, 1)
    };
    let server = StoreServer::bind(any_port(), options).unwrap();
    let mut client = client(&server, 0, 1);
    client.set("key", &[1; 1000], Deadline::after(Duration::MAX)).unwrap();
    assert_eq!(client.get("key", Deadline::after(Duration::MAX)).unwrap(), [1; 1000]);
    drop(client);
    server.close(long()).unwrap();
}
