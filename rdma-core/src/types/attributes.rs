//! Attributes and events that devices and ports report about themselves.

use super::names::names;
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

names! {
    PortState, "port state":

    /// The link is down: no cable, or `ip link set … down`.
    DOWN = 1, "DOWN";
    /// The link is up, but the subnet manager has not configured the port yet.
    INIT = 2, "INIT";
    /// The port is configured but not active yet.
    ARMED = 3, "ARMED";
    /// The port carries data.
    ACTIVE = 4, "ACTIVE";
}

/// The kind of network that a port is attached to; it decides how peers are addressed.
///
/// A part of [`PortAttributes`](crate::PortAttributes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkLayer(pub u8);

names! {
    LinkLayer, "link layer":

    /// InfiniBand: peers are addressed by LID.
    INFINIBAND = 1, "InfiniBand";
    /// Ethernet (RoCE): peers are addressed by GID.
    ETHERNET = 2, "Ethernet";
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

names! {
    QpState, "queue pair state":

    /// The queue pair is new; nothing may be posted.
    RESET = 0, "RESET";
    /// Receives may be posted; no packet is accepted yet.
    INIT = 1, "INIT";
    /// Ready to receive: packets of the peer are carried out.
    RTR = 2, "RTR";
    /// Ready to send: requests may be posted, too.
    RTS = 3, "RTS";
    /// The send queue is being drained.
    SQD = 4, "SQD";
    /// The send queue failed (never on a reliable connection).
    SQE = 5, "SQE";
    /// The queue pair failed or was fenced: every work request is flushed. The only way out is to destroy the
    /// queue pair.
    ERR = 6, "ERR";
}

/// The kind of an asynchronous event.
///
/// See `ibv_get_async_event(3)`.
///
/// A part of [`AsyncEvent`](crate::AsyncEvent), which [`Context::next_event`](crate::Context::next_event) returns.
#[doc(alias = "ibv_event_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub u32);

names! {
    EventKind, "event":

    /// A completion queue overran, so its completions are lost.
    CQ_ERR = 0, "completion queue overrun";
    /// A queue pair failed outside any work request.
    QP_FATAL = 1, "queue pair failed";
    /// A peer sent a request that the queue pair refused as invalid.
    QP_REQ_ERR = 2, "invalid request from a peer";
    /// A peer used a key or a range that it has no right to.
    QP_ACCESS_ERR = 3, "access violation by a peer";
    /// The device failed; open it again.
    DEVICE_FATAL = 8, "device failed";
    /// A port became active.
    PORT_ACTIVE = 9, "port active";
    /// A port went down.
    PORT_ERR = 10, "port down";
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
