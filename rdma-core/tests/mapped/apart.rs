//! Processes of this host that share no memory with this one, because they run as another user or in another network
//! namespace. They are reached over TCP, and the log says why.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

use rdma_core::{Endpoint, Init, PathOptions, PeerAccess, SoftOptions, Wire};

use super::alone::{Log, alone, alone_by, exe};
use super::auto::exchange;
use super::end::{End, GID_INDEX};
use super::processes::{self, Peer};

/// The two ends of a virtual cable between two network namespaces.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// User number of "nobody" on most systems.
const NOBODY: u32 = 65534;

fn at(address: Ipv4Addr, wire: Wire) -> End<Init> {
    End::of(SoftOptions { wire, address: IpAddr::V4(address), ..SoftOptions::default() })
}

/// Prints that a test was left out; in CI, where all of them must run, that is a failure.
fn left_out(why: &dyn Display) {
    let all = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    assert!(!all, "{why}");
    eprintln!("left out: {why}");
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A command that runs this executable in a network namespace of its own.
fn apart() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--"]).arg(exe());
    unshare
}

/// Checks that bytes go both ways over TCP and the log says why, once. A device that takes no other wire reports an
/// error instead.
fn goes_over_tcp(log: &Log, address: Ipv4Addr, peer: (Command, &str), why: &str) {
    let (command, test) = peer;
    let access = exchange(at(address, Wire::Auto), |endpoint, memory| {
        let peer = Peer::start_by(command, test, endpoint, memory);
        let error = refused(at(address, Wire::Mapped), &peer.endpoint);
        assert!(error.contains(why) && error.contains("with Wire::Auto both meet over TCP"), "{error}");
        peer
    });
    assert_eq!(access, PeerAccess::Stream);
    let told = log.take("not mapped");
    assert!(told.len() == 1 && told[0].contains("INFO"), "{told:?}");
    assert!(told[0].contains("requests go over TCP") && told[0].contains(why), "{told:?}");
}

/// The error of a device that does not connect to that peer.
fn refused(end: End<Init>, peer: &Endpoint) -> String {
    let End { qp, mut worker, retry, .. } = end;
    let path = PathOptions { gid_index: GID_INDEX, ..PathOptions::default() };
    let Err(error) = qp.connect(&mut worker, peer, &path, &retry) else { panic!("it is mapped") };
    error.to_string()
}

#[test]
fn a_process_of_another_user_is_reached_over_tcp() {
    if !rustix::process::geteuid().is_root() {
        return left_out(&"only root starts a process as another user");
    }
    alone("apart::a_process_of_another_user_is_reached_over_tcp", || {
        let why = format!("the peer runs as user {NOBODY}, and this process as 0: run both as one user");
        goes_over_tcp(&Log::begin(), Ipv4Addr::LOCALHOST, (as_nobody(), "auto::a_peer_of_any_wire"), &why);
    });
}

/// A command that runs this executable as another user.
fn as_nobody() -> Command {
    // This path works for every user, whatever the permissions of the folders on the way.
    let mut command = Command::new("/proc/self/exe");
    command.uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn a_process_of_another_network_namespace_is_reached_over_tcp() {
    if let Err(why) = run("unshare", "--net -- ip link") {
        return left_out(&why);
    }
    // This end gets a namespace, too, so that nothing of the machine's network is changed.
    alone_by(apart(), "apart::a_process_of_another_network_namespace_is_reached_over_tcp", || {
        let why = "no process of this host and network namespace listens for the peer's GID";
        run("ip", "link add here type veth peer name there").unwrap();
        run("ip", &format!("address add {HERE}/24 dev here")).unwrap();
        run("ip", "link set here up").unwrap();
        goes_over_tcp(&Log::begin(), HERE, (apart(), "apart::a_peer_of_another_network_namespace"), why);
    });
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_of_another_network_namespace() {
    let (here, there) = (std::process::id(), parent_id());
    run("nsenter", &format!("--target {there} --net ip link set there netns {here}")).unwrap();
    run("ip", &format!("address add {THERE}/24 dev there")).unwrap();
    run("ip", "link set there up").unwrap();
    processes::serve(at(THERE, Wire::Auto));
}
