//! What a software device reports of itself and of its port.

use std::time::{Duration, Instant};

use super::engine::timer::Timer;
use super::fabric::{DeviceState, Silence, State};
use super::wire::{DeviceRef, QpRef};
use crate::error::QueryError;
use crate::{
    AsyncEvent, DeviceAttributes, EventKind, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState,
};

/// Queue pairs of one device.
pub(super) const MAX_QP: u32 = 4096;
/// Requests outstanding on one queue.
pub(super) const MAX_QP_WR: u32 = 16384;
/// Entries of one completion queue.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Registrations of one device.
pub(super) const MAX_MR: u32 = 1 << 16;
/// The lowest bits of a key, which no two registrations of a device have in common: where peers look it up.
pub(super) const KEY_PLACE_BITS: u32 = 17;
/// Bytes of one registration, unless the device was made with less.
pub(super) const MAX_MR_SIZE: u64 = isize::MAX as u64;
/// Reads outstanding on one queue pair.
pub(super) const MAX_QP_RD_ATOM: u8 = 16;
/// Bytes that a request may carry inside itself.
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

impl DeviceState {
    /// Whether anything is carried from and to it.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.port == PortState::ACTIVE && self.silence == Silence::No
    }
}

impl State {
    /// Whether anything is carried from and to the queue pair.
    pub(super) fn is_up(&self, qp: QpRef) -> bool {
        let device = self.qps.get(qp).and_then(|qp| self.devices.get(qp.device));
        device.is_some_and(DeviceState::is_up)
    }

    /// Silences a device, or lets one that was stopped go on.
    pub(super) fn silence(&mut self, device: DeviceRef, silence: Silence) {
        if let Some(state) = self.devices.get_mut(device)
            && state.silence != Silence::Killed
        {
            state.silence = silence;
        }
        self.silence_mailboxes(device);
    }

    /// Takes the port of a device down for `time`.
    pub(super) fn flap(&mut self, now: Instant, device: DeviceRef, time: Duration) {
        let Some(state) = self.devices.get_mut(device) else { return };
        state.port_returns = Timer::after(now, time);
        let next = state.port_returns.deadline();
        if std::mem::replace(&mut state.port, PortState::DOWN) == PortState::ACTIVE {
            self.tell_port(device, EventKind::PORT_ERR);
            self.silence_mailboxes(device);
        }
        if let Some(next) = next {
            self.note_due(next);
        }
    }

    /// Brings back the ports whose time has come.
    pub(super) fn return_ports(&mut self, now: Instant) {
        while let Some((device, state)) = self.devices.iter_mut().find(|(_, it)| it.port_returns.due(now)) {
            (state.port, state.port_returns) = (PortState::ACTIVE, Timer::Off);
            self.silence_mailboxes(device);
            self.tell_port(device, EventKind::PORT_ACTIVE);
        }
    }

    fn tell_port(&mut self, device: DeviceRef, kind: EventKind) {
        for events in self.contexts.values_mut().filter(|events| events.device == device) {
            events.raise(AsyncEvent::new(kind, Some(PortNum(1)), None));
        }
    }
}
