//! Limits of a software device and its one port.

use super::engine::message::MESSAGE_BYTES_MAX;
use crate::error::QueryError;
use crate::{DeviceAttributes, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState};

/// Queue pairs of one device, at most.
pub(super) const MAX_QP: u32 = 4096;
/// Requests outstanding on one queue, at most.
pub(super) const MAX_QP_WR: u32 = 16384;
/// Entries of one completion queue, at most.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Registrations of one device, at most.
pub(super) const MAX_MR: u32 = 1 << 16;
/// Low bits of a key, which no two registrations of a device share: mapped peers index their table of keys by them. 17
/// bits: twice [`MAX_MR`] slots, so that a free one is drawn soon.
pub(super) const KEY_PLACE_BITS: u32 = 17;
/// Bytes of one registration, at most, unless [`SoftOptions::max_mr_size`](super::SoftOptions::max_mr_size) is lower.
pub(super) const MAX_MR_SIZE: u64 = isize::MAX as u64;
/// Reads outstanding on one queue pair, at most.
pub(super) const MAX_QP_RD_ATOM: u8 = 16;
/// Inline bytes of one request, at most.
pub(super) const MAX_INLINE_DATA: u32 = 1024;

pub(super) fn device_attributes(max_mr_size: u64) -> DeviceAttributes {
    DeviceAttributes {
        firmware: String::new(),
        vendor_id: 0,
        vendor_part_id: 0,
        ports: 1,
        max_qp: MAX_QP,
        max_qp_wr: MAX_QP_WR,
        max_cqe: MAX_CQE,
        max_mr: MAX_MR,
        max_mr_size,
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
        max_msg_size: MESSAGE_BYTES_MAX,
    }
}

/// Checks a port number: the device has port 1 alone.
pub(super) fn check_port(device: &str, port: PortNum) -> Result<(), QueryError> {
    if port == PortNum(1) {
        Ok(())
    } else {
        Err(QueryError::NoSuchPort { device: device.to_owned(), port: port.0, ports: 1 })
    }
}
