//! The worker core over a scripted device, which does exactly what a test tells it to.

mod fence;

use super::super::interface::RawCompletion;
use super::super::work::{Segment, Work};
use super::scripted::{NoPd, PD, Scripted, buffer, core, registered};
use super::{QpHandle, WorkerCore};
use crate::error::{CreateError, DetachError, FenceError, PollError, PostError};
use crate::memory::PdId;
use crate::{
    Access, CompletionStatus, Deadline, LocalBuf, QpState, QueuePairOptions, Region, RemoteKey, RemoteMemory,
    WorkerOptions,
};

fn to(len: u64) -> RemoteMemory {
    RemoteMemory { addr: 0x1000, len, rkey: RemoteKey(9) }
}

fn complete(core: &mut WorkerCore<Scripted>, wr_id: u64, status: CompletionStatus) {
    core.raw.completions.push_back(RawCompletion { wr_id, status: status.0, ..RawCompletion::default() });
}

fn soon() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(5))
}

#[test]
fn a_signalled_completion_tells_the_unsignalled_ones_before_it() {
    let (mut core, qp) = core();
    let first = core.post(qp, Work::write(buffer(8), to(8)).unsignalled()).unwrap();
    let second = core.post(qp, Work::write(buffer(16), to(16))).unwrap();
    assert!(core.poll().unwrap().is_none());
    complete(&mut core, second.0, CompletionStatus::SUCCESS);
    for (id, len) in [(first, 8), (second, 16)] {
        let done = core.poll().unwrap().unwrap();
        assert_eq!((done.id, done.buffer.unwrap().len(), done.result.unwrap().bytes), (id, len, len as u32));
    }
    assert!(core.poll().unwrap().is_none());
}

#[test]
fn a_failure_leaves_the_unsignalled_ones_before_it_done() {
    let (mut core, qp) = core();
    core.post(qp, Work::write(buffer(8), to(8)).unsignalled()).unwrap();
    let second = core.post(qp, Work::write(buffer(8), to(8)).unsignalled()).unwrap();
    complete(&mut core, second.0, CompletionStatus::REM_ACCESS_ERR);
    assert!(core.poll().unwrap().unwrap().result.is_ok());
    assert_eq!(core.poll().unwrap().unwrap().result.unwrap_err().status, CompletionStatus::REM_ACCESS_ERR);
}

#[test]
fn a_double_a_skipped_and_an_unknown_completion_are_refused() {
    let (mut core, qp) = core();
    let first = core.post(qp, Work::write(buffer(8), to(8))).unwrap();
    let second = core.post(qp, Work::write(buffer(8), to(8))).unwrap();
    complete(&mut core, second.0, CompletionStatus::SUCCESS);
    assert!(
        matches!(core.poll(), Err(PollError::Unexpected { wr_id }) if wr_id == second.0),
        "the first was signalled"
    );

    let (mut core, qp) = self::core();
    let only = core.post(qp, Work::write(buffer(8), to(8))).unwrap();
    complete(&mut core, only.0, CompletionStatus::SUCCESS);
    complete(&mut core, only.0, CompletionStatus::SUCCESS);
    assert!(core.poll().unwrap().is_some(), "what came before is told");
    assert!(matches!(core.poll(), Err(PollError::Unexpected { .. })));
    let _ = first;

    let (mut core, _) = self::core();
    complete(&mut core, u64::MAX, CompletionStatus::SUCCESS);
    assert!(matches!(core.poll(), Err(PollError::Unexpected { wr_id: u64::MAX })));
}

#[test]
fn a_full_queue_gives_the_buffer_back_and_takes_more_later() {
    let (mut core, qp) = core();
    let ids: Vec<_> = (0..3).map(|_| core.post(qp, Work::send(buffer(8))).unwrap()).collect();
    let mut marked = buffer(8);
    marked.copy_from_slice(b"not lost");
    let refused = core.post(qp, Work::send(marked)).unwrap_err();
    assert!(matches!(refused.error, PostError::QueueFull { capacity: 3 }), "{refused}");
    let Segment::Owned(marked) = refused.work.into_segment() else { panic!("the buffer is gone") };
    assert_eq!(&marked[..], b"not lost");
    complete(&mut core, ids[0].0, CompletionStatus::SUCCESS);
    core.poll().unwrap().unwrap().result.unwrap();
    core.post(qp, Work::send(marked)).unwrap();
}

