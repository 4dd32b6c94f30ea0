//! Transfers that are given up by handles: polled, waited for in turns, awaited, dropped, forgotten, two at once.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, block_on, forget, long};
use crate::pair::{CANARY, Pair, SHAPE, engine_driven, link, pool, source_byte};
use rdma_collective::engine::Driver;
use rdma_collective::kv::KvError;
use rdma_collective::kv::{BlockVerdict, LinkOptions, PoolUse, Receiving, Revocable, Revoking, Sending};
use rdma_collective::link::LaneFailure;
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{Deadline, Wire};

const BOTH: [Driver; 2] = [Driver::Thread; 2];
/// A handle that nobody wakes would take longer.
const WOKEN_WITHIN: Duration = Duration::from_secs(25);

/// The kind of transfer that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    Grant,
    Push,
    Pull,
    Offer,
}

const ALL: [Given; 4] = [Given::Grant, Given::Push, Given::Pull, Given::Offer];

/// How the end is learnt.
#[derive(Debug, Clone, Copy)]
enum By {
    Polling,
    Waiting,
    WaitingInTurns,
    Awaiting,
}

fn after_ms(ms: u64) -> Deadline {
    Deadline::after(Duration::from_millis(ms))
}

/// `delayed` holds each message back at both ends; who drives prefill, and decode.
fn connect(wire: Wire, checksums: bool, delayed: bool, drivers: [Driver; 2]) -> Pair {
    let plan = || FaultPlan::seeded(3).with(Rule::new(Fault::Delay(Duration::from_millis(2))));
    let [at_prefill, at_decode] = drivers.map(|driver| engine_driven(wire, delayed.then(plan), driver));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions { checksums, write_bytes_max: 24, max_send_wr: 16, ..LinkOptions::default() };
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
    Pair { prefill, decode, source, destination }
}

/// The end that gives up, and the other end of the transfer.
enum Revoked {
    Decode(Revoking<Receiving>),
    Prefill(Revoking<Sending>),
}

const PAIRS: [(u32, u32); 3] = [(0, 3), (1, 4), (2, 5)];

/// Begins to give up a transfer of [`PAIRS`] that is under way; the other end, which ends by itself.
fn given_up(pair: &Pair, given: Given, deadline: Deadline) -> (Revoked, impl FnOnce() + use<>) {
    let (sources, destinations): (Vec<_>, Vec<_>) = PAIRS.into_iter().unzip();
    let (mut grant, mut push, mut pull, mut offer) = (None, None, None, None);
    if matches!(given, Given::Grant | Given::Push) {
        let granted = pair.decode.grant(1, &destinations, long()).unwrap();
        let pushed = pair.prefill.push_layers(1, &sources, long()).unwrap();
        pushed.layer_ready(0).unwrap();
        while granted.poll_layer(0).is_pending() {
            thread::yield_now();
        }
        (grant, push) = (Some(granted), Some(pushed));
    } else {
        offer = Some(pair.prefill.offer(1, &sources, long()).unwrap());
        let pulled = pair.decode.pull(1, &destinations, long()).unwrap();
        while pulled.progress().writes_arrived == 0 {
            thread::yield_now();
        }
        pull = Some(pulled);
    }
    let revoked = match given {
        Given::Grant => Revoked::Decode(grant.take().unwrap().start_revoke(deadline)),
        Given::Pull => Revoked::Decode(pull.take().unwrap().start_revoke(deadline)),
        Given::Push => Revoked::Prefill(push.take().unwrap().start_revoke(deadline)),
        Given::Offer => Revoked::Prefill(offer.take().unwrap().start_revoke(deadline)),
    };
    let other_end = move || {
        // A pull may have been done before it was given up.
        let ended = |result: Result<(), KvError>| match result {
            Ok(()) => assert!(matches!(given, Given::Pull | Given::Offer)),
            Err(error) => {
                assert!(
                    matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()),
                    "{error}"
                )
            }
        };
        grant.into_iter().for_each(|end| ended(end.wait().map(drop).map_err(|error| (*error.cause).clone())));
        pull.into_iter().for_each(|end| ended(end.wait().map(drop).map_err(|error| (*error.cause).clone())));
        push.into_iter().for_each(|end| ended(end.wait().map(drop)));
        offer.into_iter().for_each(|end| ended(end.wait().map(drop)));
    };
    (revoked, other_end)
}

