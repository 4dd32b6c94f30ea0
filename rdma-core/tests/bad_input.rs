//! Bad input gets a clear error and loses nothing: each test checks the error, and that later work succeeds.

use std::time::Duration;

use rdma_core::error::{ConnectError, OpenError, PostError, RegisterError};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::*;

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

struct Rig {
    context: Context,
    pd: ProtectionDomain,
    worker: Worker,
    left: QueuePair<ReadyToSend>,
    _right: QueuePair<ReadyToSend>,
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// The wires that a device can use within a process; all of them must give the same errors.
const WIRES: [Wire; 3] = [Wire::Local, Wire::Mapped, Wire::Tcp];

fn rig(wire: Wire, faults: Option<FaultPlan>) -> Rig {
    let context = Device::soft(SoftOptions { wire, faults, ..SoftOptions::default() }).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    Rig { context, pd, worker, left, _right: right }
}

impl Rig {
    fn write(&mut self, bytes: &[u8], to: RemoteMemory) -> Result<Success, Failure> {
        let mut buffer = self.pd.alloc_local(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        self.worker.post(&self.left, Work::write(buffer, to)).unwrap();
        loop {
            let completion = self.worker.wait(soon()).unwrap();
            if completion.qp_num == self.left.num() {
                return completion.result;
            }
        }
    }

    /// Connects again after a refusal ended the connection, and checks that the new connection works.
    fn works_again(&mut self) {
        (self.left, self._right) = loopback(&mut self.worker, &self.pd).unwrap();
        self.works();
    }

    fn works(&mut self) {
        let target = self.pd.alloc_region(100, OPEN).unwrap();
        self.write(&[7; 100], target.remote()).unwrap();
        let mut bytes = [0; 100];
        target.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 100]);
    }

    fn refused(&mut self, to: RemoteMemory) {
        let failure = self.write(&vec![1; to.len as usize], to).unwrap_err();
        assert_eq!(failure.status, CompletionStatus::REM_ACCESS_ERR, "{failure}");
        assert!(failure.to_string().contains("the peer refused key, range or right"), "{failure}");
        self.works_again();
    }
}

#[test]
fn unknown_device() {
    let error = DeviceList::probe().find("mlx5_77").unwrap_err();
    assert!(matches!(&error, OpenError::UnknownDevice { name, .. } if name == "mlx5_77"));
    assert!(error.to_string().starts_with("no RDMA device is named mlx5_77; there "), "{error}");
    rig(Wire::Auto, None).works();
}

