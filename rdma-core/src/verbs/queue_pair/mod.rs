//! Reliable-connection queue pairs: the state is in the type.

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
/// It goes RESET, INIT, RTR, RTS, each step consuming it; what a state does not allow does not
/// compile. The worker owns what is behind it: dropping this value leaves the queue pair in the
/// worker until the worker goes; [`Worker::fence`] ends it.
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
    /// Of the first packet that this end sends.
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

    /// Its number on its device.
    #[must_use]
    pub fn num(&self) -> QpNum {
        self.handle.qp_num
    }

    /// The state that the device has it in: that of `S`, or ERR after a failure.
    ///
    /// # Errors
    ///
    /// [`ConnectError::ForeignWorker`], or what the device says.
    ///
    /// See `ibv_query_qp(3)`.
    #[doc(alias = "ibv_query_qp")]
    pub fn query_state(&self, worker: &mut Worker) -> Result<QpState, ConnectError> {
        worker.core().query_state(self.handle)
    }

    fn into_state<T: State>(self) -> QueuePair<T> {
        QueuePair { handle: self.handle, psn: self.psn, init: self.init, state: PhantomData }
    }
}

impl QueuePair<ReadyToSend> {
    /// How the peer's memory is reached.
    ///
    /// # Errors
    ///
    /// [`ConnectError::ForeignWorker`].
    pub fn peer_access(&self, worker: &mut Worker) -> Result<PeerAccess, ConnectError> {
        worker.core().peer_access(self.handle)
    }
}

impl<S: State> fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("num", &self.num()).field("state", &S::NAME).finish_non_exhaustive()
    }
}
