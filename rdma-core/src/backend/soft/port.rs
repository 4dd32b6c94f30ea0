//! What a software device reports of itself and of its port.

use crate::error::QueryError;
use crate::{DeviceAttributes, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState};

/// Queue pairs of one device.
pub(super) const MAX_QP: u32 = 4096;
/// Requests outstanding on one queue.
pub(super) const MAX_QP_WR: u32 = 16384;
/// Entries of one completion queue.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Registrations of one device.
pub(super) const MAX_MR: u32 = 1 << 16;
/// Reads outstanding on one queue pair.
pub(super) const MAX_QP_RD_ATOM: u8 = 16;
/// Bytes that a request may carry inside itself.
pub(super) const MAX_INLINE_DATA: u32 = 1024;

pub(super) fn device_attributes() -> DeviceAttributes {
    DeviceAttributes {
        firmware: String::new(),
        vendor_id: 0,
        vendor_part_id: 0,
        ports: 1,
        max_qp: MAX_QP,
        max_qp_wr: MAX_QP_WR,
        max_cqe: MAX_CQE,
        max_mr: MAX_MR,
        max_mr_size: isize::MAX as u64,
        max_qp_rd_atom: MAX_QP_RD_ATOM,
    }
}

pub(super) fn port_attributes(state: PortState) -> PortAttributes {
    PortAttributes {
        port: PortNum(1),
        state,
        link_layer: LinkLayer::ETHERNET,
        active_mtu: Mtu::MTU_4096,
        max_mtu: Mtu::MTU_4096,
        lid: Lid(0),
        gid_table_len: 2,
        max_msg_size: 1 << 31,
    }
}

/// The device has port 1.
pub(super) fn check(device: &str, port: PortNum) -> Result<(), QueryError> {
    if port == PortNum(1) {
        Ok(())
    } else {
        Err(QueryError::NoSuchPort { device: device.to_owned(), port: port.0, ports: 1 })
    }
}
