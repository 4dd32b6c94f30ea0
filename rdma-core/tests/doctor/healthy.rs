//! Machines that work, and look odd: nothing in them is an error.

use rdma_core::doctor::{Finding, FindingId, Severity, Wants};

use crate::each::{efa, memlock};
use crate::tree::{LIBIBVERBS, PORT, Tree, config, of};

const OTHER: &str = "sys/class/infiniband/mlx5_1/ports/1";

fn named(device: &str) -> Wants {
    let mut wants = Wants::default();
    wants.device = Some(device.to_owned());
    wants
}

/// Checks that the findings of these kinds are there and of one severity, and that no other one is.
fn only(findings: &[Finding], ids: &[FindingId], severity: Severity) {
    let found: Vec<_> = findings.iter().map(|finding| (finding.id, finding.severity)).collect();
    assert_eq!(found, ids.iter().map(|id| (*id, severity)).collect::<Vec<_>>(), "{findings:#?}");
}

/// sysfs shows a pod all devices of its node, also those that it did not ask for.
#[test]
fn a_pod_that_was_given_one_of_two_devices() {
    let tree = Tree::healthy();
    tree.remove("dev/infiniband/uverbs1");
    tree.remove("sys/class/net/eth1");
    let ids = [FindingId::NodeMissing, FindingId::NoUsableGid];
    only(&tree.findings(&Wants::default()), &ids, Severity::Warning);
    only(&tree.findings(&named("mlx5_0")), &[], Severity::Warning);
    only(&tree.findings(&named("mlx5_1")), &ids, Severity::Error);
    // Where the device of the pod fails, too, none is left.
    tree.edit(&format!("{PORT}/state"), "4: ACTIVE", "1: DOWN");
    let ids = [FindingId::NodeMissing, FindingId::PortDown, FindingId::NoUsableGid];
    only(&tree.findings(&Wants::default()), &ids, Severity::Error);
}

#[test]
fn a_gid_index_that_one_of_two_devices_has() {
    let tree = Tree::healthy();
    tree.file(&format!("{OTHER}/gids/3"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    let mut wants = Wants::default();
    wants.variables.insert("NCCL_IB_GID_INDEX".to_owned(), "3".to_owned());
    only(&tree.findings(&wants), &[FindingId::EmptyGid], Severity::Warning);
    wants.device = Some("mlx5_1".to_owned());
    only(&tree.findings(&wants), &[FindingId::EmptyGid], Severity::Error);
}

/// mlx5 reports 40 Gbit/s for each port of Ethernet that is down.
#[test]
fn a_slow_port_beside_one_that_is_down() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/rate"), "400 Gb/sec (4X NDR)", "25 Gb/sec (1X EDR)");
    tree.edit(&format!("{OTHER}/rate"), "400 Gb/sec (4X NDR)", "40 Gb/sec (4X QDR)");
    assert_eq!(of(&tree.findings(&Wants::default()), FindingId::SlowPort).len(), 1, "both are up");
    tree.edit(&format!("{OTHER}/state"), "4: ACTIVE", "1: DOWN");
    only(&tree.findings(&Wants::default()), &[FindingId::PortDown], Severity::Warning);
}

/// Adapters of one type serve the storage by Ethernet, and the ranks by InfiniBand at twice the rate.
#[test]
fn infiniband_beside_ethernet_with_its_interface_down() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/rate"), "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)");
    tree.edit(&format!("{OTHER}/link_layer"), "Ethernet", "InfiniBand");
    tree.edit(&format!("{OTHER}/sm_lid"), "0x0", "0x1");
    tree.edit("sys/class/net/eth1/operstate", "up", "down");
    tree.edit("sys/class/net/eth1/mtu", "9000", "2044");
    only(&tree.findings(&Wants::default()), &[], Severity::Warning);
}

#[test]
fn a_server_of_many_descriptors() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/limits", "1024                 524288", "524288               524288");
    (3..5000).for_each(|fd| tree.file(&format!("proc/thread-self/fd/{fd}"), ""));
    let mut wants = Wants::default();
    wants.descriptors = 1000;
    only(&tree.findings(&wants), &[], Severity::Warning);
    wants.descriptors = 524_288;
    let findings = tree.findings(&wants);
    only(&findings, &[FindingId::Descriptors], Severity::Error);
    assert!(findings[0].text.contains("has 5000"), "{findings:#?}");
}

