//! The attributes of a device and of its ports.
#![expect(unsafe_code, reason = "calls libibverbs")]

use super::sys::{self, ibv_device_attr, ibv_port_attr};
use super::{Context, check};
use crate::error::QueryError;
use crate::{DeviceAttributes, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState};

/// The limits of a device, from `ibv_query_device` when it was opened.
pub(super) struct Limits(ibv_device_attr);

impl Limits {
    /// No limits yet: the value before the device was asked.
    pub(super) const NONE: Self = Self(ibv_device_attr::zeroed());

    /// The limits as the public type.
    pub(super) fn attributes(&self) -> DeviceAttributes {
        let raw = &self.0;
        let firmware: Vec<u8> =
            raw.fw_ver.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        DeviceAttributes {
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            ports: raw.phys_port_cnt,
            max_qp: limit(raw.max_qp),
            max_qp_wr: self.max_qp_wr(),
            max_cqe: self.max_cqe(),
            max_mr: limit(raw.max_mr),
            max_mr_size: raw.max_mr_size,
            max_qp_rd_atom: self.max_qp_rd_atom(),
        }
    }

    pub(super) fn max_qp_wr(&self) -> u32 {
        limit(self.0.max_qp_wr)
    }

    pub(super) fn max_cqe(&self) -> u32 {
        limit(self.0.max_cqe)
    }

    /// Reads that peers may have outstanding towards one queue pair.
    pub(super) fn max_qp_rd_atom(&self) -> u8 {
        u8::try_from(limit(self.0.max_qp_rd_atom)).unwrap_or(u8::MAX)
    }

    /// Reads that one queue pair may have outstanding towards its peer.
    pub(super) fn max_qp_init_rd_atom(&self) -> u8 {
        u8::try_from(limit(self.0.max_qp_init_rd_atom)).unwrap_or(u8::MAX)
    }

    pub(super) fn ports(&self) -> u8 {
        self.0.phys_port_cnt
    }
}

/// Asks the device for its limits and identity.
pub(super) fn query_device(context: &Context) -> Result<Limits, QueryError> {
    let query_device = context.symbols.ibv_query_device.clone()?;
    let mut raw = ibv_device_attr::zeroed();
    // SAFETY: the context is open as long as `context`, and `raw` is the structure that this version of the symbol
    // fills, so the call writes only within it.
    check(unsafe { query_device(context.as_ptr(), &mut raw) })
        .map_err(|source| context.refused("ibv_query_device", source))?;
    Ok(Limits(raw))
}

/// Converts a limit, which C gives as a signed number; a negative one means none.
fn limit(raw: libc::c_int) -> u32 {
    u32::try_from(raw).unwrap_or(0)
}

/// Asks the device for the state and limits of a port.
pub(super) fn query_port(context: &Context, port: PortNum) -> Result<PortAttributes, QueryError> {
    let ports = context.limits().ports();
    if !(1..=ports).contains(&port.0) {
        return Err(QueryError::NoSuchPort { device: context.name().to_owned(), port: port.0, ports });
    }
    let compat = context.symbols.ibv_query_port.clone()?;
    let mut raw = ibv_port_attr::zeroed();
    // SAFETY: the context is open as long as `context`, and `compat` is the library's own function, since `Symbols`
    // found it.
    check(unsafe { sys::query_port(context.as_ptr(), port.0, &mut raw, compat) })
        .map_err(|source| context.refused("ibv_query_port", source))?;
    Ok(PortAttributes {
        port,
        state: PortState(raw.state),
        link_layer: link_layer(raw.link_layer),
        active_mtu: mtu(raw.active_mtu),
        max_mtu: mtu(raw.max_mtu),
        lid: Lid(raw.lid),
        gid_table_len: limit(raw.gid_tbl_len),
        max_msg_size: raw.max_msg_sz,
    })
}

/// Converts a link layer. By convention, a device that does not say which is of InfiniBand.
fn link_layer(raw: u8) -> LinkLayer {
    match raw {
        sys::IBV_LINK_LAYER_UNSPECIFIED => LinkLayer::INFINIBAND,
        other => LinkLayer(other),
    }
}

/// Converts an MTU code. Verbs defines none beyond a byte, so a larger code becomes another undefined one.
fn mtu(raw: sys::ibv_mtu) -> Mtu {
    Mtu(u8::try_from(raw).unwrap_or(u8::MAX))
}

// The numbers of the public types are those of the C headers; this stops the build if they differ.
const _: () = {
    assert!(PortState::DOWN.0 == sys::IBV_PORT_DOWN && PortState::INIT.0 == sys::IBV_PORT_INIT);
    assert!(PortState::ARMED.0 == sys::IBV_PORT_ARMED && PortState::ACTIVE.0 == sys::IBV_PORT_ACTIVE);
    assert!(LinkLayer::INFINIBAND.0 == sys::IBV_LINK_LAYER_INFINIBAND);
    assert!(LinkLayer::ETHERNET.0 == sys::IBV_LINK_LAYER_ETHERNET);
    assert!(Mtu::MTU_256.0 as u32 == sys::IBV_MTU_256 && Mtu::MTU_512.0 as u32 == sys::IBV_MTU_512);
    assert!(Mtu::MTU_1024.0 as u32 == sys::IBV_MTU_1024 && Mtu::MTU_2048.0 as u32 == sys::IBV_MTU_2048);
    assert!(Mtu::MTU_4096.0 as u32 == sys::IBV_MTU_4096);
};
