//! Completion events, asynchronous events, and the loss of completions.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::pair::{LEFT, PORT, Pair, context, disposable_netdev, ip};
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend, RawWorker};
use crate::error::PollError;
use crate::{Access, EventKind, PortState, QueuePairOptions};

/// Whether the descriptor becomes readable within the time.
fn readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec::try_from(within).unwrap();
    rustix::event::poll(&mut polled, Some(&timeout)).unwrap() > 0
}

const SOON: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::from_millis(50);

#[test]
#[ignore = "needs a device"]
fn the_channel_raises_one_event_for_each_request_to_notify() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    let write = |wr_id| here.request(wr_id, RawOpcode::Write, 8, Some(&there));
    pair.send(LEFT, &[write(1)]).unwrap();
    pair.completions(1);
    assert!(!readable(pair.worker.channel_fd(), AT_ONCE), "nobody asked");
    pair.worker.consume_events().unwrap();
    for wr_id in 2..10 {
        pair.worker.request_notify().unwrap();
        pair.send(LEFT, &[write(wr_id)]).unwrap();
        assert!(readable(pair.worker.channel_fd(), SOON));
        pair.worker.consume_events().unwrap();
        assert!(!readable(pair.worker.channel_fd(), AT_ONCE));
        assert_eq!(pair.completions(1)[0].wr_id, wr_id);
    }
}

#[test]
#[ignore = "needs a device"]
fn events_of_several_requests_and_of_requests_in_vain_are_taken() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    let write = |wr_id| here.request(wr_id, RawOpcode::Write, 8, Some(&there));
    for wr_id in 0..4 {
        pair.worker.request_notify().unwrap();
        pair.worker.request_notify().unwrap();
        pair.send(LEFT, &[write(wr_id)]).unwrap();
        pair.completions(1);
    }
    pair.worker.consume_events().unwrap();
    assert!(!readable(pair.worker.channel_fd(), AT_ONCE), "an event was left");
    pair.worker.request_notify().unwrap();
    pair.worker.consume_events().unwrap();
    pair.send(LEFT, &[write(4)]).unwrap();
    assert!(readable(pair.worker.channel_fd(), SOON));
    pair.worker.consume_events().unwrap();
    assert!(!readable(pair.worker.channel_fd(), AT_ONCE));
}

const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

#[test]
#[ignore = "needs a device"]
fn a_queue_that_overran_says_so_after_the_event_was_taken() {
    let mut pair = Pair::with(&QueuePairOptions::default(), 1);
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    let chain: Vec<RawSend> =
        (0..64).map(|wr_id| here.request(wr_id, RawOpcode::Write, 8, Some(&there))).collect();
    pair.send(LEFT, &chain).unwrap();
    assert!(readable(pair.context.event_fd(), SOON), "no event of the completion queue");
    let event = pair.context.next_event().unwrap().unwrap();
    assert_eq!((event.kind, event.port, event.qp), (EventKind::CQ_ERR, None, None));
    let mut out = [RawCompletion::default(); 256];
    let until = Instant::now() + SOON;
    let error = loop {
        match pair.worker.poll(&mut out) {
            Ok(taken) => assert!(taken < 64, "nothing was lost"),
            Err(error) => break error,
        }
        assert!(Instant::now() < until);
    };
    assert!(matches!(error, PollError::Overrun), "{error}");
}

#[test]
#[ignore = "needs a device"]
fn a_queue_that_overran_says_so_though_nobody_takes_events() {
    for asks in [false, true] {
        let mut pair = Pair::with(&QueuePairOptions::default(), 1);
        let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
        let chain: Vec<RawSend> =
            (0..64).map(|wr_id| here.request(wr_id, RawOpcode::Write, 8, Some(&there))).collect();
        pair.send(LEFT, &chain).unwrap();
        assert!(readable(pair.context.event_fd(), SOON), "no event of the completion queue");
        let mut out = [RawCompletion::default(); 256];
        let until = Instant::now() + SOON;
        let error = loop {
            if asks {
                pair.worker.request_notify().unwrap();
            }
            match pair.worker.poll(&mut out) {
                Ok(taken) => assert!(taken < 64, "nothing was lost"),
                Err(error) => break error,
            }
            assert!(Instant::now() < until, "the loss is not noticed");
        };
        assert!(matches!(error, PollError::Overrun), "{error}");
        assert!(readable(pair.context.event_fd(), AT_ONCE), "the event was taken away from who waits for it");
        assert_eq!(pair.context.next_event().unwrap().unwrap().kind, EventKind::CQ_ERR);
    }
}

/// Takes events until one of this kind comes, or fails.
fn await_port_event(context: &crate::backend::ibverbs::Context, kind: EventKind) {
    let until = Instant::now() + SOON;
    loop {
        assert!(readable(context.event_fd(), SOON), "no {kind}");
        while let Some(event) = context.next_event().unwrap() {
            println!("{event:?}");
            if event.kind == kind {
                assert_eq!(event.port, Some(PORT));
                return;
            }
        }
        assert!(Instant::now() < until, "no {kind}");
    }
}

#[test]
#[ignore = "needs a device on an interface that may be taken down"]
fn a_port_that_goes_down_and_comes_back_is_told() {
    let context = context();
    let netdev = disposable_netdev(&context);
    assert_eq!(context.next_event().unwrap(), None);
    ip(&["link", "set", &netdev, "down"]);
    await_port_event(&context, EventKind::PORT_ERR);
    assert_ne!(context.query_port(PORT).unwrap().state, PortState::ACTIVE);
    ip(&["link", "set", &netdev, "up"]);
    await_port_event(&context, EventKind::PORT_ACTIVE);
    assert_eq!(context.query_port(PORT).unwrap().state, PortState::ACTIVE);
}
