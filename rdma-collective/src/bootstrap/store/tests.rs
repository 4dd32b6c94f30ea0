//! Each decision of the store. Sequences of them are held against a model in `fuzz`.

use std::net::Ipv4Addr;

use super::*;

const TOKEN: JobToken = JobToken::from_bytes([1; 16]);

fn hello(rank: u32, attempt: u64) -> Hello {
    Hello { token: TOKEN, rank, world: 2, attempt, run: run_hash(""), pid: 1 }
}

fn from(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A store of two ranks, connected as 10 and 11.
fn store() -> (Store, Instant) {
    let mut store = Store::new(TOKEN, 2, Served::default());
    store.join(10, from(1), &hello(0, 5)).unwrap();
    store.join(11, from(2), &hello(1, 5)).unwrap();
    (store, Instant::now())
}

fn replies(store: &mut Store) -> Vec<(ConnectionId, u32, Reply)> {
    std::iter::from_fn(|| store.poll_effect())
        .map(|effect| match effect {
            Effect::Send { connection, frame } => (connection, frame.id, Reply::decode(&frame).unwrap()),
            Effect::Close { connection } => panic!("{connection} is closed"),
        })
        .collect()
}

fn set(key: &str, value: &[u8]) -> Request {
    Request::Set { key: key.into(), value: value.into() }
}

fn get(key: &str, wait_ms: u32) -> Request {
    Request::Get { wait_ms, key: key.into() }
}

fn gather(name: &str, value: &[u8], wait_ms: u32) -> Request {
    Request::Gather { wait_ms, name: name.into(), value: value.into() }
}

fn after(now: Instant, millis: u64) -> Instant {
    now + Duration::from_millis(millis)
}

#[test]
fn who_may_join() {
    let mut store = Store::new(TOKEN, 2, Served::default());
    let other = JobToken::from_bytes([2; 16]);
    let refused = |store: &mut Store, hello| store.join(7, from(9), &hello).unwrap_err();
    assert_eq!(refused(&mut store, Hello { token: other, ..hello(0, 5) }), Refusal::OtherToken);
    assert_eq!(
        refused(&mut store, Hello { world: 3, ..hello(0, 5) }),
        Refusal::OtherWorld { store: 2, client: 3 }
    );
    assert_eq!(refused(&mut store, hello(2, 5)), Refusal::NoSuchRank { rank: 2, world: 2 });
    store.join(8, from(1), &hello(1, 5)).unwrap();
    assert_eq!(
        refused(&mut store, hello(1, 6)),
        Refusal::JoinedTwice { rank: 1, first: "127.0.0.1:1".into() }
    );
    assert_eq!((store.present().count, store.present().first), (1, vec![1]));
}

#[test]
fn a_second_attempt_takes_the_place_of_one_that_did_not_know_it_had_joined() {
    let (mut store, now) = store();
    store.join(12, from(3), &hello(1, 5)).unwrap();
    assert_eq!(store.poll_effect(), Some(Effect::Close { connection: 11 }));
    // The process knows now that it has joined: a third connection is not the same process.
    store.handle_request(now, 12, 0, set("a", b""));
    assert_eq!(replies(&mut store), [(12, 0, Reply::Done)]);
    assert!(matches!(store.join(13, from(4), &hello(1, 5)), Err(Refusal::JoinedTwice { rank: 1, .. })));
}

#[test]
fn a_rank_that_was_never_seen_has_not_left() {
    let (mut store, now) = store();
    store.handle_request(now, 10, 1, gather("all", b"", 1000));
    store.handle_disconnect(11);
    assert_eq!(replies(&mut store), []);
    store.join(12, from(3), &hello(1, 6)).unwrap();
    store.handle_request(now, 12, 1, gather("all", b"", 1000));
    assert_eq!(replies(&mut store).len(), 2);
}

#[test]
fn a_value_is_there_at_once_or_when_it_is_set() {
    let (mut store, now) = store();
    store.handle_request(now, 10, 1, get("a", 1000));
    assert!(store.is_waiting(10));
    assert_eq!(store.poll_timeout(), Some(after(now, 1000)));
    store.handle_request(now, 11, 2, set("a", b"x"));
    let both = [(11, 2, Reply::Done), (10, 1, Reply::Value(b"x".into()))];
    assert_eq!(replies(&mut store), both);
    assert!(!store.is_waiting(10));
    store.handle_request(now, 11, 3, set("a", b"y"));
    store.handle_request(now, 10, 4, get("a", 0));
    assert_eq!(replies(&mut store), [(11, 3, Reply::Done), (10, 4, Reply::Value(b"y".into()))]);
}

#[test]
fn a_wait_ends_in_time_and_says_who_is_missing() {
    let mut store = Store::new(TOKEN, 2, Served::default());
    let now = Instant::now();
    store.join(10, from(1), &hello(0, 5)).unwrap();
    store.handle_request(now, 10, 1, get("a", 100));
    store.handle_timeout(after(now, 99));
    assert_eq!(replies(&mut store), []);
    store.handle_timeout(after(now, 100));
    let absent = Reply::TimedOut(Ranks { count: 1, first: vec![1] });
    assert_eq!(replies(&mut store), [(10, 1, absent.clone())]);
    store.handle_request(now, 10, 2, gather("all", b"", 100));
    store.handle_timeout(after(now, 100));
    assert_eq!(replies(&mut store), [(10, 2, absent)]);
    assert_eq!(store.poll_timeout(), None);
}

#[test]
fn a_gathering_gives_every_rank_the_values_of_all() {
    let (mut store, now) = store();
    store.handle_request(now, 11, 1, gather("all", b"one", 1000));
    store.handle_request(now, 10, 2, gather("all", b"zero", 1000));
    let all = Reply::Gathered(vec![b"zero".into(), b"one".into()]);
    assert_eq!(replies(&mut store), [(10, 2, all.clone()), (11, 1, all)]);
    // The name is free again.
    store.handle_request(now, 10, 3, gather("all", b"", 10));
    assert!(store.is_waiting(10));
}

#[test]
fn who_has_given_up_does_not_complete_a_gathering() {
    let (mut store, now) = store();
    store.handle_request(now, 10, 1, gather("all", b"", 100));
    store.handle_timeout(after(now, 100));
    assert_eq!(replies(&mut store).len(), 1);
    store.handle_request(after(now, 101), 11, 1, gather("all", b"", 100));
    store.handle_timeout(after(now, 201));
    assert_eq!(replies(&mut store), [(11, 1, Reply::TimedOut(Ranks { count: 1, first: vec![0] }))]);
}

#[test]
fn who_has_given_up_before_others_is_not_said_to_be_missing() {
    let mut store = Store::new(TOKEN, 3, Served::default());
    let now = Instant::now();
    for (connection, rank) in [(10, 0), (11, 1)] {
        store.join(connection, from(10 + connection as u16), &Hello { world: 3, ..hello(rank, 5) }).unwrap();
    }
    let missing = |rank| Reply::TimedOut(Ranks { count: 1, first: vec![rank] });
    store.handle_request(now, 10, 1, gather("all", b"", 100));
    store.handle_request(now, 11, 1, gather("all", b"", 101));
    store.handle_timeout(after(now, 100));
    assert_eq!(replies(&mut store), [(10, 1, missing(2))]);
    store.handle_timeout(after(now, 101));
    assert_eq!(replies(&mut store), [(11, 1, missing(2))]);
    // Unless all came, at some time.
    store.join(12, from(3), &Hello { world: 3, ..hello(2, 5) }).unwrap();
    store.handle_request(now, 10, 2, gather("all", b"", 100));
    store.handle_request(now, 11, 2, gather("all", b"", 200));
    store.handle_timeout(after(now, 100));
    store.handle_request(after(now, 150), 12, 2, gather("all", b"", 100));
    store.handle_timeout(after(now, 250));
    let told = [(10, 2, missing(2)), (11, 2, missing(0)), (12, 2, missing(0))];
    assert_eq!(replies(&mut store), told);
}

#[test]
fn ranks_that_wait_in_different_gatherings_are_told_each_other() {
    let (mut store, now) = store();
    store.handle_request(now, 10, 1, gather("a", b"", 100));
    store.handle_request(now, 11, 1, gather("b", b"", 100));
    store.handle_timeout(after(now, 100));
    let missing = |rank| Reply::TimedOut(Ranks { count: 1, first: vec![rank] });
    assert_eq!(replies(&mut store), [(10, 1, missing(1)), (11, 1, missing(0))]);
}

#[test]
fn a_rank_that_leaves_ends_every_gathering_and_no_key() {
    let mut store = Store::new(TOKEN, 3, Served::default());
    let now = Instant::now();
    for (connection, rank) in [(10, 0), (11, 1), (12, 2)] {
        store.join(connection, from(1), &Hello { world: 3, ..hello(rank, 5) }).unwrap();
        store.handle_request(now, connection, 0, set("here", b""));
    }
    replies(&mut store);
    store.handle_request(now, 10, 1, gather("all", b"", 1000));
    store.handle_request(now, 11, 1, get("a", 1000));
    store.handle_disconnect(12);
    let left = Reply::Refused(Refusal::Left { rank: 2 });
    assert_eq!(replies(&mut store), [(10, 1, left.clone())]);
    assert!(store.is_waiting(11));
    store.handle_request(now, 10, 2, gather("again", b"", 1000));
    assert_eq!(replies(&mut store), [(10, 2, left.clone())]);
    // Whoever leaves then may do so because of the first one.
    store.handle_disconnect(10);
    store.handle_timeout(after(now, 1000));
    replies(&mut store);
    store.handle_request(now, 11, 2, gather("again", b"", 1000));
    assert_eq!(replies(&mut store), [(11, 2, left)]);
    assert!(matches!(
        store.join(13, from(2), &Hello { world: 3, ..hello(2, 6) }),
        Err(Refusal::JoinedTwice { rank: 2, .. })
    ));
}

/// A store of three ranks, the last of which has not joined. The first has waited in vain, and the second still waits.
fn store_of_two_that_wait() -> Store {
    let mut store = Store::new(TOKEN, 3, Served::default());
    let now = Instant::now();
    for (connection, rank) in [(10, 0), (11, 1)] {
        store.join(connection, from(10 + connection as u16), &Hello { world: 3, ..hello(rank, 5) }).unwrap();
        store.handle_request(now, connection, 1, gather("all", b"", 100 * (1 + rank)));
    }
    store.handle_timeout(after(now, 100));
    assert_eq!(replies(&mut store).len(), 1);
    store
}

#[test]
fn a_rank_that_leaves_because_it_has_waited_in_vain_is_not_at_fault() {
    let mut store = store_of_two_that_wait();
    store.handle_disconnect(10);
    assert_eq!(replies(&mut store), [(11, 1, Reply::TimedOut(Ranks { count: 1, first: vec![2] }))]);
    // A rank that comes again is as good as new.
    let mut store = store_of_two_that_wait();
    store.handle_request(Instant::now(), 10, 2, gather("all", b"", 1000));
    store.handle_disconnect(10);
    assert_eq!(replies(&mut store), [(11, 1, Reply::Refused(Refusal::Left { rank: 0 }))]);
}

#[test]
fn a_store_that_ends_says_who_did_not_come_or_who_has_left() {
    let (mut idle, _) = store();
    idle.say_why();
    assert_eq!(replies(&mut idle), []);
    let mut waited_for = store_of_two_that_wait();
    waited_for.say_why();
    assert_eq!(replies(&mut waited_for), [(11, 1, Reply::TimedOut(Ranks { count: 1, first: vec![2] }))]);
    let (mut left, now) = store();
    left.handle_request(now, 10, 1, set("here", b""));
    left.handle_disconnect(10);
    replies(&mut left);
    left.say_why();
    assert_eq!(replies(&mut left), [(11, 0, Reply::Refused(Refusal::Left { rank: 0 }))]);
}

#[test]
fn the_values_of_a_rank_are_bounded_together() {
    let (mut store, now) = store();
    let value = vec![0; 64 * 1024];
    let mut held = 0;
    let full = loop {
        store.handle_request(now, 10, 0, set(&format!("key {held}"), &value));
        match replies(&mut store).remove(0).2 {
            Reply::Done => held += 1,
            other => break other,
        }
        assert!(held < 2000, "no bound");
    };
    assert_eq!(full, Reply::Refused(Refusal::Full { bytes_max: RANK_BYTES_MAX as u64 }));
    // The other rank has its own room.
    store.handle_request(now, 11, 0, set("of the other", &value));
    // A value that is replaced makes room, whoever replaces it.
    store.handle_request(now, 10, 1, set("key 0", b""));
    store.handle_request(now, 10, 2, set("one more", &value[..value.len() - 200]));
    store.handle_request(now, 11, 1, set("key 1", b""));
    store.handle_request(now, 10, 3, set("as long as that", &value[..value.len() - 200]));
    let done = [(11, 0), (10, 1), (10, 2), (11, 1), (10, 3)].map(|(by, id)| (by, id, Reply::Done));
    assert_eq!(replies(&mut store), done);
}

#[test]
fn a_key_of_a_rank_is_set_by_that_rank_alone() {
    let (mut store, now) = store();
    let own = ["comm/world/0/1/next", "comm/world/split2/color3/4/1/previous", "comm/0/1/1/next"];
    for key in own {
        store.handle_request(now, 10, 0, set(key, b"false"));
        assert_eq!(replies(&mut store), [(10, 0, Reply::Refused(Refusal::KeyOwned { owner: 1 }))], "{key}");
        store.handle_request(now, 11, 0, set(key, b"true"));
        store.handle_request(now, 10, 1, get(key, 0));
        assert_eq!(
            replies(&mut store),
            [(11, 0, Reply::Done), (10, 1, Reply::Value(b"true".into()))],
            "{key}"
        );
    }
    for key in ["leader", "address/1/next", "comm/world/epoch/next", "comm/1", "comm/"] {
        store.handle_request(now, 10, 0, set(key, b""));
        store.handle_request(now, 11, 0, set(key, b""));
        assert_eq!(replies(&mut store), [(10, 0, Reply::Done), (11, 0, Reply::Done)], "{key}");
    }
}

#[test]
fn gatherings_are_bounded_together() {
    let mut store = Store::new(TOKEN, 100, Served::default());
    store.join(10, from(1), &Hello { world: 100, ..hello(0, 5) }).unwrap();
    store.handle_request(Instant::now(), 10, 1, gather("all", &[0; 50_000], 1000));
    let refused = Refusal::TooLarge { bytes: 5_000_400, bytes_max: GATHERED_BYTES_MAX as u64 };
    assert_eq!(replies(&mut store), [(10, 1, Reply::Refused(refused))]);
}
