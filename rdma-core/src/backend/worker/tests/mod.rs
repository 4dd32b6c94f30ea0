//! The worker core over a scripted device, which does exactly what a test tells it to.

#![expect(unsafe_code, reason = "implements the unsafe calls of the seam")]

mod fence;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::super::interface::{
    ProtectionDomain, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot,
};
use super::super::work::{Segment, Work};
use super::{QpHandle, WorkerCore};
use crate::error::{
    ConnectError, CreateError, DetachError, FenceError, PollError, PostError, QueryError, RegisterError,
};
use crate::memory::{Backing, Keys, Mapping, PdId, Registered, Registration};
use crate::{
    Access, CompletionStatus, Deadline, Endpoint, InitOptions, LocalBuf, LocalKey, PathOptions, PeerAccess,
    Psn, QpNum, QpState, QueuePairOptions, Region, RemoteKey, RemoteMemory, RetryOptions, WorkerOptions,
};

/// A device that records posts and returns the completions that a test queues.
#[derive(Default)]
struct Scripted {
    sends: Vec<RawSend>,
    recvs: Vec<RawRecv>,
    completions: VecDeque<RawCompletion>,
    /// The device takes only this many requests of the next chain of sends.
    accept: Option<usize>,
    /// Calls of `destroy_qp` that are still refused.
    refuse_destroy: u32,
    destroyed: u32,
    /// Whether `query_state` fails.
    refuse_query: bool,
    /// Whether the step to ERR is refused.
    refuse_err: bool,
    /// Whether completions were lost: polls fail once the queued ones are taken.
    overrun: bool,
    /// Whether ERR flushes outstanding requests, as a device does.
    flushes: bool,
    /// The answer of `query_state`; `None` means RTS.
    state: Option<QpState>,
}

struct NoPd;

impl ProtectionDomain for NoPd {
    fn shares_memory(&self) -> bool {
        false
    }

    unsafe fn register(
        &self,
        _: *mut u8,
        _: usize,
        _: Access,
        _: Option<&Backing>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        Err(RegisterError::ZeroLength)
    }
}

impl RawWorker for Scripted {
    type Pd = NoPd;

    fn create_qp(&mut self, slot: Slot, _: &NoPd, _: &QueuePairOptions) -> Result<QpNum, CreateError> {
        Ok(QpNum(100 + u32::from(slot)))
    }
    fn modify_to_init(&mut self, _: Slot, _: &InitOptions) -> Result<(), ConnectError> {
        Ok(())
    }
    fn modify_to_rtr(&mut self, _: Slot, _: &Endpoint, _: &PathOptions) -> Result<(), ConnectError> {
        Ok(())
    }
    fn modify_to_rts(&mut self, _: Slot, _: Psn, _: &RetryOptions) -> Result<(), ConnectError> {
        Ok(())
    }
    fn modify_to_err(&mut self, _: Slot) -> io::Result<()> {
        if self.refuse_err || self.state == Some(QpState::RESET) {
            // The kernel's table of transitions has no step from RESET to ERR.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.flushes {
            let flushed = CompletionStatus::WR_FLUSH_ERR.0;
            let ids = self
                .sends
                .drain(..)
                .map(|send| send.wr_id)
                .chain(self.recvs.drain(..).map(|recv| recv.wr_id));
            self.completions.extend(ids.map(|wr_id| RawCompletion {
                wr_id,
                status: flushed,
                ..RawCompletion::default()
            }));
        }
        Ok(())
    }
    fn query_state(&self, _: Slot) -> Result<QpState, QueryError> {
        if self.refuse_query {
            let source = io::ErrorKind::NotFound.into();
            return Err(QueryError::Refused { verb: "ibv_query_qp", device: "scripted0".to_owned(), source });
        }
        Ok(self.state.unwrap_or(QpState::RTS))
    }
    fn peer_access(&self, _: Slot) -> PeerAccess {
        PeerAccess::Mapped
    }
    unsafe fn post_send(&mut self, _: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        let posted = self.accept.take().unwrap_or(chain.len()).min(chain.len());
        self.sends.extend(&chain[..posted]);
        if posted == chain.len() {
            Ok(())
        } else {
            Err(RawPostError { posted, source: io::ErrorKind::OutOfMemory.into() })
        }
    }
    unsafe fn post_recv(&mut self, _: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        self.recvs.extend(chain);
        Ok(())
    }
    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        if self.overrun && self.completions.is_empty() {
            return Err(PollError::Overrun);
        }
        let count = out.len().min(self.completions.len());
        for (entry, completion) in out.iter_mut().zip(self.completions.drain(..count)) {
            *entry = completion;
        }
        Ok(count)
    }
    fn request_notify(&mut self) -> Result<(), PollError> {
        Ok(())
    }
    fn channel_fd(&self) -> BorrowedFd<'_> {
        unreachable!("no test waits")
    }
    fn consume_events(&mut self) -> Result<(), PollError> {
        Ok(())
    }
    fn destroy_qp(&mut self, _: Slot, _: Deadline) -> io::Result<()> {
        if self.refuse_destroy > 0 {
            self.refuse_destroy -= 1;
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.destroyed += 1;
        Ok(())
    }
}

struct Pinned;

impl Registration for Pinned {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(7), rkey: RemoteKey(8) }
    }
    fn deregister(&mut self, _: Deadline) -> Result<(), crate::error::CloseError> {
        Ok(())
    }
}

const PD: PdId = PdId(1);

fn registered(len: usize, access: Access, pd: PdId) -> Registered {
    Registered::new(Mapping::allocate(len).unwrap(), Box::new(Pinned), access, pd)
}

fn buffer(len: usize) -> LocalBuf {
    LocalBuf::new(registered(len, Access::LOCAL_WRITE, PD))
}

fn to(len: u64) -> RemoteMemory {
    RemoteMemory { addr: 0x1000, len, rkey: RemoteKey(9) }
}

fn core() -> (WorkerCore<Scripted>, QpHandle) {
    let mut core =
        WorkerCore::new(Scripted { flushes: true, ..Scripted::default() }, WorkerOptions::default());
    let options = QueuePairOptions { max_send_wr: 3, max_recv_wr: 2, max_inline_data: 16 };
    let qp = core.create_qp(&NoPd, PD, &options).unwrap();
    (core, qp)
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
