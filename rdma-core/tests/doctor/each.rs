//! A tree for each finding that gives it; the healthy tree, with the same wants, gives none of them.

use rdma_core::doctor::{FindingId, Machine, Severity, Wants};
use rdma_core::{Mtu, PortNum};

use crate::case::check;
use crate::tree::{CGROUP, PORT, Tree, config};

const LIMITS: &str = "proc/thread-self/limits";
const STATUS: &str = "proc/thread-self/status";
const DOWNSTREAM: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:15:02.0/0000:15:03.0";
const ETH0: &str = "sys/class/net/eth0";
const ADDRESSES: &str = "proc/thread-self/net/fib_trie";
const OTHER: &str = "sys/class/infiniband/mlx5_1/ports/1";

/// Sets a variable of the process.
fn set(wants: &mut Wants, name: &str, value: &str) {
    wants.variables.insert(name.to_owned(), value.to_owned());
}

/// Puts RLIMIT_MEMLOCK in force.
pub fn memlock(tree: &Tree, bytes: &str) {
    tree.edit(LIMITS, "unlimited            unlimited", &format!("{bytes} {bytes}"));
    tree.edit(STATUS, "a80465fb", "a80425fb");
}

fn anything(_: &mut Wants) {}

fn named(wants: &mut Wants) {
    wants.device = Some("mlx5_0".to_owned());
}

fn pinning(wants: &mut Wants) {
    wants.pin_bytes = 1 << 30;
}

fn gpu(wants: &mut Wants) {
    wants.gpu_memory = true;
}

/// Declares tests: the name, the finding, a text in it, the wants before, and the change that gives it.
macro_rules! each {
    ($($name:ident: $id:ident $severity:ident $contains:literal, $before:expr, $change:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(FindingId::$id, Severity::$severity, $contains, $before, $change);
            }
        )*
        const GIVEN: &[FindingId] = &[$(FindingId::$id,)*];
    };
}

#[test]
fn every_finding_has_a_tree_and_a_name_of_its_own() {
    for id in FindingId::ALL {
        assert!(GIVEN.contains(id) || *id == FindingId::NodeDenied, "no test for {id}");
        assert_eq!(FindingId::ALL.iter().filter(|other| other.as_str() == id.as_str()).count(), 1, "{id}");
        assert!(
            id.as_str()
                .bytes()
                .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-'),
            "{id}"
        );
    }
    assert!(FindingId::ALL.len() >= 24);
}

/// Root may open every file, so the refusal is put into the machine.
#[test]
fn a_node_that_may_not_be_opened() {
    let mut machine = Tree::healthy().read();
    assert_eq!(machine.findings(&Wants::default()), []);
    let refusal = Machine::read("/not/there").process.open_files.unwrap_err();
    machine.nodes.as_mut().unwrap().iter_mut().filter(|node| node.name == "uverbs1").for_each(|node| {
        node.access = Err(refusal.clone());
    });
    let findings = machine.findings(&Wants::default());
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].id, findings[0].severity), (FindingId::NodeDenied, Severity::Warning));
    assert!(findings[0].text.contains("the node of mlx5_1"), "{findings:#?}");
}

