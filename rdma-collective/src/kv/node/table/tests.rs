//! The table's decisions, without I/O but for the connections by which peers are met.

use std::net::TcpListener;

use super::*;
use crate::kv::PoolUse;
use crate::kv::layout::{Layout, Model, Order};
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
    Table::new(blob("m", 1), 3)
}

/// Both ends of a connection.
fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// The state of a peer, as another process of its name, or the same, asks to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Not,
    Dialing,
    Met,
    MetAndGone,
}

/// Puts node "a" or "z" into the table; returns what must live as long as the peer.
fn known(table: &mut Table, name: &str, state: Known) -> Option<TcpStream> {
    if state == Known::Not {
        return None;
    }
    table.connect(blob(name, 2), soon()).unwrap();
    if state == Known::Dialing {
        return None;
    }
    let [near, far] = connection();
    assert!(table.meet(blob(name, 2), near, true));
    (state == Known::Met).then_some(far)
}

#[test]
fn whoever_introduces_itself_is_met_or_told_why_not() {
    use Known::{Dialing, Met, MetAndGone, Not};
    let (crossed, taken) = (Err(Reason::Crossed), Err(Reason::NameTaken));
    for (state, incarnation, from_a, from_z) in [
        (Not, 2, Ok(()), Ok(())),
        // Names before "m" go first, those behind it wait for this node's introduction.
        (Dialing, 2, Ok(()), crossed),
        (Dialing, 3, Ok(()), Ok(())),
        (Met, 2, crossed, crossed),
        (Met, 3, taken, taken),
        (MetAndGone, 2, Ok(()), Ok(())),
        (MetAndGone, 3, Ok(()), Ok(())),
    ] {
        for (name, expected) in [("a", from_a), ("z", from_z)] {
            let mut table = table();
            let _far = known(&mut table, name, state);
            let heard = table.hear_introduction(1, &blob(name, incarnation));
            assert_eq!(heard, expected, "{name} {incarnation}, {state:?}");
        }
    }
    let mut table = table();
    assert_eq!(table.hear_introduction(2, &blob("a", 2)), Err(Reason::Gone));
    assert_eq!(table.hear_introduction(1, &blob("m", 2)), Err(Reason::NameTaken));
    let useless = NodeBlob { source: None, destination: None, ..blob("a", 2) };
    assert_eq!(table.hear_introduction(1, &useless), Err(Reason::Unfit));
    let other = NodeBlob { soft: false, ..blob("a", 2) };
    assert_eq!(table.hear_introduction(1, &other), Err(Reason::Unfit));
    let _far = ["a", "b", "c"].map(|name| known(&mut table, name, Met));
    assert_eq!(table.hear_introduction(1, &blob("d", 2)), Err(Reason::Full));
    assert!(matches!(table.connect(blob("d", 2), soon()), Err(NodeError::Full { max: 3, .. })));
}

/// The numbers of the links that are to be made.
fn makes(table: &mut Table) -> Vec<(Way, u32)> {
    let makes = table.jobs.drain(..).filter_map(|job| match job {
        Job::Make { way, number, .. } => Some((way, number)),
        _ => None,
    });
    makes.collect()
}

