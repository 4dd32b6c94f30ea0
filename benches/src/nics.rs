//! The files of a machine with NICs, in a folder of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::soft::Outcome;

/// Files of a device below its folder.
const DEVICE: [(&str, &str); 7] = [
    ("node_type", "1: CA"),
    ("node_guid", "7c8c:0903:00c3:cf16"),
    ("sys_image_guid", "7c8c:0903:00c3:cf16"),
    ("fw_ver", "28.44.2524"),
    ("hca_type", "MT4129"),
    ("hw_rev", "0"),
    ("board_id", "NVD0000000054"),
];
/// Files of its port.
const PORT: [(&str, &str); 17] = [
    ("state", "4: ACTIVE"),
    ("phys_state", "5: LinkUp"),
    ("link_layer", "Ethernet"),
    ("rate", "400 Gb/sec (4X NDR)"),
    ("lid", "0x0"),
    ("lid_mask_count", "0"),
    ("sm_lid", "0x0"),
    ("sm_sl", "0"),
    ("cap_mask", "0x00010000"),
    ("counters/symbol_error", "0"),
    ("counters/link_downed", "0"),
    ("counters/port_xmit_data", "77"),
    ("hw_counters/packet_seq_err", "0"),
    ("hw_counters/local_ack_timeout_err", "0"),
    ("hw_counters/rnr_nak_retry_err", "0"),
    ("hw_counters/np_cnp_sent", "0"),
    ("hw_counters/out_of_sequence", "0"),
];
/// Files of its interface.
const NETDEV: [(&str, &str); 6] = [
    ("mtu", "9000"),
    ("operstate", "up"),
    ("flags", "0x1003"),
    ("type", "1"),
    ("dev_port", "0"),
    ("dev_id", "0x0"),
];

/// A machine's files, in place of `/`; removed when dropped.
pub struct Machine(PathBuf);

impl Machine {
    /// Writes the files of `nics` NICs of one port and `gids` GIDs each, in a folder of this process.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn with(nics: u32, gids: u32) -> Outcome<Self> {
        let machine = Self(std::env::temp_dir().join(format!("bench-nics-{}", std::process::id())));
        (0..nics).try_for_each(|nic| machine.nic(nic, gids))?;
        machine.file("dev/infiniband/rdma_cm", "")?;
        machine.file("etc/libibverbs.d/mlx5.driver", "driver mlx5")?;
        machine.file("proc/meminfo", "MemTotal:       2113527552 kB\nMemAvailable:   2000000000 kB")?;
        Ok(machine)
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    fn nic(&self, nic: u32, gids: u32) -> Outcome<()> {
        let [pci, device, netdev] =
            [format!("0000:{nic:02x}:00.0"), format!("mlx5_{nic}"), format!("eth{nic}")];
        let function = format!("sys/devices/pci0000:00/{pci}");
        self.files(&function, &[("vendor", "0x15b3"), ("device", "0x1021"), ("numa_node", "0")])?;
        for (class, name, files) in [("infiniband", &device, &DEVICE[..]), ("net", &netdev, &NETDEV[..])] {
            let folder = format!("{function}/{class}/{name}");
            self.files(&folder, files)?;
            self.link(&format!("{folder}/device"), &format!("../../../{pci}"))?;
            self.link(&format!("sys/class/{class}/{name}"), &format!("../../../{folder}"))?;
        }
        let port = format!("{function}/infiniband/{device}/ports/1");
        self.files(&port, &PORT)?;
        for gid in 0..gids {
            let address = format!("0000:0000:0000:0000:0000:ffff:0a{nic:02x}:{gid:04x}");
            self.file(&format!("{port}/gids/{gid}"), &address)?;
            self.file(&format!("{port}/gid_attrs/types/{gid}"), "RoCE v2")?;
            self.file(&format!("{port}/gid_attrs/ndevs/{gid}"), &netdev)?;
        }
        self.file(&format!("sys/class/infiniband_verbs/uverbs{nic}/ibdev"), &device)?;
        self.file(&format!("dev/infiniband/uverbs{nic}"), "")
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) -> Outcome<()> {
        files.iter().try_for_each(|(name, text)| self.file(&format!("{folder}/{name}"), text))
    }

    fn file(&self, path: &str, text: &str) -> Outcome<()> {
        Ok(fs::write(self.place(path)?, format!("{text}\n"))?)
    }

    fn link(&self, path: &str, target: &str) -> Outcome<()> {
        Ok(symlink(target, self.place(path)?)?)
    }

    /// The path of a file, whose folder is there.
    fn place(&self, path: &str) -> Outcome<PathBuf> {
        let path = self.0.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(path)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
