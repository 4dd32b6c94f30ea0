//! The state of a device's port: up, down, silenced.

use std::time::{Duration, Instant};

use super::fabric::{DeviceState, Silence, State};
use super::post::is_due;
use super::wire::{DeviceRef, QpRef};
use crate::{AsyncEvent, EventKind, PortNum, PortState};

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
        // A time that the clock cannot represent means never.
        let next = now.checked_add(time);
        state.port_returns = next;
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
        while let Some((device, state)) = self.devices.iter_mut().find(|(_, it)| is_due(it.port_returns, now))
        {
            (state.port, state.port_returns) = (PortState::ACTIVE, None);
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
