//! Tests of the explanation of each refusal, and of the masks against the specification.

use super::*;
use crate::{Gid, GidType, Lid, LinkLayer, PortNum, PortState, Psn};

fn port(active_mtu: Mtu) -> PortAttributes {
    PortAttributes {
        port: PortNum(1),
        state: PortState::ACTIVE,
        link_layer: LinkLayer::ETHERNET,
        active_mtu,
        max_mtu: Mtu::MTU_4096,
        lid: Lid(0),
        gid_table_len: 8,
        max_msg_size: 1 << 30,
    }
}

fn peer(gid: Gid) -> Endpoint {
    Endpoint { qp_num: QpNum(17), psn: Psn::new(1), lid: Lid(0), gid, mtu: Mtu::MTU_1024 }
}

fn ipv4(last: u8) -> Gid {
    Gid::from(std::net::Ipv4Addr::new(10, 9, 0, last))
}

fn link_local() -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
}

/// The message of a step to RTR from 10.9.0.1 that failed with `errno`.
fn rtr(errno: i32, to: Gid, mtu: Mtu) -> String {
    let own = GidEntry::new(1, ipv4(1), GidType::ROCE_V2, Some("eth9".to_owned()));
    let (port, peer) = (port(Mtu::MTU_1024), peer(to));
    let refusal = Refusal::Rtr { port: &port, peer: &peer, own: Some(&own), mtu };
    refusal.error(QpNum(5), io::Error::from_raw_os_error(errno)).to_string()
}

#[test]
fn a_missing_route_names_both_ends_and_the_interface() {
    let message = rtr(libc::ENETUNREACH, ipv4(2), Mtu::MTU_1024);
    for part in
        ["refused RTR", "no route from ::ffff:10.9.0.1 (index 1) to ::ffff:10.9.0.2", "eth9", "ip route get"]
    {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn a_silent_neighbour_is_told_from_a_missing_route() {
    for errno in [libc::ETIMEDOUT, libc::EHOSTUNREACH] {
        let message = rtr(errno, ipv4(2), Mtu::MTU_1024);
        assert!(message.contains("::ffff:10.9.0.2 did not answer on eth9"), "{message}");
        assert!(!message.contains("no route"), "{message}");
    }
}

#[test]
fn an_invalid_step_names_the_first_cause_that_is_plain() {
    let message = rtr(libc::EINVAL, ipv4(2), Mtu::MTU_4096);
    assert!(message.contains("path MTU of 4096 is above the port's active MTU of 1024"), "{message}");
    let message = rtr(libc::EINVAL, Gid([0x20; 16]), Mtu::MTU_1024);
    assert!(message.contains("different address families"), "{message}");
    let message = rtr(libc::EINVAL, ipv4(2), Mtu::MTU_1024);
    assert!(
        message.contains("QPN 0x000011") && message.contains("reached from ::ffff:10.9.0.1"),
        "{message}"
    );
}

#[test]
fn one_link_local_end_is_named() {
    let own = GidEntry::new(0, link_local(), GidType::ROCE_V2, None);
    let (port, peer) = (port(Mtu::MTU_1024), peer(Gid([0x20; 16])));
    let refusal = Refusal::Rtr { port: &port, peer: &peer, own: Some(&own), mtu: Mtu::MTU_1024 };
    let message = refusal.error(QpNum(5), io::Error::from_raw_os_error(libc::EINVAL)).to_string();
    assert!(message.contains("only one of the GIDs is link-local"), "{message}");
}

#[test]
fn every_message_ends_in_a_mend_whatever_the_errno() {
    let port = port(Mtu::MTU_1024);
    let peer = peer(ipv4(2));
    let refusals = [
        Refusal::Init { port: &port, pkey_index: 3 },
        Refusal::Rtr { port: &port, peer: &peer, own: None, mtu: Mtu::MTU_1024 },
        Refusal::Rts,
    ];
    for refusal in &refusals {
        for errno in 1..134 {
            let error = refusal.error(QpNum(5), io::Error::from_raw_os_error(errno));
            let ConnectError::Refused { mend, .. } = error else { panic!("{error}") };
            assert!(!mend.is_empty(), "errno {errno}");
        }
    }
}

/// The masks of the kernel's table for reliable connections (`qp_state_table` of drivers/infiniband/core/verbs.c).
#[test]
fn the_masks_are_the_specifications() {
    assert_eq!(TO_INIT.required, 0x1 | 0x10 | 0x20 | 0x8);
    assert_eq!(TO_RTR.required, 0x1 | 0x80 | 0x100 | 0x10_0000 | 0x1000 | 0x2_0000 | 0x8000);
    assert_eq!(TO_RTS.required, 0x1 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x2000);
    assert_eq!(TO_ERR.required, 0x1);
}
