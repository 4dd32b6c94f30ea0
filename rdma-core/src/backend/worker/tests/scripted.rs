//! A scripted device for the worker core, which does exactly what a test or a fuzz target tells it to.

#![expect(unsafe_code, reason = "implements the unsafe calls of the seam")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::super::interface::{
    ProtectionDomain, RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, Slot,
};
use super::{QpHandle, WorkerCore};
use crate::error::{ConnectError, CreateError, PollError, QueryError, RegisterError};
use crate::memory::{Backing, Keys, Mapping, PdId, Registered, Registration};
use crate::{
    Access, CompletionStatus, Deadline, Endpoint, InitOptions, LocalBuf, LocalKey, PathOptions, PeerAccess,
    Psn, QpNum, QpState, QueuePairOptions, RemoteKey, RetryOptions, WorkerOptions,
};

/// A device that records posts and returns the completions that a test queues.
#[derive(Default)]
pub(super) struct Scripted {
    pub(super) sends: Vec<RawSend>,
    pub(super) recvs: Vec<RawRecv>,
    pub(super) completions: VecDeque<RawCompletion>,
    /// The device takes only this many requests of the next chain of sends.
    pub(super) accept: Option<usize>,
    /// Calls of `destroy_qp` that are still refused.
    pub(super) refuse_destroy: u32,
    pub(super) destroyed: u32,
    /// Whether `query_state` fails.
    pub(super) refuse_query: bool,
    /// Whether the step to ERR is refused.
    pub(super) refuse_err: bool,
    /// Whether completions were lost: polls fail once the queued ones are taken.
    pub(super) overrun: bool,
    /// Whether ERR flushes outstanding requests, as a device does.
    pub(super) flushes: bool,
    /// The answer of `query_state`; `None` means RTS.
    pub(super) state: Option<QpState>,
}

pub(super) struct NoPd;

impl ProtectionDomain for NoPd {
    fn shares_memory(&self) -> bool {
        false
    }

    fn pins(&self) -> bool {
        false
    }

    unsafe fn register(
        &self,
        _: *mut u8,
        _: usize,
        _: Access,
        _: Option<(&Backing, u64)>,
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

pub(super) struct Pinned;

impl Registration for Pinned {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(7), rkey: RemoteKey(8) }
    }
    fn deregister(&mut self, _: Deadline) -> Result<(), crate::error::CloseError> {
        Ok(())
    }
}

pub(super) const PD: PdId = PdId(1);

pub(super) fn registered(len: usize, access: Access, pd: PdId) -> Registered {
    Registered::new(Mapping::allocate(len).unwrap(), Box::new(Pinned), access, pd)
}

pub(super) fn buffer(len: usize) -> LocalBuf {
    LocalBuf::new(registered(len, Access::LOCAL_WRITE, PD))
}

pub(super) fn core() -> (WorkerCore<Scripted>, QpHandle) {
    let mut core =
        WorkerCore::new(Scripted { flushes: true, ..Scripted::default() }, WorkerOptions::default());
    let options = QueuePairOptions { max_send_wr: 3, max_recv_wr: 2, max_inline_data: 16 };
    let qp = core.create_qp(&NoPd, PD, &options).unwrap();
    (core, qp)
}
