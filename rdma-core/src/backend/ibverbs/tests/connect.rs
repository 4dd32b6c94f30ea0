//! Steps and objects that a device refuses, and the explanations of the errors.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pair::{LEFT, PORT, chosen_gid, context, disposable_netdev, ip};
use crate::backend::ibverbs::{Context, ProtectionDomain, Worker};
use crate::backend::interface::RawWorker;
use crate::error::{ConnectError, CreateError};
use crate::{
    Endpoint, Gid, GidEntry, InitOptions, Lid, Mtu, PathOptions, Psn, QpNum, QpState, QueuePairOptions,
    WorkerOptions,
};

/// A queue pair in INIT that sends from `own`.
struct Initialized {
    worker: Worker,
    _pd: ProtectionDomain,
    own: GidEntry,
}

impl Initialized {
    fn new(context: &Arc<Context>, own: GidEntry) -> Self {
        let pd = ProtectionDomain::new(context).unwrap();
        let mut worker = Worker::new(context, &WorkerOptions::default()).unwrap();
        worker.create_qp(LEFT, &pd, &QueuePairOptions::default()).unwrap();
        worker.modify_to_init(LEFT, &InitOptions::default()).unwrap();
        Self { worker, _pd: pd, own }
    }

    fn connect(&mut self, gid: Gid) -> Result<(), ConnectError> {
        let path = PathOptions { gid_index: self.own.index, ..PathOptions::default() };
        let peer = Endpoint { qp_num: QpNum(17), psn: Psn::new(1), lid: Lid(0), gid, mtu: Mtu::MTU_1024 };
        self.worker.modify_to_rtr(LEFT, &peer, &path)
    }

    /// Returns the errno and the message of a refused step to RTR, and checks that the queue pair still connects
    /// afterwards.
    fn refused(&mut self, gid: Gid) -> (Option<i32>, String) {
        let error = self.connect(gid).unwrap_err();
        println!("{error}");
        let ConnectError::Refused { to: QpState::RTR, source, .. } = &error else { panic!("{error}") };
        assert_eq!(self.worker.query_state(LEFT).unwrap(), QpState::INIT);
        self.connect(self.own.gid).unwrap();
        assert_eq!(self.worker.query_state(LEFT).unwrap(), QpState::RTR);
        (source.raw_os_error(), error.to_string())
    }
}

#[test]
#[ignore = "needs a device"]
fn a_peer_of_another_address_family_is_named() {
    let context = context();
    let mut step = Initialized::new(&context, chosen_gid(&context));
    assert!(step.own.gid.ipv4_mapped().is_some(), "{:?}", step.own);
    let (errno, message) = step.refused(Gid::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)));
    assert_eq!(errno, Some(libc::EINVAL));
    assert!(message.contains("different address families") && message.contains("2001:db8::1"), "{message}");
}

#[test]
#[ignore = "needs a device on an interface that may be changed"]
fn a_peer_that_does_not_answer_is_named_with_the_interface() {
    let context = context();
    let netdev = disposable_netdev(&context);
    let mut step = Initialized::new(&context, chosen_gid(&context));
    // With address resolution on, an interface that leads nowhere never hears an answer.
    ip(&["link", "set", &netdev, "arp", "on"]);
    let error = step.connect(Gid::from(Ipv4Addr::new(10, 9, 0, 77)));
    ip(&["link", "set", &netdev, "arp", "off"]);
    let message = error.unwrap_err().to_string();
    println!("{message}");
    assert!(message.contains(&format!("::ffff:10.9.0.77 did not answer on {netdev}")), "{message}");
    step.connect(step.own.gid).unwrap();
}

