//! Two ranks with a simulated clock: which rank is blamed for a neighbour that has gone, between operations and in one.

mod elsewhere;
mod ends;
mod lanes;
mod links;
mod looks;

use std::thread;
use std::time::{Duration, Instant};

use rdma_core::{Device, SoftOptions, Wire};

use super::*;
use crate::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use crate::collective::AbortReason;
use crate::collective::ReduceOp;
use crate::collective::operation::Abort;
use crate::engine::{Driver, EngineOptions};
use crate::link::LaneFailure;

const DIED: LaneFailure = LaneFailure::Died { pid: 77 };
const SECOND: Duration = Duration::from_secs(1);

fn soon() -> Deadline {
    Deadline::after(20 * SECOND)
}

fn local() -> SoftOptions {
    SoftOptions { wire: Wire::Local, ..SoftOptions::default() }
}

fn ranks() -> [Communicator; 2] {
    ranks_on(local())
}

/// Ranks 0 and 1; only the test drives them.
fn ranks_on(device: SoftOptions) -> [Communicator; 2] {
    ranks_driven(device, Driver::Caller)
}

fn ranks_driven(device: SoftOptions, driver: Driver) -> [Communicator; 2] {
    world_of(2, device, driver).try_into().unwrap()
}

/// The ranks of a world of that size.
fn world_of(world: u32, device: SoftOptions, driver: Driver) -> Vec<Communicator> {
    world_with(world, device, driver, |_| CommunicatorOptions::default())
}

/// The ranks of a world of that size, each with options of its own.
fn world_with(
    world: u32,
    device: SoftOptions,
    driver: Driver,
    options_of: fn(u32) -> CommunicatorOptions,
) -> Vec<Communicator> {
    let token = JobToken::from_bytes([3; 16]);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, world)).unwrap();
    let address = server.address();
    let connect = move |rank| {
        let mut store = StoreClient::connect(Join { address, token, rank, world }, soon()).unwrap();
        let context = Device::soft(device.clone()).open().unwrap();
        let options = EngineOptions { driver, ..EngineOptions::default() };
        let engine = Engine::new(&context, options).unwrap();
        if driver == Driver::Caller {
            engine.lock().beat_by_hand();
        }
        Communicator::new(&engine, &mut store, options_of(rank), soon()).unwrap()
    };
    let ranks: Vec<_> = (0..world)
        .map(|rank| {
            let connect = connect.clone();
            thread::spawn(move || connect(rank))
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// Ranks 0 and 1, each on a host of its own, with TCP between them.
fn ranks_of_two_hosts(driver: Driver) -> [Communicator; 2] {
    let device = SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() };
    let apart = |rank| CommunicatorOptions {
        host_id: Some(format!("host {rank}")),
        ..CommunicatorOptions::default()
    };
    world_with(2, device, driver, apart).try_into().unwrap()
}

impl Communicator {
    fn drive(&self, now: Instant) {
        while self.engine().drive(now, 64).unwrap() > 0 {}
    }

    fn known(&self) -> Option<CollectiveError> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| shared.lock().failure(core))
    }

    /// Reports the end of the other process, as the kernel would.
    fn other_dies(&self) {
        self.with_links(|core, links| {
            links.lanes().for_each(|lane| core.lane(lane).unwrap().process_ended(DIED));
        });
    }

    /// The failure that this rank has told the other ranks.
    fn told(&self) -> Option<u32> {
        self.with_links(|_, links| links.abort.map(|abort| abort.culprit)).unwrap()
    }
}

fn assert_fenced(error: &CollectiveError, gap: Duration) {
    assert!(matches!(error, CollectiveError::Fenced { away: Some(away), .. } if *away == gap), "{error}");
}

fn assert_lost(error: &CollectiveError) {
    let CollectiveError::PeerFailed { rank: 1, cause: LaneFailure::Died { pid: 77 }, .. } = error else {
        panic!("{error}");
    };
}

#[test]
fn a_death_between_operations_is_the_neighbours_loss() {
    let [mut left, _right] = ranks();
    let start = Instant::now();
    left.drive(start);
    left.other_dies();
    left.drive(start + SECOND);
    assert_lost(&left.known().unwrap());
    assert_eq!(left.told(), Some(1));
    assert_lost(&left.all_reduce(&mut [1.0_f32], ReduceOp::Sum, soon()).unwrap_err());
}

