//! Windows: memory that peers map and write without a check, on both wires that map it.

use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use rdma_core::error::{ReachError, RegisterError};
use rdma_core::memory::CacheHint;
use rdma_core::{Access, CompletionStatus, Deadline, Memory, RemoteMemory, SoftOptions, Window, Wire, Work};

use super::end::{End, soon};
use super::peer_slice::run::Change;
use super::processes::{Peer, line, parse};
use super::raw;

const BYTES: usize = 64 << 10;

/// Two ends of this process, on each of the wires.
fn pairs() -> [(End, End); 2] {
    [Wire::Mapped, Wire::Auto].map(|wire| {
        let end = || End::of(SoftOptions { wire, ..SoftOptions::default() });
        end().join(end())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn whatever_fits_is_there_and_nothing_else_is(
        steps in prop::collection::vec((0..BYTES + 64, 0..5000_usize, any::<bool>()), 1..40),
        begin in (0..100_u64).prop_map(|it| it * 8),
    ) {
        let (mut end, peer) = End::pair();
        let window = peer.pd.alloc_window(BYTES).unwrap();
        let part = window.remote().slice(begin..BYTES as u64).unwrap();
        let theirs = end.worker.peer_window(&end.qp, part, soon()).unwrap();
        let (begin, mut oracle) = (begin as usize, vec![0; BYTES]);
        for (step, &(at, len, by_peer)) in steps.iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|byte| (byte + step + 1) as u8).collect();
            let (first, done) = match by_peer {
                true => (begin, theirs.copy_in(at, &bytes)),
                false => (0, window.copy_in(at, &bytes)),
            };
            prop_assert_eq!(done.is_ok(), first + at + len <= BYTES);
            if done.is_ok() {
                oracle[first + at..first + at + len].copy_from_slice(&bytes);
            }
        }
        let mut found = [vec![0; BYTES], vec![0; BYTES - begin]];
        window.copy_out(0, &mut found[0]).unwrap();
        theirs.copy_out_hinted(0, &mut found[1], CacheHint::Streamed).unwrap();
        prop_assert!(found[0] == oracle && found[1] == oracle[begin..]);
    }
}

#[test]
fn what_works_in_place_has_all_of_its_range_and_nothing_else() {
    const LONG: usize = (600 << 10) + 64;
    for (mut end, peer) in pairs() {
        let window = peer.pd.alloc_window(LONG).unwrap();
        let theirs = end.worker.peer_window(&end.qp, window.remote(), soon()).unwrap();
        let mut oracle: Vec<u8> = (0..LONG).map(|at| (at % 199) as u8).collect();
        window.copy_in(0, &oracle).unwrap();
        let mut changed = |range: Range<usize>, work: &Change| {
            assert!(work.right && work.done() == range.len());
            oracle[range].iter_mut().enumerate().for_each(|(at, byte)| *byte = work.of(at, *byte));
        };
        let (mut by_peer, mut by_owner) = (Change::by(0x5a), Change::by(0x17));
        theirs.run(7, LONG - 14, &mut by_peer).unwrap();
        changed(7..LONG - 7, &by_peer);
        window.run(0, 300 << 10, &mut by_owner).unwrap();
        changed(0..300 << 10, &by_owner);
        let mut bytes = vec![0; LONG];
        window.copy_out(0, &mut bytes).unwrap();
        assert!(bytes == oracle);
        let mut work = Change::by(1);
        for (at, len) in [(LONG, 1), (LONG - 1, 2), (usize::MAX, 1)] {
            assert!(matches!(window.run(at, len, &mut work), Err(ReachError::Range(_))));
            assert!(matches!(theirs.run(at, len, &mut work), Err(ReachError::Range(_))));
        }
        theirs.run(LONG, 0, &mut work).unwrap();
        assert_eq!(work.done(), 0);
    }
}

