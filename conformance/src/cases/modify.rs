//! The steps from RESET to INIT, RTR and RTS.

use rdma_core::error::{ConnectError, QueryError};
use rdma_core::{InitOptions, Opcode, PathOptions, PortNum, QpState, QueuePairOptions, Work, WorkerOptions};

use super::cases;
use super::helpers::{filled, pattern, post};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("modify":
    the_device_follows_each_step,
    #[exact] a_port_that_does_not_exist_is_refused,
    receives_posted_in_init_are_used_once_connected,
    psns_differ,
    connects_again_after_a_fence,
);

fn the_device_follows_each_step(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let options = lab.options();
    let mut worker = lab.context.worker(WorkerOptions::default())?;
    let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default())?;
    check_eq!(qp.query_state(&mut worker)?, QpState::RESET);
    let qp = qp.init(&mut worker, &InitOptions { port: lab.port, ..InitOptions::default() })?;
    check_eq!(qp.query_state(&mut worker)?, QpState::INIT);
    let peer = lab.endpoint(&worker, &qp)?;
    let path = PathOptions { gid_index: lab.gid.index, ..PathOptions::default() };
    let qp = qp.ready_to_receive(&mut worker, &peer, &path)?;
    check_eq!(qp.query_state(&mut worker)?, QpState::RTR);
    let qp = qp.ready_to_send(&mut worker, &options.retry)?;
    check_eq!(qp.query_state(&mut worker)?, QpState::RTS);
    Ok(())
}

fn a_port_that_does_not_exist_is_refused(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let mut worker = lab.context.worker(WorkerOptions::default())?;
    let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default())?;
    let refused = match qp.init(&mut worker, &InitOptions { port: PortNum(200), ..InitOptions::default() }) {
        Err(refused) => refused,
        Ok(_) => return Err("port 200 was accepted".into()),
    };
    let no_such_port = matches!(refused.error, ConnectError::Query(QueryError::NoSuchPort { port: 200, .. }));
    check!(no_such_port, "{}", refused.error);
    refused.object.init(&mut worker, &InitOptions { port: lab.port, ..InitOptions::default() }).map(drop)?;
    Ok(())
}

fn receives_posted_in_init_are_used_once_connected(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let options = lab.options();
    let (mut left, left_qp) = lab.half(&pd, &options)?;
    let (mut right, right_qp) = lab.half(&pd, &options)?;
    right.post_recv(&right_qp, pd.alloc_local(64)?).map_err(|refused| refused.error)?;
    let (to_left, to_right) = (lab.endpoint(&left, &left_qp)?, lab.endpoint(&right, &right_qp)?);
    let right_qp = lab.connect(&mut right, right_qp, &to_left, &options)?;
    let left_qp = lab.connect(&mut left, left_qp, &to_right, &options)?;
    let (mut left, mut right) =
        (End { worker: left, pd: pd.clone(), qp: left_qp }, End { worker: right, pd, qp: right_qp });
    let buffer = filled(&left, &pattern(5, 64))?;
    post(&mut left, Work::send(buffer))?;
    left.done(lab)?;
    let received = right.wait(lab)?;
    check_eq!(received.result?.opcode, Opcode::Recv);
    check!(received.buffer.is_some_and(|buffer| buffer[..] == pattern(5, 64)[..]));
    Ok(())
}

fn psns_differ(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let mut worker = lab.context.worker(WorkerOptions::default())?;
    let options = QueuePairOptions { max_send_wr: 8, max_recv_wr: 8, max_inline_data: 0 };
    let mut psns = Vec::new();
    for _ in 0..16 {
        let qp = worker.create_queue_pair(&pd, &options)?;
        let qp = qp.init(&mut worker, &InitOptions { port: lab.port, ..InitOptions::default() })?;
        psns.push(lab.endpoint(&worker, &qp)?.psn.value());
    }
    psns.sort_unstable();
    psns.dedup();
    // Among sixteen draws of 2^24 one repetition has a chance of 1 in 140,000, so two are a defect.
    check!(psns.len() >= 15, "{psns:?}");
    Ok(())
}

fn connects_again_after_a_fence(lab: &Lab) -> CaseResult {
    for _ in 0..5 {
        let (mut left, mut right) = lab.pair()?;
        left.worker.fence(left.qp, lab.soon())?;
        right.worker.fence(right.qp, lab.soon())?;
        let options = lab.options();
        let (left_qp, right_qp) = (
            left.worker.create_queue_pair(&left.pd, &options.queues)?,
            right.worker.create_queue_pair(&right.pd, &options.queues)?,
        );
        let init = InitOptions { port: lab.port, access: options.access, ..InitOptions::default() };
        let (left_qp, right_qp) =
            (left_qp.init(&mut left.worker, &init)?, right_qp.init(&mut right.worker, &init)?);
        let (to_left, to_right) =
            (lab.endpoint(&left.worker, &left_qp)?, lab.endpoint(&right.worker, &right_qp)?);
        let right_qp = lab.connect(&mut right.worker, right_qp, &to_left, &options)?;
        let left_qp = lab.connect(&mut left.worker, left_qp, &to_right, &options)?;
        let mut left = End { worker: left.worker, pd: left.pd, qp: left_qp };
        let target = right.pd.alloc_region(8, super::helpers::OPEN)?;
        super::helpers::write(lab, &mut left, &pattern(6, 8), target.remote())?;
        drop(right_qp);
    }
    Ok(())
}
