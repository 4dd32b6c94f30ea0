//! Properties of the software device alone: its options, its GIDs, its limits and its events.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rdma_core::error::{ConnectError, CreateError, OpenError, PollError};
use rdma_core::*;

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn open(options: SoftOptions) -> Context {
    Device::soft(options).open().unwrap()
}

fn refused(options: SoftOptions) -> String {
    let error = Device::soft(options).open().unwrap_err();
    assert!(matches!(error, OpenError::Soft { .. }), "{error}");
    error.to_string()
}

#[test]
fn clones_are_one_device_and_others_are_not() {
    let device = Device::soft(SoftOptions::default());
    let (one, same) = (device.open().unwrap(), device.clone().open().unwrap());
    let other = open(SoftOptions::default());
    let gids = |context: &Context| context.gids(PortNum(1)).unwrap();
    assert_eq!(gids(&one), gids(&same));
    assert_ne!(gids(&one)[0].gid, gids(&other)[0].gid);
    assert_ne!(gids(&one)[1].gid, gids(&other)[1].gid);
}

#[test]
fn the_routable_gid_says_where_the_device_listens() {
    let address = Ipv4Addr::new(127, 0, 0, 9);
    let context = open(SoftOptions { address: address.into(), ..SoftOptions::default() });
    let gids = context.gids(PortNum(1)).unwrap();
    assert!(gids[0].gid.is_link_local() && !gids[1].gid.is_link_local());
    assert!(gids.iter().all(|entry| entry.netdev.as_deref() == Some("lo") && entry.kind == GidType::ROCE_V2));
    let bytes = gids[1].gid.0;
    assert_eq!(bytes[12..], address.octets());
    let port = u16::from_be_bytes([bytes[6], bytes[7]]);
    std::net::TcpStream::connect((address, port)).unwrap();

    let local = open(SoftOptions { wire: Wire::Local, ..SoftOptions::default() });
    assert_eq!(local.gids(PortNum(1)).unwrap()[1].gid.0[6..8], [0, 0], "it does not listen");
    assert!(context.gids(PortNum(2)).is_err() && context.port(PortNum(0)).is_err());
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let ipv6 = refused(SoftOptions { address: IpAddr::V6(Ipv6Addr::LOCALHOST), ..SoftOptions::default() });
    assert!(ipv6.contains("IPv6") && ipv6.contains("choose another address"), "{ipv6}");
    // 192.0.2.0/24 (TEST-NET-1) is assigned to nobody, so no interface has this address.
    let foreign =
        refused(SoftOptions { address: Ipv4Addr::new(192, 0, 2, 1).into(), ..SoftOptions::default() });
    assert!(foreign.contains("interface"), "{foreign}");
}

#[test]
fn a_port_is_taken_once_and_freed_with_the_device() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp_port = listener.local_addr().unwrap().port();
    let options = SoftOptions { tcp_port, ..SoftOptions::default() };
    assert!(refused(options.clone()).contains("listening for peers"));
    drop(listener);
    let device = Device::soft(options);
    let first = device.open().unwrap();
    let again = Device::soft(SoftOptions { tcp_port, ..SoftOptions::default() });
    let clash = again.open().unwrap_err().to_string();
    assert!(clash.contains(&format!("127.0.0.1:{tcp_port}: Address already in use")), "{clash}");
    drop(first);
    again.open().unwrap();
}

#[test]
fn a_peer_that_the_wire_cannot_reach_is_refused() {
    for (wire, gid_index) in [(Wire::Local, 1), (Wire::Auto, 0), (Wire::Tcp, 0)] {
        let context = open(SoftOptions { wire, ..SoftOptions::default() });
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap();
        let qp = qp.init(&mut worker, &InitOptions::default()).unwrap();
        // Make the GID look like that of another process: such GIDs differ in their random part.
        let mut peer = qp.endpoint(&worker, gid_index).unwrap();
        peer.gid.0[if gid_index == 0 { 15 } else { 11 }] ^= 0x55;
        let path = PathOptions { gid_index: 1, ..PathOptions::default() };
        let refused = qp.ready_to_receive(&mut worker, &peer, &path).unwrap_err();
        let ConnectError::Refused { to, source, mend, .. } = &refused.error else { panic!("{refused:?}") };
        assert_eq!((*to, source.raw_os_error()), (QpState::RTR, Some(101)), "ENETUNREACH");
        assert!(mend.contains("GID"), "{mend}");
        assert_eq!(refused.object.query_state(&mut worker).unwrap(), QpState::INIT);
    }
}