#[test]
fn port_down() {
    let faults = FaultPlan::seeded(1);
    let mut rig = rig(Wire::Auto, Some(faults.clone()));
    faults.flap_port(Duration::from_millis(300));
    let qp = rig.worker.create_queue_pair(&rig.pd, &QueuePairOptions::default()).unwrap();
    let refused = qp.init(&mut rig.worker, &InitOptions::default()).unwrap_err();
    assert!(matches!(refused.error, ConnectError::PortDown { state: PortState::DOWN, .. }), "{refused}");
    assert!(refused.to_string().contains("ip link set NETDEV up"), "{refused}");
    let deadline = soon();
    let mut qp = refused.object;
    loop {
        match qp.init(&mut rig.worker, &InitOptions::default()) {
            Ok(_) => break,
            Err(refused) if !deadline.expired() => qp = refused.object,
            Err(refused) => panic!("{refused}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    rig.works();
}

#[test]
fn gid_index_that_does_not_exist() {
    let mut rig = rig(Wire::Auto, None);
    let qp = rig.worker.create_queue_pair(&rig.pd, &QueuePairOptions::default()).unwrap();
    let qp = qp.init(&mut rig.worker, &InitOptions::default()).unwrap();
    let error = qp.endpoint(&rig.worker, 77).unwrap_err();
    assert!(matches!(&error, ConnectError::NoSuchGid { index: 77, .. }), "{error}");
    assert!(error.to_string().contains("its table has 0 (fe80::"), "{error}");
    qp.endpoint(&rig.worker, 1).unwrap();
    rig.works();
}

#[test]
fn a_peer_that_cannot_be_reached() {
    let mut rig = rig(Wire::Auto, None);
    let gid = Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 1));
    let peer = Endpoint { qp_num: QpNum(7), psn: Psn::new(0), lid: Lid(0), gid, mtu: Mtu::MTU_4096 };
    let options = QueuePairOptions::default();
    // More connections than the completion queue has room for at a time, so that a leaked one would be
    // noticed.
    for _ in 0..=WorkerOptions::default().max_cqe / options.max_send_wr {
        let qp = rig.worker.create_queue_pair(&rig.pd, &options).unwrap();
        let qp = qp.init(&mut rig.worker, &InitOptions::default()).unwrap();
        rig.worker.post_recv(&qp, rig.pd.alloc_local(8).unwrap()).unwrap();
        let path = PathOptions { gid_index: 1, ..PathOptions::default() };
        let error = qp.connect(&mut rig.worker, &peer, &path, &RetryOptions::default()).unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        let receive = rig.worker.wait(soon()).unwrap();
        assert_eq!(receive.result.unwrap_err().status, CompletionStatus::WR_FLUSH_ERR);
        assert_eq!(receive.buffer.unwrap().len(), 8);
    }
    rig.works();
}

#[test]
fn zero_ranges() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let error = rig.pd.alloc_local(0).unwrap_err();
        assert!(matches!(error, RegisterError::ZeroLength), "{error}");
        let target = rig.pd.alloc_region(64, OPEN).unwrap();
        // An empty message is valid, wherever it points.
        rig.worker
            .post(&rig.left, Work::write(Segment::Empty, target.remote().slice(64..64).unwrap()))
            .unwrap();
        rig.worker.wait(soon()).unwrap().result.unwrap();
        rig.works();
    }
}

#[test]
fn unaligned_ranges() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let target = rig.pd.alloc_region(4099, OPEN).unwrap();
        rig.write(&[9; 4091], target.remote().slice(7..4098).unwrap()).unwrap();
        let mut bytes = vec![0; 4099];
        target.copy_out(0, &mut bytes).unwrap();
        assert!(bytes[..7].iter().chain(&bytes[4098..]).all(|byte| *byte == 0));
        assert!(bytes[7..4098].iter().all(|byte| *byte == 9));
    }
}

/// Overlapping targets of one connection are valid: the later write wins for each byte.
#[test]
fn overlapping_ranges() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let target = rig.pd.alloc_region(30, OPEN).unwrap();
        rig.write(&[1; 20], target.remote().slice(0..20).unwrap()).unwrap();
        rig.write(&[2; 20], target.remote().slice(10..30).unwrap()).unwrap();
        let mut bytes = [0; 30];
        target.copy_out(0, &mut bytes).unwrap();
        assert_eq!((&bytes[..10], &bytes[10..]), (&[1; 10][..], &[2; 20][..]));
    }
}

/// Copies every range between two regions and within one, and ranges that end one byte too far.
#[test]
fn copies_between_regions() {
    let rig = rig(Wire::Auto, None);
    let [source, other] = [0; 2].map(|_| rig.pd.alloc_region(8, OPEN).unwrap());
    let bytes = *b"abcdefgh";
    for case in 0..2 * 9 * 10 * 10 {
        let (offset, len, start) = (case % 10, case / 10 % 10, case / 100 % 9);
        let target = if case < 900 { &other } else { &source };
        source.copy_in(0, &bytes).unwrap();
        target.copy_in(0, &bytes).unwrap();
        let copied = source.copy_to(offset, len, target, start);
        let mut expected = bytes;
        match (bytes.get(offset..offset + len), expected.get_mut(start..start + len)) {
            (Some(from), Some(to)) => {
                to.copy_from_slice(from);
                assert!(copied.is_ok());
            }
            _ => assert!(copied.is_err(), "{len} bytes from {offset} to {start}"),
        }
        let mut found = [0; 8];
        target.copy_out(0, &mut found).unwrap();
        assert_eq!(found, expected, "{len} bytes from {offset} to {start}");
    }
    assert!(
        source.copy_to(usize::MAX, 2, &other, 0).is_err()
            && source.copy_to(0, 2, &other, usize::MAX).is_err()
    );
}

