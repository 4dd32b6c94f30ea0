//! What a device and its ports report of themselves.

use std::fmt;

use crate::{Lid, Mtu, PortNum, QpNum};

/// The limits and identity of a device.
///
/// See `ibv_query_device(3)`.
#[doc(alias = "ibv_device_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// Firmware version as the device words it; empty when it has none.
    pub firmware: String,
    /// Vendor identifier (PCI or IEEE); 0 for a software device, and a number that is nobody's for soft-RoCE.
    pub vendor_id: u32,
    /// The vendor's part number.
    pub vendor_part_id: u32,
    /// Ports, numbered from 1.
    pub ports: u8,
    /// Queue pairs that may exist at once.
    pub max_qp: u32,
    /// Work requests outstanding on one queue of a queue pair.
    pub max_qp_wr: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Memory regions that may exist at once.
    pub max_mr: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// RDMA reads a queue pair may have outstanding towards it.
    pub max_qp_rd_atom: u8,
}

impl DeviceAttributes {
    /// Whether it is Linux's soft-RoCE (`rdma_rxe`), which repeats packets in its own way.
    #[must_use]
    pub fn is_soft_roce(&self) -> bool {
        self.vendor_id == SOFT_ROCE
    }
}

/// What the kernel driver says of its vendor.
const SOFT_ROCE: u32 = 0x00ff_ffff;

/// The state of a port; `ACTIVE` is the only one that carries data.
#[doc(alias = "ibv_port_state")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortState(pub u32);

impl PortState {
    /// The link is down: no cable, or `ip link set … down`.
    pub const DOWN: Self = Self(1);
    /// The link is up, the subnet manager has not configured it.
    pub const INIT: Self = Self(2);
    /// Configured, not yet active.
    pub const ARMED: Self = Self(3);
    /// Ready for data.
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

/// What a port is plugged into; it decides how a peer is addressed.
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
/// See `ibv_query_port(3)`.
#[doc(alias = "ibv_port_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// Which port.
    pub port: PortNum,
    /// Whether it carries data.
    pub state: PortState,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// The largest path MTU that the port can use now.
    pub active_mtu: Mtu,
    /// The largest that the hardware knows.
    pub max_mtu: Mtu,
    /// The local identifier; 0 on RoCE.
    pub lid: Lid,
    /// Entries in the GID table, empty ones included.
    pub gid_table_len: u32,
    /// Largest message, in bytes, as the driver reports it. Do not size chunks from it.
    pub max_msg_size: u32,
}

/// The state of a queue pair.
#[doc(alias = "ibv_qp_state")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpState(pub u32);

impl QpState {
    /// Newly created; nothing may be posted.
    pub const RESET: Self = Self(0);
    /// Receives may be posted.
    pub const INIT: Self = Self(1);
    /// Receives are processed.
    pub const RTR: Self = Self(2);
    /// Sends are processed too.
    pub const RTS: Self = Self(3);
    /// The send queue is being drained.
    pub const SQD: Self = Self(4);
    /// The send queue failed (never on a reliable connection).
    pub const SQE: Self = Self(5);
    /// Every work request is flushed; the way out is to destroy the queue pair.
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

/// What an asynchronous event says happened.
///
/// See `ibv_get_async_event(3)`.
#[doc(alias = "ibv_event_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub u32);

impl EventKind {
    /// A completion queue overran; its completions are lost.
    pub const CQ_ERR: Self = Self(0);
    /// A queue pair failed outside any work request.
    pub const QP_FATAL: Self = Self(1);
    /// A peer sent a request that the queue pair had to refuse as invalid.
    pub const QP_REQ_ERR: Self = Self(2);
    /// A peer used a key or a range that it has no right to.
    pub const QP_ACCESS_ERR: Self = Self(3);
    /// The device failed.
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

/// Something that happened to a device, outside any work request.
#[doc(alias = "ibv_async_event")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// The port, for a port event.
    pub port: Option<PortNum>,
    /// The queue pair, for an event of one.
    pub qp: Option<QpNum>,
}

impl AsyncEvent {
    pub(crate) fn new(kind: EventKind, port: Option<PortNum>, qp: Option<QpNum>) -> Self {
        Self { kind, port, qp }
    }
}
