//! The attributes of a device and of its ports.
#![expect(unsafe_code, reason = "calls libibverbs")]

use super::sys::{self, ibv_device_attr, ibv_port_attr};
use super::{Context, check};
use crate::error::QueryError;
use crate::{DeviceAttributes, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState};

/// The limits of a device, from `ibv_query_device` when it was opened.
pub(super) struct Limits {
    pub(super) device: DeviceAttributes,
    /// Reads that one queue pair may have outstanding towards its peer.
    pub(super) max_qp_init_rd_atom: u8,
}

impl Limits {
    pub(super) fn new(raw: &ibv_device_attr) -> Self {
        let firmware: Vec<u8> =
            raw.fw_ver.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        let device = DeviceAttributes {
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            ports: raw.phys_port_cnt,
            max_qp: limit(raw.max_qp),
            max_qp_wr: limit(raw.max_qp_wr),
            max_cqe: limit(raw.max_cqe),
            max_mr: limit(raw.max_mr),
            max_mr_size: raw.max_mr_size,
            max_qp_rd_atom: limit(raw.max_qp_rd_atom).try_into().unwrap_or(u8::MAX),
        };
        Self { device, max_qp_init_rd_atom: limit(raw.max_qp_init_rd_atom).try_into().unwrap_or(u8::MAX) }
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
    Ok(Limits::new(&raw))
}

/// Converts a limit, which C gives as a signed number; a negative one means none.
fn limit(raw: libc::c_int) -> u32 {
    u32::try_from(raw).unwrap_or(0)
}

impl Context {
    /// Asks the device for the state and limits of a port.
    pub(crate) fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        Ok(attributes(port, &self.raw_port(port)?))
    }

    /// Asks the device for the attributes of a port, in C's structure.
    pub(super) fn raw_port(&self, port: PortNum) -> Result<ibv_port_attr, QueryError> {
        let ports = self.limits.device.ports;
        if !(1..=ports).contains(&port.0) {
            return Err(QueryError::NoSuchPort { device: self.name().to_owned(), port: port.0, ports });
        }
        let compat = self.symbols.ibv_query_port.clone()?;
        let mut raw = ibv_port_attr::zeroed();
        // SAFETY: the context is open as long as `self`, and `compat` is the library's own function, since `Symbols`
        // found it.
        check(unsafe { sys::query_port(self.as_ptr(), port.0, &mut raw, compat) })
            .map_err(|source| self.refused("ibv_query_port", source))?;
        Ok(raw)
    }
}

/// Converts the attributes that programs need.
pub(super) fn attributes(port: PortNum, raw: &ibv_port_attr) -> PortAttributes {
    PortAttributes {
        port,
        state: PortState(raw.state),
        link_layer: link_layer(raw.link_layer),
        active_mtu: mtu(raw.active_mtu),
        max_mtu: mtu(raw.max_mtu),
        lid: Lid(raw.lid),
        gid_table_len: limit(raw.gid_tbl_len),
        max_msg_size: raw.max_msg_sz,
    }
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
