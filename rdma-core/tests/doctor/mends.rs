//! Mends that mend: each names the amount, the port or the entry that this machine needs.

use rdma_core::doctor::{FindingId, Mend, Wants};

use crate::tree::{PORT, Tree, of};

fn mend(tree: &Tree, wants: &Wants, id: FindingId) -> Mend {
    let findings = tree.findings(wants);
    of(&findings, id).first().unwrap_or_else(|| panic!("no {id} in {findings:#?}")).mend.clone()
}

#[test]
fn shared_memory_of_the_size_that_is_needed() {
    let mut wants = Wants::default();
    wants.shm_bytes = (20 << 30) + 1;
    let found = mend(&Tree::healthy(), &wants, FindingId::ShmTooSmall);
    assert!(found.shell.contains("size=21g") && found.unit.contains("size=21G"), "{found:?}");
    assert!(found.pod.contains("sizeLimit: 21Gi"), "{found:?}");
}

#[test]
fn a_port_of_infiniband_is_not_brought_up_by_its_interface() {
    let tree = Tree::healthy();
    tree.edit(&format!("{PORT}/state"), "4: ACTIVE", "1: DOWN");
    let shell = |tree: &Tree| mend(tree, &Wants::default(), FindingId::PortDown).shell;
    assert!(shell(&tree).contains("`ip link set eth0 up`"), "{}", shell(&tree));
    tree.edit(&format!("{PORT}/link_layer"), "Ethernet", "InfiniBand");
    assert!(shell(&tree).contains("`mlxlink -d mlx5_0 --port_state UP`"), "{}", shell(&tree));
    assert!(!shell(&tree).contains("ip link"), "{}", shell(&tree));
}

#[test]
fn a_gid_of_another_namespace_where_no_other_one_serves() {
    let tree = Tree::healthy();
    tree.remove("sys/class/net/eth0");
    let mut wants = Wants::default();
    wants.device = Some("mlx5_0".to_owned());
    wants.gid_index = Some(3);
    let found = mend(&tree, &wants, FindingId::GidElsewhere);
    assert!(found.pod.contains("k8s.v1.cni.cncf.io/networks"), "{found:?}");
    assert!(!found.shell.contains("no other entry") && !found.unit.contains("Unset"), "{found:?}");
}
