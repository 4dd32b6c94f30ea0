//! Several software devices, and a device that is not there.

use super::*;
use rdma_core::DeviceList;

fn soft(number: usize) -> SoftOptions {
    SoftOptions { name: format!("soft{number}"), ..SoftOptions::default() }
}

#[test]
fn software_devices_are_as_many_as_are_named_and_refuse_the_others_once() {
    let devices = NcclOptions::default().select_each(&["soft", "soft1", "soft"], soft, None).unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.context.name()).collect();
    assert_eq!(names, ["soft0", "soft1", "soft2"]);
    let others = DeviceList::probe().devices().len();
    assert_eq!(devices[0].refused.len(), others.max(1));
    assert!(devices[1..].iter().all(|device| device.refused.is_empty()));
    assert!(NcclOptions::default().select_each(&[""; 0], soft, None).unwrap().is_empty());
}

#[test]
fn one_that_is_not_there_is_an_error_beside_those_that_are() {
    let error = NcclOptions::default().select_each(&["soft", "nosuch0"], soft, None).unwrap_err();
    assert!(error.to_string().contains("nosuch0"), "{error}");
}
