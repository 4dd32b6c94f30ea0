//! The fence: ends a queue pair within a deadline.

use std::time::{Duration, Instant};

use rdma_core::error::FenceError;
use rdma_core::{CompletionStatus, Deadline, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, write};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("fence":
    keeps_its_deadline_when_the_peer_is_silent,
    #[exact] a_queue_pair_of_another_worker_is_refused,
    no_write_lands_after_it,
    what_was_done_before_is_told_as_done,
    regions_detach_after_it,
);

fn keeps_its_deadline_when_the_peer_is_silent(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.retry.rnr_retry = rdma_core::RnrRetry::Unlimited;
    let (mut left, _right) = lab.pair_with(&options)?;
    for _ in 0..8 {
        post(&mut left, Work::send(Segment::Empty))?;
    }
    let begin = Instant::now();
    left.worker.fence(left.qp, Deadline::after(Duration::from_millis(200)))?;
    check!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    for _ in 0..8 {
        let failure =
            left.worker.wait(lab.soon())?.result.err().ok_or("a send without a receive succeeded")?;
        check_eq!(failure.status, CompletionStatus::WR_FLUSH_ERR);
    }
    Ok(())
}

fn a_queue_pair_of_another_worker_is_refused(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let refused = match left.worker.fence(right.qp, lab.soon()) {
        Err(refused) => refused,
        Ok(()) => return Err("a queue pair of another worker was fenced".into()),
    };
    check!(matches!(refused.error, FenceError::ForeignWorker { .. }), "{}", refused.error);
    let mut right = End { worker: right.worker, pd: right.pd, qp: refused.object };
    let target = left.pd.alloc_region(8, OPEN)?;
    write(lab, &mut right, &pattern(1, 8), target.remote())
}

/// A peer writes as fast as it can. After the fence no byte may change any more.
fn no_write_lands_after_it(lab: &Lab) -> CaseResult {
    // The attacker notices the fence only by the silence of its peer, so its retries must be short.
    let mut options = lab.options();
    options.retry.retry_cnt = 1;
    for _ in 0..5 {
        let (left, right) = lab.pair_with(&options)?;
        let target = right.pd.alloc_region(64 << 10, OPEN)?;
        let (to, deadline) = (target.remote(), lab.soon());
        let attacker = std::thread::spawn(move || attack(left, to, deadline));
        wait_for_a_write(&target, deadline)?;
        let mut worker = right.worker;
        worker.fence(right.qp, deadline)?;
        let marked = vec![0xff; target.len()];
        target.copy_in(0, &marked)?;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_micros(500));
            check!(bytes_of(&target)? == marked, "a write landed after the fence");
        }
        attacker.join().map_err(|_| "the attacker panicked")??;
    }
    Ok(())
}

/// Writes until a request fails.
pub(super) fn attack(mut left: End, to: rdma_core::RemoteMemory, deadline: Deadline) -> CaseResult {
    let source = left.pd.alloc_region(to.len as usize, OPEN)?;
    source.copy_in(0, &vec![0x55; to.len as usize])?;
    let attached = left.worker.attach(&source);
    let mut outstanding = 0;
    loop {
        while outstanding < 16 {
            match left.worker.post(&left.qp, Work::write(attached.range(0, to.len as usize), to)) {
                Ok(_) => outstanding += 1,
                Err(_) => break,
            }
        }
        if left.worker.wait(deadline)?.result.is_err() {
            return Ok(());
        }
        outstanding -= 1;
    }
}

/// Waits until the attacker's first byte is there.
pub(super) fn wait_for_a_write(target: &rdma_core::Region, deadline: Deadline) -> CaseResult {
    let mut byte = [0];
    while byte[0] == 0 {
        if deadline.expired() {
            return Err("the attacker never wrote".into());
        }
        target.copy_out(target.len() - 1, &mut byte)?;
        std::thread::yield_now();
    }
    Ok(())
}

fn what_was_done_before_is_told_as_done(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let (first, second) = (filled(&left, &[1; 8])?, filled(&left, &[2; 8])?);
    post(&mut left, Work::write(first, target.remote()))?;
    left.done(lab)?;
    post(&mut left, Work::write(second, target.remote()))?;
    while bytes_of(&target)? != [2; 8] {
        std::thread::yield_now();
    }
    left.worker.fence(left.qp, lab.soon())?;
    // The write landed. Its acknowledgement may or may not have arrived in time, so both completions are correct.
    if let Err(failure) = left.worker.wait(lab.soon())?.result {
        check_eq!(failure.status, CompletionStatus::WR_FLUSH_ERR);
    }
    check!(left.worker.poll()?.is_none());
    Ok(())
}

fn regions_detach_after_it(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.retry.rnr_retry = rdma_core::RnrRetry::Unlimited;
    let (mut left, _right) = lab.pair_with(&options)?;
    let region = left.pd.alloc_region(64, OPEN)?;
    let attached = left.worker.attach(&region);
    post(&mut left, Work::send(attached.range(0, 64)))?;
    check!(left.worker.detach(attached).is_err(), "a region in flight was detached");
    left.worker.fence(left.qp, lab.soon())?;
    drop(left.worker.detach(attached)?);
    region.deregister()?;
    Ok(())
}