/// A rank of each socket has the NICs of its own; those of the other one serve the other rank.
#[test]
fn a_process_of_one_socket_with_a_nic_on_each() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/status", "0-127", "0-15,70");
    only(&tree.findings(&Wants::default()), &[], Severity::Warning);
    only(&tree.findings(&named("mlx5_0")), &[], Severity::Warning);
    only(&tree.findings(&named("mlx5_1")), &[FindingId::NumaRemote], Severity::Warning);
    // The near one is of no use to the process.
    tree.remove("dev/infiniband/uverbs0");
    let ids = [FindingId::NodeMissing, FindingId::NumaRemote];
    only(&tree.findings(&Wants::default()), &ids, Severity::Warning);
}

#[test]
fn a_memlock_limit_that_the_memory_to_register_fits() {
    let tree = Tree::healthy();
    memlock(&tree, "2147483648");
    let mut wants = named("mlx5_0");
    wants.pin_bytes = 2 << 30;
    only(&tree.findings(&wants), &[], Severity::Warning);
    tree.edit("proc/thread-self/status", "VmPin:", "VmPim:");
    only(&tree.findings(&wants), &[FindingId::NoIpcLock], Severity::Warning);
    tree.edit("proc/thread-self/status", "VmPim:", "VmPin:");
    wants.pin_bytes += 1;
    let ids: Vec<_> = tree.findings(&wants).iter().map(|finding| finding.id).collect();
    assert_eq!(ids, [FindingId::MemlockTooSmall, FindingId::NoIpcLock]);
}

/// Counters of a machine that has been up for a month.
#[test]
fn counters_that_were_raised_long_ago() {
    let tree = Tree::healthy();
    for counter in ["counters/link_downed", "hw_counters/out_of_sequence", "hw_counters/rnr_nak_retry_err"] {
        tree.edit(&format!("{PORT}/{counter}"), "0", "4000");
    }
    let ids = [FindingId::SequenceErrors, FindingId::RnrRetries, FindingId::LinkErrors];
    only(&tree.findings(&Wants::default()), &ids, Severity::Note);
}

/// Firmware sets the redirect of root ports on most servers, where it costs nothing.
#[test]
fn a_root_port_that_redirects() {
    let tree = Tree::healthy();
    let mut wants = Wants::default();
    wants.gpu_memory = true;
    let root_port = "sys/devices/pci0000:15/0000:15:01.0";
    tree.file(&format!("{root_port}/config"), config(0x1d));
    only(&tree.findings(&wants), &[], Severity::Warning);
    tree.file(&format!("{root_port}/0000:15:02.0/config"), config(0x1d));
    only(&tree.findings(&wants), &[FindingId::AcsRedirect], Severity::Warning);
}

/// The node gave the pod its device; all GIDs are those of the node's own `eth0`.
#[test]
fn a_pod_whose_interface_has_the_name_of_the_node_s() {
    let tree = Tree::healthy();
    let addresses = "proc/thread-self/net/fib_trie";
    tree.edit(addresses, "|-- 10.0.0.1\n", "|-- 172.16.0.9\n");
    tree.edit("sys/class/net/eth0/address", "7c:8c:09:c3:cf:00", "5e:02:11:22:33:44");
    only(&tree.findings(&named("mlx5_0")), &[FindingId::NoUsableGid], Severity::Error);
    // A macvlan of the NIC brings an address of its own into the GID table.
    tree.gid(PORT, 4, "0000:0000:0000:0000:0000:ffff:ac10:0009", "RoCE v2", "eth0");
    only(&tree.findings(&named("mlx5_0")), &[], Severity::Error);
}

#[test]
fn an_address_of_ipv6_alone() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/net/fib_trie", "|-- 10.0.0.1\n", "|-- 172.16.0.9\n");
    tree.gid(PORT, 4, "fd00:0000:0000:0000:0000:0000:0000:0010", "RoCE v2", "eth0");
    let mut wants = named("mlx5_0");
    wants.gid_index = Some(4);
    only(&tree.findings(&wants), &[FindingId::GidElsewhere], Severity::Error);
    let more = "fd000000000000000000000000000010 02 40 00 80     eth0\n00000000000000000000000000000001";
    tree.edit("proc/thread-self/net/if_inet6", "00000000000000000000000000000001", more);
    only(&tree.findings(&wants), &[], Severity::Error);
}

/// The kernel lists no address of an interface that is set down, and leaves its GIDs in the table.
#[test]
fn an_interface_that_is_set_down_is_still_here() {
    let tree = Tree::healthy();
    tree.edit("sys/class/net/eth0/flags", "0x1003", "0x1002");
    tree.edit("proc/thread-self/net/fib_trie", "|-- 10.0.0.1\n", "|-- 172.16.0.9\n");
    only(&tree.findings(&named("mlx5_0")), &[FindingId::NetdevDown], Severity::Warning);
}

