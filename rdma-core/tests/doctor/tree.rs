//! Trees of files to read in place of `/`, and a healthy one of two NICs.
//!
//! Written by hand from the formats in the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`,
//! `drivers/infiniband/core/sysfs.c`, `Documentation/ABI/testing/sysfs-class-net` and `proc_pid_status(5)`. The values
//! are those of two ConnectX-7 in a container of its own cgroup.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rdma_core::doctor::{Finding, FindingId, Machine, Wants};
use tempfile::TempDir;

/// The folder of the cgroup of the process.
pub const CGROUP: &str = "sys/fs/cgroup/pod";
/// The folder of the first port.
pub const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";
/// Entries of the healthy GID table.
const GIDS: u32 = 8;

/// Parts of the file of libibverbs: code, and the texts from which it makes the names of providers.
pub const LIBIBVERBS: &[u8] = b"\x7fELF\xff-rdmav\0lib%s-rdmav34.so\0IBVERBS_PRIVATE_34\0";
/// The addresses of IPv4: those of both NICs, and of the loopback.
const FIB_TRIE: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.1
           /32 host LOCAL
        |-- 10.0.0.2
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL";
/// The addresses of IPv6: of the loopback, and one that is not made from the address of the hardware.
const IF_INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000d1f2a9c4b7e60358 02 40 20 80     eth0";

/// A tree in a folder of its own.
pub struct Tree(TempDir);

impl Tree {
    pub fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Two NICs that nothing is wrong with.
    pub fn healthy() -> Self {
        let tree = Self::empty();
        tree.nic(0, "15", "16", "eth0");
        tree.nic(1, "95", "96", "eth1");
        tree.system();
        tree.process();
        tree
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, with the folders above it.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn files<'a>(&self, folder: &str, files: impl IntoIterator<Item = (&'a str, &'a str)>) {
        files
            .into_iter()
            .for_each(|(name, text)| self.file(&format!("{folder}/{name}"), format!("{text}\n")));
    }

    pub fn folder(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Removes a file, a link, or a folder with all that is in it.
    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
        .unwrap();
    }

