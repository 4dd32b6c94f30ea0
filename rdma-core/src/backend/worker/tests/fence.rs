//! Tests of the fence: the end of a queue pair, and completions that a device reports afterwards.

use super::*;
use crate::memory::OwnProcess;

#[test]
fn a_fence_gives_every_buffer_back_whether_or_not_the_device_flushes() {
    for flushes in [true, false] {
        let (mut core, qp) = core();
        core.raw.flushes = flushes;
        core.post(qp, Work::send(buffer(1)).unsignalled()).unwrap();
        core.post(qp, Work::send(buffer(2))).unwrap();
        core.post(qp, Work::recv(buffer(3))).unwrap();
        let deadline = Deadline::after(std::time::Duration::from_millis(if flushes { 5000 } else { 20 }));
        core.fence(qp, deadline).unwrap();
        let mut lens = Vec::new();
        while let Some(done) = core.poll().unwrap() {
            assert_eq!(done.result.unwrap_err().status, CompletionStatus::WR_FLUSH_ERR);
            lens.push(done.buffer.unwrap().len());
        }
        assert_eq!(lens, [1, 2, 3], "the sentinel is told to no one");
        let error = core.post(qp, Work::send(buffer(1))).unwrap_err().error;
        assert!(matches!(error, PostError::ForeignWorker { .. }), "{error}");
        let next = core.create_qp(&NoPd, PD, &QueuePairOptions::default()).unwrap();
        assert_eq!((next.slot, next.generation), (qp.slot, qp.generation + 1));
    }
}

#[test]
fn a_fence_does_not_wait_for_unsignalled_requests_that_were_carried_out() {
    let (mut core, qp) = core();
    core.post(qp, Work::send(buffer(8)).unsignalled()).unwrap();
    core.raw.sends.clear();
    let started = std::time::Instant::now();
    core.fence(qp, Deadline::after(std::time::Duration::from_secs(600))).unwrap();
    assert!(started.elapsed() < std::time::Duration::from_secs(300));
    assert_eq!(core.poll().unwrap().unwrap().buffer.unwrap().len(), 8);
}

#[test]
fn a_fence_past_its_deadline_tells_what_was_done_as_done() {
    let mut core = WorkerCore::new(Scripted::default(), WorkerOptions::default());
    let options = QueuePairOptions { max_send_wr: 1, max_recv_wr: 200, max_inline_data: 0 };
    let qp = core.create_qp(&NoPd, PD, &options).unwrap();
    for _ in 0..200 {
        let id = core.post(qp, Work::recv(Segment::Empty)).unwrap();
        complete(&mut core, id.0, CompletionStatus::SUCCESS);
    }
    core.fence(qp, Deadline::at(std::time::Instant::now())).unwrap();
    for _ in 0..200 {
        core.poll().unwrap().unwrap().result.unwrap();
    }
    assert!(core.poll().unwrap().is_none());
}

#[test]
fn a_queue_pair_in_reset_can_be_fenced() {
    let (mut core, qp) = core();
    core.raw.state = Some(QpState::RESET);
    core.fence(qp, soon()).unwrap();
    assert!(core.raw.recvs.is_empty(), "no sentinel: a device refuses it in RESET");
}

/// Generations repeat after 128 queue pairs of one slot.
#[test]
fn a_late_completion_is_never_taken_for_that_of_a_successor() {
    let (mut core, first) = core();
    core.raw.flushes = false;
    let stale = core.post(first, Work::send(buffer(8))).unwrap();
    core.fence(first, Deadline::at(std::time::Instant::now())).unwrap();
    assert!(core.poll().unwrap().unwrap().result.is_err());
    let options = QueuePairOptions { max_send_wr: 3, max_recv_wr: 2, max_inline_data: 16 };
    for number in 1..=300 {
        let qp = core.create_qp(&NoPd, PD, &options).unwrap();
        assert_eq!(qp.slot, first.slot);
        let id = core.post(qp, Work::send(buffer(8))).unwrap();
        assert_ne!(id, stale, "queue pair {number}");
        complete(&mut core, stale.0, CompletionStatus::SUCCESS);
        if qp.generation == first.generation {
            assert!(matches!(core.poll(), Err(PollError::Unexpected { wr_id }) if wr_id == stale.0));
            return;
        }
        assert!(core.poll().unwrap().is_none(), "its buffer is in flight");
        core.fence(qp, Deadline::at(std::time::Instant::now())).unwrap();
        assert!(core.poll().unwrap().unwrap().result.is_err());
    }
    panic!("generations do not repeat: this test is of no use any more");
}

