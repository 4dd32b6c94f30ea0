//! Trees that are damaged: a clear error, and nothing lost that can be read.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::run::{Ended, on, program};
use super::tree::Tree;

const ALL: [&str; 6] = ["devices", "devinfo -v", "stat", "gids", "netdevs -v", "doctor"];
const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

fn each(tree: &Tree) -> [Ended; 6] {
    ALL.map(|line| {
        let ended = on(tree.root(), line);
        assert!(matches!(ended.code, Some(0 | 1)), "{line}: {ended:?}");
        assert_eq!(ended.code == Some(1), !ended.stderr.is_empty(), "{line}: {ended:?}");
        ended
    })
}

#[test]
fn a_sysfs_that_is_truncated_loses_no_value_that_is_there() {
    let tree = Tree::named("port_down");
    for file in ["state", "rate", "lid"] {
        tree.file(&format!("{PORT}/{file}"), "");
    }
    fs::remove_file(tree.path("sys/class/infiniband/mlx5_0/node_guid")).unwrap();
    let [_, devinfo, stat, ..] = each(&tree);
    let stat = stat.failed_with(&[
        "ports/1/state",
        "ports/1/rate",
        "ports/1/lid",
        "node_guid",
        "4 values could not be read",
    ]);
    assert!(
        stat.contains("CA 'mlx5_0'") && stat.contains("\t\tPhysical state: Disabled\n\t\tLMC: 0\n"),
        "{stat}"
    );
    assert!(stat.contains("CA 'mlx5_bond_0'"), "{stat}");
    let devinfo = devinfo.failed_with(&["ports/1/state", "ports/1/lid", "node_guid"]);
    assert!(devinfo.contains("\t\tport:\t1\n\t\t\tsm_lid:"), "{devinfo}");
}

#[test]
fn a_sysfs_that_changes_while_it_is_read_ends_no_command() {
    let tree = Tree::named("bond");
    let (from, to) = (tree.path("sys/class/infiniband/mlx5_bond_0"), tree.path("gone"));
    let port = tree.path("sys/devices/pci0000:00/0000:31:00.0/infiniband/mlx5_bond_0/ports/1");
    let ended = AtomicBool::new(false);
    let answers: Vec<Ended> = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                fs::rename(&from, &to).unwrap();
                fs::rename(port.join("gids"), port.join("none")).unwrap();
                fs::rename(&to, &from).unwrap();
                fs::rename(port.join("none"), port.join("gids")).unwrap();
            }
        });
        let answers = (0..20).flat_map(|_| ALL.map(|line| on(tree.root(), line))).collect();
        ended.store(true, Ordering::Relaxed);
        answers
    });
    // Checked here, because a panic above would leave the other thread to go on for ever.
    for answer in answers {
        assert!(matches!(answer.code, Some(0 | 1)), "{answer:?}");
    }
}

#[test]
fn names_of_64_bytes_are_printed_whole() {
    let name = "m".repeat(64);
    let tree = Tree::named("bond");
    let folder = "sys/class/infiniband";
    fs::rename(tree.path(&format!("{folder}/mlx5_bond_0")), tree.path(&format!("{folder}/{name}"))).unwrap();
    for ended in each(&tree).into_iter().take(5) {
        assert!(ended.stdout.contains(&name), "{ended:?}");
    }
}

#[test]
fn numbers_that_do_not_parse_are_named_and_left_out() {
    let tree = Tree::named("port_down");
    let wrong = [
        ("lid", "0xfffffffff"),
        ("lid_mask_count", "-1"),
        ("state", "ACTIVE"),
        ("phys_state", "99999999999: X"),
        ("cap_mask", "12"),
        ("gids/0", "fe80::zz"),
    ];
    for (file, text) in wrong {
        tree.file(&format!("{PORT}/{file}"), text);
    }
    let [_, devinfo, stat, gids, ..] = each(&tree);
    let stat = stat.failed_with(&wrong.map(|(file, _)| file));
    assert!(stat.contains("\tPort 1:\n\t\tRate: 10\n\t\tSM lid: 0\n\t\tLink layer: InfiniBand\n"), "{stat}");
    devinfo.failed_with(&["lid_mask_count", "gids/0"]);
    let gids = gids.failed_with(&["gids/0", "a value could not be read"]);
    assert!(gids.ends_with("n_gids_found=5\n"), "{gids}");
}

#[test]
fn gid_tables_with_holes_keep_their_indices() {
    let tree = Tree::named("bond");
    let port = "sys/class/infiniband/mlx5_bond_0/ports/1";
    for index in ["0", "2", "4"] {
        fs::remove_file(tree.path(&format!("{port}/gids/{index}"))).unwrap();
    }
    fs::remove_file(tree.path(&format!("{port}/gid_attrs/types/3"))).unwrap();
    let gids = on(tree.root(), "gids").succeeded();
    let rows: Vec<Vec<_>> = gids.lines().skip(2).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 4, "{gids}");
    assert_eq!(rows.iter().take(3).map(|row| row[2]).collect::<Vec<_>>(), ["1", "10", "3"]);
    assert_eq!(rows[2][5..], ["", "bond0"], "{gids}");
    let devinfo = on(tree.root(), "devinfo -v").succeeded();
    assert!(devinfo.contains("GID[  3]:") && devinfo.contains("GID[ 10]:"), "{devinfo}");
}

