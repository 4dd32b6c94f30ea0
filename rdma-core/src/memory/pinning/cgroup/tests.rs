//! The walk from a process to its cgroups, over small trees with one question each.

use super::*;
use crate::memory::pinning::reading::Limit;
use std::fs;

/// A tree with one v2 mount, and a process in `group`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn v2(group: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write("process/cgroup", &format!("0::{group}\n"));
        tree.write("process/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        tree.write("cg/cgroup.procs", "");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn group(&self, path: &str, controllers: &str) {
        self.write(&format!("cg{path}/cgroup.procs"), "");
        self.write(&format!("cg{path}/cgroup.type"), "domain\n");
        self.write(&format!("cg{path}/cgroup.controllers"), controllers);
    }

    fn memory(&self) -> Reading<Hierarchy<MemoryCgroup>> {
        read_memory(&Roots { process: &self.0.path().join("process"), root: self.0.path() })
    }

    /// Returns the limits of the groups, the process's own first; `None` where a limit is not known.
    fn limits(&self) -> Vec<Option<Limit>> {
        self.memory().unwrap().groups.into_iter().map(|group| group.limit.ok()).collect()
    }
}

#[test]
fn the_root_group_has_no_limit_and_hides_nothing() {
    let tree = Tree::v2("/");
    let memory = tree.memory().unwrap();
    assert_eq!(memory, Hierarchy { groups: vec![], ancestors_hidden: false });
}

#[test]
fn own_group_comes_first_then_its_ancestors() {
    let tree = Tree::v2("/a/b");
    tree.group("/a", "memory\n");
    tree.group("/a/b", "memory\n");
    tree.write("cg/a/memory.max", "4096\n");
    tree.write("cg/a/b/memory.max", "max\n");
    assert_eq!(tree.limits(), [Some(Limit::Unlimited), Some(Limit::AtMost(4096))]);
}

#[test]
fn a_group_without_the_controller_is_left_out() {
    let tree = Tree::v2("/a/b");
    tree.group("/a", "cpu memory\n");
    tree.group("/a/b", "cpu\n");
    tree.write("cg/a/memory.max", "4096\n");
    assert_eq!(tree.limits(), [Some(Limit::AtMost(4096))]);
}

#[test]
fn a_missing_file_of_a_controller_at_work_is_not_known() {
    let tree = Tree::v2("/a");
    tree.group("/a", "memory\n");
    assert_eq!(tree.limits(), [None]);
}

#[test]
fn a_directory_that_is_not_there_is_not_known() {
    let tree = Tree::v2("/gone");
    assert_eq!(tree.limits(), [None]);
}

#[test]
fn a_file_that_cannot_be_read_is_not_known() {
    let tree = Tree::v2("/a");
    tree.group("/a", "memory\n");
    fs::create_dir(tree.0.path().join("cg/a/memory.max")).unwrap();
    assert_eq!(tree.limits(), [None]);
}

#[test]
fn a_group_outside_the_cgroup_namespace_is_not_known() {
    let tree = Tree::v2("/../sibling");
    let unknown = tree.memory().unwrap_err();
    assert_eq!(unknown.why, "no mount shows the cgroup /../sibling");
}

#[test]
fn a_hierarchy_that_is_not_mounted_is_not_known() {
    let tree = Tree::v2("/a");
    tree.write("process/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
    assert_eq!(tree.memory().unwrap_err().why, "`cgroup2` is not mounted here");
    tree.write("process/cgroup", "4:memory:/a\n0::/a\n");
    assert_eq!(tree.memory().unwrap_err().why, "`memory` is not mounted here");
}

#[test]
fn of_several_mounts_the_one_that_shows_most_is_read() {
    let tree = Tree::v2("/a/b");
    tree.write(
        "process/mountinfo",
        "31 22 0:26 /a/b /own rw - cgroup2 cgroup2 rw\n30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
    );
    tree.group("/a", "memory\n");
    tree.group("/a/b", "memory\n");
    tree.write("cg/a/memory.max", "1\n");
    tree.write("cg/a/b/memory.max", "2\n");
    assert_eq!(tree.limits(), [Some(Limit::AtMost(2)), Some(Limit::AtMost(1))]);
}

#[test]
fn a_group_of_a_million_levels_is_not_known_at_once() {
    let tree = Tree::v2(&"/a".repeat(1_000_000));
    assert!(tree.memory().unwrap_err().why.ends_with("is not HIERARCHY:CONTROLLERS:GROUP"));
    // As deep as the kernel's paths can be.
    assert_eq!(Tree::v2(&"/a".repeat(2048)).limits().len(), 2048);
}

#[test]
fn a_process_in_no_group_is_not_known() {
    let tree = Tree::v2("/");
    tree.write("process/cgroup", "1:name=systemd:/\n");
    assert_eq!(tree.memory().unwrap_err().why, "no cgroup for `memory`");
}
