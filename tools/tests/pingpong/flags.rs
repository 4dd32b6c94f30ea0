//! Flags that are refused, and names that the program has.

use std::os::unix::fs::symlink;

use super::free_port::free_port;
use super::run::{pingpong, start};

#[test]
fn a_flag_that_cannot_be_offered_is_refused_by_name() {
    for (flag, name) in [
        ("-o", "--odp"),
        ("-O", "--iodp"),
        ("-P", "--prefetch"),
        ("-t", "--ts"),
        ("-j", "--dm"),
        ("-N", "--new_send"),
        ("-U", "--allow-cc-unprotected"),
    ] {
        for given in [flag, name] {
            let ended = pingpong(&format!("--soft {given}")).finish();
            ended.failed_with(&[flag, name, "is refused", "leave it out"]);
        }
    }
}

#[test]
fn wrong_values_are_refused() {
    for line in
        ["-p 70000", "-s 0", "-s 0x80000000", "-m 1500", "-n 0", "-r 0", "-l 16", "-g -1", "-i 256", "a b"]
    {
        assert_eq!(pingpong(&format!("--soft {line}")).finish().status.code(), Some(2), "{line}");
    }
}

#[test]
fn a_link_named_ibv_rc_pingpong_is_ibv_rc_pingpong() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("ibv_rc_pingpong");
    symlink(env!("CARGO_BIN_EXE_rdma-tools"), &link).unwrap();
    let port = free_port();
    let link = link.to_str().unwrap();
    let server = start(link, &format!("--soft -p {port}"));
    let client = start(link, &format!("--soft -p {port} 127.0.0.1"));
    assert_eq!(client.finish().shape(), server.finish().shape());
}

#[test]
fn a_device_that_is_not_there_is_named() {
    // The machine may have devices, or no libibverbs.
    pingpong("-d nowhere0").finish().failed_with_findings(&[
        "pingpong: ",
        "nowhere0",
        "\nerror: ",
        "  pod spec: ",
    ]);
}

#[test]
fn a_gid_that_is_not_there_is_named() {
    pingpong("--soft -g 77").finish().failed_with(&["77", "soft0"]);
}

#[test]
fn an_mtu_above_the_ports_is_never_taken_silently() {
    // The software device has the largest MTU, so all are taken.
    for mtu in [256, 4096] {
        let port = free_port();
        let server = pingpong(&format!("--soft -m {mtu} -p {port}"));
        pingpong(&format!("--soft -m {mtu} -p {port} 127.0.0.1")).finish().shape();
        server.finish().shape();
    }
}
