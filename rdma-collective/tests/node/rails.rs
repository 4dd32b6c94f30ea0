//! Links over engines with several devices: on which device a link is, and on which one it is made again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdma_collective::engine::{Driver, Engine};
use rdma_collective::kv::layout::{HeadOrder, Shape};
use rdma_collective::kv::{Decode, LinkError, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::fault::FaultPlan;
use rdma_core::{Deadline, Device, SoftOptions, Wire};

use crate::common::{WIRES, long};
use crate::job::{Member, Role, member_on, options};
use crate::pair::{self, CANARY, SHAPE, TOKEN, assert_moved, engine_over, pool, source_byte, transfer};

/// An engine over two devices, with the faults of each, which count the messages of a device.
struct Rails {
    engine: Engine,
    faults: [FaultPlan; 2],
}

impl Rails {
    fn new(wire: Wire) -> Self {
        let faults = [FaultPlan::seeded(1), FaultPlan::seeded(2)];
        let contexts = faults.clone().map(|faults| {
            let options = SoftOptions { wire, faults: Some(faults), ..SoftOptions::default() };
            Device::soft(options).open().unwrap()
        });
        Self { engine: engine_over(&contexts, Driver::Thread), faults }
    }

    /// Whether a link was on each rail.
    fn used(&self) -> [bool; 2] {
        self.faults.each_ref().map(|faults| faults.counts().messages > 0)
    }

    fn member(&self, name: &str, strict: bool) -> Member {
        let mut options = options(name);
        options.link.strict = strict;
        // No link is on a rail that there is not: a node does not read this option.
        options.link.rail = 7;
        member_on(&self.engine, &options, Role::Both)
    }
}

/// Pulls blocks of another node, and checks them and those that have come before.
fn pull_from(
    to: &Member,
    from: &Member,
    request: u64,
    (source, destination): (u32, u32),
    moved: &[(u32, u32)],
) {
    let offer = from.node.offer(to.node.name().as_str(), request, &[source], long()).wait().unwrap();
    let pull = to.node.pull(from.node.name().as_str(), request, &[destination], long()).wait().unwrap();
    assert!(pull.wait().unwrap().verdicts.all_valid());
    offer.wait().unwrap();
    assert_moved(to.destination.as_ref().unwrap(), moved);
}

#[test]
fn links_of_a_node_use_both_rails_and_both_ends_use_the_same() {
    for (wire, strict) in [(Wire::Local, false), (Wire::Local, true), (Wire::Tcp, false), (Wire::Tcp, true)] {
        let hub = Rails::new(wire);
        for number in 0..4 {
            let (rails, name) = (Rails::new(wire), format!("peer-{number}"));
            let (own, peer) = (hub.member("hub", strict), rails.member(&name, strict));
            own.meet(&peer);
            own.push_to(&peer, 1, &[(0, 3), (1, 4)]);
            pull_from(&peer, &own, 2, (7, 2), &[(0, 3), (1, 4), (7, 2)]);
            let [first, second] = rails.used();
            assert!(first != second, "one link is on one rail: {:?}", rails.used());
            peer.push_to(&own, 3, &[(5, 6)]);
            pull_from(&own, &peer, 4, (8, 9), &[(5, 6), (8, 9)]);
            assert_eq!(rails.used(), [true; 2], "the link in the other direction is on the other rail");
        }
        assert_eq!(hub.used(), [true; 2]);
    }
}

/// Two nodes that have met, the first of which makes the links.
fn met(wire: Wire) -> [(Rails, Member); 2] {
    let [a, b] = ["a", "b"].map(|name| {
        let rails = Rails::new(wire);
        let member = rails.member(name, false);
        (rails, member)
    });
    a.1.meet(&b.1);
    [a, b]
}

/// Moves a block, by as many requests as that takes.
fn push_until_it_works(from: &Member, to: &Member, pair: (u32, u32)) {
    let (patience, is_done) = (long(), AtomicBool::new(false));
    let push = || {
        let soon = Deadline::after(Duration::from_secs(2));
        let push = from.node.push(to.node.name().as_str(), 100, &[pair.0], soon);
        _ = push.wait().map(|push| push.wait());
    };
    let grant = || {
        let grant = to.node.grant(from.node.name().as_str(), 100, &[pair.1], patience);
        let received = grant.wait().ok().and_then(|grant| grant.wait().ok());
        received.is_some_and(|received| received.verdicts.all_valid())
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                push()
            }
        });
        let works = std::iter::repeat_with(grant).take_while(|_| !patience.expired()).any(|works| works);
        is_done.store(true, Ordering::Relaxed);
        assert!(works, "no request has worked");
    });
}