#[test]
fn a_machine_without_sys_is_told_so() {
    for ended in each(&Tree::empty()).into_iter().take(5) {
        ended.failed_with(&["/sys/class/infiniband"]);
    }
}

#[test]
fn a_machine_without_a_device_is_told_so() {
    let tree = Tree::described("[sys/class]\n");
    let [devices, devinfo, stat, gids, netdevs, _] = each(&tree);
    assert_eq!(devices.succeeded().lines().count(), 2);
    for ended in [devinfo, stat, gids, netdevs] {
        assert_eq!(ended.failed_with(&["the kernel has no RDMA device"]), "");
    }
}

#[test]
fn a_device_of_0_ports_is_printed() {
    let tree = Tree::named("bond");
    fs::remove_dir_all(tree.path("sys/class/infiniband/mlx5_bond_0/ports")).unwrap();
    let stat = on(tree.root(), "stat").succeeded();
    assert!(
        stat.contains("\tNumber of ports: 0\n") && stat.ends_with("System image GUID: 0x401d550300146ce8\n"),
        "{stat}"
    );
    assert!(on(tree.root(), "devinfo").succeeded().ends_with("\tphys_port_cnt:\t\t\t0\n"));
    assert!(on(tree.root(), "gids").succeeded().ends_with("n_gids_found=0\n"));
    assert_eq!(on(tree.root(), "netdevs").succeeded(), "");
}

#[test]
fn a_device_of_4_ports_has_each_in_its_order() {
    let tree = Tree::named("bond");
    let ports = "sys/class/infiniband/mlx5_bond_0/ports";
    for number in 2..=4 {
        for file in [
            "state",
            "phys_state",
            "link_layer",
            "rate",
            "lid",
            "lid_mask_count",
            "sm_lid",
            "sm_sl",
            "cap_mask",
        ] {
            let text = fs::read(tree.path(&format!("{ports}/1/{file}"))).unwrap();
            tree.file(&format!("{ports}/{number}/{file}"), text);
        }
        tree.file(
            &format!("{ports}/{number}/gids/0"),
            format!("fe80:0000:0000:0000:0000:0000:0000:000{number}\n"),
        );
        tree.file(&format!("{ports}/{number}/gid_attrs/ndevs/0"), "eth0\n");
    }
    let stat = on(tree.root(), "stat").succeeded();
    let numbers: Vec<_> = stat.lines().filter_map(|line| line.strip_prefix("\tPort ")).collect();
    assert_eq!(numbers, ["1:", "2:", "3:", "4:"]);
    let netdevs = on(tree.root(), "netdevs").succeeded();
    let lines: Vec<_> = netdevs.lines().collect();
    let wanted = [1, 2, 3, 4]
        .map(|port| format!("mlx5_bond_0 port {port} ==> {} (Up)", if port == 1 { "bond0" } else { "eth0" }));
    assert_eq!(lines, wanted);
    assert_eq!(on(tree.root(), "devinfo -i 4").succeeded().matches("\t\tport:\t").count(), 1);
}

#[test]
fn links_that_lead_in_a_circle_end_no_command() {
    let tree = Tree::named("bond");
    tree.link("sys/class/infiniband/mlx5_9", "mlx5_9");
    tree.link("sys/class/net/loop0", "../net/loop0");
    let [_, _, _, gids, ..] = each(&tree);
    assert!(gids.stdout.contains("mlx5_bond_0\t1\t3\t"), "{gids:?}");
}

#[test]
fn a_pipe_in_place_of_a_file_holds_no_command_up() {
    let tree = Tree::named("port_down");
    let port = "sys/class/infiniband/mlx5_bond_0/ports/1";
    for file in [
        "sys/class/net/bond0/carrier".to_owned(),
        "sys/class/infiniband/mlx5_bond_0/device/vpd".to_owned(),
        format!("{port}/gid_attrs/types/3"),
        format!("{port}/state"),
    ] {
        let path = tree.path(&file);
        let _ = fs::remove_file(&path);
        assert_eq!(program("mkfifo", path.to_str().unwrap()).code, Some(0), "{file}");
    }
    let [.., gids, netdevs, _] = each(&tree);
    assert!(gids.stdout.contains("mlx5_bond_0\t1\t3\t"), "{gids:?}");
    assert!(netdevs.stdout.contains("==> bond0 (Down)"), "{netdevs:?}");
}
