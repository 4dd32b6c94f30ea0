//! Accesses to a peer's memory without requests, on both wires that map it, inside a process and between two.

pub mod run;
mod waiting;

use std::io::Write;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rdma_core::error::ReachError;
use rdma_core::memory::CacheHint;
use rdma_core::{
    Access, Deadline, Device, Exported, Memory, ProtectionDomain, Region, RemoteMemory, SoftOptions, Wire,
    Work, WorkerOptions,
};
use rustix::process::Signal;

use super::deaths::signal;
use super::end::{self, End, soon};
use super::processes::{Peer, line, parse};
use run::Change;

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);
/// More than one chunk, and no whole number of chunks.
const BYTES: usize = (600 << 10) + 40;

/// Two ends of this process, on each of the wires.
fn pairs() -> [(End, End); 2] {
    [Wire::Mapped, Wire::Auto].map(|wire| {
        let end = || End::of(SoftOptions { wire, ..SoftOptions::default() });
        end().join(end())
    })
}

/// An access: its kind, its range and its bytes.
#[derive(Debug, Clone)]
enum Step {
    In(usize, usize),
    Out(usize, usize),
    From(usize, usize, usize),
    To(usize, usize, usize),
    Reduce(usize, usize),
    Run(usize, usize),
    Store(usize, u64),
    Load(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let offset = || prop_oneof![0..BYTES + 50, (0..80_usize).prop_map(|it| it * 8), Just(256 << 10)];
    let len = || prop_oneof![0..300_usize, 0..BYTES + 50, Just(256 << 10), Just(16 << 10)];
    prop_oneof![
        (offset(), len()).prop_map(|(at, len)| Step::In(at, len)),
        (offset(), len()).prop_map(|(at, len)| Step::Out(at, len)),
        (offset(), len(), offset()).prop_map(|(at, len, own)| Step::From(at, len, own)),
        (offset(), len(), offset()).prop_map(|(at, len, own)| Step::To(at, len, own)),
        (offset(), len()).prop_map(|(at, len)| Step::Reduce(at, len)),
        (offset(), len()).prop_map(|(at, len)| Step::Run(at, len)),
        (offset(), any::<u64>()).prop_map(|(at, flag)| Step::Store(at, flag)),
        offset().prop_map(Step::Load),
    ]
}

/// The memory of both ends, as plain bytes.
struct Oracle {
    theirs: Vec<u8>,
    own: Vec<u8>,
}

fn fits(at: usize, len: usize) -> bool {
    at + len <= BYTES
}

/// Performs a step on the slice and on the oracle, and compares the results.
fn take(end: &mut End, theirs: &Region, own: &Region, oracle: &mut Oracle, step: &Step, fill: u8) {
    let hint = if fill.is_multiple_of(2) { CacheHint::Cached } else { CacheHint::Streamed };
    let mut peer = end.worker.peer_slice(&end.qp, theirs.remote(), soon()).with_cache_hint(hint);
    match *step {
        Step::In(at, len) => {
            let bytes: Vec<u8> = (0..len).map(|byte| byte as u8 ^ fill).collect();
            assert_eq!(peer.copy_in(at, &bytes).is_ok(), fits(at, len));
            if fits(at, len) {
                oracle.theirs[at..at + len].copy_from_slice(&bytes);
            }
        }
        Step::Out(at, len) => {
            let mut bytes = vec![fill; len];
            assert_eq!(peer.copy_out(at, &mut bytes).is_ok(), fits(at, len));
            assert!(if fits(at, len) {
                bytes == oracle.theirs[at..at + len]
            } else {
                bytes == vec![fill; len]
            });
        }
        Step::Run(at, len) => {
            let mut change = Change::by(fill);
            assert_eq!(peer.run(at, len, &mut change).is_ok(), fits(at, len));
            assert_eq!(change.done(), if fits(at, len) { len } else { 0 });
            assert!(change.right);
            for (at, byte) in oracle.theirs.iter_mut().skip(at).take(change.done()).enumerate() {
                *byte = change.of(at, *byte);
            }
        }
        Step::From(at, len, from) => {
            let fit = fits(at, len) && fits(from, len);
            assert_eq!(peer.copy_from(at, len, own, from).is_ok(), fit);
            if fit {
                oracle.theirs[at..at + len].copy_from_slice(&oracle.own[from..from + len]);
            }
        }
        Step::To(at, len, to) => {
            let fit = fits(at, len) && fits(to, len);
            assert_eq!(peer.copy_to(at, len, own, to).is_ok(), fit);
            if fit {
                oracle.own[to..to + len].copy_from_slice(&oracle.theirs[at..at + len]);
            }
        }
        Step::Reduce(at, len) => {
            let mut bytes = Vec::new();
            let done = peer.reduce_from(at, len, |begin, part| {
                assert_eq!((begin, part.as_ptr().addr() % 64), (bytes.len(), 0));
                bytes.extend_from_slice(part);
                assert!(bytes.len() == len || part.len().is_multiple_of(64));
            });
            assert_eq!(done.is_ok(), fits(at, len));
            assert!(if fits(at, len) { bytes == oracle.theirs[at..at + len] } else { bytes.is_empty() });
        }
        Step::Store(at, flag) => {
            let fit = fits(at, 8) && at.is_multiple_of(8);
            assert_eq!(peer.store(at, flag).is_ok(), fit);
            if fit {
                oracle.theirs[at..at + 8].copy_from_slice(&flag.to_ne_bytes());
            }
        }
        Step::Load(at) => match peer.load::<u32>(at) {
            Ok(flag) => assert_eq!(flag.to_ne_bytes(), oracle.theirs[at..at + 4]),
            Err(ReachError::Unaligned { .. }) => assert!(!at.is_multiple_of(4)),
            Err(error) => assert!(!fits(at, 4), "{error}"),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_does_to_the_peer_what_it_does_to_plain_bytes(steps in prop::collection::vec(steps(), 1..40)) {
        for (mut end, peer) in pairs() {
            let [theirs, own] = [&peer, &end].map(|end| end.region(BYTES));
            let mut oracle = Oracle { theirs: vec![0; BYTES], own: vec![0; BYTES] };
            for (fill, step) in steps.iter().enumerate() {
                take(&mut end, &theirs, &own, &mut oracle, step, fill as u8 + 1);
            }
            for (region, bytes) in [(&theirs, &oracle.theirs), (&own, &oracle.own)] {
                let mut found = vec![0; BYTES];
                region.copy_out(0, &mut found).unwrap();
                prop_assert!(found == *bytes);
            }
        }
    }
}

#[test]
fn only_what_the_peer_allows_is_done_and_it_hears_of_no_refusal() {
    for (mut end, mut peer) in pairs() {
        let of = |access| peer.pd.alloc_region(64, access).unwrap();
        let (readable, writable) = (of(Access::REMOTE_READ), of(Access::LOCAL_WRITE | Access::REMOTE_WRITE));
        let mut slice = end.worker.peer_slice(&end.qp, readable.remote(), soon());
        assert!(matches!(slice.copy_in(0, &[1]), Err(ReachError::AccessDenied)));
        assert!(matches!(slice.store(0, 1_u32), Err(ReachError::AccessDenied)));
        slice.copy_out(0, &mut [0]).unwrap();
        let mut slice = end.worker.peer_slice(&end.qp, writable.remote(), soon());
        assert!(matches!(slice.copy_out(0, &mut [0]), Err(ReachError::AccessDenied)));
        assert!(matches!(slice.load::<u64>(0), Err(ReachError::AccessDenied)));
        // An access that needs two rights is refused with either alone.
        let mut change = Change::by(1);
        assert!(matches!(slice.run(0, 8, &mut change), Err(ReachError::AccessDenied)) && change.done() == 0);
        slice.store(0, 1_u64).unwrap();
        let refused = slice.store(4, 1_u64);
        assert!(
            matches!(refused, Err(ReachError::Unaligned { address, len: 8 }) if address % 8 == 4),
            "{refused:?}"
        );
        // The start of a slice does not make an address aligned.
        let odd = writable.remote().slice(4..64).unwrap();
        let refused = end.worker.peer_slice(&end.qp, odd, soon()).store(8, 1_u64);
        assert!(
            matches!(refused, Err(ReachError::Unaligned { address, .. }) if address == odd.addr + 8),
            "{refused:?}"
        );
        let begun = Instant::now();
        let refused = end.worker.peer_slice(&end.qp, of(Access::LOCAL_WRITE).remote(), soon()).ready();
        assert!(matches!(refused, Err(ReachError::AccessDenied)), "{refused:?} after {:?}", begun.elapsed());
        let foreign = peer.context.alloc_pd().unwrap().alloc_region(64, OPEN).unwrap();
        let refused = end.worker.peer_slice(&end.qp, foreign.remote(), soon()).ready();
        assert!(matches!(refused, Err(ReachError::ForeignDomain)), "{refused:?}");
        let beyond = RemoteMemory { len: 65, ..writable.remote() };
        let refused = end.worker.peer_slice(&end.qp, beyond, soon()).ready();
        assert!(matches!(refused, Err(ReachError::OutOfRange)), "{refused:?}");
        // Both queue pairs go on after a refusal.
        end.transfer(Work::write(end.filled(64, 7), writable.remote()));
        let own = end.region(64);
        peer.transfer(Work::write(peer.filled(64, 7), own.remote()));
        end::assert_holds(&writable, 0..64, 7);
    }
}

#[test]
fn a_key_that_is_revoked_names_nothing_any_more() {
    for (mut end, peer) in pairs() {
        let (region, kept) = (peer.region(BYTES), peer.region(8));
        let remote = region.remote();
        end.worker.peer_slice(&end.qp, remote, soon()).copy_in(0, &vec![1; BYTES]).unwrap();
        let mut memory = region.deregister().unwrap();
        memory.fill(9);
        let refused = end.worker.peer_slice(&end.qp, remote, soon()).ready();
        assert!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
        assert!(memory.iter().all(|byte| *byte == 9));
        // A region that is deregistered while somebody waits for a flag in it.
        let mut slice = end.worker.peer_slice(&end.qp, kept.remote(), soon());
        let taken_back = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            kept.deregister().map(drop).unwrap();
        });
        let refused = slice.wait(0, |flag: u64| flag == 1);
        assert!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
        taken_back.join().unwrap();
    }
}

#[test]
fn a_peer_that_has_ended_its_queue_pair_is_gone() {
    for (mut end, peer) in pairs() {
        let (theirs, own) = (peer.region(64), end.region(64));
        end.worker.peer_slice(&end.qp, theirs.remote(), soon()).ready().unwrap();
        let idle = peer.again();
        let refused = end.worker.peer_slice(&end.qp, theirs.remote(), soon()).ready();
        assert!(matches!(refused, Err(ReachError::PeerGone)), "{refused:?}");
        drop((idle, own));
    }
}

#[test]
fn what_is_not_mapped_is_told_so() {
    let (mut end, peer) = End::pair();
    let foreign = peer.pd.register(Memory::adopt(vec![0; 64]), OPEN).unwrap();
    let refused = end.worker.peer_slice(&end.qp, foreign.remote(), soon()).ready();
    assert!(matches!(refused, Err(ReachError::NotShared)), "{refused:?}");
    end.transfer(Work::write(end.filled(64, 1), foreign.remote()));
    let refused = end.worker.peer_slice(&end.qp, foreign.remote(), soon()).ready();
    assert!(matches!(refused, Err(ReachError::NotMapped { .. })), "{refused:?}");
    let tcp = || End::of(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() });
    let (mut end, peer) = tcp().join(tcp());
    let refused = end.worker.peer_slice(&end.qp, peer.region(8).remote(), soon()).ready();
    assert!(matches!(refused, Err(ReachError::NotMapped { .. })), "{refused:?}");
    let mut other =
        Device::soft(SoftOptions::default()).open().unwrap().worker(WorkerOptions::default()).unwrap();
    let refused = other.peer_slice(&end.qp, peer.region(8).remote(), soon()).ready();
    assert!(matches!(refused, Err(ReachError::ForeignWorker { .. })), "{refused:?}");
}