#[test]
fn requests_after_the_device_of_a_rail_has_died_go_over_the_other() {
    for (wire, dies) in [(Wire::Tcp, 0), (Wire::Tcp, 1), (Wire::Local, 0), (Wire::Local, 1)] {
        let both = met(wire);
        let [(rails, a), (_, b)] = &both;
        a.push_to(b, 1, &[(0, 3)]);
        let used = rails.used();
        let dead = usize::from(used[1]);
        both[dies].0.faults[dead].kill();
        push_until_it_works(a, b, (1, 4));
        assert_moved(b.destination.as_ref().unwrap(), &[(0, 3), (1, 4)]);
        assert!(rails.used()[1 - dead], "the link is on the other rail");
    }
}

#[test]
fn the_first_link_of_a_direction_is_made_on_another_rail_where_one_is_dead() {
    for (from, dies) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let both = met(Wire::Tcp);
        let (from, to) = (&both[from].1, &both[1 - from].1);
        to.push_to(from, 1, &[(0, 3)]);
        // The link in the other direction is to be on the other rail.
        let dead = usize::from(both[0].0.used()[0]);
        both[dies].0.faults[dead].kill();
        // A device that no longer hears is heard still, so that one end may take such a link for made.
        push_until_it_works(from, to, (1, 4));
        to.push_to(from, 3, &[(0, 3)]);
    }
}

#[test]
fn a_link_by_hand_is_on_the_rail_that_its_options_name() {
    for (wire, strict, pulls) in WIRES.into_iter().flat_map(|wire| {
        [(false, false), (true, false), (false, true)].map(|(strict, pulls)| (wire, strict, pulls))
    }) {
        let (left, right) = (Rails::new(wire), Rails::new(wire));
        let purpose = if pulls { PoolUse::SourceToPull } else { PoolUse::Source };
        let source = pool(&left.engine, SHAPE, purpose, source_byte);
        let destination = pool(&right.engine, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
        let options = LinkOptions { rail: 1, strict, ..LinkOptions::default() };
        let (prefill, decode) = pair::link((&left.engine, &source), (&right.engine, &destination), &options);
        if pulls {
            let offer = prefill.offer(1, &[0, 7], long()).unwrap();
            assert!(decode.pull(1, &[3, 2], long()).unwrap().wait().unwrap().verdicts.all_valid());
            offer.wait().unwrap();
        } else {
            transfer(&prefill, &decode, 1, &[(0, 3), (7, 2)]);
        }
        assert_moved(&destination, &[(0, 3), (7, 2)]);
        assert_eq!([left.used(), right.used()], [[false, true]; 2]);
    }
}

#[test]
fn pieces_that_are_packed_go_over_the_rail_of_their_link() {
    for wire in WIRES {
        let (left, right) = (Rails::new(wire), Rails::new(wire));
        let source = pool(&left.engine, SHAPE, PoolUse::SourceToPull, source_byte);
        let heads_first = Shape { head_order: HeadOrder::Hnd, ..SHAPE };
        let destination = pool(&right.engine, heads_first, PoolUse::Destination, |_, _, _| CANARY);
        let link = |rail, strict| {
            let options = LinkOptions { rail, strict, ..LinkOptions::default() };
            pair::link((&left.engine, &source), (&right.engine, &destination), &options)
        };
        for (rail, strict, pushed, pulled) in [(0, false, 0, 1), (1, false, 2, 3), (1, true, 4, 5)] {
            let (prefill, decode) = link(rail, strict);
            transfer(&prefill, &decode, 1, &[(7, pushed)]);
            let offer = prefill.offer(2, &[7], long()).unwrap();
            assert!(decode.pull(2, &[pulled], long()).unwrap().wait().unwrap().verdicts.all_valid());
            offer.wait().unwrap();
        }
        let block = |block| {
            let mut bytes = vec![0; destination.layout().layer_block_bytes() as usize];
            destination.read(1, block, 0, &mut bytes).unwrap();
            bytes
        };
        let expected = block(0);
        assert!(expected.iter().filter(|byte| **byte == CANARY).count() < expected.len() / 4);
        assert!((1..6).all(|other| block(other) == expected), "{wire:?}");
        assert_eq!([left.used(), right.used()], [[true; 2]; 2]);
    }
}

#[test]
fn a_rail_that_the_engine_does_not_have_is_named() {
    let Rails { engine, .. } = Rails::new(Wire::Local);
    let options = LinkOptions { rail: 2, ..LinkOptions::default() };
    let of = |purpose| Pool::allocate(&engine, pool(&engine, SHAPE, purpose, source_byte).layout(), purpose);
    let source = Prefill::prepare(&engine, &of(PoolUse::Source).unwrap(), &TOKEN, &options).unwrap_err();
    let destination =
        Decode::prepare(&engine, &of(PoolUse::Destination).unwrap(), &TOKEN, &options).unwrap_err();
    for error in [source, destination] {
        assert!(matches!(error, LinkError::NoRail { rail: 2, rails: 2 }), "{error}");
    }
}
