//! Trees without a part: nothing in it passes for fine.

use rdma_core::doctor::{FindingId, Machine, Severity};

use crate::bad_trees::all;
use crate::tree::{Tree, of};

#[test]
fn no_sys() {
    let tree = Tree::healthy();
    tree.remove("sys");
    let machine = tree.read();
    assert!(machine.devices.is_err() && machine.netdevs.is_err() && machine.numa_nodes.is_err());
    let findings = machine.findings(&all());
    assert_eq!(of(&findings, FindingId::NoSysfs).len(), 1);
    assert_eq!(of(&findings, FindingId::MemoryCgroup)[0].severity, Severity::NotVisible);
    assert!(findings.iter().all(|finding| finding.severity != Severity::Error), "{findings:#?}");
}

#[test]
fn no_proc() {
    let tree = Tree::healthy();
    tree.remove("proc");
    let findings = tree.findings(&all());
    for id in [
        FindingId::MemlockTooSmall,
        FindingId::MemoryCgroup,
        FindingId::RdmaCgroup,
        FindingId::Descriptors,
        FindingId::ShmTooSmall,
        FindingId::NumaRemote,
    ] {
        assert!(
            of(&findings, id).iter().any(|finding| finding.severity == Severity::NotVisible),
            "{id}: {findings:#?}"
        );
    }
}

#[test]
fn nothing_at_all() {
    let tree = Tree::empty();
    let machine = tree.read();
    assert_eq!(of(&machine.findings(&all()), FindingId::NoSysfs)[0].severity, Severity::NotVisible);
    let missing = Machine::read(tree.path("not/there"));
    assert_eq!(missing.findings(&all()).len(), machine.findings(&all()).len());
}