/// The destruction is exact by itself: nothing that the device says before it is needed.
#[test]
fn a_fence_ends_a_queue_pair_whose_completions_are_lost_or_not_to_be_trusted() {
    for overrun in [true, false] {
        let (mut core, qp) = core();
        core.raw.flushes = false;
        core.raw.overrun = overrun;
        if !overrun {
            complete(&mut core, u64::MAX, CompletionStatus::SUCCESS);
        }
        for _ in 0..2 {
            core.post(qp, Work::send(buffer(8))).unwrap();
        }
        core.post(qp, Work::recv(buffer(8))).unwrap();
        core.fence(qp, soon()).unwrap();
        assert_eq!(core.raw.destroyed, 1);
        for _ in 0..3 {
            let done = core.poll().unwrap().unwrap();
            assert!(done.buffer.is_some() && done.result.is_err());
        }
        assert!(core.poll().is_err(), "the worker is as bad as before");
        assert!(matches!(core.fence(qp, soon()), Err(FenceError::ForeignWorker { .. })));
    }
}

#[test]
fn a_queue_pair_that_cannot_be_stopped_is_destroyed_all_the_same() {
    let (mut core, qp) = core();
    core.raw.refuse_err = true;
    let done = core.post(qp, Work::send(buffer(8))).unwrap();
    core.post(qp, Work::send(buffer(8))).unwrap();
    complete(&mut core, done.0, CompletionStatus::SUCCESS);
    let started = std::time::Instant::now();
    core.fence(qp, Deadline::after(std::time::Duration::from_secs(600))).unwrap();
    assert!(
        started.elapsed() < std::time::Duration::from_secs(300),
        "it waited for a flush that nobody asked for"
    );
    assert!(core.poll().unwrap().unwrap().result.is_ok(), "what was done is told as done");
    assert!(core.poll().unwrap().unwrap().result.is_err());
}

#[test]
fn a_queue_pair_that_is_neither_stopped_nor_destroyed_is_said_to_go_on() {
    let (mut core, qp) = core();
    (core.raw.refuse_err, core.raw.refuse_destroy) = (true, 1);
    core.post(qp, Work::send(buffer(8))).unwrap();
    let error = core.fence(qp, soon()).unwrap_err();
    assert!(matches!(error, FenceError::NotStopped { .. }), "{error}");
    assert!(error.to_string().contains("still takes its peer's writes"), "{error}");
    assert!(core.poll().unwrap().is_none(), "the device may still read the buffer");
    core.fence(qp, soon()).unwrap();
    assert!(core.poll().unwrap().unwrap().buffer.is_some());
}

#[test]
fn a_forked_child_fences_nothing() {
    let (mut core, qp) = core();
    core.post(qp, Work::send(buffer(8))).unwrap();
    let mut core = OwnProcess::new(core);
    core.pretend_forked(true);
    let error = core.get_mut().map(|core| core.fence(qp, soon())).err().unwrap();
    assert!(error.to_string().contains("forked"), "{error}");
    let raw = &core.unasked().raw;
    assert_eq!((raw.destroyed, raw.recvs.len()), (0, 0), "the parent's device was touched");
    core.pretend_forked(false);
    core.get_mut().unwrap().fence(qp, soon()).unwrap();
}

#[test]
fn a_queue_pair_that_cannot_be_destroyed_keeps_its_memory_until_it_can() {
    let (mut core, qp) = core();
    core.raw.flushes = false;
    core.raw.refuse_destroy = 1;
    core.post(qp, Work::send(buffer(8))).unwrap();
    let now = Deadline::at(std::time::Instant::now());
    assert!(matches!(core.fence(qp, now), Err(FenceError::NotDestroyed { .. })));
    assert!(core.poll().unwrap().is_none(), "the device may still read the buffer");
    core.fence(qp, soon()).unwrap();
    assert!(core.poll().unwrap().unwrap().buffer.is_some());
}
