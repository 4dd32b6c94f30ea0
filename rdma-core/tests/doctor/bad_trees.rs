//! Trees that are damaged, foreign, or change while they are read: each is read to its end, and nothing in it that
//! cannot be read passes for fine.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_core::PortNum;
use rdma_core::doctor::{FindingId, Severity, Wants};

use crate::tree::{PORT, Tree, of};

/// The wants that look at most of the tree.
pub fn all() -> Wants {
    let mut wants = Wants::default();
    wants.pin_bytes = 1 << 30;
    wants.shm_bytes = 1 << 20;
    wants.descriptors = 10;
    wants.gpu_memory = true;
    wants
}

/// Returns every file of a tree.
pub fn files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

#[test]
fn a_tree_that_changes_while_it_is_read() {
    let tree = Tree::healthy();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = tree.path(PORT);
            let aside = port.with_file_name("aside");
            while !done.load(Ordering::Relaxed) {
                fs::rename(&port, &aside).unwrap();
                tree.file("sys/class/infiniband/mlx5_9/ports/1/gids/0", "0000:0");
                fs::rename(&aside, &port).unwrap();
                tree.remove("sys/class/infiniband/mlx5_9");
            }
        });
        for _ in 0..200 {
            let machine = tree.read();
            let names: Vec<_> = machine.devices.as_ref().unwrap().iter().map(|device| &device.name).collect();
            assert!(names.len() >= 2 && names.iter().any(|name| *name == "mlx5_0"), "{names:?}");
            assert!(machine.findings(&all()).len() < 100);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(tree.findings(&all()), []);
}

#[test]
fn names_of_64_bytes() {
    let tree = Tree::healthy();
    let (device, netdev) = ("d".repeat(64), "n\n\u{1b}".repeat(21));
    let port = format!("sys/class/infiniband/{device}/ports/1");
    tree.port(&port, 7, "eth0");
    tree.files(
        &format!("sys/class/net/{netdev}"),
        [("mtu", "1500"), ("operstate", "up"), ("flags", "0x1003")],
    );
    tree.gid(&port, 3, "0000:0000:0000:0000:0000:ffff:0a00:0009", "RoCE v2", &netdev);
    let machine = tree.read();
    assert!(machine.netdev(&netdev).is_some());
    let mut wants = all();
    wants.device = Some(device.clone());
    let findings = machine.findings(&wants);
    assert!(findings.iter().any(|finding| finding.text.contains(&device)), "{findings:#?}");
    // A name with control characters leaves the lines of a report as they are.
    assert!(findings.iter().all(|finding| finding.to_string().lines().count() == 5));
    wants.device = Some("d".repeat(63));
    assert_eq!(of(&machine.findings(&wants), FindingId::UnknownDevice).len(), 1);
}

#[test]
fn numbers_that_do_not_parse() {
    let texts = [
        "-1",
        "+1",
        "0x",
        "0x+1",
        "1e3",
        "99999999999999999999999",
        "4294967296",
        "٣",
        "4:",
        ": ACTIVE",
        "\0",
        "é",
    ];
    let tree = Tree::healthy();
    let mut all_files = Vec::new();
    files(tree.root(), &mut all_files);
    for (number, file) in all_files.iter().enumerate() {
        let whole = fs::read(file).unwrap();
        fs::write(file, texts[number % texts.len()]).unwrap();
        tree.findings(&all());
        fs::write(file, whole).unwrap();
    }
    for text in texts {
        for file in ["state", "lid", "sm_lid", "cap_mask", "lid_mask_count", "rate"] {
            tree.file(&format!("{PORT}/{file}"), text);
        }
        let machine = tree.read();
        let port = machine.device("mlx5_0").unwrap().port(PortNum(1)).unwrap();
        assert!(
            port.state.is_err() && port.lid.is_err() && port.cap_mask.is_err() && port.lmc != Ok(1),
            "{text:?}: {port:?}"
        );
        assert_eq!(of(&machine.findings(&all()), FindingId::PortDown)[0].severity, Severity::NotVisible);
    }
}

#[test]
fn loops_of_links() {
    let tree = Tree::healthy();
    tree.link("sys/class/infiniband/mlx5_loop", "mlx5_loop");
    tree.link("sys/class/net/loop0", "loop1");
    tree.link("sys/class/net/loop1", "loop0");
    for (path, target) in [("device", "device"), ("ports", "../mlx5_1")] {
        tree.remove(&format!("sys/class/infiniband/mlx5_1/{path}"));
        tree.link(&format!("sys/class/infiniband/mlx5_1/{path}"), target);
    }
    tree.remove("sys/fs/cgroup/pod/memory.max");
    tree.link("sys/fs/cgroup/pod/memory.max", "memory.max");
    let machine = tree.read();
    let looped = machine.device("mlx5_loop").unwrap();
    assert!(looped.ports.is_err() && looped.pci.is_err() && looped.node_guid.is_err());
    assert!(machine.device("mlx5_1").unwrap().pci.is_err());
    assert!(machine.netdev("loop0").unwrap().mtu.is_err());
    let findings = machine.findings(&all());
    assert_eq!(of(&findings, FindingId::MemoryCgroup)[0].severity, Severity::NotVisible);
    assert!(
        of(&findings, FindingId::NoPorts).iter().any(|finding| finding.text.contains("mlx5_loop")),
        "{findings:#?}"
    );
}

