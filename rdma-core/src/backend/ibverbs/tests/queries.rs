//! Queries: the attributes of the device, its ports and its GID table.

use super::pair::{PORT, chosen_gid, context};
use crate::backend::ibverbs::gid;
use crate::error::QueryError;
use crate::{GidType, LinkLayer, PortNum, PortState};

#[test]
#[ignore = "needs a device"]
fn the_device_and_its_port_answer() {
    let context = context();
    let attributes = context.query_device().unwrap();
    assert!(attributes.ports >= 1 && attributes.max_qp > 0 && attributes.max_qp_wr > 0, "{attributes:?}");
    assert!(
        attributes.max_cqe > 0 && attributes.max_mr > 0 && attributes.max_qp_rd_atom > 0,
        "{attributes:?}"
    );
    let port = context.query_port(PORT).unwrap();
    assert_eq!((port.state, port.link_layer), (PortState::ACTIVE, LinkLayer::ETHERNET), "{port:?}");
    assert!(port.active_mtu.bytes().is_some() && port.active_mtu <= port.max_mtu, "{port:?}");
    assert!(port.gid_table_len > 0, "{port:?}");
    println!("{attributes:?}\n{port:?}");
}

#[test]
#[ignore = "needs a device"]
fn a_port_that_does_not_exist_is_named_with_how_many_there_are() {
    let context = context();
    let ports = context.limits.device.ports;
    for port in [0, ports + 1, 255] {
        let error = context.query_port(PortNum(port)).unwrap_err();
        let QueryError::NoSuchPort { port: named, ports: there, .. } = &error else { panic!("{error}") };
        assert_eq!((*named, *there), (port, ports));
        assert!(matches!(context.gid_table(PortNum(port)), Err(QueryError::NoSuchPort { .. })));
    }
}

#[test]
#[ignore = "needs a device"]
fn the_gid_table_has_types_and_interfaces_and_sysfs_agrees_with_the_library() {
    let context = context();
    let table = context.gid_table(PORT).unwrap();
    println!("{table:?}");
    let chosen = chosen_gid(&context);
    assert_eq!(chosen.kind, GidType::ROCE_V2);
    let netdev = chosen.netdev.as_deref().expect("an interface of this namespace");
    assert!(std::path::Path::new("/sys/class/net").join(netdev).exists(), "{netdev}");
    let port = context.query_port(PORT).unwrap();
    let sysfs = context.sysfs().join("ports/1");
    assert_eq!(gid::read_sysfs(&sysfs, port.gid_table_len, port.link_layer), table);
}