each! {
    no_sysfs: NoSysfs NotVisible "nothing is known about RDMA devices", anything, |tree, _| tree.remove("sys");
    no_device: NoDevice Warning "modprobe mlx5_ib", anything, |tree, _| tree.remove("sys/class/infiniband");
    no_device_though_one_was_named: NoDevice Error "rdma/…: 1", named, |tree, _| tree.remove("sys/class/infiniband");
    a_device_of_another_name: UnknownDevice Error "no RDMA device is named mlx5_7; there are: mlx5_0, mlx5_1", anything,
        |_, wants| wants.device = Some("mlx5_7".to_owned());
    a_bond_that_is_not_there: UnknownBond Error "the bonds are: none, the devices: mlx5_0, mlx5_1", anything,
        |_, wants| wants.device = Some("mlx5_bond_0".to_owned());
    a_bond_in_place_of_its_slave: BondedDevice Error "belongs to a bond: mlx5_bond_0", named, |tree, _| {
        tree.remove("sys/class/infiniband/mlx5_0");
        tree.port("sys/class/infiniband/mlx5_bond_0/ports/1", 0, "eth0");
    };
    a_device_of_iwarp: Transport Error "mlx5_0 speaks iWARP", named,
        |tree, _| tree.edit("sys/class/infiniband/mlx5_0/node_type", "1: CA", "4: RNIC");
    a_device_of_efa: Transport Error "aws-ofi-nccl", named, |tree, _| efa(tree);
    a_usnic: Transport Error "only UD", named,
        |tree, _| tree.edit("sys/class/infiniband/mlx5_0/node_type", "1: CA", "6: usNIC UDP");
    a_type_of_node_that_cannot_be_read: Transport NotVisible "a device of InfiniBand or RoCE", anything,
        |tree, _| tree.remove("sys/class/infiniband/mlx5_0/node_type");
    no_uverbs: NoUverbs Error "modprobe ib_uverbs", anything, |tree, _| tree.remove("sys/class/infiniband_verbs");
    no_node_in_the_container: NodeMissing Error "/dev/infiniband/uverbs0 is not here", anything,
        |tree, _| tree.remove("dev/infiniband");
    no_node_of_one_device: NodeMissing Warning "mlx5_1 does not open", anything, |tree, _| tree.remove("dev/infiniband/uverbs1");
    no_node_made_by_the_kernel: NodeMissing Warning "uverbsN", anything,
        |tree, _| tree.remove("sys/class/infiniband_verbs/uverbs1");
    no_dev: NodeMissing NotVisible "whether a program can open", anything, |tree, _| tree.remove("dev");
    no_libibverbs: NoLibibverbs Warning "ibverbs-providers", anything,
        |tree, _| tree.remove("usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    no_provider: NoProvider Error "without its provider mlx5", anything,
        |tree, _| tree.remove("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so");
    a_provider_of_another_release: NoProvider Error "no libmlx5-rdmav34.so, but libmlx5-rdmav57.so", anything, |tree, _| {
        tree.remove("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so");
        tree.link("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav57.so", "../libmlx5.so.1");
    };
    a_provider_that_leads_nowhere: NoProvider Error "no libmlx5-rdmav34.so", anything,
        |tree, _| tree.remove("usr/lib/x86_64-linux-gnu/libmlx5.so.1");
    a_provider_that_no_file_names: ProviderNotConfigured Error "echo 'driver mlx5'", anything,
        |tree, _| tree.remove("etc/libibverbs.d/mlx5.driver");
    no_etc: ProviderNotConfigured NotVisible "whether libibverbs loads", anything, |tree, _| tree.remove("etc");
    a_device_of_no_port: NoPorts Error "mlx5_0 has no port", named,
        |tree, _| tree.remove("sys/class/infiniband/mlx5_0/ports");
    a_port_that_the_device_lacks: UnknownPort Error "no port 2; its ports are: 1", named,
        |_, wants| wants.port = Some(PortNum(2));
    a_port_that_is_down: PortDown Warning "ports that are up: mlx5_1 port 1", anything, down;
    the_port_that_was_asked_for_is_down: PortDown Error "physical state Disabled", named, down;
    a_state_that_cannot_be_read: PortDown NotVisible "whether port 1 of mlx5_0 carries data", anything,
        |tree, _| tree.remove(&format!("{PORT}/state"));
    infiniband_without_a_subnet_manager: NoSubnetManager Warning "opensm", anything, |tree, _| {
        infiniband(tree);
        tree.edit(&format!("{PORT}/state"), "4: ACTIVE", "2: INIT");
    };
    infiniband_that_knows_no_subnet_manager: NoSubnetManager Warning "knows no subnet manager", anything,
        |tree, _| infiniband(tree);
    a_port_slower_than_its_sister: SlowPort Warning "runs at 100 Gbit/s, another port of the type MT4129 at 400", anything,
        |tree, _| tree.edit(&format!("{PORT}/rate"), "400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)");
    an_empty_gid: EmptyGid Error "index 5 of port 1 of mlx5_0, from the argument, is empty; take index 3", named,
        |_, wants| wants.gid_index = Some(5);
    a_gid_beyond_the_table: EmptyGid Error "from NCCL_IB_GID_INDEX, does not exist, the table has 8 entries", anything,
        |_, wants| set(wants, "NCCL_IB_GID_INDEX", "17");
    a_gid_that_cannot_be_read: EmptyGid NotVisible "GIDs of port 1 of mlx5_0", anything, |tree, wants| {
        tree.file(&format!("{PORT}/gids/3"), "0000:00");
        tree.file(&format!("{OTHER}/gids/3"), "");
        wants.gid_index = Some(3);
    };
    a_gid_of_v1: GidV1 Warning "take index 3 (::ffff:10.0.0.1, RoCE v2)", named, |_, wants| wants.gid_index = Some(2);
    a_link_local_gid: GidLinkLocal Warning "unset NCCL_IB_GID_INDEX", anything,
        |_, wants| set(wants, "NCCL_IB_GID_INDEX", "1");
    a_gid_index_of_an_argument: GidLinkLocal Warning "same, in args or command", named, |_, wants| wants.gid_index = Some(1);
    a_link_local_gid_that_is_chosen: GidLinkLocal Warning "ip address add 10.0.0.1/24 dev eth0", named, |tree, _| {
        tree.edit(ADDRESSES, "|-- 10.0.0.1\n", "|-- 172.16.0.9\n");
        for index in [2, 3] {
            tree.file(&format!("{PORT}/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        }
    };
    a_link_local_gid_that_a_variable_chooses: GidLinkLocal Warning "ip address add", named,
        |_, wants| set(wants, "NCCL_IB_ADDR_FAMILY", "AF_INET6");
    a_gid_of_another_namespace: GidElsewhere Error "another network namespace (eth7)", named, |tree, wants| {
        tree.edit(&format!("{PORT}/gid_attrs/ndevs/3"), "eth0", "eth7");
        wants.gid_index = Some(3);
    };
    a_gid_of_another_interface_of_that_name: GidElsewhere Error "another network namespace (eth0, not the one here)", named,
        |tree, wants| {
            tree.edit(ADDRESSES, "|-- 10.0.0.1", "|-- 10.0.0.7");
            wants.gid_index = Some(3);
        };
    a_link_local_gid_of_another_interface_of_that_name: GidElsewhere Error "(eth0, not the one here)", named, |tree, wants| {
        tree.edit(&format!("{ETH0}/address"), "7c:8c:09", "7c:8c:0a");
        wants.gid_index = Some(1);
    };
    no_addresses_to_compare_with: GidElsewhere NotVisible "GIDs of port 1 of mlx5_0", anything,
        |tree, _| tree.remove(ADDRESSES);
    no_interfaces_to_compare_with: GidElsewhere NotVisible "GIDs of port 1", anything, |tree, _| {
        tree.remove("sys/class/net");
        tree.link("sys/class/net", "net");
    };
    no_gid_that_can_be_used: NoUsableGid Error "ip address add", anything, |tree, _| {
        tree.remove(ETH0);
        tree.remove("sys/class/net/eth1");
    };
    no_gid_table: NoUsableGid NotVisible "GIDs of port 1 of mlx5_0", anything, |tree, _| tree.remove(&format!("{PORT}/gids"));
    an_interface_that_is_down: NetdevDown Warning "ip link set eth0 up", anything,
        |tree, _| tree.edit(&format!("{ETH0}/operstate"), "up", "down");
    an_interface_that_is_set_down: NetdevDown Error "interface eth0 of port 1 of mlx5_0 is down", named, |tree, wants| {
        tree.edit(&format!("{ETH0}/flags"), "0x1003", "0x1002");
        down(tree, wants);
    };
    an_interface_whose_state_cannot_be_read: NetdevDown NotVisible "whether the interface eth0", anything,
        |tree, _| tree.remove(&format!("{ETH0}/operstate"));
    a_small_mtu: NetdevMtu Warning "leaves RDMA packets of 1024 bytes", anything,
        |tree, _| tree.edit(&format!("{ETH0}/mtu"), "9000", "1500");
    an_mtu_that_does_not_suffice: NetdevMtu Warning "in place of 2048; every host and switch on the way needs 2144", |wants| {
        wants.path_mtu = Some(Mtu::MTU_2048);
    }, |tree, _| tree.edit(&format!("{ETH0}/mtu"), "9000", "2143");
    an_mtu_that_cannot_be_read: NetdevMtu NotVisible "which packets mlx5_0 can send", anything,
        |tree, _| tree.edit(&format!("{ETH0}/mtu"), "9000", "big");
    a_slave_of_a_bond: NetdevInBond Warning "belongs to the bond bond0", anything, |tree, _| {
        tree.files("sys/class/net/bond0", [("mtu", "9000"), ("operstate", "up"), ("flags", "0x1443")]);
        tree.files("sys/class/net/bond0/bonding", [("mode", "802.3ad 4"), ("slaves", "eth0 eth1")]);
        tree.link(&format!("{ETH0}/master"), "../../../../../virtual/net/bond0");
    };
    an_hca_that_matches_nothing: NcclHca Error "the devices are: mlx5_0, mlx5_1", anything,
        |_, wants| set(wants, "NCCL_IB_HCA", "mlx4_0");
    a_port_of_an_hca_that_matches_nothing: NcclHca Error "takes no port", anything,
        |_, wants| set(wants, "NCCL_IB_HCA", "=mlx5_0:2");
    an_ifname_that_matches_nothing: NcclSocketIfname Error "which has: eth0, eth1, lo", anything,
        |_, wants| set(wants, "NCCL_SOCKET_IFNAME", "=eth");
    an_ifname_without_interfaces_to_compare_with: NcclSocketIfname NotVisible "takes an interface",
        |wants| set(wants, "NCCL_SOCKET_IFNAME", "eth0"), |tree, _| tree.remove("sys");
    an_hca_that_is_no_list: NcclInvalid Error "$NCCL_IB_HCA", anything, |_, wants| set(wants, "NCCL_IB_HCA", "mlx5_0:x");
    an_ifname_that_is_no_list: NcclInvalid Error "$NCCL_SOCKET_IFNAME", anything,
        |_, wants| set(wants, "NCCL_SOCKET_IFNAME", "^");
    a_gid_index_that_is_no_number: NcclInvalid Error "from 0 to 255", anything,
        |_, wants| set(wants, "NCCL_IB_GID_INDEX", "three");
    a_variable_that_is_set_and_empty: NcclEmpty Warning "UnsetEnvironment=NCCL_IB_HCA", anything,
        |_, wants| set(wants, "NCCL_IB_HCA", "");
    infiniband_disabled: NcclIbDisabled Warning "uses sockets", anything, |_, wants| set(wants, "NCCL_IB_DISABLE", "1");
    memlock_too_small: MemlockTooSmall Error "65536 bytes (64 KiB)", pinning, |tree, _| memlock(tree, "65536");
    memlock_of_zero: MemlockTooSmall Error "nothing may be registered", pinning, |tree, _| memlock(tree, "0");
    memlock_with_much_pinned: MemlockTooSmall Error "LimitMEMLOCK=infinity", pinning, |tree, _| {
        memlock(tree, "2147483648");
        tree.edit(STATUS, "VmPin:\t       0 kB", "VmPin:\t       4 kB");
    };
    memlock_that_cannot_be_read: MemlockTooSmall NotVisible "how much memory may be registered", anything, |tree, _| {
        tree.edit(LIMITS, "Max locked memory", "Max");
        tree.edit(STATUS, "a80465fb", "a80425fb");
    };
    no_ipc_lock: NoIpcLock Warning "\"IPC_LOCK\"", anything, |tree, _| memlock(tree, "65536");
    ipc_lock_that_cannot_be_read: NoIpcLock NotVisible "more than 65536 bytes", anything, |tree, _| {
        memlock(tree, "65536");
        tree.edit(STATUS, "CapEff", "Cap");
    };
    ipc_lock_that_does_not_count: IpcLockNamespace Warning "hostUsers: true", anything, |tree, _| {
        memlock(tree, "65536");
        tree.edit(STATUS, "00000000a80425fb", "000001ffffffffff");
        tree.remove("proc/thread-self/ns/user");
        tree.link("proc/thread-self/ns/user", "user:[4026532000]");
    };
    a_pod_with_little_memory: MemoryCgroup Error "resources.limits.memory", pinning,
        |tree, _| tree.edit(&format!("{CGROUP}/memory.max"), "max", "536870912");
    a_memory_cgroup_that_cannot_be_read: MemoryCgroup NotVisible "whether the memory to register fits", pinning,
        |tree, _| tree.file(&format!("{CGROUP}/memory.max"), "plenty");
    cgroups_above_that_are_hidden: MemoryCgroup NotVisible "above this one are hidden", pinning, |tree, _| {
        let group = [("cgroup.type", "domain"), ("memory.max", "max"), ("memory.current", "0"), ("memory.stat", "active_file 0")];
        tree.files("sys/fs/cgroup", group);
    };
    a_system_with_little_memory: SystemMemory Error "MemAvailable", pinning,
        |tree, _| tree.edit("proc/meminfo", "MemAvailable:   2000000000", "MemAvailable:   2000");
    an_rdma_cgroup_that_is_full: RdmaCgroup Error "6 hca_object of mlx5_0, 5 are in use", anything,
        |tree, _| tree.edit(&format!("{CGROUP}/rdma.max"), "mlx5_0 hca_handle=max hca_object=max", "mlx5_0 hca_handle=9 hca_object=6");
    an_rdma_cgroup_of_no_handle: RdmaCgroup Error "hca_handle=1", anything,
        |tree, _| tree.edit(&format!("{CGROUP}/rdma.max"), "mlx5_0 hca_handle=max", "mlx5_0 hca_handle=1");
    an_rdma_cgroup_of_two_objects: RdmaCgroup Error "2 hca_object of mlx5_0, 0 are in use, 4 more are needed", anything, |tree, _| {
        tree.file(&format!("{CGROUP}/rdma.max"), "mlx5_0 hca_handle=max hca_object=2\n");
        tree.file(&format!("{CGROUP}/rdma.current"), "");
    };
    an_rdma_cgroup_that_cannot_be_read: RdmaCgroup NotVisible "how many objects", anything,
        |tree, _| tree.file(&format!("{CGROUP}/rdma.max"), "mlx5_0 hca_handle=");
    too_few_descriptors: Descriptors Error "may have 1024 descriptors and has 3, but needs 1022", anything,
        |_, wants| wants.descriptors = 1022;
    descriptors_that_cannot_be_counted: Descriptors NotVisible "enough descriptors", |wants| wants.descriptors = 1,
        |tree, _| tree.remove("proc/thread-self/fd");
    too_little_shared_memory: ShmTooSmall Error "emptyDir", anything, |_, wants| wants.shm_bytes = (8 << 30) + 1;
    the_default_of_shared_memory: ShmTooSmall Warning "the default of containers", gpu,
        |tree, _| tree.edit("proc/thread-self/mountinfo", "size=8388608k", "size=65536k");
    no_shared_memory: ShmTooSmall NotVisible "nothing is mounted at /dev/shm", anything,
        |tree, _| tree.edit("proc/thread-self/mountinfo", "/dev/shm", "/dev/no");
    a_device_of_another_numa_node: NumaRemote Warning "own nodes: mlx5_1", named,
        |tree, _| tree.edit(STATUS, "0-127", "32-40,100");
    numa_nodes_that_cannot_be_read: NumaRemote NotVisible "runs near mlx5_0", anything,
        |tree, _| tree.remove("sys/devices/system");
    a_switch_that_redirects: AcsRedirect Warning "setpci -s 0000:15:03.0", gpu,
        |tree, _| tree.file(&format!("{DOWNSTREAM}/config"), config(0x1d));
    a_switch_that_is_seen_in_part: AcsRedirect NotVisible "only 64 bytes are visible", gpu,
        |tree, _| tree.file(&format!("{DOWNSTREAM}/config"), &config(0)[..64]);
    no_driver_of_a_gpu: NoGpuDriver Error "neither nvidia nor amdgpu", gpu, |tree, _| tree.remove("sys/module/nvidia");
    modules_that_cannot_be_seen: NoGpuDriver NotVisible "memory of GPUs", gpu, |tree, _| tree.remove("sys/module");
    no_way_to_the_memory_of_gpus: NoPeerMemory Error "modprobe nvidia_peermem", gpu, |tree, _| {
        tree.remove("sys/module/nvidia_peermem");
        tree.edit("proc/driver/nvidia/version", "Open Kernel Module", "Kernel Module");
    };
    a_kernel_without_dma_bufs: NoPeerMemory Error "Linux 5.12", gpu, |tree, _| {
        tree.remove("sys/module/nvidia_peermem");
        tree.edit("proc/sys/kernel/osrelease", "6.1.0", "5.4.0");
    };
    a_driver_of_which_nothing_is_known: NoPeerMemory NotVisible "memory of GPUs", gpu, |tree, _| {
        tree.remove("sys/module/nvidia_peermem");
        tree.remove("proc/driver");
    };
    lost_packets: SequenceErrors Note "packet_seq_err 12", anything, |tree, _| count(tree, "hw_counters/packet_seq_err");
    late_acknowledgements: AckTimeouts Note "local_ack_timeout_err 12", anything,
        |tree, _| count(tree, "hw_counters/local_ack_timeout_err");
    receives_that_were_not_there: RnrRetries Note "12", anything, |tree, _| count(tree, "hw_counters/rnr_nak_retry_err");
    congestion: Congestion Note "since the driver was loaded", anything, |tree, _| count(tree, "hw_counters/np_cnp_sent");
    a_bad_cable: LinkErrors Note "symbol_error 12", anything, |tree, _| count(tree, "counters/symbol_error");
    a_counter_that_cannot_be_read: LinkErrors NotVisible "had errors or went down", anything,
        |tree, _| tree.file(&format!("{PORT}/counters/symbol_error"), "many");
}

fn down(tree: &Tree, _: &mut Wants) {
    tree.edit(&format!("{PORT}/state"), "4: ACTIVE", "1: DOWN");
    tree.edit(&format!("{PORT}/phys_state"), "5: LinkUp", "3: Disabled");
}

fn infiniband(tree: &Tree) {
    tree.edit(&format!("{PORT}/link_layer"), "Ethernet", "InfiniBand");
}

/// Puts the driver of EFA in place of that of mlx5.
pub fn efa(tree: &Tree) {
    tree.edit("sys/class/infiniband/mlx5_0/node_type", "1: CA", "7: unspecified");
    tree.remove("sys/class/infiniband/mlx5_0/device/driver");
    tree.link("sys/class/infiniband/mlx5_0/device/driver", "../../../../../../bus/pci/drivers/efa");
}

fn count(tree: &Tree, counter: &str) {
    tree.edit(&format!("{PORT}/{counter}"), "0", "12");
}
