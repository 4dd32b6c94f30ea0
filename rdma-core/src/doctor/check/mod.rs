//! Checks of a machine, a file for each subject.
//!
//! Each check looks at values alone. A value that is not known gives a finding that says so, because it must not pass
//! for a fine one.

mod counters;
mod devices;
mod gids;
mod libraries;
mod limits;
mod memory;
mod netdevs;
mod nodes;
mod placement;
mod ports;
mod transport;
mod variables;

use super::finding::{Finding, Severity};
use super::machine::Machine;
use super::{Port, RdmaDevice, Wants};
use crate::NameFilter;

/// The machine, and the devices in question.
struct Scope<'a> {
    machine: &'a Machine,
    wants: &'a Wants,
    hca: NameFilter,
    /// The devices that are asked for, of any transport.
    asked: Vec<&'a RdmaDevice>,
    /// The devices among them that the library can use.
    devices: Vec<&'a RdmaDevice>,
    /// The severity of a thing that keeps a process from one device: a container sees all devices of its host in
    /// sysfs, and needs only those that it was given.
    of_one: Severity,
}

impl Machine {
    /// Returns everything that stands in the way of `wants`, or may do so: errors first.
    ///
    /// Pure: reads no file. [`Wants`] has an example.
    #[must_use]
    pub fn findings(&self, wants: &Wants) -> Vec<Finding> {
        let scope = Scope::new(self, wants);
        let checks: [fn(&Scope<'_>) -> Vec<Finding>; 12] = [
            devices::check,
            transport::check,
            nodes::check,
            libraries::check,
            ports::check,
            gids::check,
            netdevs::check,
            variables::check,
            memory::check,
            limits::check,
            placement::check,
            counters::check,
        ];
        let mut findings: Vec<_> = checks.iter().flat_map(|check| check(&scope)).collect();
        findings.sort_by_key(|finding| finding.severity);
        findings
    }
}

impl<'a> Scope<'a> {
    fn new(machine: &'a Machine, wants: &'a Wants) -> Self {
        let hca = wants.hca();
        let all = machine.devices.as_ref().map_or(&[][..], Vec::as_slice).iter();
        let is_asked = |device: &&RdmaDevice| match &wants.device {
            Some(name) => device.name == *name,
            None => hca.takes(&device.name, None),
        };
        let asked: Vec<_> = all.filter(is_asked).collect();
        let devices =
            asked.iter().copied().filter(|device| transport::unsupported(device).is_none()).collect();
        let mut scope = Self { machine, wants, asked, devices, hca, of_one: Severity::Error };
        if scope.ports().any(|(device, port)| scope.serves(device, port)) {
            scope.of_one = Severity::Warning;
        }
        scope
    }

    /// Returns whether a process can open the device and send from the port.
    fn serves(&self, device: &RdmaDevice, port: &Port) -> bool {
        port.is_active() == Some(true)
            && nodes::can_be_opened(self.machine, device)
            && gids::can_be_used(self, port)
    }

    /// Returns whether a process can open the device and send from one of its ports.
    fn can_serve(&self, device: &RdmaDevice) -> bool {
        let ports = device.ports.as_ref().map_or(&[][..], Vec::as_slice);
        ports.iter().any(|port| self.serves(device, port))
    }

    /// Returns the ports in question, each with its device.
    fn ports(&self) -> impl Iterator<Item = (&'a RdmaDevice, &'a Port)> {
        self.devices.iter().flat_map(|device| {
            let ports = device.ports.as_ref().map_or(&[][..], Vec::as_slice).iter();
            let wanted = ports.filter(|port| match (self.wants.port, &self.wants.device) {
                (Some(wanted), _) => port.number == wanted,
                (None, Some(_)) => true,
                (None, None) => self.hca.takes(&device.name, Some(port.number.0)),
            });
            wanted.map(|port| (*device, port))
        })
    }
}

/// Returns names for a message: `a, b`, or `none`.
fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