#[test]
fn a_partial_post_tells_what_was_posted_and_gives_the_rest_back() {
    let (mut core, qp) = core();
    core.raw.accept = Some(1);
    let mut batch = core.batch(qp);
    for len in [1, 2, 3] {
        batch.push(Work::send(buffer(len))).unwrap();
    }
    let partial = batch.submit().unwrap_err();
    assert_eq!(partial.posted, 1);
    let lens: Vec<_> = partial
        .rejected
        .into_iter()
        .map(|work| match work.into_segment() {
            Segment::Owned(buffer) => buffer.len(),
            _ => 0,
        })
        .collect();
    assert_eq!(lens, [2, 3]);
    let posted = core.raw.sends[0].wr_id;
    complete(&mut core, posted, CompletionStatus::SUCCESS);
    assert_eq!(core.poll().unwrap().unwrap().buffer.unwrap().len(), 1);
    core.post(qp, Work::send(buffer(4))).unwrap();
}

#[test]
fn a_batch_that_is_dropped_or_cancelled_posts_nothing() {
    let (mut core, qp) = core();
    let mut batch = core.batch(qp);
    batch.push(Work::send(buffer(8))).unwrap();
    drop(batch);
    let mut batch = core.batch(qp);
    batch.push(Work::send(buffer(8))).unwrap();
    batch.push(Work::recv(buffer(8))).unwrap();
    assert_eq!(batch.cancel().len(), 2);
    assert!(core.raw.sends.is_empty() && core.raw.recvs.is_empty());
    for _ in 0..3 {
        core.post(qp, Work::send(buffer(8))).unwrap();
    }
}

/// Otherwise the requests would go out on the next queue pair, which does not keep their memory.
#[test]
fn a_batch_that_is_forgotten_posts_nothing_on_another_queue_pair() {
    let (mut core, qp) = core();
    let other = core.create_qp(&NoPd, PD, &QueuePairOptions::default()).unwrap();
    let attached = core.attach(Region::new(registered(64, Access::LOCAL_WRITE, PD)));
    let mut batch = core.batch(qp);
    batch.push(Work::send(buffer(8))).unwrap();
    batch.push(Work::send(attached.range(0, 8))).unwrap();
    batch.push(Work::recv(buffer(8))).unwrap();
    std::mem::forget(batch);
    core.post(other, Work::send(buffer(4))).unwrap();
    assert_eq!(core.raw.sends.iter().map(|send| send.len).collect::<Vec<_>>(), [4]);
    assert!(core.raw.recvs.is_empty());
    core.detach(attached).unwrap();

    let mut batch = core.batch(qp);
    batch.push(Work::recv(buffer(8))).unwrap();
    std::mem::forget(batch);
    core.fence(qp, soon()).unwrap();
    assert_eq!(core.poll().unwrap().unwrap().qp_num, other.qp_num, "the sentinel alone was posted");
    assert!(core.poll().unwrap().is_none());
}

#[test]
fn what_cannot_be_right_is_refused_before_it_is_posted() {
    let (mut core, qp) = core();
    let foreign = LocalBuf::new(registered(8, Access::LOCAL_WRITE, PdId(2)));
    let error = core.post(qp, Work::send(foreign)).unwrap_err().error;
    assert!(matches!(error, PostError::ForeignProtectionDomain), "{error}");
    let error = core.post(qp, Work::write(buffer(8), to(9))).unwrap_err().error;
    assert!(matches!(error, PostError::LengthMismatch { local: 8, remote: 9 }), "{error}");
    let error = core.post(qp, Work::send(buffer(17)).inline()).unwrap_err().error;
    assert!(matches!(error, PostError::InlineTooLong { len: 17, limit: 16 }), "{error}");

    let readable = Region::new(registered(64, Access::REMOTE_READ, PD));
    let readable = core.attach(readable);
    let error = core.post(qp, Work::recv(readable.range(0, 8))).unwrap_err().error;
    assert!(matches!(error, PostError::AccessDenied), "{error}");
    for (offset, len) in [(60, 8), (65, 0), (usize::MAX, 2)] {
        let error = core.post(qp, Work::send(readable.range(offset, len))).unwrap_err().error;
        assert!(matches!(error, PostError::Range(_)), "{error}");
    }
    let error = core.post(QpHandle { worker: qp.worker + 1, ..qp }, Work::send(buffer(8))).unwrap_err().error;
    assert!(matches!(error, PostError::ForeignWorker { .. }), "{error}");
    core.post(qp, Work::send(readable.range(56, 8))).unwrap();
}

