//! Peers that do not answer.

use rdma_core::{AckTimeout, CompletionStatus, PathOptions, QpNum, QpState, Segment, Work};

use super::cases;
use super::helpers::{OPEN, filled, pattern, post};
use crate::{CaseResult, End, Lab, PairOptions, check, check_eq};

cases!("retry":
    #[exact] a_peer_that_does_not_exist,
    #[exact] a_peer_that_is_not_connected,
    #[exact] a_peer_that_is_gone,
    #[exact] what_was_posted_behind_it_is_flushed_in_order,
);

/// Options with few and short retries, because the cases wait until they are used up.
fn impatient(lab: &Lab) -> PairOptions {
    let mut options = lab.options();
    options.retry.retry_cnt = 1;
    options.retry.ack_timeout = AckTimeout::new(lab.ack_timeout.code().min(16));
    options
}

fn a_peer_that_does_not_exist(lab: &Lab) -> CaseResult {
    let (pd, options) = (lab.context.alloc_pd()?, impatient(lab));
    let (mut worker, qp) = lab.half(&pd, &options)?;
    let mut peer = lab.endpoint(&worker, &qp)?;
    peer.qp_num = QpNum(peer.qp_num.0 ^ 0x00ff_0f0f);
    let qp = lab.connect(&mut worker, qp, &peer, &options)?;
    let mut end = End { worker, pd, qp };
    let buffer = filled(&end, &pattern(1, 16))?;
    post(&mut end, Work::send(buffer))?;
    let failed = end.wait(lab)?;
    check_eq!(failed.result.err().map(|failure| failure.status), Some(CompletionStatus::RETRY_EXC_ERR));
    check!(failed.buffer.is_some_and(|buffer| buffer[..] == pattern(1, 16)[..]), "the buffer is lost");
    check_eq!(end.qp.query_state(&mut end.worker)?, QpState::ERR);
    Ok(())
}

fn a_peer_that_is_not_connected(lab: &Lab) -> CaseResult {
    let (pd, options) = (lab.context.alloc_pd()?, impatient(lab));
    let (mut left, left_qp) = lab.half(&pd, &options)?;
    let (right, right_qp) = lab.half(&pd, &options)?;
    let to_right = lab.endpoint(&right, &right_qp)?;
    let path = PathOptions { gid_index: lab.gid.index, ..PathOptions::default() };
    let left_qp = left_qp.connect(&mut left, &to_right, &path, &options.retry)?;
    let mut left = End { worker: left, pd, qp: left_qp };
    post(&mut left, Work::send(Segment::Empty))?;
    left.fails_with(lab, CompletionStatus::RETRY_EXC_ERR)
}

fn a_peer_that_is_gone(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair_with(&impatient(lab))?;
    let End { mut worker, pd, qp } = right;
    let target = pd.alloc_region(64, OPEN)?;
    worker.fence(qp, lab.soon())?;
    let buffer = filled(&left, &pattern(2, 64))?;
    post(&mut left, Work::write(buffer, target.remote()))?;
    left.fails_with(lab, CompletionStatus::RETRY_EXC_ERR)?;
    check!(super::helpers::bytes_of(&target)? == [0; 64], "a write landed through a queue pair that is gone");
    Ok(())
}

fn what_was_posted_behind_it_is_flushed_in_order(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair_with(&impatient(lab))?;
    drop(right);
    let ids = (0..4)
        .map(|_| left.worker.post(&left.qp, Work::send(Segment::Empty)).map_err(|refused| refused.error))
        .collect::<Result<Vec<_>, _>>()?;
    for (number, id) in ids.into_iter().enumerate() {
        let completion = left.wait(lab)?;
        check_eq!(completion.id, id);
        let expected =
            if number == 0 { CompletionStatus::RETRY_EXC_ERR } else { CompletionStatus::WR_FLUSH_ERR };
        check_eq!(completion.result.err().map(|failure| failure.status), Some(expected));
    }
    Ok(())
}