fn end_of<K: Revocable>(mut revoking: Revoking<K>, by: By) -> Result<K::Left, KvError> {
    match by {
        By::Polling => loop {
            if let Poll::Ready(end) = revoking.poll() {
                assert!(revoking.poll().is_pending(), "it is told once");
                return end;
            }
            thread::yield_now();
        },
        By::Waiting => revoking.wait(),
        By::WaitingInTurns => loop {
            match revoking.wait_until(after_ms(1)) {
                Ok(end) => return end,
                Err(goes_on) => revoking = goes_on,
            }
        },
        By::Awaiting => block_on(revoking),
    }
}

fn is_free(pair: &Pair, given: Given) -> bool {
    let at_decode = matches!(given, Given::Grant | Given::Pull);
    PAIRS.iter().all(|(source, destination)| {
        let held = if at_decode { pair.destination.held(*destination) } else { pair.source.held(*source) };
        held.is_none()
    })
}

fn wait_until_free(pair: &Pair, given: Given) {
    let begin = Instant::now();
    while !is_free(pair, given) {
        assert!(begin.elapsed() < WOKEN_WITHIN, "{given:?}: its blocks are still held");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_handle_ends_whichever_way_it_is_looked_at_and_the_link_goes_on() {
    for (at, given) in ALL.into_iter().enumerate() {
        for by in [By::Polling, By::Waiting, By::WaitingInTurns, By::Awaiting] {
            let pair =
                connect(WIRES[(at + by as usize) % WIRES.len()], (by as usize).is_multiple_of(2), true, BOTH);
            let begin = Instant::now();
            let (revoked, other_end) = given_up(&pair, given, long());
            match revoked {
                Revoked::Prefill(revoking) => end_of(revoking, by).unwrap(),
                Revoked::Decode(revoking) => {
                    let verdicts = end_of(revoking, by).unwrap();
                    pair.assert_true(&PAIRS, &verdicts);
                    let valid = verdicts.count(BlockVerdict::Valid);
                    assert!(given == Given::Pull || valid == PAIRS.len(), "one layer of them: {verdicts:?}");
                }
            }
            assert!(begin.elapsed() < WOKEN_WITHIN, "{given:?} by {by:?}: nobody wakes who waits");
            assert!(is_free(&pair, given), "{given:?} by {by:?}");
            other_end();
            pair.transfer(2, &[(5, 0), (6, 1)]);
        }
    }
}

#[test]
fn handles_that_are_dropped_or_forgotten_give_up_all_the_same() {
    for (at, given) in ALL.into_iter().enumerate() {
        for is_dropped in [true, false] {
            let pair = connect(WIRES[at % WIRES.len()], true, true, BOTH);
            let (revoked, other_end) = given_up(&pair, given, long());
            match (revoked, is_dropped) {
                (revoked, true) => drop(revoked),
                (Revoked::Decode(revoking), false) => forget(revoking.into_future()),
                (Revoked::Prefill(revoking), false) => forget(revoking),
            }
            wait_until_free(&pair, given);
            other_end();
            pair.transfer(2, &[(5, 0), (6, 1)]);
        }
    }
}

#[test]
fn a_future_is_dropped_in_the_middle() {
    let pair = connect(Wire::Local, true, true, BOTH);
    let (Revoked::Decode(revoking), other_end) = given_up(&pair, Given::Grant, long()) else {
        unreachable!()
    };
    let mut future = revoking.into_future();
    // Whether or not it has ended by now.
    let _is_over = block_on(poll_fn(|context| Poll::Ready(Pin::new(&mut future).poll(context).is_ready())));
    drop(future);
    wait_until_free(&pair, Given::Grant);
    other_end();
    pair.transfer(2, &[(5, 0), (6, 1)]);
}

/// Nobody drives the peer: the engine's own thread fences at the deadline, whether or not anybody looks.
#[test]
fn a_peer_that_does_not_answer_is_fenced_at_the_deadline_though_nobody_looks() {
    for given in [Given::Grant, Given::Offer] {
        for looked_at in [None, Some(By::Polling), Some(By::Awaiting)] {
            let silent = [Driver::Caller, Driver::Thread];
            let drivers = if given == Given::Grant { silent } else { [silent[1], silent[0]] };
            let pair = connect(Wire::Local, false, false, drivers);
            let started = Instant::now();
            if given == Given::Grant {
                let grant = pair.decode.grant(1, &[3, 4, 5], long()).unwrap();
                // A grant that was not sent yet needs no answer.
                thread::sleep(Duration::from_millis(50));
                let mut revoking = grant.start_revoke(after_ms(100));
                assert!(revoking.poll().is_pending());
                match looked_at {
                    None => drop(revoking),
                    Some(by) => {
                        assert_eq!(end_of(revoking, by).unwrap().count(BlockVerdict::Missing), 9);
                    }
                }
            } else {
                let offer = pair.prefill.offer(1, &[0, 1, 2], long()).unwrap();
                thread::sleep(Duration::from_millis(50));
                let mut revoking = offer.start_revoke(after_ms(100));
                assert!(revoking.poll().is_pending());
                match looked_at {
                    None => forget(revoking),
                    Some(by) => end_of(revoking, by).unwrap(),
                }
            }
            wait_until_free(&pair, given);
            assert!(started.elapsed() >= Duration::from_millis(99), "it had time to answer");
            assert!(started.elapsed() < WOKEN_WITHIN, "{given:?} by {looked_at:?}: nobody wakes who waits");
            let ended = if given == Given::Grant {
                pair.decode.grant(2, &[3], long()).map(drop)
            } else {
                pair.prefill.offer(2, &[0], long()).map(drop)
            };
            assert!(matches!(ended, Err(KvError::LinkEnded { cause: LaneFailure::Fenced, .. })), "{ended:?}");
        }
    }
}

#[test]
fn two_revocations_go_on_at_once_on_the_thread_that_drives_their_peer() {
    let pair = connect(Wire::Local, false, false, [Driver::Caller, Driver::Thread]);
    let grants =
        [(1, [3]), (2, [4])].map(|(request, blocks)| pair.decode.grant(request, &blocks, long()).unwrap());
    let mut other = pair.prefill.push(9, &[9], long()).unwrap();
    let started = Instant::now();
    let mut revoking = grants.map(|grant| grant.start_revoke(long()));
    // Only this thread drives prefill, so that none can have been answered: whoever waited here would do so for ever.
    assert!(revoking.iter_mut().all(|one| one.poll().is_pending()));
    assert!(pair.destination.held(3).is_some() && pair.destination.held(4).is_some());
    let mut ends = [None, None];
    while ends.iter().any(Option::is_none) {
        assert!(other.poll().is_pending());
        for (end, one) in ends.iter_mut().zip(&mut revoking).filter(|(end, _)| end.is_none()) {
            if let Poll::Ready(verdicts) = one.poll() {
                *end = Some(verdicts.unwrap());
            }
        }
    }
    assert!(started.elapsed() < WOKEN_WITHIN, "they end by their answers, and not at their deadline");
    assert!(pair.destination.held(3).is_none() && pair.destination.held(4).is_none());
    other.revoke(long()).unwrap();
    pair.transfer(3, &[(0, 3), (1, 4)]);
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn one_task_awaits_what_both_ends_give_up() {
    let pair = connect(Wire::Tcp, true, true, BOTH);
    let (Revoked::Decode(revoking), other_end) = given_up(&pair, Given::Grant, long()) else {
        unreachable!()
    };
    let push = pair.prefill.push(2, &[7], long()).unwrap();
    let offer = pair.prefill.offer(3, &[8], long()).unwrap();
    let started = Instant::now();
    let mut verdicts = revoking;
    let mut given = [push.start_revoke(long()), offer.start_revoke(long())];
    let (mut known, mut over) = (None, [false; 2]);
    block_on(poll_fn(|context| {
        if known.is_none()
            && let Poll::Ready(end) = Pin::new(&mut verdicts).poll(context)
        {
            known = Some(end.unwrap());
        }
        for (over, one) in over.iter_mut().zip(&mut given).filter(|(over, _)| !**over) {
            *over = Pin::new(one).poll(context).map(Result::unwrap).is_ready();
        }
        if known.is_some() && over == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert!(started.elapsed() < WOKEN_WITHIN, "nobody wakes who waits");
    pair.assert_true(&PAIRS, &known.unwrap());
    assert_eq!([7, 8].map(|block| pair.source.held(block)), [None, None]);
    other_end();
    pair.transfer(4, &[(7, 0), (8, 1)]);
}