#[test]
fn an_attached_region_is_held_while_it_is_in_flight() {
    let (mut core, qp) = core();
    let attached = core.attach(Region::new(registered(64, Access::LOCAL_WRITE, PD)));
    let id = core.post(qp, Work::send(attached.range(0, 64))).unwrap();
    assert_eq!(core.detach(attached).unwrap_err(), DetachError::InFlight { requests: 1 });
    complete(&mut core, id.0, CompletionStatus::SUCCESS);
    core.poll().unwrap().unwrap().result.unwrap();
    assert_eq!(core.detach(attached).unwrap().len(), 64);
    let second = core.attach(Region::new(registered(32, Access::LOCAL_WRITE, PD)));
    assert_eq!(
        core.detach(attached).unwrap_err(),
        DetachError::NotAttached,
        "a stale name is not its successor"
    );
    let error = core.post(qp, Work::send(attached.range(0, 8))).unwrap_err().error;
    assert!(matches!(error, PostError::NotAttached), "{error}");
    core.detach(second).unwrap();
}

#[test]
fn a_state_that_is_not_told_names_the_question_and_the_device() {
    let (mut core, qp) = core();
    assert_eq!(core.query_state(qp).unwrap(), QpState::RTS);
    core.raw.refuse_query = true;
    let error = core.query_state(qp).unwrap_err().to_string();
    assert!(error.starts_with("ibv_query_qp on scripted0 failed"), "{error}");
    core.fence(qp, soon()).unwrap();
}

#[test]
fn a_queue_pair_that_might_overrun_the_completion_queue_is_refused() {
    let mut core =
        WorkerCore::new(Scripted::default(), WorkerOptions { max_cqe: 10, ..WorkerOptions::default() });
    let options = QueuePairOptions { max_send_wr: 5, max_recv_wr: 4, max_inline_data: 0 };
    let qp = core.create_qp(&NoPd, PD, &options).unwrap();
    let error = core.create_qp(&NoPd, PD, &options).unwrap_err();
    assert!(
        matches!(error, CreateError::CompletionQueueTooSmall { needed: 10, free: 0, max_cqe: 10 }),
        "{error}"
    );
    core.fence(qp, soon()).unwrap();
    core.create_qp(&NoPd, PD, &options).unwrap();
}

#[test]
fn a_request_that_the_device_refuses_comes_back_and_holds_nothing() {
    let (mut core, qp) = core();
    let attached = core.attach(Region::new(registered(64, Access::LOCAL_WRITE, PD)));
    core.raw.accept = Some(0);
    let refused = core.post(qp, Work::send(attached.range(0, 64))).unwrap_err();
    assert!(matches!(refused.error, PostError::Refused { verb: "ibv_post_send", .. }), "{refused}");
    core.detach(attached).unwrap();
    core.raw.accept = Some(0);
    let refused = core.post(qp, Work::send(buffer(7))).unwrap_err();
    assert!(matches!(refused.work.into_segment(), Segment::Owned(buffer) if buffer.len() == 7));
    let ids: Vec<_> = (0..3).map(|_| core.post(qp, Work::send(buffer(8))).unwrap()).collect();
    for id in ids {
        complete(&mut core, id.0, CompletionStatus::SUCCESS);
        assert_eq!(core.poll().unwrap().unwrap().id, id);
    }
}
