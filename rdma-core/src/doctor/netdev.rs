//! Network interfaces of this network namespace, and bonds.

use std::path::{Path, PathBuf};

use super::tree;
use crate::memory::pinning::Reading;

/// A network interface, as sysfs shows it.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Netdev {
    /// The name, such as `eth0`.
    pub name: String,
    /// The folder in sysfs, `…/class/net/eth0`.
    pub folder: PathBuf,
    /// The address of the hardware (`address`), such as `7c:8c:09:c3:cf:16`.
    pub address: Reading<String>,
    /// The MTU in bytes (`mtu`).
    pub mtu: Reading<u32>,
    /// The state (`operstate`), such as `up`, `down` or `unknown`.
    pub operstate: Reading<String>,
    /// The flags of `netdevice(7)` (`flags`).
    pub flags: Reading<u32>,
    /// The type of hardware (`type`): 1 Ethernet, 32 InfiniBand, 772 loopback.
    pub kind: Reading<u32>,
    /// The port of its device, from 0 (`dev_port`).
    pub dev_port: Reading<u32>,
    /// The port of its device in older drivers, from 0 (`dev_id`).
    pub dev_id: Reading<u32>,
    /// The address of its PCI function, such as `0000:17:00.0`; `None` for an interface without a device.
    pub pci: Option<String>,
    /// The name of the bond or bridge that it belongs to (`master`); `None` for an interface of its own.
    pub master: Reading<Option<String>>,
    /// The bond that it is; `None` for an interface of another kind.
    pub bond: Option<Bond>,
}

/// A bond of interfaces.
///
/// A part of [`Netdev`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bond {
    /// The mode (`bonding/mode`), such as `802.3ad 4`.
    pub mode: Reading<String>,
    /// The names of the interfaces in the bond (`bonding/slaves`).
    pub slaves: Reading<Vec<String>>,
}

/// The flag of an interface that is set up by `ip link set … up`.
const IFF_UP: u32 = 1;

impl Netdev {
    pub(super) fn read(name: String, folder: PathBuf) -> Self {
        let file = |name: &str| folder.join(name);
        Self {
            address: tree::word(&file("address")),
            mtu: tree::number(&file("mtu")),
            operstate: tree::word(&file("operstate")),
            flags: tree::hex(&file("flags")),
            kind: tree::number(&file("type")),
            dev_port: tree::number(&file("dev_port")),
            dev_id: tree::hex(&file("dev_id")),
            pci: tree::link_name(&file("device")).ok().flatten(),
            master: tree::link_name(&file("master")),
            bond: Bond::read(&file("bonding")),
            name,
            folder,
        }
    }

    /// Returns whether the interface is set up and has a link; `None` when that is not known.
    ///
    /// Interfaces without a carrier of their own, such as the loopback, report `unknown` while they work.
    #[must_use]
    pub fn is_up(&self) -> Option<bool> {
        match (&self.flags, self.operstate.as_deref()) {
            (Ok(flags), _) if flags & IFF_UP == 0 => Some(false),
            (flags, Ok("up" | "unknown")) => flags.is_ok().then_some(true),
            (_, Ok(_)) => Some(false),
            (_, Err(_)) => None,
        }
    }

    /// Returns whether the interface is set down (`ip link set … down`); the kernel then lists none of its addresses.
    pub(super) fn is_set_down(&self) -> bool {
        self.flags.as_ref().is_ok_and(|flags| flags & IFF_UP == 0)
    }

    /// Returns the number of the device's port that the interface belongs to, from 1.
    #[must_use]
    pub fn port(&self) -> u32 {
        // Drivers that number ports in `dev_id` leave `dev_port` at 0.
        let [dev_port, dev_id] = [&self.dev_port, &self.dev_id].map(|port| *port.as_ref().unwrap_or(&0));
        dev_port.max(dev_id).saturating_add(1)
    }
}

impl Bond {
    fn read(folder: &Path) -> Option<Self> {
        folder.is_dir().then(|| Self {
            mode: tree::word(&folder.join("mode")),
            slaves: tree::text(&folder.join("slaves"))
                .map(|slaves| slaves.split_ascii_whitespace().map(str::to_owned).collect()),
        })
    }
}
