//! The table of what each call of a handle does, under way, ended and after its outcome was taken, for every transfer.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::long;
use crate::pair::{CANARY, Pair, SHAPE, engine, link, pool, source_byte};
use rdma_collective::kv::{LinkOptions, PoolUse, Revocable, Transfer};
use rdma_core::{Deadline, Wire};

const SOURCES: [u32; 2] = [0, 1];
const DESTINATIONS: [u32; 2] = [3, 4];

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

/// Checks every cell for the transfers that `ours` begins, and that `theirs` meets and waits for.
fn assert_table<'a, K>(ours: impl Fn(u64) -> Transfer<K>, theirs: impl Fn(u64) + Sync + 'a)
where
    K: Revocable<Outcome: Debug, Error: Debug, Left: Debug>,
{
    // Under way.
    let mut handle = ours(1);
    assert_eq!((handle.request() % 100, handle.blocks().len()), (1, 2));
    assert!(handle.poll().is_pending() && awaited(&mut handle).is_pending());
    let mut handle = handle.wait_until(briefly()).unwrap_err();
    handle = handle.wait_until(briefly()).unwrap_err();
    theirs(1);
    // Ended.
    handle.wait_until(long()).expect("it has ended").unwrap();
    let handle = ours(2);
    theirs(2);
    handle.wait().unwrap();
    let mut handle = ours(3);
    theirs(3);
    while handle.poll().map(Result::unwrap).is_pending() {
        thread::yield_now();
    }
    // Taken.
    assert!(handle.poll().is_pending() && awaited(&mut handle).is_pending());
    let mut revoking = handle.wait_until(briefly()).unwrap_err().start_revoke(briefly());
    assert!(revoking.poll().is_pending() && revoking.wait_until(briefly()).is_err());
    let mut handle = ours(4);
    theirs(4);
    while awaited(&mut handle).map(Result::unwrap).is_pending() {
        thread::yield_now();
    }
    assert!(handle.poll().is_pending());
    // Given up, under way and too late.
    ours(5).start_revoke(long()).wait().unwrap();
    ours(6).revoke(long()).unwrap();
    let handle = ours(7);
    theirs(7);
    handle.revoke(long()).unwrap();
    // Dropped, at each of these times.
    let handle = ours(8);
    drop(handle);
    theirs(8);
    drop(ours(9).start_revoke(long()));
    let handle = ours(10);
    theirs(10);
    drop(handle);
}

#[test]
fn every_call_of_a_handle_does_what_its_table_says() {
    let Pair { prefill, decode, source, destination } = &pair();
    // A handle that was dropped leaves its transfer to end by itself.
    let settled = || {
        while SOURCES.iter().any(|block| source.held(*block).is_some())
            || DESTINATIONS.iter().any(|block| destination.held(*block).is_some())
        {
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
    let fill = |request| drop(decode.grant(request, &DESTINATIONS, long()).unwrap().wait().unwrap());
    let read = |request| drop(decode.pull(request, &DESTINATIONS, long()).unwrap().wait().unwrap());
    assert_table(push, fill);
    assert_table(|request| offer(100 + request), |request| read(100 + request));
    assert_table(
        |request| grant(200 + request),
        |request| {
            push(200 + request).wait().unwrap();
        },
    );
    assert_table(
        |request| pull(300 + request),
        |request| {
            offer(300 + request).wait().unwrap();
        },
    );
    settled();
}
