//! Which device a program uses, and why it does not use the others.
//!
//! A device that is named is used or the program fails; only `auto` looks further.

use crate::columns::header::Refused;
use rdma_core::error::{NoUsableGid, OpenError, QueryError};
use rdma_core::{
    Context, Device, DeviceList, GidEntry, PortAttributes, PortNum, PortState, SoftOptions, gid,
};
use thiserror::Error;

/// An open device with a port and an address to use.
#[derive(Debug)]
pub struct Selected {
    /// The device.
    pub context: Context,
    /// Its port 1.
    pub port: PortAttributes,
    /// The address to send from.
    pub gid: GidEntry,
    /// The other devices, and why not those.
    pub refused: Vec<Refused>,
}

/// Why no device can be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The named device is not there, or does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It does not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Its port is down.
    #[error(
        "port {port} of {device} is {state}, not ACTIVE: check cable and switch, or `ip link set NETDEV up`"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: PortNum,
        /// Its state.
        state: PortState,
    },
    /// None of its addresses can be used.
    #[error("{device}: {source}")]
    NoGid {
        /// The device.
        device: String,
        /// Every address, and why not.
        source: NoUsableGid,
    },
    /// The address asked for is not there.
    #[error("{device} has no GID at index {index}; it has {}", indices(.table))]
    NoSuchGid {
        /// The device.
        device: String,
        /// What was asked for.
        index: u32,
        /// What there is.
        table: Vec<GidEntry>,
    },
}

fn indices(table: &[GidEntry]) -> String {
    let entries: Vec<String> =
        table.iter().map(|entry| format!("{} ({} {})", entry.index, entry.gid, entry.kind)).collect();
    if entries.is_empty() { "none: give its interface an address".to_owned() } else { entries.join(", ") }
}

/// Opens the device called `wanted`, or for `auto` the first that can be used: NICs and soft-RoCE in the kernel's
/// order, then the software device, which is `soft` made with `soft`'s options.
///
/// # Errors
///
/// [`SelectError`]; for `auto` that of the software device, which needs nothing of the system.
pub fn select(wanted: &str, soft: SoftOptions, gid_index: Option<u32>) -> Result<Selected, SelectError> {
    let list = DeviceList::probe();
    let mut refused = Vec::new();
    let soft_wanted = wanted == "soft" || wanted == soft.name;
    if wanted != "auto" && !soft_wanted {
        let device = list.find(wanted)?;
        let mut selected = open(device, gid_index)?;
        let others = list.devices().iter().map(Device::name).filter(|&name| name != wanted);
        selected.refused =
            others.chain([soft.name.as_str()]).map(|name| not_asked_for(name, wanted)).collect();
        return Ok(selected);
    }
    if let Some(reason) = list.unavailable() {
        refused.push(Refused { device: "RDMA devices".to_owned(), reason: reason.to_owned() });
    }
    let mut found: Option<Selected> = None;
    for device in list.devices() {
        let name = device.name().to_owned();
        match &found {
            _ if soft_wanted => refused.push(not_asked_for(&name, wanted)),
            Some(found) => refused.push(Refused { device: name, reason: already(found) }),
            None => match open(device, gid_index) {
                Ok(usable) => found = Some(usable),
                Err(error) => refused.push(Refused { device: name, reason: error.to_string() }),
            },
        }
    }
    let mut selected = match found {
        Some(found) => {
            refused.push(Refused { device: soft.name, reason: already(&found) });
            found
        }
        None => open(&Device::soft(soft), gid_index)?,
    };
    selected.refused = refused;
    Ok(selected)
}

fn not_asked_for(name: &str, wanted: &str) -> Refused {
    Refused { device: name.to_owned(), reason: format!("{wanted} was asked for") }
}

fn already(found: &Selected) -> String {
    format!("{} comes first and can be used; name this one to use it instead", found.context.name())
}

fn open(device: &Device, gid_index: Option<u32>) -> Result<Selected, SelectError> {
    let context = device.open()?;
    let port = context.port(PortNum(1))?;
    let device = || device.name().to_owned();
    if port.state != PortState::ACTIVE {
        return Err(SelectError::PortDown { device: device(), port: port.port, state: port.state });
    }
    let table = context.gids(port.port)?;
    let gid = match gid_index {
        Some(index) => match table.iter().find(|entry| entry.index == index) {
            Some(entry) => entry.clone(),
            None => return Err(SelectError::NoSuchGid { device: device(), index, table }),
        },
        None => {
            gid::choose(port.port, &table, &gid::Preference::new(port.link_layer))
                .map_err(|source| SelectError::NoGid { device: device(), source })?
                .entry
        }
    };
    Ok(Selected { context, port, gid, refused: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soft() -> SoftOptions {
        SoftOptions { name: "soft7".to_owned(), ..SoftOptions::default() }
    }

    #[test]
    fn the_software_device_is_found_by_kind_and_by_name() {
        for wanted in ["soft", "soft7"] {
            let selected = select(wanted, soft(), None).unwrap();
            assert_eq!(selected.context.name(), "soft7");
            assert!(selected.context.is_soft());
            // Whatever else is on this host has its reason.
            let devices = DeviceList::probe().devices().len();
            assert_eq!(selected.refused.len(), devices.max(1));
        }
    }

    #[test]
    fn auto_says_why_not_each_other_device() {
        let selected = select("auto", soft(), None).unwrap();
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
        let error = select("nosuch0", soft(), None).unwrap_err();
        assert!(
            matches!(&error, SelectError::Open(OpenError::UnknownDevice { name, .. }) if name == "nosuch0")
        );
        select("soft", soft(), None).unwrap();
    }

    #[test]
    fn a_gid_index_that_does_not_exist_is_an_error() {
        let error = select("soft", soft(), Some(99)).unwrap_err();
        assert!(matches!(error, SelectError::NoSuchGid { index: 99, .. }), "{error}");
        let index = select("soft", soft(), None).unwrap().gid.index;
        assert_eq!(select("soft", soft(), Some(index)).unwrap().gid.index, index);
    }
}