#[test]
fn a_range_whose_end_wraps() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let target = rig.pd.alloc_region(64, OPEN).unwrap().remote();
        rig.refused(RemoteMemory { addr: u64::MAX - 10, ..target });
        let wrapping = RemoteMemory { addr: u64::MAX - 10, ..target };
        assert!(wrapping.slice(20..40).unwrap_err().to_string().contains("does not fit"));
        let region = rig.pd.alloc_region(64, OPEN).unwrap();
        let attached = rig.worker.attach(&region);
        let refused = rig.worker.post(&rig.left, Work::send(attached.range(usize::MAX - 1, 4))).unwrap_err();
        assert!(matches!(refused.error, PostError::Range(_)), "{refused}");
        rig.works();
    }
}

#[test]
fn a_key_out_of_bounds() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let region = rig.pd.alloc_region(64, OPEN).unwrap();
        rig.refused(RemoteMemory { len: 65, ..region.remote() });
        rig.refused(RemoteMemory { addr: region.remote().addr - 1, ..region.remote() });
    }
}

#[test]
fn a_key_that_was_deregistered() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let region = rig.pd.alloc_region(64, OPEN).unwrap();
        let remote = region.remote();
        let memory = region.deregister().unwrap();
        rig.refused(remote);
        assert!(memory.iter().all(|byte| *byte == 0), "a write landed");
    }
}

#[test]
fn a_key_of_another_protection_domain() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let other = rig.context.alloc_pd().unwrap();
        let region = other.alloc_region(64, OPEN).unwrap();
        rig.refused(region.remote());
        let foreign = other.alloc_local(8).unwrap();
        let refused = rig.worker.post(&rig.left, Work::send(foreign)).unwrap_err();
        assert!(matches!(refused.error, PostError::ForeignProtectionDomain), "{refused}");
        assert!(matches!(refused.work.into_segment(), Segment::Owned(_)), "the buffer is lost");
        rig.works();
    }
}

#[test]
fn a_full_queue() {
    for wire in WIRES {
        let mut rig = rig(wire, None);
        let mut posted = 0;
        let refused = loop {
            let buffer = rig.pd.alloc_local(8).unwrap();
            match rig.worker.post(&rig.left, Work::recv(buffer)) {
                Ok(_) => posted += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(posted, QueuePairOptions::default().max_recv_wr);
        assert!(matches!(refused.error, PostError::QueueFull { capacity: 128 }), "{refused}");
        assert!(matches!(refused.work.into_segment(), Segment::Owned(_)), "the buffer is lost");
        rig.works();
    }
}

#[test]
fn a_deregistration_that_fails() {
    for wire in WIRES {
        let faults = FaultPlan::seeded(1).with(Rule::new(Fault::RefuseDeregistration).times(1));
        let mut rig = rig(wire, Some(faults));
        let region = rig.pd.alloc_region(64, OPEN).unwrap();
        region.copy_in(0, &[5; 64]).unwrap();
        let refused = region.deregister().unwrap_err();
        assert!(refused.to_string().contains("ibv_dereg_mr failed"), "{refused}");
        // The region is still registered after the refusal, and can be deregistered again.
        rig.write(&[6; 64], refused.object.remote()).unwrap();
        assert_eq!(refused.object.deregister().unwrap()[..], [6; 64]);
        rig.works();
    }
}
