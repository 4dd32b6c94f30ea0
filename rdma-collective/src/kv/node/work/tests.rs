//! The rails of links between two nodes, and devices that have failed before a link is made.

use rdma_core::error::PollError;
use rdma_core::{Device, SoftOptions, Wire};

use super::*;
use crate::bootstrap::JobToken;
use crate::engine::{Engine, EngineOptions};
use crate::kv::layout::Layout;
use crate::kv::tests::SHAPE;
use crate::kv::{KvNode, NodeOptions, Pool};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[test]
fn both_nodes_count_the_rail_of_a_link_alike_and_the_next_one_is_beside_it() {
    let (one, other) = (0xfedc_ba98_7654_3210, u64::MAX - 3);
    for number in 1..20 {
        let [forth, back] = [Way::Out, Way::In].map(|way| {
            let seen = rail(one, other, LinkName { way, number });
            assert_eq!(seen, rail(other, one, LinkName { way: way.at_peer(), number }));
            assert_eq!(rail(one, other, LinkName { way, number: number + 1 }), seen.wrapping_add(1));
            seen
        });
        assert_eq!(forth.abs_diff(back), 1);
    }
}

/// A node on an engine over two devices, with pools of both uses.
fn node(name: &str) -> (Engine, KvNode) {
    let soft = || Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() }).open().unwrap();
    let engine = Engine::over(&[(); 2].map(|()| (soft(), EngineOptions::default()))).unwrap();
    let layout = Layout::new(SHAPE).unwrap();
    let pools =
        [PoolUse::Source, PoolUse::Destination].map(|of| Pool::allocate(&engine, &layout, of).unwrap());
    let options = NodeOptions::new(name, "127.0.0.1:0".parse().unwrap());
    let node = KvNode::new(&engine, &pools.each_ref(), &JobToken::from_bytes([1; 16]), &options).unwrap();
    (engine, node)
}

#[test]
fn no_request_fails_because_a_device_of_either_node_has_failed() {
    for (at, number) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let [a, b] = ["a", "b"].map(node);
        [&a, &b][at].0.lock().fail(number, PollError::Overrun);
        a.1.connect(&b.1.export(), soon()).wait().unwrap();
        // The link of one direction is on the failed rail at first.
        for (from, to) in [(&a.1, &b.1), (&b.1, &a.1)] {
            let grant = to.grant(from.name().as_str(), 1, &[3], soon());
            let push = from.push(to.name().as_str(), 1, &[0], soon());
            std::thread::scope(|scope| {
                scope.spawn(|| push.wait().unwrap().wait().unwrap());
                assert!(grant.wait().unwrap().wait().unwrap().verdicts.all_valid());
            });
        }
    }
}

#[test]
fn a_request_fails_with_the_reason_once_every_rail_has_failed() {
    let [a, b] = ["a", "b"].map(node);
    a.1.connect(&b.1.export(), soon()).wait().unwrap();
    (0..2).for_each(|number| b.0.lock().fail(number, PollError::Overrun));
    let [from_a, from_b] =
        [a.1.push("b", 1, &[0], soon()).wait().err(), b.1.push("a", 1, &[0], soon()).wait().err()];
    assert!(matches!(from_a, Some(NodeError::LinkUnmade { .. })), "{from_a:?}");
    assert!(from_b.is_some());
}
