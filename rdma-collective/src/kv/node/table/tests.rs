//! The table's decisions, without I/O but for the connections by which peers are met.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::time::Instant;

use super::*;
use crate::kv::PoolUse;
use crate::kv::layout::{Layout, Model, Order};
use crate::kv::node::jobs::LinkName;
use crate::kv::node::link_slot::Way;
use crate::kv::node::message::{NOTE_BYTES, Note, Wish};
use crate::liveness::Process;

fn blob(name: &str, incarnation: u64) -> NodeBlob {
    let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart)).unwrap();
    NodeBlob {
        job: 7,
        name: NodeName::new(name).unwrap(),
        incarnation,
        process: Process::default(),
        expires: 0,
        soft: true,
        addresses: vec!["10.0.0.1:80".parse().unwrap()],
        source: Some((PoolUse::Source, layout.clone())),
        destination: Some(layout),
    }
}

/// The table of node "m".
fn table() -> Table {
    let options = NodeOptions { peers_max: 3, ..NodeOptions::new("m", "127.0.0.1:0".parse().unwrap()) };
    Table::new(blob("m", 1), &options, &Arc::new(Nudge::new().unwrap()))
}

/// Both ends of a connection.
fn connection() -> (Arc<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(near), listener.accept().unwrap().0)
}

/// Has the table meet node `name`, which it has dialed; returns both ends of the connection.
fn dial(table: &mut Table, name: &str) -> (Arc<TcpStream>, TcpStream) {
    table.connect(blob(name, 2), soon()).unwrap();
    let (near, far) = connection();
    assert!(table.welcomed(&blob(name, 2), Arc::clone(&near), "10.0.0.1:80".parse().unwrap()));
    (near, far)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// The state of a peer, as another process of its name, or the same, asks to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Not,
    Dialing,
    /// An introduction was said, and has no answer yet.
    Asking,
    Met,
    MetAndGone,
}

/// Puts node "a" or "z" into the table; returns what must live as long as the peer.
fn known(table: &mut Table, name: &str, state: Known) -> Option<TcpStream> {
    if state == Known::Not {
        return None;
    }
    if matches!(state, Known::Dialing | Known::Asking) {
        table.connect(blob(name, 2), soon()).unwrap();
        assert!(table.asks(&blob(name, 2), state == Known::Asking));
        return None;
    }
    let (_, far) = dial(table, name);
    (state == Known::Met).then_some(far)
}

#[test]
fn whoever_introduces_itself_is_met_or_told_why_not() {
    use Known::{Asking, Dialing, Met, MetAndGone, Not};
    let (crossed, taken) = (Err(Reason::Crossed), Err(Reason::NameTaken));
    for (state, incarnation, from_a, from_z) in [
        (Not, 2, Ok(()), Ok(())),
        (Dialing, 2, Ok(()), Ok(())),
        // Names before "m" go first, those behind it wait for this node's introduction.
        (Asking, 2, Ok(()), crossed),
        (Dialing, 3, Ok(()), Ok(())),
        (Met, 2, crossed, crossed),
        (Met, 3, taken, taken),
        (MetAndGone, 2, Ok(()), Ok(())),
        (MetAndGone, 3, Ok(()), Ok(())),
    ] {
        for (name, expected) in [("a", from_a), ("z", from_z)] {
            let mut table = table();
            let _far = known(&mut table, name, state);
            let heard = table.introduced(1, blob(name, incarnation), connection().0);
            assert_eq!(heard, expected, "{name} {incarnation}, {state:?}");
        }
    }
    let mut table = table();
    assert_eq!(table.introduced(2, blob("a", 2), connection().0), Err(Reason::Gone));
    assert_eq!(table.introduced(1, blob("m", 2), connection().0), Err(Reason::NameTaken));
    let useless = NodeBlob { source: None, destination: None, ..blob("a", 2) };
    assert_eq!(table.introduced(1, useless, connection().0), Err(Reason::Unfit));
    let other = NodeBlob { soft: false, ..blob("a", 2) };
    assert_eq!(table.introduced(1, other, connection().0), Err(Reason::Unfit));
    let _far = ["a", "b", "c"].map(|name| known(&mut table, name, Met));
    assert_eq!(table.introduced(1, blob("d", 2), connection().0), Err(Reason::Full));
    assert!(matches!(table.connect(blob("d", 2), soon()), Err(NodeError::Full { max: 3, .. })));
}

