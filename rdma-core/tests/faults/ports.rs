//! Ports that go down and come back.

use std::time::{Duration, Instant};

use super::lab::{bytes, pair, patient, soon};
use super::{WIRES, write};
use rdma_core::fault::{Fault, Rule};
use rdma_core::{EventKind, PortNum, PortState, QpState, Work};

#[test]
fn a_flap_is_told_and_leaves_queue_pairs_alone() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, &patient());
        let down = Duration::from_millis(100);
        let begin = Instant::now();
        right.faults.flap_port(down);
        assert_eq!(right.context.port(PortNum(1)).unwrap().state, PortState::DOWN);
        assert_eq!(left.context.port(PortNum(1)).unwrap().state, PortState::ACTIVE);
        assert_eq!(right.qp.query_state(&mut right.worker).unwrap(), QpState::RTS);

        assert_eq!(write(&mut left, &right, 64, 3), [3; 64]);
        assert!(begin.elapsed() >= down, "{wire:?}: written while the port was down");
        assert_eq!(right.context.port(PortNum(1)).unwrap().state, PortState::ACTIVE);
        let mut kinds = Vec::new();
        while let Some(event) = right.context.next_event().unwrap() {
            assert_eq!(event.port, Some(PortNum(1)));
            kinds.push(event.kind);
        }
        assert_eq!(kinds, [EventKind::PORT_ERR, EventKind::PORT_ACTIVE]);
        assert!(left.context.next_event().unwrap().is_none());
        assert_eq!(right.faults.counts().flapped, 1);
    }
}

#[test]
fn a_rule_takes_the_port_down() {
    for wire in WIRES {
        let (mut left, right) = pair(wire, &patient());
        right.faults.add(Rule::new(Fault::FlapPort(Duration::from_millis(20))).nth(2));
        let target = right.region(30);
        for round in 0..3_u8 {
            let mut source = left.pd.alloc_local(10).unwrap();
            source.fill(round + 1);
            let at = u64::from(round) * 10;
            let to = target.remote().slice(at..at + 10).unwrap();
            left.worker.post(&left.qp, Work::write(source, to)).unwrap();
        }
        for _ in 0..3 {
            left.worker.wait(soon()).unwrap().result.unwrap();
        }
        assert_eq!(bytes(&target), [[1; 10], [2; 10], [3; 10]].concat());
        assert_eq!(right.faults.counts().flapped, 1, "{wire:?}");
    }
}

/// A queue pair must not become ready on a port that is down.
#[test]
fn a_port_that_is_down_refuses_to_connect() {
    use rdma_core::error::ConnectError;
    use rdma_core::{InitOptions, QueuePairOptions};
    let (mut left, _right) = pair(WIRES[0], &patient());
    left.faults.flap_port(Duration::from_secs(3600));
    let qp = left.worker.create_queue_pair(&left.pd, &QueuePairOptions::default()).unwrap();
    let refused = qp.init(&mut left.worker, &InitOptions::default()).unwrap_err();
    assert!(matches!(refused.error, ConnectError::PortDown { state: PortState::DOWN, .. }));
}
