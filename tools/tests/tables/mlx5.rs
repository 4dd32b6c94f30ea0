//! Golden text on trees of mlx5; the source of each is in its first lines.
//!
//! `gids` and `netdevs` are the text of the vendor's scripts on these trees, byte for byte, but for one word: the state
//! of an interface in another network namespace (`net1`) is `NA`, where the script repeats the state of the line above.
//! `devinfo` has no line that sysfs has no file for, such as the MTU.

use super::run::on;
use super::tree::Tree;

const TREES: [&str; 4] = ["port_down", "bond", "mixed", "sriov"];

/// Compares the output on each tree with its golden file.
fn golden(name: &str, line: &str) {
    for tree in TREES {
        let output = on(Tree::named(tree).root(), line);
        assert_eq!(output.code, Some(0), "{tree}: {output:?}");
        insta::assert_snapshot!(format!("{name}__{tree}"), output.stdout);
    }
}

#[test]
fn gids_is_the_text_of_show_gids() {
    golden("gids", "gids");
}

#[test]
fn netdevs_is_the_text_of_ibdev2netdev() {
    golden("netdevs", "netdevs");
}

#[test]
fn netdevs_with_v_is_the_text_of_ibdev2netdev_with_v() {
    golden("netdevs_v", "netdevs -v");
}

#[test]
fn stat_is_the_text_of_ibstat() {
    golden("stat", "stat");
}

#[test]
fn devinfo_has_the_lines_of_sysfs() {
    golden("devinfo", "devinfo -v");
}

#[test]
fn devices_is_the_text_of_ibv_devices() {
    golden("devices", "devices");
}

#[test]
fn json_has_the_values_of_the_text() {
    for line in ["devices", "devinfo -v", "devinfo -l", "stat", "stat -l", "stat -p", "gids", "netdevs -v"] {
        let name = format!("json_{}", line.replace([' ', '-'], ""));
        let json = on(Tree::named("port_down").root(), &format!("{line} --json")).succeeded();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        insta::assert_snapshot!(name, serde_json::to_string_pretty(&value).unwrap());
    }
}

#[test]
fn a_device_and_a_port_are_chosen_by_the_flags_of_the_c_programs() {
    let tree = Tree::named("port_down");
    let stat = on(tree.root(), "stat mlx5_1 1").succeeded();
    assert!(
        stat.starts_with("CA: 'mlx5_1'\nPort 1:\nState: Active\nPhysical state: LinkUp\nRate: 200\n"),
        "{stat}"
    );
    assert_eq!(on(tree.root(), "stat -l").succeeded(), "mlx5_0\nmlx5_1\nmlx5_bond_0\n");
    assert_eq!(on(tree.root(), "stat -p mlx5_bond_0").succeeded(), "0x401d55fffe146ce8\n");
    assert_eq!(on(tree.root(), "stat -s").succeeded().matches("Port ").count(), 0);
    let devinfo = on(tree.root(), "devinfo -d mlx5_1 -i 1").succeeded();
    assert_eq!(devinfo.matches("hca_id").count(), 1);
    assert_eq!(
        on(tree.root(), "devinfo -l").succeeded(),
        "3 HCAs found:\n\tmlx5_0\n\tmlx5_1\n\tmlx5_bond_0\n\n"
    );
    let gids = on(tree.root(), "gids mlx5_bond_0 1").succeeded();
    assert!(gids.ends_with("n_gids_found=4\n"), "{gids}");
}

#[test]
fn a_device_or_port_that_is_not_there_is_named_with_those_that_are() {
    let tree = Tree::named("port_down");
    for line in
        ["stat mlx5_bond_1", "devinfo -d mlx5_bond_1", "gids mlx5_bond_1", "devinfo -l -d mlx5_bond_1"]
    {
        on(tree.root(), line)
            .failed_with(&["no RDMA device mlx5_bond_1; there are mlx5_0, mlx5_1, mlx5_bond_0"]);
    }
    on(tree.root(), "stat mlx5_0 2").failed_with(&["CA: 'mlx5_0' has no port number 2 - max (1)"]);
    on(tree.root(), "devinfo -d mlx5_0 -i 2").failed_with(&["mlx5_0 has no port 2; it has 1"]);
    on(tree.root(), "devinfo -i 0").failed_with(&["ports are numbered from 1"]);
}

#[test]
fn doctor_fails_where_a_finding_is_an_error_and_names_it() {
    let tree = Tree::named("port_down");
    let findings = on(tree.root(), "doctor -d mlx5_0").failed_with(&["are errors"]);
    assert!(findings.contains("error: port-down: "), "{findings}");
    let json = on(tree.root(), "doctor -d mlx5_0 --json").failed_with(&[]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        value["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == "port-down"),
        "{json}"
    );
}

/// Returns the ids of the findings, of any severity.
fn ids(root: &std::path::Path, flags: &str) -> Vec<String> {
    let output = on(root, &format!("doctor --json {flags}")).stdout;
    let value: serde_json::Value = serde_json::from_str(&output).unwrap();
    let findings = value["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn doctor_looks_at_what_the_flags_want() {
    let tree = Tree::named("port_down");
    tree.file(
        "proc/thread-self/limits",
        "Max open files 1024 1024 files\nMax locked memory 65536 65536 bytes\n",
    );
    tree.file("proc/thread-self/status", "CapEff:\t0000000000000000\nVmPin:\t0 kB\nVmLck:\t0 kB\n");
    tree.file("proc/thread-self/fd/0", "");
    tree.file("proc/thread-self/mountinfo", "33 24 0:31 / /dev/shm rw - tmpfs shm rw,size=8388608k\n");
    tree.file("sys/module/mlx5_core/version", "");
    for (flags, id) in [
        ("--pin 1G", "memlock-too-small"),
        ("--shm 9G", "shm-too-small"),
        ("--descriptors 2000", "descriptors-too-few"),
        ("--gpu", "gpu-driver-missing"),
        ("-d mlx5_bond_0 -g 5", "gid-empty"),
        ("-d mlx5_bond_0 -i 2", "port-unknown"),
    ] {
        assert!(ids(tree.root(), flags).iter().any(|found| found == id), "{flags}");
        assert!(ids(tree.root(), "").iter().all(|found| found != id), "{id} without {flags}");
    }
}