/// The links that are to be made.
fn makes(table: &mut Table) -> Vec<(Way, u32)> {
    let makes = std::iter::from_fn(|| table.jobs.pop(1)).map(|job| match job {
        Job::Make { link, .. } => (link.way, link.number),
        _ => panic!("another job"),
    });
    makes.collect()
}

/// The notes that are to be sent.
fn notes(table: &mut Table) -> Vec<Note> {
    let notes = table.words.drain(..).map(|(_, word)| word.try_into().ok().and_then(Note::decode));
    notes.map(|note| note.expect("a note")).collect()
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[test]
fn the_node_that_has_dialed_makes_each_link_once() {
    let (mut table, now) = (table(), Instant::now());
    assert!(matches!(table.need("a", Way::Out, now), Err(NodeError::Unknown { .. })));
    table.connect(blob("a", 2), soon()).unwrap();
    // Nothing is made before the two have met.
    assert!(matches!(table.need("a", Way::Out, now), Ok((_, 2))));
    assert_eq!(makes(&mut table), []);
    let (near, _far) = dial(&mut table, "a");
    for _ in 0..3 {
        assert_eq!(table.need("a", Way::Out, now).unwrap(), (name("a"), 2));
    }
    assert_eq!(makes(&mut table), [(Way::Out, 1)]);
    let a = name("a");
    let mut wants = |way, last, expected: &[(Way, u32)]| {
        assert!(table.hear(&a, &near, &Note::Want { way, last }.encode(), now));
        assert_eq!(makes(&mut table), expected);
    };
    // The peer wants the link that is being made, whether it has heard of it or not.
    wants(Way::Out, 0, &[]);
    wants(Way::Out, 1, &[]);
    wants(Way::In, 0, &[(Way::In, 1)]);
    let failed = |table: &mut Table, way, number| {
        table.link_failed((&name("a"), 2), LinkName { way, number }, &NodeError::Closed);
        assert_eq!(notes(table), [Note::Failed { way: way.at_peer(), number }]);
    };
    // A link that was not made is made again, by whoever needs it next.
    failed(&mut table, Way::Out, 1);
    assert!(table.need("a", Way::Out, now).is_ok());
    assert_eq!(makes(&mut table), [(Way::Out, 2)]);
    // The end of an earlier one says nothing about that.
    failed(&mut table, Way::Out, 1);
    assert!(table.need("a", Way::Out, now).is_ok());
    assert_eq!(makes(&mut table), []);
    // And one that takes too long is made anew.
    assert!(table.need("a", Way::Out, now + 2 * MAKE_WITHIN).is_ok());
    assert_eq!(makes(&mut table), [(Way::Out, 3)]);
    // A wish that was lost goes out under the next number, unless nobody waits for that link any more.
    let mut again = |name, way, number| {
        let lost = table.make_again(&blob(name, 2), LinkName { way, number }, (soon(), 0));
        (lost, makes(&mut table))
    };
    assert_eq!(again("a", Way::Out, 3), (true, vec![(Way::Out, 4)]));
    assert_eq!(again("a", Way::Out, 3), (false, vec![]));
    assert_eq!(again("b", Way::Out, 4), (false, vec![]));
    for breach in [
        Note::Failed { way: Way::In, number: 1 }.encode(),
        Note::Want { way: Way::Out, last: 5 }.encode(),
        [9; NOTE_BYTES],
    ] {
        assert!(!table.hear(&a, &near, &breach, now), "{breach:?}");
        assert!(table.hear(&a, &connection().0, &breach, now), "another connection's words");
    }
}

#[test]
fn the_other_node_wants_links_and_grants_each_wish_once() {
    let (mut table, now) = (table(), Instant::now());
    let (near, _far) = connection();
    table.introduced(1, blob("a", 2), Arc::clone(&near)).unwrap();
    let welcome = table.words.pop().unwrap().1;
    assert_eq!(Answer::decode(&welcome).unwrap(), Answer::Welcome(Vec::new()));
    let wish = |number, way| Wish { to: 1, from: name("a"), incarnation: 2, way, number, blob: Vec::new() };
    for _ in 0..3 {
        assert_eq!(table.need("a", Way::In, now).unwrap(), (name("a"), 2));
    }
    assert_eq!(notes(&mut table), [Note::Want { way: Way::Out, last: 0 }]);
    assert_eq!(table.hear_wish(&wish(1, Way::Out), now), Ok(()));
    assert_eq!(table.hear_wish(&wish(1, Way::Out), now), Err(Reason::Unknown), "that one was granted");
    assert_eq!(table.hear_wish(&Wish { to: 9, ..wish(2, Way::Out) }, now), Err(Reason::Gone));
    assert_eq!(table.hear_wish(&Wish { incarnation: 9, ..wish(2, Way::Out) }, now), Err(Reason::Unknown));
    assert_eq!(table.hear_wish(&wish(1, Way::In), now), Ok(()), "the other direction counts for itself");
    let told = |table: &mut Table, number| {
        let ticket = table.tickets.add((name("a"), 2), About::Link(Way::In), now);
        // In two pieces.
        let note = Note::Failed { way: Way::In, number }.encode();
        assert!(table.hear(&name("a"), &near, &note[..4], now));
        assert!(table.hear(&name("a"), &near, &note[4..], now));
        matches!(table.tickets.take_error(ticket), Some(NodeError::LinkUnmade { .. }))
    };
    assert!(!told(&mut table, 0), "an earlier link has failed");
    assert!(told(&mut table, 1));
    assert!(table.need("a", Way::In, now).is_ok());
    assert_eq!(notes(&mut table), [Note::Want { way: Way::Out, last: 1 }]);
    // The peer has failed to make the next one before this node has heard of it.
    assert!(told(&mut table, 3));
    assert!(table.need("a", Way::In, now).is_ok());
    assert!(!told(&mut table, 0));
    assert!(told(&mut table, 1), "the peer was making that one when it heard of the want");
    notes(&mut table);
    let want = Note::Want { way: Way::In, last: 0 }.encode();
    assert!(!table.hear(&name("a"), &near, &want, now), "this node makes no links");
    assert_eq!(makes(&mut table), []);
    // A peer that wishes on and on is granted a few.
    assert_eq!(table.hear_wish(&wish(4, Way::Out), now), Ok(()));
    for (unmade, wanted) in [(3, vec![]), (4, vec![Note::Want { way: Way::Out, last: 4 }])] {
        table.want_again((&name("a"), 2), LinkName { way: Way::In, number: unmade });
        assert!(table.need("a", Way::In, now).is_ok());
        assert_eq!(notes(&mut table), wanted);
    }
    let all = (5..30).find(|number| table.hear_wish(&wish(*number, Way::Out), now).is_err()).unwrap();
    assert!(all < 30);
    assert_eq!(table.hear_wish(&wish(all, Way::Out), now), Err(Reason::Failed));
    table.granted(&wish(1, Way::Out));
    assert_eq!(table.hear_wish(&wish(all, Way::Out), now), Ok(()));
}

#[test]
fn whoever_wants_a_link_again_is_told_that_all_rails_were_tried_before_it_has_looked() {
    let (mut table, now) = (table(), Instant::now());
    let (near, _far) = connection();
    table.introduced(1, blob("a", 2), Arc::clone(&near)).unwrap();
    assert!(table.need("a", Way::In, now).is_ok());
    let ticket = table.tickets.add((name("a"), 2), About::Link(Way::In), now + MAKE_WITHIN);
    let wish = Wish { to: 1, from: name("a"), incarnation: 2, way: Way::Out, number: 1, blob: Vec::new() };
    assert_eq!(table.hear_wish(&wish, now), Ok(()));
    table.granted(&wish);
    table.want_again((&name("a"), 2), LinkName { way: Way::In, number: 1 });
    let failed = Note::Failed { way: Way::In, number: 1 }.encode();
    assert!(table.hear(&name("a"), &near, &failed, now));
    assert!(matches!(table.tickets.take_error(ticket), Some(NodeError::LinkUnmade { .. })));
}

#[test]
fn whoever_waits_for_a_peer_is_told_that_it_has_gone() {
    let now = Instant::now();
    for gone in 0..5 {
        let mut table = table();
        let met = if gone == 0 { None } else { Some(dial(&mut table, "a").0) };
        if gone == 0 {
            table.connect(blob("a", 2), soon()).unwrap();
        }
        let [ticket, of_other_process, of_other_peer] = [("a", 2), ("a", 9), ("b", 2)]
            .map(|(peer, of)| table.tickets.add((name(peer), of), About::Link(Way::Out), now + MAKE_WITHIN));
        let a = name("a");
        match gone {
            0 => table.fail_meeting(&blob("a", 2), &NodeError::Closed),
            1 => table.forget((&a, 2), None),
            2 => {
                table.forget((&a, 2), Some(&connection().0));
                assert_eq!(table.has_met(&a, 2), Some(true), "an earlier connection has ended");
                table.forget((&a, 2), met.as_ref());
            }
            // Another process of the name comes, when this one's connection has ended.
            3 => table.introduced(1, blob("a", 3), connection().0).unwrap(),
            _ => table.close(),
        }
        let expected = if matches!(gone, 0 | 4) { "the node was closed" } else { "node a has left" };
        let error = table.tickets.take_error(ticket).unwrap();
        assert!(error.to_string().contains(expected), "{gone}: {error}");
        assert_eq!(table.has_met(&a, 2), None);
        let others = [of_other_process, of_other_peer].map(|ticket| table.tickets.take_error(ticket));
        assert!(others.iter().all(Option::is_none), "{others:?}");
    }
}

#[test]
fn connecting_again_dials_as_long_as_the_later_deadline() {
    let mut table = table();
    let (early, late) = (Deadline::after(MAKE_WITHIN), Deadline::after(2 * MAKE_WITHIN));
    for deadline in [early, late, early] {
        table.connect(blob("a", 2), deadline).unwrap();
    }
    assert_eq!(table.dialing(&blob("a", 2)), Some(late));
    assert_eq!(table.dialing(&blob("a", 3)), None);
    assert!(!table.asks(&blob("a", 3), true));
    table.forget((&name("a"), 2), None);
    assert_eq!(table.dialing(&blob("a", 2)), None, "nobody dials a peer that was forgotten");
    assert!(!table.welcomed(&blob("a", 2), connection().0, "10.0.0.1:80".parse().unwrap()));
}

/// Prints how long the table's lock is held for many requests of many peers, in all.
#[test]
#[ignore = "a measurement: run it alone, in release, with --nocapture"]
fn a_hundred_thousand_requests_over_512_peers() {
    const PEERS: u64 = 512;
    const REQUESTS: u64 = 100_000;
    let mut options = NodeOptions::new("m", "127.0.0.1:0".parse().unwrap());
    (options.peer_transfers_max, options.waiting_max) = (1, usize::MAX);
    let mut table = Table::new(blob("m", 1), &options, &Arc::new(Nudge::new().unwrap()));
    let names: Vec<_> = (0..PEERS).map(|peer| name(&format!("n{peer}"))).collect();
    names.iter().for_each(|name| _ = table.connect(blob(name.as_str(), 2), soon()).unwrap());
    let start = Instant::now();
    let asks = |request: u64| Asks {
        peer: names[(request % PEERS) as usize].as_str(),
        way: Way::Out,
        bytes: 1,
        // Not in the order of the requests.
        deadline: start + Duration::from_secs(1000 + request * 7919 % 1000),
    };
    let since = |what: &str, start: Instant| println!("{what}: {:?}", start.elapsed());
    let mut under_way: VecDeque<_> =
        (0..PEERS).map(|request| table.take_room(asks(request), None).unwrap()).collect();
    let mut tickets = BTreeMap::new();
    let began = Instant::now();
    for request in PEERS..REQUESTS {
        let ticket =
            table.add_request((names[(request % PEERS) as usize].clone(), 2), asks(request)).unwrap();
        table.wait_for_room(asks(request), ticket).unwrap_err();
        _ = table.tickets.sleep(ticket, Waker::noop());
        tickets.insert(ticket, request);
    }
    since("asked, and wait for room", began);
    let began = Instant::now();
    names.iter().for_each(|name| table.tickets.wake(name, &mut table.woken));
    since("512 peers are met", began);
    let began = Instant::now();
    for _ in 0..REQUESTS / 4 {
        // A transfer ends, and the node's thread gives its room to the first of the peer.
        drop(under_way.pop_front());
        for ticket in table.admission.admit() {
            let request = asks(tickets[&ticket]);
            under_way.push_back(table.take_room(request, Some(ticket)).unwrap());
            _ = table.tickets.remove(ticket);
        }
        table.wake_due(start);
        table.next_deadline().unwrap();
    }
    assert_eq!(under_way.len() as u64, PEERS);
    since("25,000 end, and as many begin", began);
    let began = Instant::now();
    table.close();
    since("closed", began);
}
