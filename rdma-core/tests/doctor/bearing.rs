//! Findings that bear on an error of the library.

use std::io;

use rdma_core::doctor::{FindingId, Refusal, Wants};
use rdma_core::error::{ConnectError, OpenError, RegisterError};

use crate::tree::Tree;

fn ids(tree: &Tree, refusal: &Refusal) -> Vec<FindingId> {
    tree.read().bearing_on(refusal, &Wants::default()).iter().map(|finding| finding.id).collect()
}

#[test]
fn a_refused_registration_brings_the_limit_and_nothing_about_devices() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/limits", "unlimited            unlimited", "65536 65536");
    tree.edit("proc/thread-self/status", "a80465fb", "a80425fb");
    tree.remove("dev/infiniband/uverbs0");
    let (source, explanation) = (io::Error::from_raw_os_error(libc::ENOMEM), String::new());
    let error = RegisterError::Refused { len: 1 << 20, source, explanation };
    let refusal = Refusal::of(&error).unwrap();
    assert_eq!(refusal, Refusal::Registration { bytes: 1 << 20 });
    assert_eq!(ids(&tree, &refusal), [FindingId::MemlockTooSmall, FindingId::NoIpcLock]);
}

#[test]
fn a_refused_device_brings_its_node_and_nothing_about_memory_or_others() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/limits", "unlimited            unlimited", "0 0");
    tree.remove("dev/infiniband/uverbs0");
    let error = |name: &str| OpenError::Refused {
        name: name.to_owned(),
        source: io::Error::from_raw_os_error(libc::ENOENT),
        mend: String::new(),
    };
    let wrapped = io::Error::other(error("mlx5_0"));
    assert_eq!(
        Refusal::of(&wrapped),
        None,
        "an io::Error hides its inside, its source is that of the inside"
    );
    assert_eq!(ids(&tree, &Refusal::of(&error("mlx5_0")).unwrap()), [FindingId::NodeMissing]);
    assert_eq!(ids(&tree, &Refusal::of(&error("mlx5_1")).unwrap()), []);
}

#[test]
fn an_error_of_the_caller_brings_nothing() {
    assert_eq!(Refusal::of(&RegisterError::ZeroLength), None);
    assert_eq!(Refusal::of(&io::Error::other("no")), None);
}

#[test]
fn a_refused_connection_brings_the_gid_that_was_asked_for() {
    let tree = Tree::healthy();
    let refusal = Refusal::of(&ConnectError::GidBeyondPath { index: 300 }).unwrap();
    assert_eq!(ids(&tree, &refusal), []);
    let mut wants = Wants::default();
    wants.device = Some("mlx5_0".to_owned());
    for (index, id) in [(1, FindingId::GidLinkLocal), (2, FindingId::GidV1), (5, FindingId::EmptyGid)] {
        wants.gid_index = Some(index);
        let findings = tree.read().bearing_on(&refusal, &wants);
        assert_eq!(findings.iter().map(|finding| finding.id).collect::<Vec<_>>(), [id]);
    }
}