/// The notes that are to be sent.
fn notes(table: &mut Table) -> Vec<Note> {
    table.notes.drain(..).map(|(_, note)| note).collect()
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[test]
fn the_node_that_has_dialed_makes_each_link_once() {
    let (mut table, now) = (table(), Instant::now());
    assert!(matches!(table.need("a", Way::Out, now), Err(NodeError::Unknown { .. })));
    table.connect(blob("a", 2), soon()).unwrap();
    // Not met yet: it is waited for.
    assert!(matches!(table.need("a", Way::Out, now), Ok(Need::Wait { incarnation: 2, .. })));
    assert_eq!(makes(&mut table), []);
    let [near, _far] = connection();
    table.meet(blob("a", 2), near, true);
    for _ in 0..3 {
        assert!(matches!(table.need("a", Way::Out, now), Ok(Need::Wait { .. })));
    }
    assert_eq!(makes(&mut table), [(Way::Out, 1)]);
    let a = name("a");
    let want = |way, last| Note::Want { way, last }.encode();
    // The peer wants the same link, and has not heard of its making.
    assert!(table.hear((&a, 2), &want(Way::Out, 0), now));
    assert_eq!(makes(&mut table), []);
    // The peer wants the link in the other direction.
    assert!(table.hear((&a, 2), &want(Way::In, 0), now));
    assert_eq!(makes(&mut table), [(Way::In, 1)]);
    // The peer knows of the link, and has lost it.
    assert!(table.hear((&a, 2), &want(Way::In, 1), now));
    assert_eq!(makes(&mut table), [(Way::In, 2)]);
    // A link that was not made is made again, by whoever needs it next.
    table.link_failed((&a, 2), Way::Out, &NodeError::Closed);
    assert_eq!(notes(&mut table), [Note::Failed { way: Way::In }]);
    assert!(table.need("a", Way::Out, now).is_ok());
    assert_eq!(makes(&mut table), [(Way::Out, 2)]);
    // And one that takes too long.
    assert!(table.need("a", Way::Out, now + 2 * MAKE_WITHIN).is_ok());
    assert_eq!(makes(&mut table), [(Way::Out, 3)]);
    assert!(!table.hear((&a, 2), &Note::Failed { way: Way::In }.encode(), now), "it makes no link");
    assert!(!table.hear((&a, 2), &[9; NOTE_BYTES], now));
    assert!(table.hear((&a, 3), &[9; NOTE_BYTES], now), "another one said so");
}

#[test]
fn the_other_node_wants_links_and_grants_each_wish_once() {
    let (mut table, now) = (table(), Instant::now());
    let [near, _far] = connection();
    table.meet(blob("a", 2), near, false);
    let wish = |number, way| Wish { to: 1, from: name("a"), incarnation: 2, way, number, blob: Vec::new() };
    for _ in 0..3 {
        assert!(matches!(table.need("a", Way::In, now), Ok(Need::Wait { .. })));
    }
    assert_eq!(notes(&mut table), [Note::Want { way: Way::Out, last: 0 }]);
    assert_eq!(table.hear_wish(&wish(1, Way::Out), now), Ok(()));
    assert_eq!(table.hear_wish(&wish(1, Way::Out), now), Err(Reason::Unknown), "it was granted");
    assert_eq!(table.hear_wish(&Wish { to: 9, ..wish(2, Way::Out) }, now), Err(Reason::Gone));
    assert_eq!(table.hear_wish(&Wish { incarnation: 9, ..wish(2, Way::Out) }, now), Err(Reason::Unknown));
    assert_eq!(table.hear_wish(&wish(1, Way::In), now), Ok(()), "the other direction counts for itself");
    // In two pieces.
    let failed = Note::Failed { way: Way::In }.encode();
    let ticket = table.tickets.add((name("a"), 2), About::Link(Way::In), now);
    assert!(table.hear((&name("a"), 2), &failed[..4], now) && table.hear((&name("a"), 2), &failed[4..], now));
    let (error, _) = table.tickets.look(ticket, Waker::noop());
    assert!(matches!(error, Some(NodeError::LinkUnmade { .. })));
    assert!(table.need("a", Way::In, now).is_ok());
    assert_eq!(notes(&mut table), [Note::Want { way: Way::Out, last: 1 }]);
    assert!(!table.hear((&name("a"), 2), &Note::Want { way: Way::In, last: 0 }.encode(), now));
    assert_eq!(makes(&mut table), []);
}

#[test]
fn whoever_waits_for_a_peer_is_told_that_it_has_gone() {
    let now = Instant::now();
    for gone in 0..4 {
        let mut table = table();
        let _far = known(&mut table, "a", if gone == 0 { Known::Dialing } else { Known::MetAndGone });
        let ticket = table.tickets.add((name("a"), 2), About::Link(Way::Out), now + MAKE_WITHIN);
        match gone {
            0 => table.fail_meeting(&name("a"), 2, &NodeError::Closed),
            1 => table.forget((&name("a"), 2)),
            // Another process of the name comes.
            2 => assert!(table.meet(blob("a", 3), connection()[0].try_clone().unwrap(), false)),
            _ => table.close(),
        }
        let (error, _) = table.tickets.look(ticket, Waker::noop());
        let expected = if gone == 0 { "the node was dropped" } else { "node a has left" };
        assert!(error.unwrap().to_string().contains(expected), "{gone}");
        assert_eq!(table.has_met(&name("a"), 2), None);
    }
}
