//! RDMA devices of sysfs.

use std::path::{Path, PathBuf};

use super::pci::PciFunction;
use super::port::{self, Numbered, Port};
use super::tree;
use crate::PortNum;
use crate::memory::pinning::{Reading, read_as};

/// An RDMA device, as sysfs shows it.
///
/// A container may see the device here without being allowed to use it; [`Machine::nodes`](super::Machine::nodes) has
/// the nodes that it needs.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaDevice {
    /// The name, as in `ibv_devices`.
    pub name: String,
    /// The folder in sysfs, `…/class/infiniband/mlx5_0`.
    pub folder: PathBuf,
    /// The type of node (`node_type`), such as `1: CA`.
    pub node_type: Reading<Numbered>,
    /// The GUID of the device (`node_guid`), such as `7c8c:0903:00c3:cfee`.
    pub node_guid: Reading<String>,
    /// The GUID of the system (`sys_image_guid`).
    pub sys_image_guid: Reading<String>,
    /// The version of the firmware (`fw_ver`); empty for a device without firmware.
    pub fw_ver: Reading<String>,
    /// The type of the adapter (`hca_type`), such as `MT4123`; `None` for a driver that has no such file.
    pub hca_type: Reading<Option<String>>,
    /// The revision of the hardware (`hw_rev`).
    pub hw_rev: Reading<String>,
    /// The identifier of the board (`board_id`).
    pub board_id: Reading<String>,
    /// The vendor of the PCI function (`device/vendor`).
    pub vendor: Reading<u32>,
    /// The product number of the PCI function (`device/device`).
    pub part: Reading<u32>,
    /// The kernel's driver of the PCI function, such as `mlx5_core`; `None` for a device without one.
    pub driver: Reading<Option<String>>,
    /// The PCI function; `None` for a device that is on no PCI bus.
    pub pci: Reading<Option<PciFunction>>,
    /// The names of the interfaces of the PCI function (`device/net`) in this network namespace.
    pub netdevs: Vec<String>,
    /// The name of the node in `/dev/infiniband` that opens the device, such as `uverbs0`; `None` where the kernel made
    /// none.
    pub uverbs: Reading<Option<String>>,
    /// The ports, by number.
    pub ports: Reading<Vec<Port>>,
}

impl RdmaDevice {
    pub(super) fn read(root: &Path, name: String, folder: PathBuf, uverbs: &Reading<Vec<Uverbs>>) -> Self {
        let file = |name: &str| folder.join(name);
        Self {
            node_type: read_as(&file("node_type"), port::parse_numbered),
            node_guid: tree::word(&file("node_guid")),
            sys_image_guid: tree::word(&file("sys_image_guid")),
            fw_ver: tree::text(&file("fw_ver")),
            hca_type: tree::word_if_there(&file("hca_type")),
            hw_rev: tree::word(&file("hw_rev")),
            board_id: tree::word(&file("board_id")),
            vendor: tree::hex(&file("device/vendor")),
            part: tree::hex(&file("device/device")),
            driver: tree::link_name(&file("device/driver")),
            pci: PciFunction::read(root, &file("device")),
            netdevs: tree::names(&file("device/net")).unwrap_or_default(),
            uverbs: uverbs.as_ref().map_err(Clone::clone).and_then(|nodes| node_of(nodes, &name)),
            ports: read_ports(&file("ports")),
            name,
            folder,
        }
    }

    /// Returns a port by its number.
    #[must_use]
    pub fn port(&self, number: PortNum) -> Option<&Port> {
        self.ports.as_ref().ok()?.iter().find(|port| port.number == number)
    }
}

/// Reads all ports. A device without the folder has no port.
fn read_ports(folder: &Path) -> Reading<Vec<Port>> {
    let names = tree::names_if_there(folder)?;
    let numbers = names.into_iter().filter_map(|name| {
        let number = name.parse().ok().filter(|number| *number > 0)?;
        Some(Port::read(PortNum(number), folder.join(name)))
    });
    Ok(numbers.collect())
}

/// A node such as `uverbs0`, and the device that it opens, such as `mlx5_0`.
pub(super) type Uverbs = (String, Reading<String>);

/// Reads which node belongs to which device. Without the folder, the kernel has no ib_uverbs and so no node.
pub(super) fn read_uverbs(folder: &Path) -> Reading<Vec<Uverbs>> {
    let nodes = tree::names_if_there(folder)?.into_iter().filter(|name| name.starts_with("uverbs"));
    Ok(nodes
        .map(|node| {
            let opens = tree::word(&folder.join(&node).join("ibdev"));
            (node, opens)
        })
        .collect())
}

/// Returns the node of a device. A node whose device cannot be read may be the one, so there is none only where all
/// others are known.
fn node_of(nodes: &[Uverbs], device: &str) -> Reading<Option<String>> {
    if let Some((node, _)) = nodes.iter().find(|(_, opens)| opens.as_deref() == Ok(device)) {
        return Ok(Some(node.clone()));
    }
    nodes.iter().find_map(|(_, opens)| opens.as_ref().err()).map_or(Ok(None), |unknown| Err(unknown.clone()))
}