/// None of the other findings would help with such a device, so none is there; another device serves.
#[test]
fn an_adapter_of_another_transport_beside_one_of_roce() {
    let tree = Tree::healthy();
    efa(&tree);
    for file in ["gids", "gid_attrs"] {
        tree.remove(&format!("{PORT}/{file}"));
    }
    tree.edit(&format!("{PORT}/state"), "4: ACTIVE", "1: DOWN");
    only(&tree.findings(&Wants::default()), &[FindingId::Transport], Severity::Note);
    only(&tree.findings(&named("mlx5_0")), &[FindingId::Transport], Severity::Error);
    only(&tree.findings(&named("mlx5_1")), &[], Severity::Error);
}

/// The loader takes either libibverbs, so either provider may be the right one.
#[test]
fn two_releases_of_libibverbs_with_the_provider_of_one() {
    let tree = Tree::healthy();
    let other: Vec<_> = String::from_utf8_lossy(LIBIBVERBS).replace("34", "57").into_bytes();
    tree.file("usr/lib64/libibverbs.so.1", &other);
    only(&tree.findings(&Wants::default()), &[], Severity::Error);
    tree.file("usr/lib/x86_64-linux-gnu/libibverbs.so.1", &other);
    only(&tree.findings(&Wants::default()), &[FindingId::NoProvider], Severity::Error);
    // A file that does not tell the number leaves it open.
    tree.file("usr/lib64/libibverbs.so.1", "\x7fELF");
    only(&tree.findings(&Wants::default()), &[], Severity::Error);
}

/// The provider of the NIC for storage is not in the image; the other NIC serves.
#[test]
fn an_image_without_the_provider_of_another_nic() {
    let tree = Tree::healthy();
    tree.remove("sys/class/infiniband/mlx5_0/device/driver");
    tree.link("sys/class/infiniband/mlx5_0/device/driver", "../../../../../../bus/pci/drivers/ice");
    only(&tree.findings(&Wants::default()), &[FindingId::NoProvider], Severity::Warning);
    only(&tree.findings(&named("mlx5_0")), &[FindingId::NoProvider], Severity::Error);
    only(&tree.findings(&named("mlx5_1")), &[], Severity::Error);
}

/// libibverbs reads every file of its folder, and takes a tab for a blank.
#[test]
fn a_provider_that_a_file_of_another_name_names() {
    let tree = Tree::healthy();
    tree.remove("etc/libibverbs.d/mlx5.driver");
    tree.file("etc/libibverbs.d/nics", "# of this machine\ndriver\tmlx5\n");
    tree.file("etc/libibverbs.d/old/mlx4", "");
    only(&tree.findings(&Wants::default()), &[], Severity::Error);
}

/// A pod sees all devices of its node, and registers with its own alone.
#[test]
fn a_memlock_limit_that_fits_the_only_device_of_a_pod() {
    let tree = Tree::healthy();
    memlock(&tree, "1610612736");
    let mut wants = Wants::default();
    wants.pin_bytes = 1 << 30;
    let ids = |wants: &Wants| tree.findings(wants).iter().map(|finding| finding.id).collect::<Vec<_>>();
    assert_eq!(ids(&wants), [FindingId::MemlockTooSmall, FindingId::NoIpcLock], "both devices");
    tree.remove("dev/infiniband/uverbs1");
    assert_eq!(ids(&wants), [FindingId::NodeMissing]);
    wants.device = Some("mlx5_0".to_owned());
    assert_eq!(ids(&wants), []);
}

/// A card for storage at half the rate of those for computing, of the same type of adapter.
#[test]
fn a_slower_port_of_another_board() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/rate"), "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)");
    assert_eq!(of(&tree.findings(&Wants::default()), FindingId::SlowPort).len(), 1, "one board");
    tree.file("sys/class/infiniband/mlx5_0/board_id", "MT_0000000834\n");
    only(&tree.findings(&Wants::default()), &[], Severity::Warning);
}

/// The second device is a function without a port; the first one serves.
#[test]
fn a_device_without_ports_beside_one_that_serves() {
    let tree = Tree::healthy();
    tree.remove("sys/class/infiniband/mlx5_1/ports");
    only(&tree.findings(&Wants::default()), &[FindingId::NoPorts], Severity::Warning);
}

/// This library puts nothing into /dev/shm.
#[test]
fn a_pod_with_the_usual_shared_memory() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/mountinfo", "size=8388608k", "size=65536k");
    only(&tree.findings(&Wants::default()), &[FindingId::ShmTooSmall], Severity::Note);
}