#[test]
fn flags_are_seen_on_both_sides_and_are_aligned() {
    for (mut end, peer) in pairs() {
        let window = peer.pd.alloc_window(64).unwrap();
        let theirs = end.worker.peer_window(&end.qp, window.remote(), soon()).unwrap();
        theirs.store(8, 7_u64).unwrap();
        window.store(16, 9_u32).unwrap();
        assert_eq!((window.load::<u64>(8).unwrap(), theirs.load::<u32>(16).unwrap()), (7, 9));
        for offset in [64, usize::MAX - 7] {
            for refused in [theirs.store(offset, 1_u64), window.load::<u64>(offset).map(drop)] {
                assert!(matches!(refused, Err(ReachError::Range(_))), "{refused:?}");
            }
        }
        for refused in [theirs.store(4, 1_u64), window.load::<u32>(62).map(drop)] {
            assert!(
                matches!(refused, Err(ReachError::Unaligned { .. } | ReachError::Range(_))),
                "{refused:?}"
            );
        }
        let odd = theirs.load::<u64>(12);
        assert!(matches!(odd, Err(ReachError::Unaligned { len: 8, .. })), "{odd:?}");
        let late = window.wait(0, |flag: u64| flag == 1, Deadline::after(Duration::from_millis(1)));
        assert!(matches!(late, Err(ReachError::DeadlineExceeded { .. })), "{late:?}");
    }
}

#[test]
fn only_a_window_is_mapped_as_one_and_no_request_reaches_it() {
    for (mut end, peer) in pairs() {
        let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        // No access flags turn memory of a caller into a window, because the caller gets that memory back.
        let claimed = Access::from_bits_retain(u32::MAX).difference(Access::MW_BIND);
        let refused = peer.pd.register(Memory::allocate(64).unwrap(), claimed).unwrap_err().error;
        assert!(matches!(refused, RegisterError::UndeclaredAccess { .. }), "{refused}");
        let region = peer.pd.register(Memory::allocate(64).unwrap(), open).unwrap();
        let exported = peer.pd.export(&region, claimed).unwrap_err();
        assert!(matches!(exported, RegisterError::UndeclaredAccess { .. }), "{exported}");
        let refused = end.worker.peer_window(&end.qp, region.remote(), soon());
        assert!(matches!(refused, Err(ReachError::AccessDenied)), "{refused:?}");
        let (window, own) = (peer.pd.alloc_window(64).unwrap(), end.pd.alloc_region(64, open).unwrap());
        let mut map = |memory| end.worker.peer_window(&end.qp, memory, soon());
        for beyond in
            [RemoteMemory { len: 65, ..window.remote() }, RemoteMemory { len: u64::MAX, ..window.remote() }]
        {
            assert!(matches!(map(beyond), Err(ReachError::OutOfRange)));
        }
        let foreign = peer.context.alloc_pd().unwrap().alloc_window(64).unwrap();
        assert!(matches!(map(foreign.remote()), Err(ReachError::ForeignDomain)));
        let refused = end.worker.peer_slice(&end.qp, window.remote(), soon()).copy_in(0, &[1]);
        assert!(matches!(refused, Err(ReachError::AccessDenied)), "{refused:?}");
        let source = end.worker.attach(&own);
        end.worker.post(&end.qp, Work::write(source.range(0, 64), window.remote())).unwrap();
        assert_eq!(end.status(), CompletionStatus::REM_ACCESS_ERR);
        let mut bytes = [9; 64];
        window.copy_out(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64]);
    }
}

#[test]
fn one_that_is_gone_is_written_to_without_harm_and_not_mapped_again() {
    for (mut end, peer) in pairs() {
        let window = peer.pd.alloc_window(BYTES).unwrap();
        let remote = window.remote();
        let theirs = end.worker.peer_window(&end.qp, remote, soon()).unwrap();
        theirs.copy_in(0, &[1; BYTES]).unwrap();
        drop(window);
        let refused = end.worker.peer_window(&end.qp, remote, soon());
        assert!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
        let mut bytes = vec![0; BYTES];
        theirs.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1), "what was there is gone");
        let fresh: Vec<_> = (0..8).map(|_| Memory::allocate(BYTES).unwrap()).collect();
        theirs.copy_in(0, &[2; BYTES]).unwrap();
        theirs.store(8, u64::MAX).unwrap();
        assert!(fresh.iter().all(|memory| memory.iter().all(|byte| *byte == 0)), "a late byte");
        // The end of the queue pair does not take the window away, either.
        drop((end, peer));
        theirs.clone().copy_in(64, &[3; 64]).unwrap();
    }
}

