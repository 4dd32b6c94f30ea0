//! [`QueuePair`], a reliable connection whose state is part of its type. Transitions are in `connect`.

mod connect;
mod state;

use std::fmt;
use std::marker::PhantomData;

pub use connect::loopback;
pub use state::{Init, Posting, ReadyToReceive, ReadyToSend, Receiving, Reset, State};

use crate::backend::worker::QpHandle;
use crate::error::ConnectError;
use crate::{InitOptions, PeerAccess, Psn, QpNum, QpState, Worker};

/// A reliable-connection queue pair of a [`Worker`], in state `S`.
///
/// Each transition (RESET, INIT, RTR, RTS) consumes the queue pair and returns it in its new state. An
/// operation that a state does not allow does not compile.
///
/// The trap: the worker owns the queue pair behind this value. Dropping the value leaves the queue pair
/// connected until the worker is dropped; [`Worker::fence`] ends it at once. [`loopback`] and
/// `examples/write.rs` connect some.
///
/// ```compile_fail
/// # use rdma_core::*;
/// fn no_send_before_rts(worker: &mut Worker, qp: &QueuePair<Init>) {
///     let _ = worker.post(qp, Work::send(Segment::Empty));
/// }
/// ```
#[doc(alias = "ibv_qp")]
#[must_use = "a queue pair stays in its worker until it is fenced or the worker is dropped"]
pub struct QueuePair<S: State> {
    handle: QpHandle,
    /// The sequence number of the first packet that this end will send.
    psn: Psn,
    init: InitOptions,
    state: PhantomData<S>,
}

impl QueuePair<Reset> {
    pub(crate) fn new(handle: QpHandle) -> Self {
        Self { handle, psn: Psn::random(), init: InitOptions::default(), state: PhantomData }
    }
}

impl<S: State> QueuePair<S> {
    #[inline]
    pub(crate) fn handle(&self) -> QpHandle {
        self.handle
    }

    /// Returns the number of the queue pair on its device.
    #[must_use]
    pub fn num(&self) -> QpNum {
        self.handle.qp_num
    }

    /// Returns the state in which the device has the queue pair: the one of `S`, or ERR after a failure.
    ///
    /// # Errors
    ///
    /// [`ConnectError::ForeignWorker`] when `worker` is not the one that created the queue pair, or the
    /// device's own error.
    ///
    /// See `ibv_query_qp(3)`.
    #[doc(alias = "ibv_query_qp")]
    pub fn query_state(&self, worker: &mut Worker) -> Result<QpState, ConnectError> {
        worker.core()?.query_state(self.handle)
    }

    fn into_state<T: State>(self) -> QueuePair<T> {
        QueuePair { handle: self.handle, psn: self.psn, init: self.init, state: PhantomData }
    }
}

impl QueuePair<ReadyToSend> {
    /// Returns by which path the peer's memory is reached.
    ///
    /// # Errors
    ///
    /// [`ConnectError::ForeignWorker`] when `worker` is not the one that created the queue pair.
    pub fn peer_access(&self, worker: &mut Worker) -> Result<PeerAccess, ConnectError> {
        worker.core()?.peer_access(self.handle)
    }
}

impl<S: State> fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("num", &self.num()).field("state", &S::NAME).finish_non_exhaustive()
    }
}