/// Connects to the peer that started this process, and runs `body`.
fn as_peer(body: impl FnOnce(&mut End, &Region, RemoteMemory)) {
    let end = End::new();
    let region = end.pd.alloc_region(BYTES, OPEN).unwrap();
    print!("{}", line(&end.endpoint(), region.remote()));
    std::io::stdout().flush().unwrap();
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).unwrap();
    let (endpoint, memory) = parse(&said).expect("the other end says where it is");
    body(&mut end.connect(&endpoint), &region, memory);
}

/// Starts such a process, and connects to it.
fn with_peer(test: &str) -> (End, Region, Peer) {
    let idle = End::new();
    let region = idle.pd.alloc_region(BYTES, OPEN).unwrap();
    let peer = Peer::start_as(&format!("peer_slice::{test}"), &idle.endpoint(), region.remote());
    (idle.connect(&peer.endpoint), region, peer)
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn one_that_answers() {
    as_peer(|end, own, theirs| {
        let mut peer = end.worker.peer_slice(&end.qp, theirs, soon());
        for round in 1.. {
            // Sends everything that came with the flag back, with each byte one higher.
            if peer.wait_own(own, 0, |flag: u64| flag >= round).is_err() {
                return;
            }
            let mut bytes = vec![0; BYTES - 64];
            own.copy_out(64, &mut bytes).unwrap();
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            let done = peer.copy_in(64, &bytes).and_then(|()| peer.store(0, round));
            if done.is_err() {
                return;
            }
        }
    });
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn one_that_writes() {
    as_peer(|end, own, theirs| {
        own.copy_in(0, &vec![0xff; BYTES]).unwrap();
        let mut peer = end.worker.peer_slice(&end.qp, theirs, soon());
        while peer.copy_from(0, BYTES, own, 0).is_ok() {}
    });
}

#[test]
fn another_process_sees_what_comes_before_a_flag() {
    let (mut end, own, peer) = with_peer("one_that_answers");
    let mut slice = end.worker.peer_slice(&end.qp, peer.memory, soon());
    for round in 1..50_u64 {
        let bytes: Vec<u8> = (0..BYTES - 64).map(|at| (at as u8).wrapping_mul(round as u8)).collect();
        slice.copy_in(64, &bytes).unwrap();
        slice.store(0, round).unwrap();
        assert_eq!(slice.wait_own(&own, 0, |flag: u64| flag >= round).unwrap(), round);
        let mut back = vec![0; bytes.len()];
        own.copy_out(64, &mut back).unwrap();
        assert!(back.iter().zip(&bytes).all(|(back, byte)| *back == byte.wrapping_add(1)), "round {round}");
    }
}

#[test]
fn a_process_that_dies_ends_what_waits_for_it() {
    for of_own in [true, false] {
        let (mut end, own, mut peer) = with_peer("one_that_answers");
        let mut slice = end.worker.peer_slice(&end.qp, peer.memory, soon());
        let killing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            peer.child.kill().unwrap();
            peer.child.wait().unwrap();
            peer
        });
        let ended = match of_own {
            true => slice.wait_own(&own, 0, |flag: u64| flag == 99),
            false => slice.wait(0, |flag: u64| flag == 99),
        };
        assert!(matches!(ended, Err(ReachError::PeerGone)), "{ended:?}");
        assert!(matches!(slice.copy_in(0, &[1]), Err(ReachError::PeerGone)));
        killing.join().unwrap();
    }
}

