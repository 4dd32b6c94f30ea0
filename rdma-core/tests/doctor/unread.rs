//! Files that cannot be read, each with the one finding that says so: nothing passes for fine, or for wrong.

use rdma_core::doctor::{FindingId, Severity, Wants};

use crate::tree::{PORT, Tree};

/// Puts a folder in place of the file, because root may read every file.
fn check(tree: &Tree, file: &str, wants: &Wants, id: FindingId) {
    tree.remove(file);
    tree.folder(file);
    only_says_so(tree, file, wants, id);
}

fn only_says_so(tree: &Tree, file: &str, wants: &Wants, id: FindingId) {
    let findings = tree.findings(wants);
    let found: Vec<_> = findings.iter().map(|finding| (finding.id, finding.severity)).collect();
    assert_eq!(found, [(id, Severity::NotVisible)], "{findings:#?}");
    assert!(findings[0].source.ends_with(file.rsplit('/').next().unwrap()), "{findings:#?}");
}

#[test]
fn the_device_of_a_node() {
    let file = "sys/class/infiniband_verbs/uverbs1/ibdev";
    check(&Tree::healthy(), file, &Wants::default(), FindingId::NodeMissing);
}

#[test]
fn the_rate_of_a_port() {
    check(&Tree::healthy(), &format!("{PORT}/rate"), &Wants::default(), FindingId::SlowPort);
}

#[test]
fn the_state_of_the_link_of_a_port() {
    check(&Tree::healthy(), &format!("{PORT}/phys_state"), &Wants::default(), FindingId::PortDown);
}

#[test]
fn the_type_of_an_adapter() {
    let file = "sys/class/infiniband/mlx5_0/hca_type";
    check(&Tree::healthy(), file, &Wants::default(), FindingId::SlowPort);
    let tree = Tree::healthy();
    tree.remove(file);
    assert_eq!(tree.findings(&Wants::default()), [], "a driver without the file");
}

#[test]
fn the_flags_and_the_bond_of_an_interface() {
    check(&Tree::healthy(), "sys/class/net/eth0/flags", &Wants::default(), FindingId::NetdevDown);
    let tree = Tree::healthy();
    tree.file("sys/class/net/eth0/master", "");
    check(&tree, "sys/class/net/eth0/master", &Wants::default(), FindingId::NetdevInBond);
}

#[test]
fn the_counters_of_a_port() {
    for (folder, id) in [("counters", FindingId::LinkErrors), ("hw_counters", FindingId::SequenceErrors)] {
        let (tree, folder) = (Tree::healthy(), format!("{PORT}/{folder}"));
        tree.remove(&folder);
        assert_eq!(tree.findings(&Wants::default()), [], "a driver without counters");
        tree.file(&folder, "");
        only_says_so(&tree, &folder, &Wants::default(), id);
    }
}

#[test]
fn the_subnet_manager_of_a_port() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/link_layer"), "Ethernet", "InfiniBand");
    check(&tree, &format!("{PORT}/sm_lid"), &Wants::default(), FindingId::NoSubnetManager);
}

#[test]
fn the_type_and_the_interface_of_the_gid_that_was_asked_for() {
    for folder in ["types", "ndevs"] {
        let mut wants = Wants::default();
        wants.gid_index = Some(3);
        check(&Tree::healthy(), &format!("{PORT}/gid_attrs/{folder}/3"), &wants, FindingId::EmptyGid);
    }
}

/// Until then a link-local one is chosen, which reaches the same subnet alone.
#[test]
fn the_only_gid_that_a_router_forwards() {
    check(&Tree::healthy(), &format!("{PORT}/gids/3"), &Wants::default(), FindingId::NoUsableGid);
}

#[test]
fn the_type_of_the_only_gid_of_v2() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/gid_attrs/types/1"), "RoCE v2", "IB/RoCE v1");
    check(&tree, &format!("{PORT}/gid_attrs/types/3"), &Wants::default(), FindingId::NoUsableGid);
}

#[test]
fn a_list_of_more_processors_than_a_kernel_has() {
    let tree = Tree::healthy();
    let list = |first: u32| (0..400_000).map(|cpu| format!("{},", 2 * cpu + first)).collect::<String>();
    tree.edit("proc/thread-self/status", "0-127", &list(0));
    tree.file("sys/devices/system/node/node0/cpulist", list(1));
    let mut wants = Wants::default();
    wants.device = Some("mlx5_0".to_owned());
    let findings = tree.findings(&wants);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].id, findings[0].severity), (FindingId::NumaRemote, Severity::NotVisible));
    assert!(findings[0].text.contains("more than 8192 ranges"), "{findings:#?}");
}
