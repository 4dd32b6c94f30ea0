//! The choice of a device by NCCL's variables, and the reasons against the other devices.
//!
//! A device that is named is used, or the choice fails: only `auto` goes on to the next device. Otherwise a broken NIC
//! would silently be replaced by a slower one.

use std::net::{IpAddr, Ipv4Addr};

use rdma_core::{
    Context, Device, DeviceList, GidEntry, PortAttributes, PortNum, PortState, SoftOptions, gid,
    interface_addresses,
};

use super::NcclOptions;
use crate::engine::EngineOptions;
use crate::engine::net;
use crate::env::SelectError;
use crate::env::select_error::SelectErrorKind;

/// The device that was chosen, open, with the port and the GID to use.
///
/// Returned by [`NcclOptions::select`](crate::env::NcclOptions::select).
#[derive(Debug)]
#[non_exhaustive]
pub struct SelectedDevice {
    /// The open device.
    pub context: Context,
    /// The port.
    pub port: PortAttributes,
    /// The GID to send from.
    pub gid: GidEntry,
    /// The other devices, with the reason against each.
    pub refused: Vec<RefusedDevice>,
}

/// A device that was not chosen.
///
/// A part of [`SelectedDevice`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedDevice {
    /// The name of the device, or `RDMA devices` if the library that drives them is missing.
    pub device: String,
    /// The reason, as a sentence for people.
    pub reason: String,
}

impl SelectedDevice {
    /// Logs the reasons against the other devices. The engine on this device logs the choice.
    pub(super) fn tell(&self) {
        let net = net(&self.context);
        for RefusedDevice { device, reason } in &self.refused {
            crate::log::info!("{net} : Not used: {device}: {}", reason.replace('\n', " "));
        }
    }

    /// The options of an engine on this device: its port and GID, and path and retries from NCCL's variables.
    #[must_use]
    pub fn engine_options(&self, nccl: &NcclOptions) -> EngineOptions {
        let mut options = EngineOptions::default();
        nccl.apply(&mut options, &self.context);
        EngineOptions { port: self.port.port, gid_index: Some(self.gid.index), ..options }
    }
}

impl NcclOptions {
    /// Opens the device called `wanted`. For `auto`, opens the first device that can be used: NICs and soft-RoCE in
    /// the kernel's order, as far as the variables take them, then the software device. `rdma` is `auto` without the
    /// software device, so that a pod with a NIC does not run without it. The software device gets the options `soft`;
    /// it answers at `soft.address`, or at the first interface that `NCCL_SOCKET_IFNAME` takes.
    ///
    /// `NCCL_IB_DISABLE` applies to `auto` and `rdma` only. For a device that is named, `NCCL_IB_HCA` chooses among
    /// its ports, and is ignored where it takes none of them. The variables about GIDs apply to RDMA devices;
    /// `gid_index` applies to any device, and wins over them.
    ///
    /// ```
    /// use rdma_collective::engine::Engine;
    /// use rdma_collective::env::{NcclOptions, Variables};
    /// use rdma_core::SoftOptions;
    ///
    /// let nccl = NcclOptions::read(&Variables::from_iter([("NCCL_IB_DISABLE", "1")]))?;
    /// let selected = nccl.select("auto", SoftOptions::default(), None)?;
    /// assert!(selected.context.is_soft());
    /// for other in &selected.refused {
    ///     println!("{} is not used: {}", other.device, other.reason);
    /// }
    /// let engine = Engine::new(&selected.context, selected.engine_options(&nccl))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SelectError`] if the named device cannot be used. For `auto`, the error of the software device, which comes
    /// last.
    pub fn select(
        &self,
        wanted: &str,
        soft: SoftOptions,
        gid_index: Option<u32>,
    ) -> Result<SelectedDevice, SelectError> {
        let selected = self.find(wanted, (soft, 0), gid_index)?;
        selected.tell();
        Ok(selected)
    }

    /// Chooses a device like [`select`](Self::select), without logging. A software device has the number that comes
    /// with its options.
    pub(super) fn find(
        &self,
        wanted: &str,
        (soft, number): (SoftOptions, usize),
        gid_index: Option<u32>,
    ) -> Result<SelectedDevice, SelectErrorKind> {
        let list = DeviceList::probe();
        let mut refused = Vec::new();
        let soft_wanted = wanted == "soft" || wanted == soft.name;
        let any_rdma = wanted == "rdma";
        if wanted != "auto" && !any_rdma && !soft_wanted {
            let device = list.find(wanted)?;
            let mut selected = self.open_port(device, gid_index)?;
            let others = list.devices().iter().map(Device::name).filter(|&name| name != wanted);
            selected.refused =
                others.chain([soft.name.as_str()]).map(|name| not_asked_for(name, wanted)).collect();
            return Ok(selected);
        }
        if let Some(reason) = list.unavailable() {
            refused.push(RefusedDevice { device: "RDMA devices".to_owned(), reason: reason.to_owned() });
        }
        let mut found: Option<SelectedDevice> = None;
        for device in list.devices() {
            let name = device.name().to_owned();
            match &found {
                _ if soft_wanted => refused.push(not_asked_for(&name, wanted)),
                Some(found) => refused.push(RefusedDevice { device: name, reason: already(found) }),
                None => match self.bars(&name) {
                    Some(reason) => refused.push(RefusedDevice { device: name, reason }),
                    None => match self.open_port(device, gid_index) {
                        Ok(usable) => found = Some(usable),
                        Err(error) => refused.push(RefusedDevice { device: name, reason: error.to_string() }),
                    },
                },
            }
        }
        let mut selected = match found {
            Some(found) => {
                refused.push(if any_rdma {
                    not_asked_for(&soft.name, wanted)
                } else {
                    RefusedDevice { device: soft.name, reason: already(&found) }
                });
                found
            }
            None if any_rdma => return Err(SelectErrorKind::NoneUsable { refused }),
            None => {
                let address = self.soft_address(soft.address, number)?;
                let soft = Device::soft(SoftOptions { address, ..soft });
                NcclOptions::default().open(&soft, PortNum(1), gid_index)?
            }
        };
        selected.refused = refused;
        Ok(selected)
    }

