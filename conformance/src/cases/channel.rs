//! Completion events, waiting, and queues that overrun.

use std::time::{Duration, Instant};

use rdma_core::error::PollError;
use rdma_core::{Deadline, QueuePairOptions, Segment, Work, WorkerOptions};

use super::cases;
use super::helpers::{filled, pattern, post, post_recv};
use crate::{CaseResult, Lab, check, check_eq};

cases!("channel":
    #[exact] a_wait_ends_at_its_deadline_and_loses_nothing,
    a_wait_sleeps_until_the_completion,
    an_armed_queue_raises_an_event,
    #[exact] an_overrun_is_told,
);

fn a_wait_ends_at_its_deadline_and_loses_nothing(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 8)?;
    let begin = Instant::now();
    match right.worker.wait(Deadline::after(Duration::from_millis(30))) {
        Err(PollError::DeadlineExceeded { waited }) => {
            check!(waited >= Duration::from_millis(30), "{waited:?}")
        }
        other => return Err(format!("expected DeadlineExceeded, got {other:?}").into()),
    }
    check!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    let buffer = filled(&left, &pattern(1, 8))?;
    post(&mut left, Work::send(buffer))?;
    check_eq!(right.done(lab)?.bytes, 8);
    Ok(())
}

fn a_wait_sleeps_until_the_completion(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let deadline = lab.soon();
    for _ in 0..20 {
        post_recv(&mut right, 8)?;
        let sender = std::thread::scope(|scope| -> CaseResult {
            let late = scope.spawn(|| -> CaseResult {
                std::thread::sleep(Duration::from_millis(5));
                post(&mut left, Work::send(Segment::Empty))?;
                left.worker.wait(deadline)?.result?;
                Ok(())
            });
            right.worker.wait(deadline)?.result?;
            late.join().map_err(|_| "the sender panicked")?
        });
        sender?;
    }
    Ok(())
}

fn an_armed_queue_raises_an_event(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 8)?;
    check!(!readable(&right.worker, Duration::ZERO)?, "an event before anything happened");
    right.worker.request_notify()?;
    check!(right.worker.poll()?.is_none());
    post(&mut left, Work::send(Segment::Empty))?;
    check!(readable(&right.worker, lab.patience)?, "no event for the completion");
    right.worker.consume_events()?;
    check!(!readable(&right.worker, Duration::ZERO)?, "the event was not taken");
    right.done(lab)?;
    Ok(())
}

fn readable(
    worker: &rdma_core::Worker,
    patience: Duration,
) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = worker.event_fd();
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout))? > 0)
}

fn an_overrun_is_told(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.worker = WorkerOptions { max_cqe: 4, allow_overrun: true };
    options.queues = QueuePairOptions { max_send_wr: 64, max_recv_wr: 64, max_inline_data: 0 };
    let (mut left, mut right) = lab.pair_with(&options)?;
    for _ in 0..32 {
        post_recv(&mut right, 0)?;
    }
    for _ in 0..32 {
        // The queue of the sender overruns as well, which posting may already report.
        if post(&mut left, Work::send(Segment::Empty)).is_err() {
            break;
        }
    }
    let deadline = lab.soon();
    while !deadline.expired() {
        match right.worker.poll() {
            Err(PollError::Overrun) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    Err("32 completions in a queue of 4 entries, and no poll reported an overrun".into())
}
