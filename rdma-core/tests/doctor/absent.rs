//! Trees without a part: nothing in it passes for fine.

use std::env;
use std::process::Command;

use rdma_core::doctor::{FindingId, Machine, Severity};
use rdma_core::{Device, DeviceList, SoftOptions};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::bad_trees::all;
use crate::raw;
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

/// libibverbs asks for devices over netlink before it reads sysfs, and the doctor reads sysfs alone. The filter holds
/// for the whole process, so the test runs again in one of its own.
#[test]
fn seccomp_that_refuses_netlink() {
    const CHILD: &str = "RDMA_TEST_WITHOUT_NETLINK";
    if env::var_os(CHILD).is_none() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["absent::seccomp_that_refuses_netlink", "--exact", "--nocapture"]).env(CHILD, "1");
        let child = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && stdout.contains("1 passed"), "{child:?}");
        return;
    }
    let seen = || {
        let Machine { devices, netdevs, .. } = Machine::read("/");
        let devices = devices.map(|all| all.into_iter().map(|device| device.name).collect::<Vec<_>>());
        let netdevs = netdevs.map(|all| all.into_iter().map(|netdev| netdev.name).collect::<Vec<_>>());
        let listed = DeviceList::probe();
        (devices, netdevs, listed.devices().iter().map(|device| device.name().to_owned()).collect::<Vec<_>>())
    };
    let before = seen();
    let netlink = libc::AF_NETLINK as u32;
    raw::refuse(libc::SYS_socket, 0, netlink..netlink + 1);
    assert_eq!(socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap_err(), Errno::PERM);
    assert_eq!(seen(), before);
    Device::soft(SoftOptions::default()).open().unwrap().alloc_pd().unwrap();
}