#[test]
#[ignore = "needs a device on an interface that may be changed"]
fn a_peer_without_a_route_is_named_with_both_ends() {
    let context = context();
    let netdev = disposable_netdev(&context);
    let address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    let with_length = format!("{address}/64");
    ip(&["-6", "addr", "add", &with_length, "dev", &netdev, "nodad"]);
    // The kernel fills the table a little after the address was added.
    let until = Instant::now() + Duration::from_secs(20);
    let own = loop {
        let found =
            context.gid_table(PORT).unwrap().into_iter().find(|entry| entry.gid == Gid::from(address));
        assert!(Instant::now() < until, "no GID for {address}");
        match found {
            Some(own) => break own,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(own.netdev.as_deref(), Some(&*netdev));
    let mut step = Initialized::new(&context, own);
    let (errno, message) = step.refused(Gid::from(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1)));
    drop(step);
    ip(&["-6", "addr", "del", &with_length, "dev", &netdev]);
    assert_eq!(errno, Some(libc::ENETUNREACH));
    assert!(message.contains("no route from 2001:db8:1::1"), "{message}");
    assert!(message.contains("to 2001:db8:2::1") && message.contains(&netdev), "{message}");
}

#[test]
#[ignore = "needs a device"]
fn an_mtu_that_verbs_does_not_define_is_refused() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let mut worker = Worker::new(&context, &WorkerOptions::default()).unwrap();
    worker.create_qp(LEFT, &pd, &QueuePairOptions::default()).unwrap();
    worker.modify_to_init(LEFT, &InitOptions::default()).unwrap();
    let own = chosen_gid(&context);
    let path = PathOptions { gid_index: own.index, mtu: Some(Mtu(9)), ..PathOptions::default() };
    let peer =
        Endpoint { qp_num: QpNum(17), psn: Psn::new(1), lid: Lid(0), gid: own.gid, mtu: Mtu::MTU_1024 };
    let error = worker.modify_to_rtr(LEFT, &peer, &path).unwrap_err().to_string();
    assert!(error.contains("MTU code 9"), "{error}");
}

#[test]
#[ignore = "needs a device"]
fn options_beyond_the_device_are_refused_by_name() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let attributes = context.query_device().unwrap();
    let options = WorkerOptions { max_cqe: attributes.max_cqe + 1, ..WorkerOptions::default() };
    let Err(error) = Worker::new(&context, &options) else { panic!("created") };
    assert!(matches!(error, CreateError::BeyondLimit { option: "max_cqe", .. }), "{error}");
    let mut worker = Worker::new(&context, &WorkerOptions::default()).unwrap();
    let options = QueuePairOptions { max_send_wr: attributes.max_qp_wr + 1, ..QueuePairOptions::default() };
    let error = worker.create_qp(LEFT, &pd, &options).unwrap_err();
    assert!(matches!(error, CreateError::BeyondLimit { option: "max_send_wr", .. }), "{error}");
    let options = QueuePairOptions { max_inline_data: 1 << 20, ..QueuePairOptions::default() };
    let error = worker.create_qp(LEFT, &pd, &options).unwrap_err();
    let CreateError::Refused { verb: "ibv_create_qp", mend, .. } = &error else { panic!("{error}") };
    assert!(mend.contains("max_inline_data"), "{error}");
    // A domain of another context is foreign, even on the same device.
    let other = super::pair::context();
    let error = worker
        .create_qp(LEFT, &ProtectionDomain::new(&other).unwrap(), &QueuePairOptions::default())
        .unwrap_err();
    assert!(matches!(error, CreateError::ForeignProtectionDomain), "{error}");
    worker.create_qp(LEFT, &pd, &QueuePairOptions::default()).unwrap();
}

#[test]
#[ignore = "needs a device"]
fn everything_is_released() {
    let objects = || {
        let output = std::process::Command::new("rdma").args(["resource", "show"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let before = objects();
    assert!(before.contains("cq"), "{before}");
    for _ in 0..3 {
        let mut pair = super::pair::Pair::new();
        let memory = pair.memory(4096, crate::Access::LOCAL_WRITE);
        pair.recv(LEFT, &[memory.receive(1, 4096)]).unwrap();
        assert_ne!(objects(), before);
        drop(pair); // with a receive in flight, and a region that outlives the worker
        drop(memory);
    }
    assert_eq!(objects(), before);
}
