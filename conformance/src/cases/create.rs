//! Creating workers and queue pairs.

use rdma_core::error::{CreateError, PostError};
use rdma_core::{Opcode, QueuePairOptions, Segment, Work, WorkerOptions};

use super::cases;
use super::helpers::{OPEN, pattern, post, post_recv};
use crate::{CaseResult, Lab, check, check_eq};

cases!("create":
    #[exact] a_completion_queue_beyond_the_device_is_refused,
    #[exact] a_queue_beyond_the_device_is_refused,
    #[exact] a_queue_pair_that_may_overrun_is_refused,
    #[exact] a_domain_of_another_context_is_refused,
    numbers_are_unique,
    #[exact] a_queue_pair_of_another_worker_is_refused,
    #[exact] depth_is_what_was_asked_for,
    workers_move_between_threads,
);

fn a_completion_queue_beyond_the_device_is_refused(lab: &Lab) -> CaseResult {
    let beyond = lab.context.attributes()?.max_cqe.saturating_add(1);
    match lab.context.worker(WorkerOptions { max_cqe: beyond, ..WorkerOptions::default() }) {
        Err(CreateError::BeyondLimit { .. } | CreateError::Refused { .. }) => {}
        other => return Err(format!("{beyond} entries: {other:?}").into()),
    }
    lab.pair()?;
    Ok(())
}

fn a_queue_beyond_the_device_is_refused(lab: &Lab) -> CaseResult {
    let limits = lab.context.attributes()?;
    let pd = lab.context.alloc_pd()?;
    let mut worker =
        lab.context.worker(WorkerOptions { max_cqe: limits.max_cqe.min(1 << 20), allow_overrun: true })?;
    let options =
        QueuePairOptions { max_send_wr: limits.max_qp_wr.saturating_add(1), ..QueuePairOptions::default() };
    match worker.create_queue_pair(&pd, &options) {
        Err(CreateError::BeyondLimit { .. } | CreateError::Refused { .. }) => {}
        other => return Err(format!("{options:?}: {other:?}").into()),
    }
    worker.create_queue_pair(&pd, &QueuePairOptions::default()).map(drop)?;
    Ok(())
}

fn a_queue_pair_that_may_overrun_is_refused(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let mut worker = lab.context.worker(WorkerOptions { max_cqe: 64, ..WorkerOptions::default() })?;
    match worker.create_queue_pair(&pd, &QueuePairOptions::default()) {
        Err(CreateError::CompletionQueueTooSmall { max_cqe: 64, .. }) => {}
        other => return Err(format!("expected CompletionQueueTooSmall, got {other:?}").into()),
    }
    let small = QueuePairOptions { max_send_wr: 16, max_recv_wr: 16, max_inline_data: 0 };
    worker.create_queue_pair(&pd, &small).map(drop)?;
    Ok(())
}

/// To verbs, another context of the same device is another device.
fn a_domain_of_another_context_is_refused(lab: &Lab) -> CaseResult {
    let foreign = lab.device.open()?.alloc_pd()?;
    let mut worker = lab.context.worker(WorkerOptions::default())?;
    match worker.create_queue_pair(&foreign, &QueuePairOptions::default()) {
        Err(CreateError::ForeignProtectionDomain) => Ok(()),
        other => Err(format!("expected ForeignProtectionDomain, got {other:?}").into()),
    }
}

fn numbers_are_unique(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let mut worker = lab.context.worker(WorkerOptions { max_cqe: 8192, ..WorkerOptions::default() })?;
    let options = QueuePairOptions { max_send_wr: 16, max_recv_wr: 16, max_inline_data: 0 };
    let mut numbers = Vec::new();
    for _ in 0..32 {
        numbers.push(worker.create_queue_pair(&pd, &options)?.num());
    }
    check!(numbers.iter().all(|num| num.0 < 1 << 24), "{numbers:?}");
    numbers.sort_unstable();
    numbers.dedup();
    check_eq!(numbers.len(), 32);
    Ok(())
}

fn a_queue_pair_of_another_worker_is_refused(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let refused = match left.worker.post(&right.qp, Work::send(Segment::Empty)) {
        Err(refused) => refused,
        Ok(_) => return Err("a queue pair of another worker was accepted".into()),
    };
    check!(matches!(refused.error, PostError::ForeignWorker { .. }), "{}", refused.error);
    post_recv(&mut left, 0)?;
    post(&mut right, refused.work)?;
    check_eq!(left.done(lab)?.opcode, Opcode::Recv);
    Ok(())
}

fn depth_is_what_was_asked_for(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.queues = QueuePairOptions { max_send_wr: 5, max_recv_wr: 3, max_inline_data: 0 };
    let (mut left, _right) = lab.pair_with(&options)?;
    for _ in 0..3 {
        post_recv(&mut left, 8)?;
    }
    let buffer = left.pd.alloc_local(8)?;
    let refused = match left.worker.post_recv(&left.qp, buffer) {
        Err(refused) => refused,
        Ok(_) => return Err("a fourth receive was accepted".into()),
    };
    check!(matches!(refused.error, PostError::QueueFull { capacity: 3 }), "{}", refused.error);
    check!(matches!(refused.work.into_segment(), Segment::Owned(_)), "the buffer is lost");
    Ok(())
}

fn workers_move_between_threads(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let (to, deadline) = (target.remote(), lab.soon());
    let sender = std::thread::spawn(move || -> CaseResult {
        let mut buffer = left.pd.alloc_local(64)?;
        buffer.copy_from_slice(&pattern(4, 64));
        post(&mut left, Work::write(buffer, to))?;
        left.worker.wait(deadline)?.result?;
        Ok(())
    });
    sender.join().map_err(|_| "the thread panicked")??;
    let mut bytes = [0; 64];
    target.copy_out(0, &mut bytes)?;
    check!(bytes[..] == pattern(4, 64)[..]);
    Ok(())
}
