//! Batches, selective signalling, full queues.

use rdma_core::error::PostError;
use rdma_core::{CompletionStatus, QueuePairOptions, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, post_recv, with_key};
use crate::{CaseResult, Lab, check, check_eq};

cases!("batch":
    posts_everything_in_order,
    unsignalled_ones_are_told_by_the_next_signalled,
    #[exact] a_failed_unsignalled_one_is_told,
    #[exact] a_full_queue_gives_the_buffer_back,
    a_dropped_batch_posts_nothing,
    receives_and_sends_together,
    every_completion_comes_once,
    ten_thousand_requests_pass_through_a_small_queue,
);

fn posts_everything_in_order(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64 * 16, OPEN)?;
    let buffers = (0..64).map(|seed| filled(&left, &pattern(seed, 16))).collect::<Result<Vec<_>, _>>()?;
    let mut ids = Vec::new();
    let mut batch = left.worker.batch(&left.qp);
    for (number, buffer) in (0..).zip(buffers) {
        let to = target.remote().slice(number * 16..number * 16 + 16)?;
        ids.push(batch.push(Work::write(buffer, to)).map_err(|refused| refused.error)?);
    }
    batch.submit()?;
    for id in ids {
        let completion = left.wait(lab)?;
        check_eq!(completion.id, id);
        completion.result?;
    }
    for (seed, chunk) in (0..).zip(bytes_of(&target)?.chunks(16)) {
        check!(chunk == pattern(seed, 16), "request {seed} is wrong");
    }
    Ok(())
}

fn unsignalled_ones_are_told_by_the_next_signalled(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let mut ids = Vec::new();
    for number in 0..10 {
        let work = Work::write(filled(&left, &[number; 8])?, target.remote());
        let work = if number < 9 { work.unsignalled() } else { work };
        ids.push(left.worker.post(&left.qp, work).map_err(|refused| refused.error)?);
    }
    for (number, id) in (0..).zip(ids) {
        let completion = left.wait(lab)?;
        check_eq!(completion.id, id);
        completion.result?;
        check!(
            completion.buffer.is_some_and(|buffer| buffer[..] == [number; 8]),
            "request {number} lost its buffer"
        );
    }
    left.stays_silent()
}

fn a_failed_unsignalled_one_is_told(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let (good, bad) = (filled(&left, &[1; 8])?, filled(&left, &[2; 8])?);
    post(&mut left, Work::write(good, target.remote()).unsignalled())?;
    let wrong = with_key(target.remote(), target.rkey().0 ^ 0x5555);
    post(&mut left, Work::write(bad, wrong).unsignalled())?;
    left.done(lab)?;
    left.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    check!(bytes_of(&target)? == [1; 8]);
    Ok(())
}

fn a_full_queue_gives_the_buffer_back(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.queues = QueuePairOptions { max_send_wr: 4, max_recv_wr: 4, max_inline_data: 0 };
    options.retry.rnr_retry = rdma_core::RnrRetry::Unlimited;
    let (mut left, mut right) = lab.pair_with(&options)?;
    // No receive is posted, so the sends stay outstanding.
    for _ in 0..4 {
        post(&mut left, Work::send(Segment::Empty))?;
    }
    let marked = filled(&left, &pattern(1, 8))?;
    let refused = match left.worker.post(&left.qp, Work::send(marked)) {
        Err(refused) => refused,
        Ok(_) => return Err("a fifth request was accepted by a queue of four".into()),
    };
    check!(matches!(refused.error, PostError::QueueFull { capacity: 4 }), "{}", refused.error);
    let Segment::Owned(marked) = refused.work.into_segment() else { return Err("the buffer is lost".into()) };
    check!(marked[..] == pattern(1, 8)[..]);
    for _ in 0..4 {
        post_recv(&mut right, 8)?;
    }
    left.done(lab)?;
    right.done(lab)?;
    post(&mut left, Work::send(marked))?;
    for _ in 0..3 {
        left.done(lab)?;
        right.done(lab)?;
    }
    post_recv(&mut right, 8)?;
    left.done(lab)?;
    check_eq!(right.done(lab)?.bytes, 8);
    Ok(())
}

fn a_dropped_batch_posts_nothing(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let buffers = (filled(&left, &[1; 8])?, filled(&left, &[2; 8])?);
    let mut batch = left.worker.batch(&left.qp);
    batch.push(Work::write(buffers.0, target.remote())).map_err(|refused| refused.error)?;
    drop(batch);
    let mut batch = left.worker.batch(&left.qp);
    batch.push(Work::write(buffers.1, target.remote())).map_err(|refused| refused.error)?;
    let works = batch.cancel();
    check_eq!(works.len(), 1);
    left.stays_silent()?;
    check!(bytes_of(&target)? == [0; 8], "a batch that was not submitted was posted");
    for work in works {
        post(&mut left, work)?;
    }
    left.done(lab)?;
    check!(bytes_of(&target)? == [2; 8]);
    Ok(())
}

fn receives_and_sends_together(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    // Both receives first, because a send that finds none fails after a few milliseconds, and this process may lose its
    // processor for longer.
    for end in [&mut left, &mut right] {
        let into = end.pd.alloc_local(32)?;
        post(end, Work::recv(into))?;
    }
    for end in [&mut left, &mut right] {
        let out = filled(end, &pattern(2, 32))?;
        let mut batch = end.worker.batch(&end.qp);
        batch.push(Work::recv(Segment::Empty)).map_err(|refused| refused.error)?;
        batch.push(Work::send(out)).map_err(|refused| refused.error)?;
        batch.submit()?;
    }
    for end in [&mut left, &mut right] {
        end.done(lab)?;
        end.done(lab)?;
    }
    Ok(())
}

fn every_completion_comes_once(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for _ in 0..40 {
        post_recv(&mut right, 4)?;
        post(&mut left, Work::send(Segment::Empty).with_imm(1))?;
    }
    for _ in 0..40 {
        left.done(lab)?;
        right.done(lab)?;
    }
    left.stays_silent()?;
    right.stays_silent()
}

fn ten_thousand_requests_pass_through_a_small_queue(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.queues = QueuePairOptions { max_send_wr: 16, max_recv_wr: 16, max_inline_data: 0 };
    let (mut left, right) = lab.pair_with(&options)?;
    let target = right.pd.alloc_region(16 * 8, OPEN)?;
    let source = left.pd.alloc_region(16 * 8, OPEN)?;
    let attached = left.worker.attach(&source);
    let (mut posted, mut done) = (0_u64, 0_u64);
    while done < 10_000 {
        while posted < 10_000 {
            let at = posted % 16 * 8;
            let work = Work::write(attached.range(at as usize, 8), target.remote().slice(at..at + 8)?);
            let work = if posted % 4 == 3 { work } else { work.unsignalled() };
            match left.worker.post(&left.qp, work) {
                Ok(_) => posted += 1,
                Err(refused) if matches!(refused.error, PostError::QueueFull { .. }) => break,
                Err(refused) => return Err(refused.error.into()),
            }
        }
        left.done(lab)?;
        done += 1;
    }
    left.stays_silent()
}