#[test]
fn a_death_that_is_found_after_this_process_did_not_run_is_its_own_fault_between_operations_and_in_the_next()
{
    let [mut left, _right] = ranks();
    let start = Instant::now();
    left.drive(start);
    left.other_dies();
    left.drive(start + 9 * SECOND);
    assert_fenced(&left.known().unwrap(), 9 * SECOND);
    assert_eq!(left.told(), Some(0));
    assert_fenced(&left.all_reduce(&mut [1.0_f32], ReduceOp::Sum, soon()).unwrap_err(), 9 * SECOND);
}

/// The other ranks went on while this process was stopped between the call and its first look at the clock.
#[test]
fn an_operation_that_begins_too_late_because_this_process_did_not_run_says_so() {
    for begin in [start_late, reduce_late] {
        let [mut left, _right] = ranks();
        left.engine().lock().drive(|| Instant::now() - 9 * SECOND, 64);
        left.other_dies();
        let error = begin(&mut left);
        let CollectiveError::Fenced { away: Some(away), .. } = error else { panic!("{error}") };
        assert!(away >= 9 * SECOND, "{away:?}");
        assert_eq!(left.told(), Some(0));
    }
}

/// Begins an operation that owns its memory, with a deadline that has passed.
fn start_late(comm: &mut Communicator) -> CollectiveError {
    let tensor = comm.alloc::<f32>(1000).unwrap();
    let mut pending = comm.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(Duration::ZERO)).unwrap();
    let Poll::Ready(Err(error)) = pending.poll() else { panic!("it goes on") };
    error
}

/// Begins an operation on borrowed memory, with a deadline that has passed.
fn reduce_late(comm: &mut Communicator) -> CollectiveError {
    comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum, Deadline::after(Duration::ZERO)).unwrap_err()
}

#[test]
fn a_death_during_an_operation_that_this_process_did_not_run_in_is_its_own_fault() {
    let [mut left, _right] = ranks();
    let start = Instant::now();
    left.drive(start);
    let tensor = left.alloc::<f32>(1000).unwrap();
    let mut pending = left.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(60 * SECOND)).unwrap();
    left.drive(start + SECOND);
    left.other_dies();
    left.drive(start + 8 * SECOND);
    let Poll::Ready(Err(error)) = pending.poll() else { panic!("it goes on") };
    assert_fenced(&error, 7 * SECOND);
    assert_eq!(left.told(), Some(0));
}

/// Both ranks own 64 KiB, so each makes its share in the buffers of both.
#[test]
fn a_rank_that_dies_after_its_own_share_is_lost_to_the_rank_whose_share_is_blocked() {
    let [mut left, mut right] = ranks();
    let start = |comm: &mut Communicator| {
        let tensor = comm.alloc::<f32>(16 * 1024).unwrap();
        comm.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(60 * SECOND)).unwrap()
    };
    let now = Instant::now();
    let mut waiting = start(&mut left);
    // The right rank finds the left one's buffer, makes its share, and tells that. The left rank does not look.
    let mut done = start(&mut right);
    right.drive(now);
    // A rank revokes its buffers when its operation fails; nothing goes over lanes that have failed.
    right.other_dies();
    right.drive(now);
    let Poll::Ready(Err(error)) = done.poll() else { panic!("it goes on") };
    assert!(matches!(error, CollectiveError::PeerFailed { rank: 0, .. }), "{error}");
    left.other_dies();
    left.drive(now);
    let Poll::Ready(Err(error)) = waiting.poll() else { panic!("it waits for a rank that has died") };
    assert_lost(&error);
    assert_eq!(left.told(), Some(1));
}

#[test]
fn a_process_that_is_stopped_behind_its_look_at_the_clock_is_at_fault_too() {
    let [left, right] = ranks();
    let start = Instant::now();
    left.drive(start);
    right.drive(start + SECOND); // a beat of the right rank
    left.other_dies();
    let looks = std::cell::Cell::new(0);
    let clock = || start + [0, 9][looks.replace(1).min(1)] * SECOND;
    left.engine().lock().drive(clock, 64);
    assert_fenced(&left.known().unwrap(), 9 * SECOND);
    assert_eq!(left.told(), Some(0));
}

