//! Sends to a peer that has posted no receive.

use std::time::Duration;

use rdma_core::{CompletionStatus, Opcode, QpState, RnrRetry, Segment, Work};

use super::cases;
use super::helpers::{OPEN, filled, pattern, post, post_recv, write};
use crate::{Both, CaseResult, Lab, check, check_eq};

cases!("receive_not_ready":
    a_send_waits_for_a_receive,
    #[exact] a_send_fails_when_its_retries_are_used_up,
    #[exact] a_write_with_immediate_fails_likewise,
    #[exact] what_was_posted_behind_it_is_flushed,
    a_write_needs_no_receive,
    the_peer_lives_on,
);

fn pair(lab: &Lab, rnr_retry: RnrRetry) -> Result<Both, Box<dyn std::error::Error + Send + Sync>> {
    let mut options = lab.options();
    options.retry.rnr_retry = rnr_retry;
    lab.pair_with(&options)
}

fn a_send_waits_for_a_receive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = pair(lab, RnrRetry::Unlimited)?;
    let buffer = filled(&left, &pattern(1, 32))?;
    post(&mut left, Work::send(buffer))?;
    left.stays_silent()?;
    std::thread::sleep(Duration::from_millis(20));
    post_recv(&mut right, 32)?;
    left.done(lab)?;
    let received = right.wait(lab)?;
    check_eq!(received.result?.bytes, 32);
    check!(received.buffer.is_some_and(|buffer| buffer[..] == pattern(1, 32)[..]));
    Ok(())
}

fn a_send_fails_when_its_retries_are_used_up(lab: &Lab) -> CaseResult {
    let (mut left, _right) = pair(lab, RnrRetry::Times(1))?;
    let buffer = filled(&left, &pattern(2, 32))?;
    post(&mut left, Work::send(buffer))?;
    let failed = left.wait(lab)?;
    check!(failed.buffer.is_some_and(|buffer| buffer[..] == pattern(2, 32)[..]), "the buffer is lost");
    check_eq!(failed.result.err().map(|failure| failure.status), Some(CompletionStatus::RNR_RETRY_EXC_ERR));
    check_eq!(left.qp.query_state(&mut left.worker)?, QpState::ERR);
    Ok(())
}

fn a_write_with_immediate_fails_likewise(lab: &Lab) -> CaseResult {
    let (mut left, right) = pair(lab, RnrRetry::Times(0))?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let buffer = filled(&left, &pattern(3, 8))?;
    post(&mut left, Work::write(buffer, target.remote()).with_imm(1))?;
    left.fails_with(lab, CompletionStatus::RNR_RETRY_EXC_ERR)
}

fn what_was_posted_behind_it_is_flushed(lab: &Lab) -> CaseResult {
    let (mut left, _right) = pair(lab, RnrRetry::Times(1))?;
    for _ in 0..3 {
        post(&mut left, Work::send(Segment::Empty))?;
    }
    left.fails_with(lab, CompletionStatus::RNR_RETRY_EXC_ERR)?;
    left.fails_with(lab, CompletionStatus::WR_FLUSH_ERR)?;
    left.fails_with(lab, CompletionStatus::WR_FLUSH_ERR)
}

fn a_write_needs_no_receive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = pair(lab, RnrRetry::Times(0))?;
    let target = right.pd.alloc_region(8, OPEN)?;
    write(lab, &mut left, &pattern(4, 8), target.remote())?;
    right.stays_silent()
}

fn the_peer_lives_on(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = pair(lab, RnrRetry::Times(0))?;
    post(&mut left, Work::send(Segment::Empty))?;
    left.fails_with(lab, CompletionStatus::RNR_RETRY_EXC_ERR)?;
    check_eq!(right.qp.query_state(&mut right.worker)?, QpState::RTS);
    // The worker of the peer serves other queue pairs as before.
    let (mut third, mut fourth) = lab.pair()?;
    post_recv(&mut fourth, 0)?;
    post(&mut third, Work::send(Segment::Empty))?;
    third.done(lab)?;
    check_eq!(fourth.done(lab)?.opcode, Opcode::Recv);
    Ok(())
}
