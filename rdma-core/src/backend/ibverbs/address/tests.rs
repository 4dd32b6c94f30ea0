//! Address vectors on Ethernet, within a subnet of InfiniBand and beyond.

use super::*;
use crate::{GidType, Lid, Mtu, PortNum, PortState, Psn, QpNum};

fn vector_of(link_layer: LinkLayer, lid: u16, own: Gid, peer: Gid) -> ibv_ah_attr {
    vector_at(3, link_layer, lid, own, peer).unwrap()
}

fn vector_at(
    gid_index: u32,
    link_layer: LinkLayer,
    lid: u16,
    own: Gid,
    peer: Gid,
) -> Result<ibv_ah_attr, ConnectError> {
    let port = PortAttributes {
        port: PortNum(2),
        state: PortState::ACTIVE,
        link_layer,
        active_mtu: Mtu::MTU_1024,
        max_mtu: Mtu::MTU_4096,
        lid: Lid(9),
        gid_table_len: 8,
        max_msg_size: 1 << 30,
    };
    let own = GidEntry::new(gid_index, own, GidType(0), None);
    let peer = Endpoint { qp_num: QpNum(1), psn: Psn::new(0), lid: Lid(lid), gid: peer, mtu: Mtu::MTU_1024 };
    let options = PathOptions { gid_index, traffic_class: 106, service_level: 4, ..PathOptions::default() };
    vector(&port, Some(&own), &peer, &options)
}

/// A GID of the subnet `prefix`.
fn gid(prefix: u8) -> Gid {
    Gid([prefix, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
}

#[test]
fn ethernet_is_addressed_by_gid() {
    let vector = vector_of(LinkLayer::ETHERNET, 0, gid(1), gid(1));
    assert_eq!((vector.is_global, vector.port_num, vector.sl), (1, 2, 4));
    assert_eq!((vector.grh.dgid.raw, vector.grh.sgid_index), (gid(1).0, 3));
    assert_eq!((vector.grh.hop_limit, vector.grh.traffic_class), (64, 106));
}

#[test]
fn infiniband_is_addressed_by_lid_within_a_subnet_and_by_both_beyond() {
    let within = vector_of(LinkLayer::INFINIBAND, 7, gid(1), gid(1));
    assert_eq!((within.is_global, within.dlid, within.grh.hop_limit), (0, 7, 0));
    let beyond = vector_of(LinkLayer::INFINIBAND, 7, gid(1), gid(2));
    assert_eq!((beyond.is_global, beyond.dlid, beyond.grh.dgid.raw), (1, 7, gid(2).0));
    let without_lid = vector_of(LinkLayer::INFINIBAND, 0, gid(1), gid(1));
    assert_eq!(without_lid.is_global, 1);
}

#[test]
fn an_index_beyond_the_structure_is_refused_where_it_matters() {
    let reached = vector_at(255, LinkLayer::ETHERNET, 0, gid(1), gid(1)).unwrap();
    assert_eq!(reached.grh.sgid_index, 255);
    let refused = vector_at(256, LinkLayer::ETHERNET, 0, gid(1), gid(1));
    assert!(matches!(refused, Err(ConnectError::GidBeyondPath { index: 256 })), "another GID would be used");
    assert_eq!(vector_at(256, LinkLayer::INFINIBAND, 7, gid(1), gid(1)).unwrap().is_global, 0);
}
