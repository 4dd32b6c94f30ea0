//! Troubles of a machine that are real: each is made on a device of libibverbs, a program fails and names it, the mend
//! that the doctor tells is applied, and the program passes.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use super::run::{Ended, ended, rdma_tools};

const NOT_HERE: &str = "needs root, a device of libibverbs, and the programs of the examples: its name is in ROCE_DEVICE, \
                        its interface in ROCE_INTERFACE, the programs in WRITE_BW and ALLREDUCE";
/// Becomes the program whose arguments these are.
const RUN: &str = "exec \"$@\"";
/// Gives up CAP_IPC_LOCK, and becomes the program.
const RUN_WITHOUT_IPC_LOCK: &str = "exec setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock \"$@\"";
/// Sets the interface up, and waits for the address that it had.
const UP: &str = "ip link set $ROCE_INTERFACE up
    port=/sys/class/infiniband/$ROCE_DEVICE/ports/1
    for look in $(seq 600); do
        grep -q ACTIVE $port/state && grep -q :ffff: $port/gids/1 && break
        sleep 0.1
    done";

fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {NOT_HERE}"))
}

/// The interface of the device; `None` where its loss would be felt by others, because the device was not made for the
/// tests.
fn interface() -> Option<String> {
    let interface = env::var("ROCE_INTERFACE").ok();
    if interface.is_none() {
        println!("left out: the interface of device {} was not made for the tests", setting("ROCE_DEVICE"));
    }
    interface
}

/// A server of `write_bw`, which ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell's line that is run when a test ends, failed or not.
struct AtTheEnd(&'static str);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        sh(self.0, &[]);
    }
}

/// Runs a script, in a mount namespace of its own; `program` is its arguments.
fn sh(script: &str, program: &[&str]) -> Ended {
    ended(Command::new("unshare").args(["--mount", "sh", "-ec", script, "sh"]).args(program))
}

/// Runs `write_bw` between a server that nothing is wrong with and a client that `script` becomes.
fn write_bw(script: &str) -> Ended {
    let (program, device) = (setting("WRITE_BW"), setting("ROCE_DEVICE"));
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let flags = ["-d", &device, "-x", "1", "-s", "65536", "-n", "5", "-F", "-p", &port];
    let mut command = Command::new(&program);
    let command = command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.as_mut().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("Waiting for client")), "the server does not listen");
    sh(script, &[&[program.as_str()], &flags[..], &["127.0.0.1"]].concat())
}

/// Checks that the client of `write_bw` fails by a trouble, with its id and mend in the error, and that it passes once
/// the trouble is mended.
fn check(id: &str, told: &str, [made, mended, run]: [&str; 3]) {
    write_bw(&format!("{made}\n{run}")).failed_with(&[&format!(": {id}: "), told]);
    let ended = write_bw(&format!("{made}\n{mended}\n{run}"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    println!("device {}: {id} is named, and gone once it is mended", setting("ROCE_DEVICE"));
}

#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn a_memlock_of_64_kib_without_ipc_lock() {
    let mend = "ulimit -l unlimited";
    check("memlock-too-small", mend, ["ulimit -l 64", mend, RUN_WITHOUT_IPC_LOCK]);
}

#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn an_rdma_cgroup_of_2_objects() {
    let _group =
        AtTheEnd("rmdir /sys/fs/cgroup/rdma/two-objects 2>/dev/null || rmdir /sys/fs/cgroup/two-objects");
    let made = "top=/sys/fs/cgroup/rdma
        test -d $top || { top=/sys/fs/cgroup; echo +rdma > $top/cgroup.subtree_control; }
        mkdir -p $top/two-objects
        echo \"$ROCE_DEVICE hca_object=2\" > $top/two-objects/rdma.max
        echo $$ > $top/two-objects/cgroup.procs";
    let mended = "echo \"$ROCE_DEVICE hca_object=max\" > $top/two-objects/rdma.max";
    let told = format!("echo \"{} hca_object=max\" > ", setting("ROCE_DEVICE"));
    check("rdma-cgroup-full", &told, [made, mended, RUN]);
}

#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn a_node_that_a_mount_hides() {
    let made = "mount -t tmpfs none /dev/infiniband";
    check("uverbs-node-missing", "/dev/infiniband/uverbs", [made, "umount /dev/infiniband", RUN]);
}

#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn an_interface_that_is_down() {
    let Some(interface) = interface() else { return };
    let _up = AtTheEnd(UP);
    let told = format!("ip link set {interface} up");
    check("netdev-down", &told, ["ip link set $ROCE_INTERFACE down", UP, RUN]);
}

/// The programs run all the same, with smaller packets, so the doctor alone tells of it.
#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn an_mtu_of_1500_below_the_largest_of_the_port() {
    let Some(interface) = interface() else { return };
    let device = setting("ROCE_DEVICE");
    let _before = AtTheEnd("ip link set $ROCE_INTERFACE mtu 4200");
    let doctor = |mtu: &str| {
        let set = sh(&format!("ip link set {interface} mtu {mtu}"), &[]);
        assert_eq!(set.code, Some(0), "{set:?}");
        rdma_tools(&format!("doctor -d {device}")).stdout
    };
    let (id, told) = ("netdev-mtu-small", format!("ip link set {interface} mtu 9000"));
    let report = doctor("1500");
    assert!(report.contains(&format!("warning: {id}: the MTU 1500")) && report.contains(&told), "{report}");
    let report = doctor("9000");
    assert!(!report.contains(id), "{report}");
    println!("device {device}: {id} is named, and gone once it is mended");
}

#[test]
#[ignore = "needs root and a device of libibverbs: cargo xtask soft-roce"]
fn an_nccl_ib_gid_index_that_is_empty() {
    let (program, device) = (setting("ALLREDUCE"), setting("ROCE_DEVICE"));
    let allreduce = |script: &str| {
        let line = ["--device", &device, "--ranks", "1", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0"];
        sh(
            &format!("export NCCL_IB_GID_INDEX=200\n{script}\n{RUN}"),
            &[&[program.as_str()], &line[..]].concat(),
        )
    };
    let (id, mend) = ("gid-empty", "unset NCCL_IB_GID_INDEX");
    allreduce("").failed_with(&[&format!(": {id}: "), mend]);
    let ended = allreduce(mend);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    println!("device {device}: {id} is named, and gone once it is mended");
}