    /// The address at which the software device answers: `address`, unless `NCCL_SOCKET_IFNAME` asks for certain
    /// interfaces, which the devices of a process take in turn by their `number`. The loopback interface is taken only
    /// if no other one matches.
    ///
    /// The software device has IPv4 addresses only, so an IPv6 `address` is replaced by an IPv4 address here.
    fn soft_address(&self, address: IpAddr, number: usize) -> Result<IpAddr, SelectErrorKind> {
        let filter = &self.socket_ifname;
        match address {
            IpAddr::V4(_) if filter.is_empty() => return Ok(address),
            IpAddr::V6(address) if filter.is_empty() && address.is_loopback() => {
                return Ok(Ipv4Addr::LOCALHOST.into());
            }
            _ => {}
        }
        let all = interface_addresses().map_err(SelectErrorKind::Interfaces)?;
        let mut taken: Vec<_> = all.iter().filter(|(name, _)| filter.takes(name, None)).collect();
        // The first address of each interface.
        taken.dedup_by_key(|(name, _)| name);
        let beyond: Vec<_> = taken.iter().copied().filter(|(_, address)| !address.is_loopback()).collect();
        let usable = if beyond.is_empty() { taken } else { beyond };
        match usable.iter().cycle().nth(number) {
            Some((_, address)) => Ok((*address).into()),
            None => {
                let there: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
                Err(SelectErrorKind::NoInterface { filter: filter.to_string(), there: there.join(", ") })
            }
        }
    }

    /// The reason why the variables leave a device out; `None` if they take it.
    fn bars(&self, name: &str) -> Option<String> {
        if self.ib_disable {
            return Some("NCCL_IB_DISABLE=1".to_owned());
        }
        (!self.hca.takes(name, None)).then(|| format!("NCCL_IB_HCA={} does not take it", self.hca))
    }

    /// Opens the first usable port of a device, among those that `NCCL_IB_HCA` takes. If it takes none of this device
    /// (which was then named explicitly), among all.
    fn open_port(&self, device: &Device, gid_index: Option<u32>) -> Result<SelectedDevice, SelectErrorKind> {
        let count = device.open()?.attributes()?.ports.max(1);
        let taken =
            |port: &u8| self.hca.takes(device.name(), Some(*port)) || !self.hca.takes(device.name(), None);
        let mut ports = (1..=count).filter(taken).map(|port| self.open(device, PortNum(port), gid_index));
        let none = || {
            let (device, filter) = (device.name().to_owned(), self.hca.to_string());
            Err(SelectErrorKind::NoPort { device, ports: count, filter })
        };
        let first = ports.next().unwrap_or_else(none);
        first.or_else(|error| ports.find_map(Result::ok).ok_or(error))
    }

    /// Opens one port of a device, and chooses its GID.
    fn open(
        &self,
        device: &Device,
        port: PortNum,
        gid_index: Option<u32>,
    ) -> Result<SelectedDevice, SelectErrorKind> {
        let context = device.open()?;
        let port = context.port(port)?;
        let device = || device.name().to_owned();
        if port.state != PortState::ACTIVE {
            return Err(SelectErrorKind::PortDown { device: device(), port: port.port, state: port.state });
        }
        let table = context.gids(port.port)?;
        let gid = match gid_index.or(self.gid_index) {
            Some(index) => match table.iter().find(|entry| entry.index == index) {
                Some(entry) => entry.clone(),
                None => return Err(SelectErrorKind::NoSuchGid { device: device(), index, table }),
            },
            None => {
                gid::choose(port.port, &table, &self.gid_preference(port.link_layer))
                    .map_err(|source| SelectErrorKind::NoGid { device: device(), source })?
                    .entry
            }
        };
        Ok(SelectedDevice { context, port, gid, refused: Vec::new() })
    }
}

fn not_asked_for(name: &str, wanted: &str) -> RefusedDevice {
    RefusedDevice { device: name.to_owned(), reason: format!("{wanted} was asked for") }
}

fn already(found: &SelectedDevice) -> String {
    format!("{} comes first and can be used; name this one to use it instead", found.context.name())
}

#[cfg(test)]
mod tests;