#[test]
fn a_link_out_of_the_tree() {
    let tree = Tree::healthy();
    tree.remove("sys/class/infiniband/mlx5_0/device");
    tree.link("sys/class/infiniband/mlx5_0/device", "/");
    let pci = tree.read().device("mlx5_0").unwrap().pci.clone();
    assert_eq!(pci.unwrap_err().why, "the link leads out of the tree");
}

#[test]
fn a_gid_table_with_holes() {
    let tree = Tree::healthy();
    for index in [0, 4, 5] {
        tree.remove(&format!("{PORT}/gids/{index}"));
    }
    tree.remove(&format!("{PORT}/gid_attrs/types/2"));
    tree.remove(&format!("{PORT}/gid_attrs/ndevs/3"));
    tree.file(&format!("{PORT}/gids/300"), "0000:0000:0000:0000:0000:ffff:0a00:0063\n");
    tree.file(&format!("{PORT}/gids/6"), "nonsense\n");
    tree.file(&format!("{PORT}/gids/no-number"), "nonsense\n");
    let machine = tree.read();
    let port = machine.device("mlx5_0").unwrap().port(PortNum(1)).unwrap();
    let table = port.gids.as_ref().unwrap();
    let indices: Vec<_> = table.rows.iter().map(|row| row.index).collect();
    assert_eq!((table.len, indices), (301, vec![1, 2, 3, 300]));
    assert_eq!(table.unread.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [6]);
    let mut wants = Wants::default();
    wants.device = Some("mlx5_0".to_owned());
    for (index, id, severity) in [
        (0, FindingId::EmptyGid, Severity::Error),
        (2, FindingId::EmptyGid, Severity::NotVisible),
        (3, FindingId::EmptyGid, Severity::NotVisible),
        (6, FindingId::EmptyGid, Severity::NotVisible),
        (7, FindingId::EmptyGid, Severity::Error),
        (300, FindingId::EmptyGid, Severity::NotVisible),
        (301, FindingId::EmptyGid, Severity::Error),
    ] {
        wants.gid_index = Some(index);
        let findings = machine.findings(&wants);
        assert_eq!(
            of(&findings, id).iter().map(|finding| finding.severity).collect::<Vec<_>>(),
            [severity],
            "{index}"
        );
    }
}

#[test]
fn a_device_of_0_ports() {
    let tree = Tree::healthy();
    tree.remove("sys/class/infiniband/mlx5_0/ports/1");
    let machine = tree.read();
    assert_eq!(machine.device("mlx5_0").unwrap().ports, Ok(Vec::new()));
    assert_eq!(of(&machine.findings(&all()), FindingId::NoPorts).len(), 1);
}

#[test]
fn a_device_of_4_ports() {
    let tree = Tree::healthy();
    for port in 2..=4 {
        tree.port(&format!("sys/class/infiniband/mlx5_0/ports/{port}"), 0, "eth0");
    }
    tree.folder("sys/class/infiniband/mlx5_0/ports/0");
    tree.folder("sys/class/infiniband/mlx5_0/ports/256");
    let machine = tree.read();
    let ports = machine.device("mlx5_0").unwrap().ports.as_ref().unwrap();
    assert_eq!(ports.iter().map(|port| port.number.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(machine.findings(&all()), []);
    let mut wants = all();
    wants.variables.insert("NCCL_IB_HCA".to_owned(), "=mlx5_0:4".to_owned());
    assert_eq!(machine.findings(&wants), []);
    tree.edit("sys/class/infiniband/mlx5_0/ports/3/state", "4: ACTIVE", "1: DOWN");
    assert_eq!(tree.findings(&wants), [], "another port than the one that is taken");
    wants.variables.clear();
    assert_eq!(of(&tree.findings(&wants), FindingId::PortDown).len(), 1);
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_hold_the_reader_up() {
    let tree = Tree::healthy();
    let state = tree.path(&format!("{PORT}/state"));
    fs::remove_file(&state).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &state, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert_eq!(of(&tree.findings(&all()), FindingId::PortDown)[0].severity, Severity::NotVisible);
}