#[test]
fn what_is_beyond_the_limits_is_refused() {
    let context = open(SoftOptions::default());
    let limits = context.attributes().unwrap();
    let pd = context.alloc_pd().unwrap();
    let too_many = WorkerOptions { max_cqe: limits.max_cqe + 1, ..WorkerOptions::default() };
    assert!(matches!(context.worker(too_many), Err(CreateError::BeyondLimit { option: "max_cqe", .. })));
    let none = WorkerOptions { max_cqe: 0, ..WorkerOptions::default() };
    assert!(matches!(context.worker(none), Err(CreateError::Refused { .. })));

    let options = WorkerOptions { max_cqe: limits.max_cqe, ..WorkerOptions::default() };
    let mut worker = context.worker(options).unwrap();
    let most = QueuePairOptions {
        max_send_wr: limits.max_qp_wr,
        max_recv_wr: limits.max_qp_wr,
        ..QueuePairOptions::default()
    };
    let _most = worker.create_queue_pair(&pd, &most).unwrap();
    for (option, options) in [
        ("max_send_wr", QueuePairOptions { max_send_wr: limits.max_qp_wr + 1, ..most.clone() }),
        ("max_recv_wr", QueuePairOptions { max_recv_wr: limits.max_qp_wr + 1, ..most.clone() }),
        ("max_inline_data", QueuePairOptions { max_inline_data: 1 << 20, ..most }),
    ] {
        let error = worker.create_queue_pair(&pd, &options).unwrap_err();
        let CreateError::BeyondLimit { option: named, asked, limit } = error else { panic!("{error}") };
        assert_eq!(named, option);
        let most = u64::from(limits.max_qp_wr);
        assert!(
            option == "max_inline_data" || (asked, limit) == (most + 1, most),
            "{option}: {asked}, {limit}"
        );
    }
}

#[test]
fn keys_and_numbers_do_not_count_up() {
    let context = open(SoftOptions::default());
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let regions: Vec<_> = (0..8).map(|_| pd.alloc_region(1, OPEN).unwrap()).collect();
    let steps: Vec<_> =
        regions.windows(2).map(|pair| pair[1].rkey().0.wrapping_sub(pair[0].rkey().0)).collect();
    assert!(steps.iter().any(|step| *step != steps[0]), "{steps:?}");
    let numbers: Vec<_> = (0..8)
        .map(|_| worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap().num().0)
        .collect();
    assert!(numbers.iter().all(|number| (2..1 << 24).contains(number)));
    let steps: Vec<_> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.iter().any(|step| *step != steps[0]), "{numbers:?}");
}

#[test]
fn an_access_violation_is_told_to_the_context_it_happened_to() {
    let device = Device::soft(SoftOptions::default());
    let (context, bystander) = (device.open().unwrap(), device.open().unwrap());
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    let nowhere = RemoteMemory { addr: 0x1000, len: 4, rkey: RemoteKey(0xbad) };
    worker.post(&left, Work::write(pd.alloc_local(4).unwrap(), nowhere)).unwrap();
    let failure = worker.wait(soon()).unwrap().result.unwrap_err();
    assert_eq!(failure.status, CompletionStatus::REM_ACCESS_ERR);
    let event = context.next_event().unwrap().unwrap();
    assert_eq!((event.kind, event.qp), (EventKind::QP_ACCESS_ERR, Some(right.num())));
    assert!(context.next_event().unwrap().is_none());
    assert!(bystander.next_event().unwrap().is_none());
}

#[test]
fn an_overrun_ends_the_queue_pairs_and_is_told() {
    let context = open(SoftOptions::default());
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions { max_cqe: 4, allow_overrun: true }).unwrap();
    let (left, _right) = loopback(&mut worker, &pd).unwrap();
    let target = pd.alloc_region(1, OPEN).unwrap();
    let to = target.remote().slice(0..0).unwrap();
    for _ in 0..6 {
        worker.post(&left, Work::write(Segment::Empty, to)).unwrap();
    }
    assert_eq!(context.next_event().unwrap().map(|event| event.kind), Some(EventKind::CQ_ERR));
    assert_eq!(left.query_state(&mut worker).unwrap(), QpState::ERR);
    for _ in 0..4 {
        worker.poll().unwrap().unwrap().result.unwrap();
    }
    assert!(matches!(worker.poll(), Err(PollError::Overrun)));
}
