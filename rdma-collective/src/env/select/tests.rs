//! Devices chosen by kind, by name and by NCCL's variables, and the reasons against the others.

use super::*;
use rdma_core::error::OpenError;

fn none() -> NcclOptions {
    NcclOptions::default()
}

fn soft() -> SoftOptions {
    SoftOptions { name: "soft7".to_owned(), ..SoftOptions::default() }
}

#[test]
fn the_software_device_is_found_by_kind_and_by_name() {
    for wanted in ["soft", "soft7"] {
        let selected = none().select(wanted, soft(), None).unwrap();
        assert_eq!(selected.context.name(), "soft7");
        assert!(selected.context.is_soft());
        // Whatever else is on this host has its reason.
        let devices = DeviceList::probe().devices().len();
        assert_eq!(selected.refused.len(), devices.max(1));
    }
}

#[test]
fn auto_says_why_not_each_other_device() {
    let selected = none().select("auto", soft(), None).unwrap();
    let list = DeviceList::probe();
    for device in list.devices().iter().map(Device::name).filter(|&name| name != selected.context.name()) {
        assert!(selected.refused.iter().any(|refused| refused.device == device), "{device}");
    }
    if list.devices().is_empty() {
        assert_eq!((selected.context.name(), selected.refused.len()), ("soft7", 1));
    }
    assert!(selected.refused.iter().all(|refused| !refused.reason.is_empty()));
}

#[test]
fn a_named_device_never_falls_back() {
    let error = none().select("nosuch0", soft(), None).unwrap_err();
    assert!(
        matches!(&error.0, SelectErrorKind::Open(OpenError::UnknownDevice { name, .. }) if name == "nosuch0")
    );
    none().select("soft", soft(), None).unwrap();
}

#[test]
fn rdma_never_falls_back_to_the_software_device_and_says_why_each_other_one_is_not_used() {
    let nccl = NcclOptions::read(&[("NCCL_IB_DISABLE", "1")].into_iter().collect()).unwrap();
    let error = nccl.select("rdma", soft(), None).unwrap_err();
    let SelectErrorKind::NoneUsable { refused } = &error.0 else { panic!("{error}") };
    let list = DeviceList::probe();
    assert_eq!(refused.len(), list.devices().len() + usize::from(list.unavailable().is_some()));
    for one in refused {
        assert!(error.to_string().contains(&one.reason), "{error}");
    }
}

#[test]
fn nccls_variables_choose_among_rdma_devices_and_leave_the_software_device_alone() {
    let nccl = |variables: &[(&str, &str)]| NcclOptions::read(&variables.iter().copied().collect()).unwrap();
    let gid = nccl(&[("NCCL_IB_GID_INDEX", "77"), ("NCCL_IB_ROCE_VERSION_NUM", "1")]);
    let selected = gid.select("soft", soft(), None).unwrap();
    assert_eq!(selected.gid.index, none().select("soft", soft(), None).unwrap().gid.index);
    for (variable, value, reason) in [
        ("NCCL_IB_DISABLE", "1", "NCCL_IB_DISABLE=1"),
        ("NCCL_IB_HCA", "=nosuch", "NCCL_IB_HCA==nosuch does not take it"),
    ] {
        let nccl = nccl(&[(variable, value)]);
        assert_eq!(nccl.bars("mlx5_0").as_deref(), Some(reason));
        let selected = nccl.select("auto", soft(), None).unwrap();
        assert!(selected.context.is_soft());
    }
    assert_eq!(nccl(&[("NCCL_IB_HCA", "mlx5_0:2")]).bars("mlx5_0"), None);
    let options = selected.engine_options(&nccl(&[("NCCL_IB_TC", "106"), ("NCCL_IB_GID_INDEX", "3")]));
    assert_eq!((options.path.traffic_class, options.gid_index), (106, Some(selected.gid.index)));
}

#[test]
fn the_interface_of_the_software_device_is_nccls_socket() {
    let any: IpAddr = [192, 0, 2, 1].into();
    let by = |list: &str| {
        let variables = [("NCCL_SOCKET_IFNAME", list)].into_iter().collect();
        NcclOptions::read(&variables).unwrap().soft_address(any, 0)
    };
    assert_eq!(by("").unwrap(), any);
    assert!(by("=lo").unwrap().is_loopback());
    // Devices take the interfaces in turn, and begin again where there are more devices.
    let all = NcclOptions::read(&[("NCCL_SOCKET_IFNAME", "^nosuch")].into_iter().collect()).unwrap();
    let mut beyond = interface_addresses().unwrap();
    beyond.retain(|(_, address)| !address.is_loopback());
    beyond.dedup_by_key(|(name, _)| name.clone());
    for number in 0..2 * beyond.len() {
        let (name, address) = &beyond[number % beyond.len()];
        assert_eq!(all.soft_address(any, number).unwrap(), IpAddr::from(*address), "{name}");
    }
    // An address that other hosts reach goes before the loopback interface's, where there is one.
    let beyond = interface_addresses().unwrap().iter().any(|(_, address)| !address.is_loopback());
    assert_eq!(by("^nosuch").unwrap().is_loopback(), !beyond);
    assert_eq!(none().soft_address("::1".parse().unwrap(), 0).unwrap(), IpAddr::from([127, 0, 0, 1]));
    assert!(none().soft_address("2001:db8::1".parse().unwrap(), 0).unwrap().is_ipv4());
    let error = by("nosuch").unwrap_err().to_string();
    assert!(error.starts_with("NCCL_SOCKET_IFNAME=nosuch takes none") && error.contains("lo"), "{error}");
}

#[test]
fn a_gid_index_that_does_not_exist_is_an_error() {
    let error = none().select("soft", soft(), Some(99)).unwrap_err();
    assert!(matches!(error.0, SelectErrorKind::NoSuchGid { index: 99, .. }), "{error}");
    let index = none().select("soft", soft(), None).unwrap().gid.index;
    assert_eq!(none().select("soft", soft(), Some(index)).unwrap().gid.index, index);
}
