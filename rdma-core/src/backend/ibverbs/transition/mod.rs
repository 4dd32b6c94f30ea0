//! The steps of a reliable connection: the attributes that each sets, and explanations of refused steps.
//!
//! `ibv_modify_qp` answers a missing attribute, a forbidden one and a wrong value all with EINVAL, and a missing route
//! with a bare errno. So the masks are in one table here, and [`Refusal`] says what is known.

use std::io;

use super::sys::{self, ibv_qp_attr_mask};
use crate::error::ConnectError;
use crate::{Endpoint, GidEntry, Mtu, PortAttributes, QpNum, QpState};

/// A step and the attributes that it must set. This crate sets no optional attribute.
pub(super) struct Transition {
    pub(super) to: QpState,
    pub(super) required: ibv_qp_attr_mask,
}

/// The step to INIT. All masks here are those of the InfiniBand specification, 11.2.5.2, for reliable connections.
pub(super) const TO_INIT: Transition = Transition {
    to: QpState::INIT,
    required: sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS,
};
pub(super) const TO_RTR: Transition = Transition {
    to: QpState::RTR,
    required: sys::IBV_QP_STATE
        | sys::IBV_QP_AV
        | sys::IBV_QP_PATH_MTU
        | sys::IBV_QP_DEST_QPN
        | sys::IBV_QP_RQ_PSN
        | sys::IBV_QP_MAX_DEST_RD_ATOMIC
        | sys::IBV_QP_MIN_RNR_TIMER,
};
pub(super) const TO_RTS: Transition = Transition {
    to: QpState::RTS,
    required: sys::IBV_QP_STATE
        | sys::IBV_QP_TIMEOUT
        | sys::IBV_QP_RETRY_CNT
        | sys::IBV_QP_RNR_RETRY
        | sys::IBV_QP_SQ_PSN
        | sys::IBV_QP_MAX_QP_RD_ATOMIC,
};
pub(super) const TO_ERR: Transition = Transition { to: QpState::ERR, required: sys::IBV_QP_STATE };

/// A refused step, with everything that helps to explain it.
pub(super) enum Refusal<'a> {
    Init { port: &'a PortAttributes, pkey_index: u16 },
    Rtr { port: &'a PortAttributes, peer: &'a Endpoint, own: Option<&'a GidEntry>, mtu: Mtu },
    Rts,
}

impl Refusal<'_> {
    /// Makes the error of a queue pair whose step was refused.
    pub(super) fn error(&self, qp_num: QpNum, source: io::Error) -> ConnectError {
        let (to, mend) = match self {
            Self::Init { port, pkey_index } => (TO_INIT.to, init_mend(port, *pkey_index, &source)),
            Self::Rtr { port, peer, own, mtu } => (TO_RTR.to, rtr_mend(port, peer, *own, *mtu, &source)),
            Self::Rts => (TO_RTS.to, rts_mend(&source)),
        };
        ConnectError::Refused { qp_num, to, source, mend }
    }
}

fn init_mend(port: &PortAttributes, pkey_index: u16, source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EINVAL) => format!(
            "partition key index {pkey_index} may be empty on port {} (see its pkeys folder in sysfs; 0 is always \
             filled), or the access flags name a right that the device lacks",
            port.port
        ),
        _ => other_mend(source),
    }
}

fn rtr_mend(
    port: &PortAttributes,
    peer: &Endpoint,
    own: Option<&GidEntry>,
    mtu: Mtu,
    source: &io::Error,
) -> String {
    let from = own
        .map_or_else(|| "the GID chosen here".to_owned(), |own| format!("{} (index {})", own.gid, own.index));
    let netdev = own.and_then(|own| own.netdev.as_deref()).unwrap_or("its interface");
    match source.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EADDRNOTAVAIL) => format!(
            "there is no route from {from} to {}: both ends need GIDs of one address family and of networks that reach \
             each other through {netdev}; see `ip route get`, or choose another GID index",
            peer.gid
        ),
        Some(libc::EHOSTUNREACH | libc::ETIMEDOUT) => format!(
            "{} did not answer on {netdev}: the peer's interface is down, on another VLAN, or the address is gone; see \
             `ip neigh show dev {netdev}` and ping it from {from}",
            peer.gid
        ),
        Some(libc::ENODEV) => {
            format!("{netdev} of {from} is gone or not in this network namespace: choose another GID index")
        }
        Some(libc::EINVAL) => rtr_invalid(port, peer, own, mtu),
        _ => other_mend(source),
    }
}

/// Explains EINVAL, which names no cause: checks the likely ones, the most frequent first.
fn rtr_invalid(port: &PortAttributes, peer: &Endpoint, own: Option<&GidEntry>, mtu: Mtu) -> String {
    if mtu > port.active_mtu {
        return format!(
            "a path MTU of {mtu} is above the port's active MTU of {}: lower it, or raise the interface's MTU",
            port.active_mtu
        );
    }
    if let Some(own) = own
        && own.gid.ipv4_mapped().is_some() != peer.gid.ipv4_mapped().is_some()
    {
        return format!(
            "the GIDs are of different address families, {} here and {} there: choose one kind on both ends",
            own.gid, peer.gid
        );
    }
    if let Some(own) = own
        && own.gid.is_link_local() != peer.gid.is_link_local()
    {
        return format!(
            "only one of the GIDs is link-local, {} here and {} there: choose routable ones on both ends",
            own.gid, peer.gid
        );
    }
    format!(
        "check what the peer sent of itself ({peer}): its GID must be one that is reached from {}, and its queue pair \
         number one of a reliable connection",
        own.map_or_else(|| "here".to_owned(), |own| own.gid.to_string())
    )
}

fn rts_mend(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EINVAL) => {
            "lower max_rd_atomic to what the device takes, and keep retry_cnt within 0 to 7".to_owned()
        }
        _ => other_mend(source),
    }
}

fn other_mend(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EIO | libc::ENODEV) => "the device was removed or reset: open it again".to_owned(),
        Some(libc::ENOMEM) => "the device or the system has no memory left: use fewer queue pairs".to_owned(),
        _ => "see the kernel's log".to_owned(),
    }
}

#[cfg(test)]
mod tests;
