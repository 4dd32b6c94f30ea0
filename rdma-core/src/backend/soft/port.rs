//! Limits of a software device and its one port, and the port's state: up, down, silenced.

use std::time::{Duration, Instant};

use super::engine::timer::Timer;
use super::fabric::{DeviceState, Silence, State};
use super::wire::{DeviceRef, QpRef};
use crate::error::QueryError;
use crate::{
    AsyncEvent, DeviceAttributes, EventKind, Lid, LinkLayer, Mtu, PortAttributes, PortNum, PortState,
};

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
        max_msg_size: 1 << 31,
    }
}

/// Checks a port number: the device has port 1 alone.
pub(super) fn check(device: &str, port: PortNum) -> Result<(), QueryError> {
    if port == PortNum(1) {
        Ok(())
    } else {
        Err(QueryError::NoSuchPort { device: device.to_owned(), port: port.0, ports: 1 })
    }
}

impl DeviceState {
    /// Whether messages from and to the device are carried.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.port == PortState::ACTIVE && self.silence == Silence::No
    }
}

impl State {
    /// Whether messages from and to the queue pair are carried.
    pub(super) fn is_up(&self, qp: QpRef) -> bool {
        let device = self.qps.get(qp).and_then(|qp| self.devices.get(qp.device));
        device.is_some_and(DeviceState::is_up)
    }

    /// Silences a device, or resumes a stopped one. A killed device stays silent.
    pub(super) fn silence(&mut self, device: DeviceRef, silence: Silence) {
        if let Some(state) = self.devices.get_mut(device)
            && state.silence != Silence::Killed
        {
            state.silence = silence;
        }
        self.silence_mailboxes(device);
    }

    /// Takes the port of a device down for `time`, and raises `PORT_ERR`.
    pub(super) fn flap(&mut self, now: Instant, device: DeviceRef, time: Duration) {
        let Some(state) = self.devices.get_mut(device) else { return };
        state.port_returns = Timer::after(now, time);
        let next = state.port_returns.deadline();
        if std::mem::replace(&mut state.port, PortState::DOWN) == PortState::ACTIVE {
            self.raise_port_event(device, EventKind::PORT_ERR);
            self.silence_mailboxes(device);
        }
        if let Some(next) = next {
            self.note_due(next);
        }
    }

    /// Brings back the ports that are due, and raises `PORT_ACTIVE` for each.
    pub(super) fn return_ports(&mut self, now: Instant) {
        while let Some((device, state)) = self.devices.iter_mut().find(|(_, it)| it.port_returns.due(now)) {
            (state.port, state.port_returns) = (PortState::ACTIVE, Timer::Off);
            self.silence_mailboxes(device);
            self.raise_port_event(device, EventKind::PORT_ACTIVE);
        }
    }

    fn raise_port_event(&mut self, device: DeviceRef, kind: EventKind) {
        for events in self.contexts.values_mut().filter(|events| events.device == device) {
            events.raise(AsyncEvent::new(kind, Some(PortNum(1)), None));
        }
    }
}
