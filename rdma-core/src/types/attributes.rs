//! Attributes and events that devices and ports report about themselves.

use std::fmt;

use crate::{Lid, Mtu, PortNum, QpNum};

/// The limits and identity of a device.
///
/// See `ibv_query_device(3)`. [`Context::attributes`](crate::Context::attributes) returns it.
#[doc(alias = "ibv_device_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// Firmware version in the device's own words; empty when the device reports none.
    pub firmware: String,
    /// Vendor identifier (PCI or IEEE). The software device reports 0, soft-RoCE a number that is assigned to
    /// nobody.
    pub vendor_id: u32,
    /// Part number that the vendor gave the device.
    pub vendor_part_id: u32,
    /// Number of ports; they are numbered from 1.
    pub ports: u8,
    /// Queue pairs that may exist at once.
    pub max_qp: u32,
    /// Work requests that may be outstanding on one queue of a queue pair.
    pub max_qp_wr: u32,
    /// Entries that one completion queue may have.
    pub max_cqe: u32,
    /// Memory regions that may exist at once.
    pub max_mr: u32,
    /// Bytes that one memory region may have.
    pub max_mr_size: u64,
    /// RDMA reads that may be outstanding towards one queue pair of this device.
    pub max_qp_rd_atom: u8,
}

impl DeviceAttributes {
    /// Returns whether the device is Linux's soft-RoCE (`rdma_rxe`), whose timers and retries behave unlike a
    /// NIC's.
    ///
    /// [`RetryOptions::suiting`](crate::RetryOptions::suiting) takes that into account.
    #[must_use]
    pub fn is_soft_roce(&self) -> bool {
        self.vendor_id == SOFT_ROCE
    }
}

/// Vendor identifier that the `rdma_rxe` driver reports.
const SOFT_ROCE: u32 = 0x00ff_ffff;

/// The state of a port. Only `ACTIVE` carries data.
///
/// A part of [`PortAttributes`](crate::PortAttributes).
#[doc(alias = "ibv_port_state")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortState(pub u32);

impl PortState {
    /// The link is down: no cable, or `ip link set … down`.
    pub const DOWN: Self = Self(1);
    /// The link is up, but the subnet manager has not configured the port yet.
    pub const INIT: Self = Self(2);
    /// The port is configured but not active yet.
    pub const ARMED: Self = Self(3);
    /// The port carries data.
    pub const ACTIVE: Self = Self(4);
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DOWN => f.write_str("DOWN"),
            Self::INIT => f.write_str("INIT"),
            Self::ARMED => f.write_str("ARMED"),
            Self::ACTIVE => f.write_str("ACTIVE"),
            Self(other) => write!(f, "port state {other}"),
        }
    }
}

/// The kind of network that a port is attached to; it decides how peers are addressed.
///
/// A part of [`PortAttributes`](crate::PortAttributes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkLayer(pub u8);

impl LinkLayer {
    /// InfiniBand: peers are addressed by LID.
    pub const INFINIBAND: Self = Self(1);
    /// Ethernet (RoCE): peers are addressed by GID.
    pub const ETHERNET: Self = Self(2);
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INFINIBAND => f.write_str("InfiniBand"),
            Self::ETHERNET => f.write_str("Ethernet"),
            Self(other) => write!(f, "link layer {other}"),
        }
    }
}

/// The state and limits of a port.
///
/// See `ibv_query_port(3)`. [`Context::port`](crate::Context::port) returns it.
#[doc(alias = "ibv_port_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// The number of the port.
    pub port: PortNum,
    /// The state of the port; requests need `ACTIVE`.
    pub state: PortState,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// The largest path MTU that the port can use now.
    pub active_mtu: Mtu,
    /// The largest path MTU that the hardware supports.
    pub max_mtu: Mtu,
    /// The local identifier of the port; 0 on RoCE.
    pub lid: Lid,
    /// Entries in the GID table, including empty ones.
    pub gid_table_len: u32,
    /// Bytes of the largest message, as the driver reports it. Do not size chunks from it, because drivers
    /// report values that no message should have (2 GiB).
    pub max_msg_size: u32,
}

/// The state of a queue pair, as the device reports it.
///
/// See `ibv_query_qp(3)`. [`State`](crate::State) has the same states as types.
#[doc(alias = "ibv_qp_state")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpState(pub u32);

impl QpState {
    /// The queue pair is new; nothing may be posted.
    pub const RESET: Self = Self(0);
    /// Receives may be posted; no packet is accepted yet.
    pub const INIT: Self = Self(1);
    /// Ready to receive: packets of the peer are carried out.
    pub const RTR: Self = Self(2);
    /// Ready to send: requests may be posted, too.
    pub const RTS: Self = Self(3);
    /// The send queue is being drained.
    pub const SQD: Self = Self(4);
    /// The send queue failed (never on a reliable connection).
    pub const SQE: Self = Self(5);
    /// The queue pair failed or was fenced: every work request is flushed. The only way out is to destroy the
    /// queue pair.
    pub const ERR: Self = Self(6);
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
        match name.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "queue pair state {}", self.0),
        }
    }
}

/// The kind of an asynchronous event.
///
/// See `ibv_get_async_event(3)`.
///
/// A part of [`AsyncEvent`](crate::AsyncEvent), which [`Context::next_event`](crate::Context::next_event) returns.
#[doc(alias = "ibv_event_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub u32);

impl EventKind {
    /// A completion queue overran, so its completions are lost.
    pub const CQ_ERR: Self = Self(0);
    /// A queue pair failed outside any work request.
    pub const QP_FATAL: Self = Self(1);
    /// A peer sent a request that the queue pair refused as invalid.
    pub const QP_REQ_ERR: Self = Self(2);
    /// A peer used a key or a range that it has no right to.
    pub const QP_ACCESS_ERR: Self = Self(3);
    /// The device failed; open it again.
    pub const DEVICE_FATAL: Self = Self(8);
    /// A port became active.
    pub const PORT_ACTIVE: Self = Self(9);
    /// A port went down.
    pub const PORT_ERR: Self = Self(10);
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CQ_ERR => f.write_str("completion queue overrun"),
            Self::QP_FATAL => f.write_str("queue pair failed"),
            Self::QP_REQ_ERR => f.write_str("invalid request from a peer"),
            Self::QP_ACCESS_ERR => f.write_str("access violation by a peer"),
            Self::DEVICE_FATAL => f.write_str("device failed"),
            Self::PORT_ACTIVE => f.write_str("port active"),
            Self::PORT_ERR => f.write_str("port down"),
            Self(other) => write!(f, "event {other}"),
        }
    }
}

/// An asynchronous event: something that happened to a device outside any work request.
///
/// [`Context::next_event`](crate::Context::next_event) returns it.
#[doc(alias = "ibv_async_event")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The kind of the event.
    pub kind: EventKind,
    /// The port that the event is about; `None` for other events.
    pub port: Option<PortNum>,
    /// The queue pair that the event is about; `None` for other events.
    pub qp: Option<QpNum>,
}

impl AsyncEvent {
    pub(crate) fn new(kind: EventKind, port: Option<PortNum>, qp: Option<QpNum>) -> Self {
        Self { kind, port, qp }
    }
}
