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
            tracing::info!("{net} : Not used: {device}: {}", reason.replace('\n', " "));
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
    /// the kernel's order, as far as the variables take them, then the software device. The software device gets the
    /// options `soft`; it answers at `soft.address`, or at the first interface that `NCCL_SOCKET_IFNAME` takes.
    ///
    /// `NCCL_IB_DISABLE` applies to `auto` only. For a device that is named, `NCCL_IB_HCA` chooses among its ports,
    /// and is ignored where it takes none of them. The variables about GIDs apply to RDMA devices; `gid_index` applies
    /// to any device, and wins over them.
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
        let selected = self.find(wanted, soft, gid_index)?;
        selected.tell();
        Ok(selected)
    }

    /// Chooses a device like [`select`](Self::select), without logging.
    pub(super) fn find(
        &self,
        wanted: &str,
        soft: SoftOptions,
        gid_index: Option<u32>,
    ) -> Result<SelectedDevice, SelectErrorKind> {
        let list = DeviceList::probe();
        let mut refused = Vec::new();
        let soft_wanted = wanted == "soft" || wanted == soft.name;
        if wanted != "auto" && !soft_wanted {
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
                refused.push(RefusedDevice { device: soft.name, reason: already(&found) });
                found
            }
            None => {
                let address = self.soft_address(soft.address)?;
                let soft = Device::soft(SoftOptions { address, ..soft });
                NcclOptions::default().open(&soft, PortNum(1), gid_index)?
            }
        };
        selected.refused = refused;
        Ok(selected)
    }

    /// The address at which the software device answers: `address`, unless `NCCL_SOCKET_IFNAME` asks for certain
    /// interfaces. The loopback interface is taken only if no other one matches.
    ///
    /// The software device has IPv4 addresses only, so an IPv6 `address` is replaced by the first IPv4 address here.
    fn soft_address(&self, address: IpAddr) -> Result<IpAddr, SelectErrorKind> {
        let filter = &self.socket_ifname;
        match address {
            IpAddr::V4(_) if filter.is_empty() => return Ok(address),
            IpAddr::V6(address) if filter.is_empty() && address.is_loopback() => {
                return Ok(Ipv4Addr::LOCALHOST.into());
            }
            _ => {}
        }
        let all = interface_addresses().map_err(SelectErrorKind::Interfaces)?;
        let taken = all.iter().filter(|(name, _)| filter.takes(name, None));
        match taken.min_by_key(|(_, address)| address.is_loopback()) {
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
mod tests {
    use super::*;
    use rdma_core::error::OpenError;

    fn none() -> NcclOptions {
        NcclOptions::default()
    }

    fn soft() -> SoftOptions {
        SoftOptions { name: "soft7".to_owned(), ..SoftOptions::default() }
    }

    #[test]
    fn the_software_device_is_found_by_kind_and_by_name() {
        for wanted in ["soft", "soft7"] {
            let selected = none().select(wanted, soft(), None).unwrap();
            assert_eq!(selected.context.name(), "soft7");
            assert!(selected.context.is_soft());
            // Whatever else is on this host has its reason.
            let devices = DeviceList::probe().devices().len();
            assert_eq!(selected.refused.len(), devices.max(1));
        }
    }

    #[test]
    fn auto_says_why_not_each_other_device() {
        let selected = none().select("auto", soft(), None).unwrap();
        let list = DeviceList::probe();
        for device in list.devices().iter().map(Device::name).filter(|&name| name != selected.context.name())
        {
            assert!(selected.refused.iter().any(|refused| refused.device == device), "{device}");
        }
        if list.devices().is_empty() {
            assert_eq!((selected.context.name(), selected.refused.len()), ("soft7", 1));
        }
        assert!(selected.refused.iter().all(|refused| !refused.reason.is_empty()));
    }

    #[test]
    fn a_named_device_never_falls_back() {
        let error = none().select("nosuch0", soft(), None).unwrap_err();
        assert!(
            matches!(&error.0, SelectErrorKind::Open(OpenError::UnknownDevice { name, .. }) if name == "nosuch0")
        );
        none().select("soft", soft(), None).unwrap();
    }

    #[test]
    fn nccls_variables_choose_among_rdma_devices_and_leave_the_software_device_alone() {
        let nccl =
            |variables: &[(&str, &str)]| NcclOptions::read(&variables.iter().copied().collect()).unwrap();
        let gid = nccl(&[("NCCL_IB_GID_INDEX", "77"), ("NCCL_IB_ROCE_VERSION_NUM", "1")]);
        let selected = gid.select("soft", soft(), None).unwrap();
        assert_eq!(selected.gid.index, none().select("soft", soft(), None).unwrap().gid.index);
        for (variable, value, reason) in [
            ("NCCL_IB_DISABLE", "1", "NCCL_IB_DISABLE=1"),
            ("NCCL_IB_HCA", "=nosuch", "NCCL_IB_HCA==nosuch does not take it"),
        ] {
            let nccl = nccl(&[(variable, value)]);
            assert_eq!(nccl.bars("mlx5_0").as_deref(), Some(reason));
            let selected = nccl.select("auto", soft(), None).unwrap();
            assert!(selected.context.is_soft());
        }
        assert_eq!(nccl(&[("NCCL_IB_HCA", "mlx5_0:2")]).bars("mlx5_0"), None);
        let options = selected.engine_options(&nccl(&[("NCCL_IB_TC", "106"), ("NCCL_IB_GID_INDEX", "3")]));
        assert_eq!((options.path.traffic_class, options.gid_index), (106, Some(selected.gid.index)));
    }

    #[test]
    fn the_interface_of_the_software_device_is_nccls_socket() {
        let any: IpAddr = [192, 0, 2, 1].into();
        let by = |list: &str| {
            let variables = [("NCCL_SOCKET_IFNAME", list)].into_iter().collect();
            NcclOptions::read(&variables).unwrap().soft_address(any)
        };
        assert_eq!(by("").unwrap(), any);
        assert!(by("=lo").unwrap().is_loopback());
        // An address that other hosts reach goes before the loopback interface's, where there is one.
        let beyond = interface_addresses().unwrap().iter().any(|(_, address)| !address.is_loopback());
        assert_eq!(by("^nosuch").unwrap().is_loopback(), !beyond);
        assert_eq!(none().soft_address("::1".parse().unwrap()).unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert!(none().soft_address("2001:db8::1".parse().unwrap()).unwrap().is_ipv4());
        let error = by("nosuch").unwrap_err().to_string();
        assert!(error.starts_with("NCCL_SOCKET_IFNAME=nosuch takes none") && error.contains("lo"), "{error}");
    }

    #[test]
    fn a_gid_index_that_does_not_exist_is_an_error() {
        let error = none().select("soft", soft(), Some(99)).unwrap_err();
        assert!(matches!(error.0, SelectErrorKind::NoSuchGid { index: 99, .. }), "{error}");
        let index = none().select("soft", soft(), None).unwrap().gid.index;
        assert_eq!(none().select("soft", soft(), Some(index)).unwrap().gid.index, index);
    }
}
