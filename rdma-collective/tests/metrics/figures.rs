//! The figures of a recorder, compared with the statistics and outcomes of the same transfers and collectives.

#[path = "../../../rdma-core/src/metrics/tests/sums.rs"]
mod sums;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::collective::{CollectiveError, CommunicatorOptions, Group, ReduceOp};
use rdma_collective::engine::Driver;
use rdma_collective::kv::{BlockVerdict, LinkOptions, PoolUse};
use rdma_core::metrics::facade;
use rdma_core::{Access, Deadline, Wire};
use sums::{Seen, Sums};

use crate::common::long;
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use crate::world::each_communicator;

/// The figures of the process's recorder while a test has them for itself, from then on.
struct Figures {
    seen: Seen,
    before: BTreeMap<String, f64>,
    _alone: MutexGuard<'static, ()>,
}

impl Figures {
    fn begin() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static SEEN: OnceLock<Seen> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = SEEN.get_or_init(|| {
            let recorder = Sums { seen: Seen::default(), each: |_| {} };
            let seen = Seen::clone(&recorder.seen);
            facade::set_global_recorder(recorder).map_err(|_| "another recorder").unwrap();
            rdma_collective::metrics::describe();
            seen
        });
        let before = seen.lock().unwrap().clone();
        Self { seen: Seen::clone(seen), before, _alone: alone }
    }

    /// The sum of all series whose name begins so, since the begin.
    fn of(&self, name: &str) -> f64 {
        let sum = |of: &BTreeMap<String, f64>| -> f64 {
            of.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, value)| value).sum()
        };
        sum(&self.seen.lock().unwrap()) - sum(&self.before)
    }

    /// Waits until the figure is as expected, because the engine's thread tells it a moment later.
    fn expect(&self, name: &str, expected: f64) {
        let deadline = long();
        while (self.of(name) - expected).abs() > 1e-9 {
            assert!(!deadline.expired(), "{name}: {} and not {expected}", self.of(name));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A link over which blocks go either way.
fn both_ways() -> Pair {
    let (at_prefill, at_decode) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
    Pair { prefill, decode, source, destination }
}

#[test]
fn transfers_are_counted_as_the_links_statistics_count_them() {
    let figures = Figures::begin();
    let pair = both_ways();
    figures.expect("rdma_engines", 2.0);
    figures.expect("rdma_links user=kv", 2.0);
    pair.transfer(1, &[(0, 0), (1, 1)]);
    let offer = pair.prefill.offer(3, &[3], long()).unwrap();
    figures.expect("rdma_kv_leases", 1.0);
    pair.decode.pull(3, &[3], long()).unwrap().wait().unwrap();
    offer.wait().unwrap();
    let verdicts = pair.decode.grant(4, &[4], long()).unwrap().revoke(long()).unwrap();
    pair.prefill.push(5, &[5], long()).unwrap().revoke(long()).unwrap();
    let soon = Deadline::after(Duration::from_millis(5));
    let late = pair.decode.grant(6, &[6], soon).unwrap().wait().unwrap_err();

    let (sent, received) = (pair.prefill.stats(), pair.decode.stats());
    figures.expect("rdma_kv_bytes_total direction=sent", sent.bytes as f64);
    figures.expect("rdma_kv_bytes_total direction=received", received.bytes as f64);
    let ended = |role: &str, way: &str, outcome: &str, expected: u64| {
        let name = format!("rdma_kv_transfers_total role={role} way={way} outcome={outcome}");
        figures.expect(&name, expected as f64);
    };
    ended("sender", "push", "done", sent.done - 1);
    ended("sender", "pull", "done", 1);
    ended("sender", "push", "revoked", sent.revoked);
    ended("receiver", "push", "done", received.done - 1);
    ended("receiver", "pull", "done", 1);
    ended("receiver", "push", "revoked", received.revoked);
    ended("receiver", "push", "expired", received.expired);
    figures.expect("rdma_kv_transfers_total", (sent.begun + received.begun) as f64);
    assert!(figures.of("rdma_kv_transfer_seconds role=receiver way=pull") > 0.0);
    let missing = verdicts.count(BlockVerdict::Missing) + late.verdicts.count(BlockVerdict::Missing);
    figures.expect("rdma_kv_blocks_total verdict=missing", missing as f64);
    figures.expect("rdma_kv_blocks_total verdict=valid", received.blocks as f64);
    figures.expect("rdma_kv_blocks_total verdict=corrupt", 0.0);
    figures.expect("rdma_kv_revokes_total phase=fenced", 0.0);
    figures.expect("rdma_kv_revokes_total phase=stopped", figures.of("rdma_kv_revokes_total phase=begun"));
    drop(pair);
    for gauge in ["rdma_engines", "rdma_links", "rdma_kv_leases", "rdma_queue_pairs", "rdma_registered_bytes"]
    {
        figures.expect(gauge, 0.0);
    }
}

#[test]
fn a_revocation_that_nobody_answers_is_counted_as_fenced() {
    let figures = Figures::begin();
    let pair = Setup { driver: Driver::Caller, ..Setup::default() }.connect();
    let _push = pair.prefill.push(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    // Nobody drives prefill.
    grant.revoke(Deadline::after(Duration::from_millis(100))).unwrap();
    figures.expect("rdma_kv_revokes_total phase=begun", 1.0);
    figures.expect("rdma_kv_revokes_total phase=fenced", 1.0);
    figures.expect("rdma_fences_total cause=this_side", 1.0);
    assert!(figures.of("rdma_kv_revoke_seconds") > 0.099);
}

#[test]
fn a_revocation_that_ends_with_its_link_is_not_counted_as_fenced() {
    let figures = Figures::begin();
    let pair = Setup { driver: Driver::Caller, ..Setup::default() }.connect();
    let _push = pair.prefill.push(1, &[0, 1], long()).unwrap();
    let mut grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    let mut second = pair.decode.grant(2, &[5], long()).unwrap();
    // A grant that was not sent yet is taken back at once.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(200) {
        assert!(grant.poll().is_pending() && second.poll().is_pending());
    }
    // The second grant drives decode, and is taken back when its handle goes. Nobody drives prefill.
    let revoking = grant.start_revoke(long());
    assert!(second.poll().is_pending());
    drop(second);
    figures.expect("rdma_kv_revokes_total phase=begun", 2.0);
    drop((pair.decode, revoking));
    figures.expect("rdma_kv_revokes_total phase=ended", 2.0);
    figures.expect("rdma_kv_revokes_total phase=fenced", 0.0);
}

#[test]
fn a_group_is_counted_as_one_operation_with_the_bytes_of_all_and_an_empty_one_is_not() {
    let figures = Figures::begin();
    each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), |mut communicator| {
        let other = 1 - communicator.rank();
        communicator.connect(long()).unwrap();
        let (sent, mut received) = ([[1_u64; 3]; 2], [[0_u64; 3]; 2]);
        let mut group = Group::new();
        for sent in &sent {
            group = group.send(sent, other);
        }
        for received in &mut received {
            group = group.recv(received, other);
        }
        group.run(&mut communicator, long()).unwrap();
        Group::new().run(&mut communicator, long()).unwrap();
        communicator.close(long()).unwrap();
    });
    figures.expect("rdma_collectives_total operation=send", 2.0);
    figures.expect("rdma_collectives_total operation=receive", 0.0);
    figures.expect("rdma_collective_bytes_total operation=send", 2.0 * 4.0 * 24.0);
}

