//! Values that are read from the healthy tree, and from the machine of the test.

use rdma_core::doctor::{Machine, Wants};
use rdma_core::memory::pinning::Limit;
use rdma_core::{GidType, LinkLayer, PortNum};

use crate::tree::{CGROUP, Tree};

#[test]
fn a_healthy_machine_has_no_finding() {
    let tree = Tree::healthy();
    assert_eq!(tree.findings(&Wants::default()), []);
    let mut wants = Wants::default();
    wants.device = Some("mlx5_1".to_owned());
    wants.port = Some(PortNum(1));
    wants.gid_index = Some(3);
    wants.pin_bytes = 64 << 30;
    wants.shm_bytes = 8 << 30;
    wants.descriptors = 1000;
    wants.gpu_memory = true;
    wants.variables = [
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("NCCL_SOCKET_IFNAME", "eth"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_DISABLE", "0"),
        ("PATH", ""),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(tree.findings(&wants), []);
}

#[test]
fn devices_and_ports_are_read_whole() {
    let machine = Tree::healthy().read();
    let names: Vec<_> = machine.devices.as_ref().unwrap().iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_1"]);
    let device = machine.device("mlx5_1").unwrap();
    assert_eq!(device.node_guid.as_deref(), Ok("7c8c:0903:00c3:cf96"));
    assert_eq!(device.fw_ver.as_deref(), Ok("28.44.2524"));
    assert_eq!((&device.vendor, &device.part), (&Ok(0x15b3), &Ok(0x1021)));
    assert_eq!(device.driver, Ok(Some("mlx5_core".to_owned())));
    assert_eq!(device.uverbs, Ok(Some("uverbs1".to_owned())));
    assert_eq!(device.netdevs, ["eth1"]);
    let pci = device.pci.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((pci.address.as_str(), &pci.numa_node, pci.is_virtual), ("0000:96:00.0", &Ok(Some(1)), false));
    let bridges: Vec<_> =
        pci.bridges.iter().map(|bridge| (bridge.address.as_str(), bridge.redirects())).collect();
    let of_switch = ["0000:95:01.0", "0000:95:02.0", "0000:95:03.0"];
    assert_eq!(bridges, of_switch.map(|address| (address, Some(false))));

    let port = device.port(PortNum(1)).unwrap();
    assert_eq!(
        (port.is_active(), &port.link_layer, port.gbits()),
        (Some(true), &Ok(LinkLayer::ETHERNET), Some(400.0))
    );
    assert_eq!((port.counter("port_xmit_data"), port.counter("lifespan")), (Some(77), None));
    let table = port.gids.as_ref().unwrap();
    assert_eq!((table.len, table.rows.len(), table.unread.len()), (8, 4, 0));
    let row = table.get(3).unwrap();
    assert_eq!((row.gid.to_string().as_str(), row.kind), ("::ffff:10.0.0.2", GidType::ROCE_V2));
    assert_eq!(machine.netdev_of(device, port).unwrap().name, "eth1");
    assert_eq!(machine.gid_entries(port).len(), 4);
}

#[test]
fn the_process_and_the_system_are_read_whole() {
    let machine = Tree::healthy().read();
    assert_eq!(machine.process.open_files_max, Ok(Limit::AtMost(1024)));
    assert_eq!(machine.process.open_files, Ok(3));
    assert_eq!(machine.process.cpus.as_ref().unwrap().to_string(), "0-127");
    assert_eq!(machine.shm.as_ref().unwrap().size_bytes, 8 << 30);
    assert_eq!(machine.gpu_memory.reaches_nvidia(), Some(true));
    assert_eq!(machine.has_uverbs, Ok(true));
    assert!(machine.libraries.has_provider("mlx5") && !machine.libraries.has_provider("mlx"));
    assert!(!machine.pinning.to_string().contains("not known ("), "{}", machine.pinning);
    assert_eq!(machine.pinning.memory_cgroups.as_ref().unwrap().groups.len(), 1, "{CGROUP}");
}

#[test]
fn shared_memory_without_a_size_has_half_of_the_memory() {
    let tree = Tree::healthy();
    tree.edit("proc/thread-self/mountinfo", ",size=8388608k", "");
    assert_eq!(tree.read().shm.unwrap().size_bytes, 2_113_527_552 * 1024 / 2);
    for (text, bytes) in [("size=5", 5), ("size=3m", 3 << 20), ("size=2g", 2 << 30)] {
        tree.edit("proc/thread-self/mountinfo", "- tmpfs shm rw", &format!("- tmpfs shm rw,{text}"));
        assert_eq!(tree.read().shm.unwrap().size_bytes, bytes);
        tree.edit("proc/thread-self/mountinfo", &format!(",{text}"), "");
    }
}

#[test]
fn a_soft_device_is_on_no_bus_and_of_a_provider_by_its_name() {
    let tree = Tree::healthy();
    tree.remove("sys/class/infiniband/mlx5_1");
    tree.port("sys/class/infiniband/rxe0/ports/1", 1, "eth1");
    tree.files("sys/class/infiniband/rxe0", [("fw_ver", ""), ("node_type", "1: CA")]);
    tree.edit("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_1", "rxe0");
    let machine = tree.read();
    let device = machine.device("rxe0").unwrap();
    assert_eq!((&device.pci, &device.driver, device.fw_ver.as_deref()), (&Ok(None), &Ok(None), Ok("")));
    let findings = machine.findings(&Wants::default());
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].text.contains("provider rxe"), "{findings:?}");
}

#[test]
fn this_machine_is_read() {
    let machine = Machine::read("/");
    assert!(machine.netdevs.is_ok() || !std::path::Path::new("/sys/class/net").exists());
    for finding in machine.findings(&Wants::default()) {
        let text = finding.to_string();
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}
