//! [`Machine`]: everything that decides whether RDMA works here, read in one pass.

use std::path::{Path, PathBuf};

use super::addresses::Addresses;
use super::device::{self, RdmaDevice};
use super::gid_table::GidRow;
use super::netdev::Netdev;
use super::port::Port;
use super::process::Process;
use super::system::{GpuMemory, NumaNode, Shm};
use super::tree;
use super::userspace::{DeviceNode, Libraries};
use crate::GidEntry;
use crate::memory::pinning::{PinningProbe, PinningSnapshot, Reading};

/// The RDMA devices of a machine, and everything around them that decides whether a process can use them.
///
/// Plain data: it changes nothing, and opens no device. A file that cannot be read gives
/// [`NotKnown`](crate::memory::pinning::NotKnown) with the reason, and never counts as fine. The [module](super) has an
/// example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// The folder that was read in place of `/`.
    pub root: PathBuf,
    /// The RDMA devices, by name (`/sys/class/infiniband`).
    pub devices: Reading<Vec<RdmaDevice>>,
    /// Whether the kernel makes nodes for programs, by its module ib_uverbs (`/sys/class/infiniband_verbs`).
    pub has_uverbs: Reading<bool>,
    /// The nodes of devices (`/dev/infiniband`).
    pub nodes: Reading<Vec<DeviceNode>>,
    /// libibverbs and its providers.
    pub libraries: Libraries,
    /// The interfaces of this network namespace, by name (`/sys/class/net`).
    pub netdevs: Reading<Vec<Netdev>>,
    /// The addresses of these interfaces.
    pub addresses: Addresses,
    /// The NUMA nodes (`/sys/devices/system/node`).
    pub numa_nodes: Reading<Vec<NumaNode>>,
    /// The file system at `/dev/shm`.
    pub shm: Reading<Shm>,
    /// The way from a NIC to the memory of GPUs.
    pub gpu_memory: GpuMemory,
    /// Limits of the process.
    pub process: Process,
    /// Limits on pinning, and the cgroups.
    pub pinning: PinningSnapshot,
}

impl Machine {
    /// Reads the machine whose files are below `root`; `/` is this one, for the calling thread.
    ///
    /// Reads `sys/class/infiniband`, `sys/class/infiniband_verbs`, `sys/class/net`, `sys/devices`, `sys/module`,
    /// `proc/thread-self`, `proc/meminfo`, cgroups at their mount points, `dev/infiniband`, `etc/libibverbs.d` and the
    /// usual folders of libraries. Links in the tree must be relative, as those of sysfs are.
    ///
    /// Never fails: what cannot be read is a value of the result.
    #[must_use]
    pub fn read(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        let sys = root.join("sys");
        let process = root.join("proc/thread-self");
        let uverbs_folder = sys.join("class/infiniband_verbs");
        let uverbs = device::read_uverbs(&uverbs_folder);
        let devices =
            each(&sys.join("class/infiniband"), |name, folder| RdmaDevice::read(root, name, folder, &uverbs));
        Self {
            devices,
            has_uverbs: uverbs.and_then(|_| tree::exists(&uverbs_folder)),
            nodes: DeviceNode::read_all(&root.join("dev/infiniband")),
            libraries: Libraries::read(root),
            netdevs: each(&sys.join("class/net"), Netdev::read),
            addresses: Addresses::read(&process),
            numa_nodes: NumaNode::read_all(&sys.join("devices/system/node")),
            shm: Shm::read(root, &process),
            gpu_memory: GpuMemory::read(root),
            process: Process::read(process),
            pinning: PinningProbe::at(root).read(),
            root: root.to_owned(),
        }
    }

    /// Returns a device by its name.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&RdmaDevice> {
        self.devices.as_ref().ok()?.iter().find(|device| device.name == name)
    }

    /// Returns an interface of this network namespace by its name.
    #[must_use]
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.as_ref().ok()?.iter().find(|netdev| netdev.name == name)
    }

    /// Returns the interface of a port: the one of its first GID that has one here, else the one that shares the PCI
    /// function and the number of the port. `None` where the interface is in another network namespace.
    #[must_use]
    pub fn netdev_of(&self, device: &RdmaDevice, port: &Port) -> Option<&Netdev> {
        let rows = port.gids.as_ref().map_or(&[][..], |table| &table.rows);
        let here = rows.iter().filter(|row| self.is_here(row) != Ok(false));
        let by_gid = here.filter_map(|row| self.netdev(row.netdev.as_deref()?)).next();
        by_gid.or_else(|| {
            let own = device.netdevs.iter().filter_map(|name| self.netdev(name));
            own.into_iter().find(|netdev| netdev.port() == u32::from(port.number.0))
        })
    }

    /// Returns the filled entries of a port's GID table, for [`gid::choose`](crate::gid::choose).
    ///
    /// An interface of another network namespace is left out of its entry.
    #[must_use]
    pub fn gid_entries(&self, port: &Port) -> Vec<GidEntry> {
        let rows = port.gids.as_ref().map_or(&[][..], |table| &table.rows);
        let netdev = |row: &GidRow| row.netdev.clone().filter(|_| self.is_here(row) != Ok(false));
        rows.iter().map(|row| GidEntry::new(row.index, row.gid, row.kind, netdev(row))).collect()
    }

    /// Returns whether the interface of a GID is in this network namespace.
    ///
    /// A name alone does not tell: a pod and its host each have an `eth0`. So the address in the GID must be one of
    /// this namespace, too.
    pub(super) fn is_here(&self, row: &GidRow) -> Reading<bool> {
        match row.netdev.as_deref().and_then(|name| self.netdev(name)) {
            None => Ok(false),
            Some(netdev) if netdev.is_set_down() => Ok(true),
            Some(netdev) => self.addresses.have(row.gid, netdev),
        }
    }
}

/// Reads each folder in a class of sysfs. Where `/sys/class` is there without the class, the class is empty.
fn each<T>(class: &Path, read: impl Fn(String, PathBuf) -> T) -> Reading<Vec<T>> {
    let names = tree::names_if_there(class)?.into_iter();
    // Some classes hold settings beside the folders. A link that leads nowhere counts as a folder, so that it is seen.
    let folders = names.map(|name| (class.join(&name), name)).filter(|(folder, _)| !folder.is_file());
    Ok(folders.map(|(folder, name)| read(name, folder)).collect())
}