#[test]
fn an_operation_that_cannot_be_queued_is_counted_as_ended() {
    let figures = Figures::begin();
    each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), |mut communicator| {
        let tensor = communicator.alloc::<u64>(1).unwrap();
        communicator.aborter().abort();
        communicator.barrier(long()).unwrap_err();
        let refused = communicator.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(refused.error, CollectiveError::Ended { .. }), "{}", refused.error);
    });
    figures.expect("rdma_collectives_total operation=all-reduce", 2.0);
}

#[test]
fn collectives_are_counted_with_their_bytes() {
    let figures = Figures::begin();
    for wire in [Wire::Mapped, Wire::Tcp] {
        let options = CommunicatorOptions { name: "metrics".to_owned(), ..CommunicatorOptions::default() };
        each_communicator(2, wire, options, |mut communicator| {
            for _ in 0..40 {
                communicator.all_reduce(&mut [1_u64], ReduceOp::Sum, long()).unwrap();
            }
            communicator.close(long()).unwrap();
        });
    }
    let labels = "operation=all-reduce algorithm=";
    figures.expect(&format!("rdma_collectives_total {labels}flat outcome=done"), 80.0);
    figures.expect("rdma_collectives_total operation=all-reduce", 160.0);
    figures.expect(&format!("rdma_collective_bytes_total {labels}"), 160.0 * 8.0);
    assert!(figures.of("rdma_collective_seconds operation=all-reduce") > 0.0);
    figures.expect("rdma_links", 0.0);
    figures.expect("rdma_ranks_lost_total", 0.0);
}

#[test]
fn collectives_that_alternate_are_counted_and_timed_as_one_that_repeats() {
    let figures = Figures::begin();
    each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), |mut communicator| {
        for _ in 0..200 {
            communicator.all_reduce(&mut [1_u64], ReduceOp::Sum, long()).unwrap();
            communicator.broadcast(&mut [1_u8; 3], 0, long()).unwrap();
            communicator.all_reduce(&mut [1_u64; 2], ReduceOp::Sum, long()).unwrap();
        }
        communicator.close(long()).unwrap();
    });
    for (operation, number, bytes) in [("all-reduce", 400.0, 200.0 * 24.0), ("broadcast", 200.0, 200.0 * 3.0)]
    {
        figures.expect(&format!("rdma_collectives_total operation={operation}"), 2.0 * number);
        figures.expect(&format!("rdma_collective_bytes_total operation={operation}"), 2.0 * bytes);
        assert!(figures.of(&format!("rdma_collective_seconds operation={operation}")) > 0.0);
    }
}

#[test]
fn a_rank_that_does_not_come_is_counted_as_late_and_lost() {
    let figures = Figures::begin();
    each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), |mut communicator| {
        if communicator.rank() == 0 {
            let soon = Deadline::after(Duration::from_millis(50));
            let error = communicator.all_reduce(&mut [1_u64], ReduceOp::Sum, soon).unwrap_err();
            assert!(matches!(error, CollectiveError::DeadlineExceeded { .. }), "{error}");
        } else {
            thread::sleep(Duration::from_millis(200));
        }
    });
    figures.expect("rdma_collectives_total operation=all-reduce algorithm=flat outcome=late", 1.0);
    assert!(figures.of("rdma_ranks_lost_total") >= 1.0);
    figures.expect("rdma_collective_bytes_total", 0.0);
}

#[test]
fn a_registration_that_fails_is_counted_by_its_reason() {
    let figures = Figures::begin();
    let engine = engine(Wire::Local, None);
    let pd = engine.context().alloc_pd().unwrap();
    assert!(pd.alloc_region(0, Access::LOCAL_WRITE).is_err());
    figures.expect("rdma_registrations_refused_total reason=zero_length", 1.0);
}