    /// Replaces a text in a file.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from}: {text}");
        fs::write(self.path(path), text.replace(from, to)).unwrap();
    }

    pub fn read(&self) -> Machine {
        Machine::read(self.root())
    }

    pub fn findings(&self, wants: &Wants) -> Vec<Finding> {
        self.read().findings(wants)
    }

    /// Adds an entry to the GID table of a port.
    pub fn gid(&self, port: &str, index: u32, gid: &str, kind: &str, netdev: &str) {
        self.file(&format!("{port}/gids/{index}"), format!("{gid}\n"));
        self.file(&format!("{port}/gid_attrs/types/{index}"), format!("{kind}\n"));
        self.file(&format!("{port}/gid_attrs/ndevs/{index}"), format!("{netdev}\n"));
    }

    /// Adds a NIC below a switch: a root port, the switch's upstream port, and its downstream port.
    fn nic(&self, number: u32, root: &str, bus: &str, netdev: &str) {
        let device = format!("mlx5_{number}");
        let mut function = format!("sys/devices/pci0000:{root}");
        for bridge in [format!("0000:{root}:01.0"), format!("0000:{root}:02.0"), format!("0000:{root}:03.0")]
        {
            function = format!("{function}/{bridge}");
            self.file(&format!("{function}/config"), config(0));
        }
        function = format!("{function}/0000:{bus}:00.0");
        let numa_node = number.to_string();
        self.files(&function, [("vendor", "0x15b3"), ("device", "0x1021"), ("numa_node", &numa_node)]);
        self.folder("sys/bus/pci/drivers/mlx5_core");
        self.link(&format!("{function}/driver"), "../../../../../../bus/pci/drivers/mlx5_core");

        let net = format!("{function}/net/{netdev}");
        let address = format!("7c:8c:09:c3:cf:{number:02x}");
        self.files(
            &net,
            [
                ("address", address.as_str()),
                ("mtu", "9000"),
                ("operstate", "up"),
                ("flags", "0x1003"),
                ("type", "1"),
                ("dev_port", "0"),
                ("dev_id", "0x0"),
            ],
        );
        self.link(&format!("{net}/device"), &format!("../../../0000:{bus}:00.0"));
        self.link(&format!("sys/class/net/{netdev}"), &format!("../../../{net}"));

        let folder = format!("{function}/infiniband/{device}");
        let guid = format!("7c8c:0903:00c3:cf{bus}");
        self.files(
            &folder,
            [
                ("node_type", "1: CA"),
                ("node_guid", guid.as_str()),
                ("sys_image_guid", guid.as_str()),
                ("fw_ver", "28.44.2524"),
                ("hca_type", "MT4129"),
                ("hw_rev", "0"),
                ("board_id", "NVD0000000054"),
            ],
        );
        self.link(&format!("{folder}/device"), &format!("../../../0000:{bus}:00.0"));
        self.link(&format!("sys/class/infiniband/{device}"), &format!("../../../{folder}"));
        self.port(&format!("{folder}/ports/1"), number, netdev);

        self.file(&format!("sys/class/infiniband_verbs/uverbs{number}/ibdev"), format!("{device}\n"));
        self.file(&format!("dev/infiniband/uverbs{number}"), "");
    }

    /// Adds an active port of Ethernet.
    pub fn port(&self, folder: &str, number: u32, netdev: &str) {
        self.files(
            folder,
            [
                ("state", "4: ACTIVE"),
                ("phys_state", "5: LinkUp"),
                ("link_layer", "Ethernet"),
                ("rate", "400 Gb/sec (4X NDR)"),
                ("lid", "0x0"),
                ("lid_mask_count", "0"),
                ("sm_lid", "0x0"),
                ("sm_sl", "0"),
                ("cap_mask", "0x00010000"),
            ],
        );
        for index in 4..GIDS {
            self.file(&format!("{folder}/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        }
        let local = format!("fe80:0000:0000:0000:7e8c:09ff:fec3:cf{number:02x}");
        let mapped = format!("0000:0000:0000:0000:0000:ffff:0a00:00{:02x}", number + 1);
        for (index, gid, kind) in [
            (0, &local, "IB/RoCE v1"),
            (1, &local, "RoCE v2"),
            (2, &mapped, "IB/RoCE v1"),
            (3, &mapped, "RoCE v2"),
        ] {
            self.gid(folder, index, gid, kind, netdev);
        }
        self.files(
            &format!("{folder}/counters"),
            [("symbol_error", "0"), ("link_downed", "0"), ("port_xmit_data", "77")],
        );
        let quiet = [
            "packet_seq_err",
            "local_ack_timeout_err",
            "rnr_nak_retry_err",
            "np_cnp_sent",
            "out_of_sequence",
        ];
        self.files(&format!("{folder}/hw_counters"), quiet.map(|name| (name, "0")));
        self.file(&format!("{folder}/hw_counters/lifespan"), "12\n");
    }

    fn system(&self) {
        self.files(
            "sys/class/net/lo",
            [("mtu", "65536"), ("operstate", "unknown"), ("flags", "0x9"), ("type", "772")],
        );
        self.file("sys/class/net/bonding_masters", "\n");
        self.file("sys/class/infiniband_verbs/abi_version", "6\n");
        self.file("dev/infiniband/rdma_cm", "");
        self.file("sys/devices/system/node/node0/cpulist", "0-31,64-95\n");
        self.file("sys/devices/system/node/node1/cpulist", "32-63,96-127\n");
        self.folder("sys/module/nvidia");
        self.folder("sys/module/nvidia_peermem");
        self.file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        self.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\nGCC version: 12\n",
        );
        self.file("proc/meminfo", "MemTotal:       2113527552 kB\nMemAvailable:   2000000000 kB\n");
        self.file("etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
        self.file("usr/lib/x86_64-linux-gnu/libibverbs.so.1", LIBIBVERBS);
        self.file("usr/lib/x86_64-linux-gnu/libmlx5.so.1", "");
        self.link("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "../libmlx5.so.1");
    }

    fn process(&self) {
        let process = "proc/thread-self";
        self.files(
            process,
            [
                ("status", "Name:\tserver\nVmLck:\t       0 kB\nVmPin:\t       0 kB\nCapEff:\t00000000a80465fb\nCpus_allowed_list:\t0-127"),
                ("uid_map", "         0          0 4294967295"),
                ("cgroup", "0::/pod"),
                (
                    "limits",
                    "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max open files            1024                 524288               files     \n\
                     Max locked memory         unlimited            unlimited            bytes     ",
                ),
                (
                    "mountinfo",
                    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
                     33 24 0:31 / /dev/shm rw,nosuid,nodev shared:12 - tmpfs shm rw,size=8388608k",
                ),
            ],
        );
        self.files(&format!("{process}/net"), [("fib_trie", FIB_TRIE), ("if_inet6", IF_INET6)]);
        self.link(&format!("{process}/ns/user"), "user:[4026531837]");
        (0..3).for_each(|fd| self.link(&format!("{process}/fd/{fd}"), "/dev/null"));
        self.file("sys/fs/cgroup/cgroup.procs", "");
        self.files(
            CGROUP,
            [
                ("cgroup.type", "domain"),
                ("cgroup.procs", "1"),
                ("cgroup.controllers", "memory rdma"),
                ("memory.max", "max"),
                ("memory.current", "1048576"),
                ("memory.stat", "active_file 0\ninactive_file 0"),
                ("rdma.max", "mlx5_0 hca_handle=max hca_object=max\nmlx5_1 hca_handle=max hca_object=max"),
                ("rdma.current", "mlx5_0 hca_handle=1 hca_object=5\nmlx5_1 hca_handle=1 hca_object=5"),
            ],
        );
    }
}

/// A configuration space with an extended capability of power budgeting, then one of ACS with `control`.
pub fn config(control: u16) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x100..0x104].copy_from_slice(&0x1501_0004_u32.to_le_bytes());
    bytes[0x150..0x154].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x156..0x158].copy_from_slice(&control.to_le_bytes());
    bytes
}

/// Returns the findings of one kind.
pub fn of(findings: &[Finding], id: FindingId) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.id == id).collect()
}
