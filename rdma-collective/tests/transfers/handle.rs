//! The table of what each call of a handle does, under way, ended and after its outcome was taken, for every transfer.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::long;
use crate::pair::{CANARY, Pair, SHAPE, engine, link, pool, source_byte};
use rdma_collective::kv::{KvError, LinkOptions, OnDrop, PoolUse, Revocable, Transfer, Verdicts};
use rdma_core::{Deadline, Wire};

const SOURCES: [u32; 2] = [0, 1];
const DESTINATIONS: [u32; 2] = [3, 4];
/// More transfers than a link has room for at a time.
const MANY: u64 = 300;

fn pair() -> Pair {
    let (at_prefill, at_decode) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
    Pair { prefill, decode, source, destination }
}

fn briefly() -> Deadline {
    Deadline::after(Duration::from_millis(5))
}

/// Polls as a task does, by reference, so that the handle stays.
fn awaited<K: Revocable>(transfer: &mut Transfer<K>) -> Poll<Result<K::Outcome, K::Error>> {
    Future::poll(Pin::new(transfer), &mut Context::from_waker(Waker::noop()))
}

/// Checks every cell for the transfers that `ours` begins, and that `theirs` meets and waits for until both ends are
/// done. `check` looks at the result of giving up a transfer that had ended well.
fn assert_table<K>(ours: impl Fn(u64) -> Transfer<K>, theirs: impl Fn(u64), check: impl Fn(&K::Left))
where
    K: Revocable<Outcome: Debug, Error: Debug, Left: Debug>,
{
    let ended = |request| {
        let handle = ours(request);
        theirs(request);
        handle
    };
    // Under way.
    let mut handle = ours(1);
    assert_eq!((handle.request().bytes().last(), handle.blocks().len()), (Some(&b'1'), 2));
    assert!(handle.poll().is_pending() && awaited(&mut handle).is_pending());
    let handle = handle.wait_until(briefly()).unwrap_err().wait_until(briefly()).unwrap_err();
    theirs(1);
    handle.wait().unwrap();
    ours(2).start_revoke(long()).wait().unwrap();
    ours(3).revoke(long()).unwrap();
    drop(ours(4).on_drop(OnDrop::Finish));
    theirs(4);
    drop(ours(502));
    drop(ours(5).start_revoke(long()));
    // Ended: the first look has the outcome, whichever it is.
    ended(6).wait().unwrap();
    ended(7).wait_until(Deadline::after(Duration::ZERO)).expect("it has ended").unwrap();
    assert!(ended(8).poll().map(Result::unwrap).is_ready());
    assert!(awaited(&mut ended(9)).map(Result::unwrap).is_ready());
    check(&ended(10).revoke(briefly()).unwrap());
    (11..11 + MANY).for_each(|request| drop(ended(request)));
    // Taken.
    let mut handle = ended(500);
    assert!(handle.poll().map(Result::unwrap).is_ready());
    assert!(handle.poll().is_pending() && awaited(&mut handle).is_pending());
    let mut revoking = handle.start_revoke(briefly());
    assert!(revoking.poll().is_pending());
    let taken = revoking.wait_until(briefly()).unwrap().unwrap_err();
    assert!(matches!(taken, KvError::OutcomeTaken { .. }), "{taken}");
    // The next transfer is as good as the first.
    ended(501).wait().unwrap();
}

#[test]
fn every_call_of_a_handle_does_what_its_table_says() {
    let Pair { prefill, decode, source, destination } = &pair();
    // A transfer whose handle was dropped ends by itself, or is given up.
    let settled = || {
        let deadline = long();
        while SOURCES.iter().any(|block| source.held(*block).is_some())
            || DESTINATIONS.iter().any(|block| destination.held(*block).is_some())
        {
            assert!(!deadline.expired(), "blocks stay held");
            thread::yield_now();
        }
    };
    let push = |request| prefill.push(request, &SOURCES, long()).unwrap();
    let offer = |request| prefill.offer(request, &SOURCES, long()).unwrap();
    let grant = |request| {
        settled();
        decode.grant(request, &DESTINATIONS, long()).unwrap()
    };
    let pull = |request| {
        settled();
        decode.pull(request, &DESTINATIONS, long()).unwrap()
    };
    let fill = |request| {
        decode.grant(request, &DESTINATIONS, long()).unwrap().wait().unwrap();
        settled();
    };
    let read = |request| {
        decode.pull(request, &DESTINATIONS, long()).unwrap().wait().unwrap();
        settled();
    };
    let write = |request| {
        push(request).wait().unwrap();
        settled();
    };
    let give = |request| {
        offer(request).wait().unwrap();
        settled();
    };
    assert_table(push, fill, |()| {});
    assert_table(|request| offer(1000 + request), |request| read(1000 + request), |()| {});
    let valid = |verdicts: &Verdicts| assert!(verdicts.all_valid());
    assert_table(|request| grant(2000 + request), |request| write(2000 + request), valid);
    assert_table(|request| pull(3000 + request), |request| give(3000 + request), valid);
}

#[test]
fn a_wait_for_an_outcome_that_was_taken_ends_with_an_error() {
    let pair = pair();
    let mut push = pair.prefill.push(1, &SOURCES, long()).unwrap();
    pair.decode.grant(1, &DESTINATIONS, long()).unwrap().wait().unwrap();
    while push.poll().map(Result::unwrap).is_pending() {
        thread::yield_now();
    }
    let error = push.revoke(long()).unwrap_err();
    assert!(matches!(error, KvError::OutcomeTaken { request } if request == 1.into()), "{error}");
}
