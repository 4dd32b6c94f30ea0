//! Flushing: the completions of requests that are left when a queue pair ends.

use rdma_core::{CompletionStatus, RnrRetry, Segment, Work};

use super::cases;
use super::helpers::{filled, pattern, post, post_recv};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("flush":
    #[exact] receives_are_flushed_in_order_with_their_buffers,
    #[exact] sends_are_flushed_in_order_with_their_buffers,
    #[exact] unsignalled_sends_are_flushed_too,
    #[exact] each_is_told_once,
);

fn receives_are_flushed_in_order_with_their_buffers(lab: &Lab) -> CaseResult {
    let (mut left, _right) = lab.pair()?;
    let mut ids = Vec::new();
    for number in 0..10 {
        let buffer = filled(&left, &[number; 8])?;
        ids.push(left.worker.post_recv(&left.qp, buffer).map_err(|refused| refused.error)?);
    }
    let End { mut worker, qp, .. } = left;
    worker.fence(qp, lab.soon())?;
    for (number, id) in (0..).zip(ids) {
        let completion = worker.wait(lab.soon())?;
        check_eq!(completion.id, id);
        check_eq!(
            completion.result.err().map(|failure| failure.status),
            Some(CompletionStatus::WR_FLUSH_ERR)
        );
        check!(
            completion.buffer.is_some_and(|buffer| buffer[..] == [number; 8]),
            "receive {number} lost its buffer"
        );
    }
    Ok(())
}

fn stuck_sends(lab: &Lab, signalled: bool) -> CaseResult {
    let mut options = lab.options();
    options.retry.rnr_retry = RnrRetry::Unlimited;
    let (mut left, _right) = lab.pair_with(&options)?;
    let mut ids = Vec::new();
    for number in 0..10 {
        let work = Work::send(filled(&left, &[number; 8])?);
        let work = if signalled { work } else { work.unsignalled() };
        ids.push(left.worker.post(&left.qp, work).map_err(|refused| refused.error)?);
    }
    let End { mut worker, qp, .. } = left;
    worker.fence(qp, lab.soon())?;
    for (number, id) in (0..).zip(ids) {
        let completion = worker.wait(lab.soon())?;
        check_eq!(completion.id, id);
        check_eq!(
            completion.result.err().map(|failure| failure.status),
            Some(CompletionStatus::WR_FLUSH_ERR)
        );
        check!(
            completion.buffer.is_some_and(|buffer| buffer[..] == [number; 8]),
            "send {number} lost its buffer"
        );
    }
    check!(worker.poll()?.is_none(), "more completions than requests");
    Ok(())
}

fn sends_are_flushed_in_order_with_their_buffers(lab: &Lab) -> CaseResult {
    stuck_sends(lab, true)
}

fn unsignalled_sends_are_flushed_too(lab: &Lab) -> CaseResult {
    stuck_sends(lab, false)
}

fn each_is_told_once(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for _ in 0..4 {
        post_recv(&mut right, 8)?;
    }
    let buffer = filled(&left, &pattern(1, 8))?;
    post(&mut left, Work::send(buffer))?;
    left.done(lab)?;
    post(&mut right, Work::recv(Segment::Empty))?;
    let End { mut worker, qp, .. } = right;
    worker.fence(qp, lab.soon())?;
    worker.wait(lab.soon())?.result?;
    for _ in 0..4 {
        let failure = worker.wait(lab.soon())?.result.err().ok_or("a receive succeeded without a send")?;
        check_eq!(failure.status, CompletionStatus::WR_FLUSH_ERR);
    }
    check!(worker.poll()?.is_none(), "more completions than requests");
    Ok(())
}