#[test]
fn what_another_process_copies_ends_with_the_registration() {
    for round in 0..16 {
        let (_end, region, peer) = with_peer("one_that_writes");
        let (mut first, deadline) = ([0], soon());
        while first == [0] {
            assert!(!deadline.expired(), "nothing is written");
            region.copy_out(0, &mut first).unwrap();
        }
        std::thread::sleep(Duration::from_micros(100 * round));
        let mut memory = region.deregister().unwrap();
        memory.fill(0xee);
        std::thread::sleep(Duration::from_millis(2));
        assert!(memory.iter().all(|byte| *byte == 0xee), "a byte of an old copy, in round {round}");
        drop(peer);
    }
}

const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

#[test]
fn what_was_exported_is_the_owners_alone_once_it_is_revoked_beside_a_writer_that_is_stopped() {
    revoked_beside_a_writer_that_is_stopped(BYTES, |pd, region| pd.export(region, WRITE).unwrap());
}

/// The range begins and ends in the middle of a page.
#[test]
fn a_range_is_the_owners_alone_once_its_key_is_revoked_beside_a_writer_that_is_stopped() {
    revoked_beside_a_writer_that_is_stopped(BYTES + 9000, |pd, region| {
        pd.export_range(region, 5001..BYTES + 5001, WRITE).unwrap()
    });
}