#[test]
fn over_tcp_there_are_no_windows() {
    let tcp = || End::of(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() });
    let (mut end, peer) = tcp().join(tcp());
    let window = peer.pd.alloc_window(64).unwrap();
    let refused = end.worker.peer_window(&end.qp, window.remote(), soon());
    assert!(matches!(refused, Err(ReachError::NotMapped { .. })), "{refused:?}");
}

/// Peer process: writes all of the other's window again and again, and counts the rounds in its first flag.
#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn one_that_writes() {
    let end = End::new();
    let own = end.pd.alloc_window(BYTES).unwrap();
    print!("{}", line(&end.endpoint(), own.remote()));
    std::io::stdout().flush().unwrap();
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).unwrap();
    let (endpoint, memory) = parse(&said).expect("the other end says where it is");
    let mut end = end.connect(&endpoint);
    let theirs = end.worker.peer_window(&end.qp, memory, soon()).unwrap();
    let bytes = vec![0xff; BYTES - 64];
    for round in 1..=u64::MAX {
        theirs.copy_in(64, &bytes).unwrap();
        theirs.store(0, round).unwrap();
        if own.load::<u64>(0).unwrap() == 1 {
            own.store(8, round).unwrap();
        }
    }
}

/// A window of this process that another process writes from now on.
fn written() -> (End, Window, Peer) {
    let idle = End::new();
    let window = idle.pd.alloc_window(BYTES).unwrap();
    let peer = Peer::start_as("window::one_that_writes", &idle.endpoint(), window.remote());
    let end = idle.connect(&peer.endpoint);
    window.wait(0, |round: u64| round > 2, soon()).unwrap();
    (end, window, peer)
}

#[test]
fn what_another_process_writes_late_lands_in_no_memory_of_this_one() {
    let (mut end, window, peer) = written();
    let theirs = end.worker.peer_window(&end.qp, peer.memory, soon()).unwrap();
    drop(window);
    for fill in 0..20_u8 {
        // Freed addresses and pages are taken at once.
        let fresh: Vec<_> = (0..16).map(|_| Memory::allocate(BYTES).unwrap()).collect();
        let regions: Vec<_> =
            fresh.into_iter().map(|memory| end.pd.register(memory, Access::LOCAL_WRITE).unwrap()).collect();
        regions.iter().for_each(|region| region.copy_in(0, &[fill; BYTES]).unwrap());
        // The peer writes all of it in between.
        theirs.store(0, 1_u64).unwrap();
        let before = theirs.load::<u64>(8).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while theirs.load::<u64>(8).unwrap() < before + 3 {
            assert!(std::time::Instant::now() < until, "it has stopped writing");
            std::thread::yield_now();
        }
        let mut bytes = vec![0; BYTES];
        for region in &regions {
            region.copy_out(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == fill), "a late byte");
        }
    }
}

#[test]
fn what_a_process_that_is_killed_had_is_read_still() {
    let (mut end, window, mut peer) = written();
    let theirs = end.worker.peer_window(&end.qp, peer.memory, soon()).unwrap();
    theirs.store(16, 5_u64).unwrap();
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    theirs.copy_in(64, &[1; 64]).unwrap();
    assert_eq!(theirs.load::<u64>(16).unwrap(), 5);
    let rounds = window.load::<u64>(0).unwrap();
    let late = window.wait(0, |round: u64| round > rounds, Deadline::after(Duration::from_millis(50)));
    assert!(matches!(late, Err(ReachError::DeadlineExceeded { .. })), "{late:?}");
}

#[test]
fn a_forked_child_is_refused() {
    let (mut end, peer) = End::pair();
    let window = peer.pd.alloc_window(64).unwrap();
    let theirs = end.worker.peer_window(&end.qp, window.remote(), soon()).unwrap();
    assert!(raw::in_a_child(|| matches!(theirs.store(0, 1_u64), Err(ReachError::Forked(_)))));
    assert_eq!(window.load::<u64>(0).unwrap(), 0);
}
