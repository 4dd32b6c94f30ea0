//! Overrun, destroyed queue pairs and armed queues.

use super::*;

fn completion(wr_id: u64, qp_num: u32) -> RawCompletion {
    RawCompletion { wr_id, qp_num, ..RawCompletion::default() }
}

fn queue(depth: usize) -> (CompletionQueue, Arc<Hint>, Channel) {
    let (hint, channel) = (Arc::new(Hint::default()), Channel::new().unwrap());
    (CompletionQueue::new(ContextRef::default(), depth, channel.clone(), hint.clone()), hint, channel)
}

#[test]
fn completions_that_fit_come_before_the_overrun() {
    let (mut cq, hint, _channel) = queue(2);
    assert!(!hint.is_raised());
    assert!(cq.push(completion(1, 7)) && cq.push(completion(2, 7)));
    assert!(!cq.push(completion(3, 7)));
    assert!(cq.push(completion(4, 7)), "an overrun is reported once");
    let mut out = [RawCompletion::default(); 4];
    assert_eq!(cq.take(&mut out), Some(2));
    assert_eq!((out[0].wr_id, out[1].wr_id), (1, 2));
    assert!(hint.is_raised());
    assert_eq!(cq.take(&mut out), None);
    assert_eq!(cq.take(&mut out), None);
}

#[test]
fn a_destroyed_queue_pair_leaves_nothing() {
    let (mut cq, hint, _channel) = queue(8);
    for wr_id in 0..6 {
        cq.push(completion(wr_id, 7 + wr_id as u32 % 2));
    }
    cq.forget(7);
    let mut out = [RawCompletion::default(); 8];
    assert_eq!(cq.take(&mut out), Some(3));
    assert!(out[..3].iter().all(|completion| completion.qp_num == 8));
    assert!(!hint.is_raised());
}

#[test]
fn an_armed_queue_raises_once() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (mut cq, _hint, channel) = queue(8);
    let readable = || {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    cq.push(completion(1, 7));
    assert!(!readable());
    cq.armed = true;
    assert!(!readable());
    cq.push(completion(2, 7));
    assert!(readable());
    channel.consume().unwrap();
    cq.push(completion(3, 7));
    assert!(!readable());
}