/// Another key of the region stands meanwhile, under which nobody writes.
fn revoked_beside_a_writer_that_is_stopped(
    len: usize,
    export: impl Fn(&ProtectionDomain, &Region) -> Exported,
) {
    let mut midst = 0;
    for round in 0..200 {
        // Chance decides which moment of a copy a signal meets, so it tries until some were in the middle.
        if round >= 8 && midst > 0 {
            break;
        }
        let idle = End::new();
        let region = idle.pd.alloc_local(len).unwrap().into_region().expect("it is whole");
        let (exported, other) = (export(&idle.pd, &region), idle.pd.export(&region, Access::REMOTE_READ));
        let told = exported.remote();
        let start = (told.addr - region.remote().addr) as usize;
        let peer = Peer::start_as("peer_slice::one_that_writes", &idle.endpoint(), told);
        let _end = idle.connect(&peer.endpoint);
        let (mut first, deadline) = ([0], soon());
        while first == [0] {
            assert!(!deadline.expired(), "nothing is written");
            region.copy_out(start, &mut first).unwrap();
        }
        std::thread::sleep(Duration::from_micros(100 * (round % 8)));
        signal(&peer, Signal::STOP);
        let begun = Instant::now();
        exported.revoke(soon()).map_err(|refused| refused.error).unwrap();
        midst += u32::from(begun.elapsed() > Duration::from_millis(200));
        let mut bytes = vec![0; len];
        region.copy_out(0, &mut bytes).unwrap();
        let outside = bytes[..start].iter().chain(&bytes[start + told.len as usize..]);
        assert!(outside.copied().all(|byte| byte == 0), "a byte outside the range");
        drop(other.unwrap());
        let mut memory = region.into_local().expect("no peer has a right to it");
        memory.fill(0xee);
        signal(&peer, Signal::CONT);
        std::thread::sleep(Duration::from_millis(5));
        assert!(memory.iter().all(|byte| *byte == 0xee), "a byte of an old copy, in round {round}");
    }
    assert!(midst > 0, "it was never stopped in the midst of a copy");
}
