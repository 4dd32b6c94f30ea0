//! Beside `ibv_devices`, `ibv_devinfo` and `ibstat` on a device of libibverbs: soft-RoCE, or a NIC.

use std::env;

use super::run::{program, rdma_tools};

const NOT_HERE: &str =
    "needs a device of libibverbs (its name is in ROCE_DEVICE), ibverbs-utils and infiniband-diags";

#[test]
#[ignore = "needs a device of libibverbs, ibverbs-utils and infiniband-diags"]
fn on_a_device_the_text_is_that_of_the_c_programs_byte_for_byte() {
    let device = env::var("ROCE_DEVICE").unwrap_or_else(|_| panic!("{NOT_HERE}"));
    for (own, c_program, flags) in [
        ("devices", "ibv_devices", ""),
        ("devinfo", "ibv_devinfo", ""),
        ("devinfo", "ibv_devinfo", "-v"),
        ("devinfo", "ibv_devinfo", "-l"),
        ("devinfo", "ibv_devinfo", "-i 1"),
        ("stat", "ibstat", ""),
        ("stat", "ibstat", "-l"),
        ("stat", "ibstat", "-s"),
        ("stat", "ibstat", "-p"),
    ] {
        let wanted = program(c_program, flags).stdout;
        let printed = rdma_tools(&format!("{own} {flags}")).succeeded();
        assert!(!wanted.is_empty(), "{c_program} {flags} prints nothing");
        assert_eq!(printed, wanted, "{own} {flags}");
        println!("device {device}: {own} {flags} prints the {} bytes of {c_program}", wanted.len());
    }
}