/// Neighbours may be one operation apart when a third rank is lost, and the report of the later one may arrive first.
#[test]
fn a_failure_of_the_operation_that_runs_ends_it_though_one_of_a_later_was_heard_before() {
    let [mut left, _right] = ranks();
    left.drive(Instant::now());
    let tensor = left.alloc::<f32>(1000).unwrap();
    let mut pending = left.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(60 * SECOND)).unwrap();
    let of = |sequence| Abort { sequence, culprit: 7, reporter: 1, reason: AbortReason::PeerFailed };
    left.with_links(|_, links| links.hear(of(1))).unwrap();
    assert!(pending.poll().is_pending());
    left.with_links(|_, links| links.hear(of(0))).unwrap();
    let Poll::Ready(Err(error)) = pending.poll() else { panic!("it goes on") };
    assert!(matches!(error, CollectiveError::Aborted { culprit: 7, .. }), "{error}");
}

#[test]
fn what_this_rank_finds_is_told_though_a_later_operation_had_failed_elsewhere() {
    let [left, right] = ranks();
    let start = Instant::now();
    for rank in [&left, &right] {
        rank.drive(start);
    }
    let of = |sequence, culprit| Abort { sequence, culprit, reporter: 0, reason: AbortReason::PeerFailed };
    left.with_links(|core, links| links.tell(core, of(3, 7))).unwrap();
    left.with_links(|core, links| links.tell(core, of(2, 5))).unwrap();
    assert_eq!(left.told(), Some(5));
    let heard = || {
        right.with_links(|core, links| (links.take_arrivals(core).is_ok(), links.abort.map(|it| it.culprit)))
    };
    let patience = soon();
    while heard() != Some((true, Some(5))) {
        assert!(!patience.expired(), "{:?}", heard());
        right.drive(Instant::now());
    }
}

#[test]
fn who_asks_for_the_end_ends_what_runs_though_a_later_operation_had_failed_elsewhere() {
    let [mut left, _right] = ranks();
    left.drive(Instant::now());
    let tensor = left.alloc::<f32>(1000).unwrap();
    let mut pending = left.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(60 * SECOND)).unwrap();
    let later = Abort { sequence: 5, culprit: 1, reporter: 1, reason: AbortReason::DeadlineExceeded };
    left.with_links(|core, links| links.tell(core, later)).unwrap();
    assert!(pending.poll().is_pending());
    left.aborter().abort();
    let Poll::Ready(Err(error)) = pending.poll() else { panic!("it goes on") };
    assert!(matches!(error, CollectiveError::Aborted { culprit: 0, .. }), "{error}");
    assert_eq!(left.told(), Some(0));
}

#[test]
fn neighbours_that_have_left_in_good_order_meanwhile_have_gone_on_without_this_one() {
    for away in [SECOND, 9 * SECOND] {
        let [left, right] = ranks();
        let start = Instant::now();
        left.drive(start);
        let lanes = right.with_links(|_, links| links.lanes().collect::<Vec<_>>()).unwrap();
        assert!(right.engine().say_goodbye(&lanes, soon()));
        left.drive(start + away);
        match left.known() {
            Some(error) => assert_fenced(&error, 9 * SECOND),
            None => assert_eq!(away, SECOND, "it does not know of its absence"),
        }
    }
}

#[test]
fn a_neighbour_that_has_gone_on_with_this_process_is_a_loss_when_it_dies_later() {
    let [left, right] = ranks();
    let start = Instant::now();
    left.drive(start);
    left.drive(start + 9 * SECOND);
    assert!(left.known().is_none(), "nobody has gone");
    right.drive(start + 10 * SECOND); // a beat of the right rank
    left.drive(start + 10 * SECOND);
    left.other_dies();
    left.drive(start + 11 * SECOND);
    assert_lost(&left.known().unwrap());
    assert_eq!(left.told(), Some(1));
}

#[test]
fn what_was_lost_before_this_process_did_not_run_stays_lost() {
    let [left, _right] = ranks();
    let start = Instant::now();
    left.drive(start);
    left.other_dies();
    left.drive(start + SECOND);
    left.drive(start + 20 * SECOND);
    assert_lost(&left.known().unwrap());
}
