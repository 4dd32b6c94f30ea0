//! A completion queue and the queue pairs that one thread serves.

mod batch;
mod wait;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

pub use batch::Batch;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker::Core;
use crate::error::{CreateError, DetachError, FenceError, PollError, PostRefused, ReachError};
use crate::{
    Attached, Completion, Context, Deadline, PeerSlice, PeerWindow, Posting, ProtectionDomain, QueuePair,
    QueuePairOptions, ReadyToSend, Receiving, Refused, Region, RemoteMemory, Reset, Segment, State, Work,
    WorkId,
};

/// One completion queue, its queue pairs, and the memory of their requests.
///
/// It is used by one thread at a time (`Send`, not `Sync`), so posting takes no lock. Posting
/// moves a buffer in; [`poll`](Self::poll) or [`wait`](Self::wait) gives it back. Dropping the
/// worker destroys its queue pairs, with the buffers that are still in flight.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::{Access, Deadline, Device, SoftOptions, Work, WorkerOptions, loopback};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let mut worker = context.worker(WorkerOptions::default())?;
/// let (left, _right) = loopback(&mut worker, &pd)?;
///
/// let target = pd.alloc_region(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let mut buffer = pd.alloc_local(8)?;
/// buffer.copy_from_slice(b"8 bytes.");
/// worker.post(&left, Work::write(buffer, target.remote()))?;
///
/// let done = worker.wait(Deadline::after(Duration::from_secs(5)))?;
/// done.result?;
/// let mut landed = [0; 8];
/// target.copy_out(0, &mut landed)?;
/// assert_eq!(&landed, b"8 bytes.");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<rdma_core::Worker>();
/// ```
#[doc(alias = "ibv_cq")]
pub struct Worker {
    core: Core<AnyWorker>,
    context: Context,
    /// One thread at a time.
    not_sync: PhantomData<Cell<()>>,
}

impl Worker {
    pub(crate) fn new(core: Core<AnyWorker>, context: Context) -> Self {
        Self { core, context, not_sync: PhantomData }
    }

    /// A reliable-connection queue pair in RESET.
    ///
    /// # Errors
    ///
    /// [`CreateError::CompletionQueueTooSmall`] when its completions might overrun the worker's
    /// queue, [`CreateError::ForeignProtectionDomain`], [`CreateError::BeyondLimit`] or
    /// [`CreateError::Refused`].
    ///
    /// See `ibv_create_qp(3)`.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_queue_pair(
        &mut self,
        pd: &ProtectionDomain,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, CreateError> {
        Ok(QueuePair::new(self.core.create_qp(pd.inner(), pd.id(), options)?))
    }

    /// Lets requests of this worker's queue pairs use ranges of `region`.
    pub fn attach(&mut self, region: &Region) -> Attached {
        self.core.attach(region.clone())
    }

    /// Gives up an attached region and returns the handle that was kept.
    ///
    /// # Errors
    ///
    /// [`DetachError::InFlight`] while requests use it.
    pub fn detach(&mut self, attached: Attached) -> Result<Region, DetachError> {
        self.core.detach(attached)
    }

    /// Posts one request.
    ///
    /// # Errors
    ///
    /// The request comes back, buffer and all, with the reason; a full queue
    /// ([`PostError::QueueFull`](crate::error::PostError::QueueFull)) is back-pressure.
    ///
    /// See `ibv_post_send(3)` and `ibv_post_recv(3)`.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<S: Posting>(&mut self, qp: &QueuePair<S>, work: Work) -> Result<WorkId, PostRefused<Work>> {
        self.core.post(qp.handle(), work)
    }

    /// Posts one receive; unlike the rest, receives may be posted from INIT on.
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    ///
    /// See `ibv_post_recv(3)`.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_recv<S: Receiving>(
        &mut self,
        qp: &QueuePair<S>,
        segment: impl Into<Segment>,
    ) -> Result<WorkId, PostRefused<Work>> {
        self.core.post(qp.handle(), Work::recv(segment))
    }

    /// Gathers requests for `qp`, to be posted with one doorbell.
    pub fn batch(&mut self, qp: &QueuePair<ReadyToSend>) -> Batch<'_> {
        Batch::new(self.core.batch(qp.handle()))
    }

    /// Memory of the peer that `qp` is connected to, to be used at once and without requests: see [`PeerSlice`].
    ///
    /// This looks at nothing and costs nothing. What is done by it ends by `deadline`, waiting until the memory is mapped if it
    /// is not yet; where the peer is reached by a device or over TCP it is an error.
    pub fn peer_slice(
        &mut self,
        qp: &QueuePair<ReadyToSend>,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> PeerSlice<'_> {
        PeerSlice::new(&mut self.core, qp.handle(), memory, deadline)
    }

    /// Maps a [`Window`](crate::Window) of the peer that `qp` is connected to, or that range of it, waiting until it can be.
    ///
    /// # Errors
    ///
    /// Those of [`PeerSlice::ready`]; [`ReachError::AccessDenied`] for memory that is no window. [`ReachError::NotMapped`] says
    /// that the peer is reached by a device or over TCP: post requests, to another memory.
    pub fn peer_window(
        &mut self,
        qp: &QueuePair<ReadyToSend>,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerWindow, ReachError> {
        self.core.window(qp.handle(), memory, deadline)
    }

    /// The next completion, without waiting; `None` when there is none yet.
    ///
    /// # Errors
    ///
    /// [`PollError`]: completions were lost or are not to be trusted; drop the worker.
    ///
    /// See `ibv_poll_cq(3)`.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        self.core.poll()
    }

    /// Ends a queue pair: after `Ok`, no byte of it or of its peer lands here any more.
    ///
    /// Every request it had outstanding completes (most with `WR_FLUSH_ERR`) and gives its
    /// buffer back at the next polls. `deadline` bounds how long the flush may take; what the
    /// device has not flushed by then is ended by the destruction itself. That goes for a worker
    /// whose polls fail, too: its queue pairs can be fenced, and what it lost is told as flushed. A
    /// peer of [`Wire::Mapped`](crate::Wire::Mapped) that is stopped in the midst of an access holds the
    /// destruction up for half a second, and for three at most, but not beyond the deadline: its pages
    /// are replaced then, which is sooner than need be.
    ///
    /// # Errors
    ///
    /// [`FenceError`], with the queue pair, when the device refuses to destroy it, a
    /// [`Quarantine`](crate::error::Quarantine) holds it, or this process was forked from the one that
    /// created it; its memory is then kept.
    ///
    /// See `ibv_modify_qp(3)` and `ibv_destroy_qp(3)`.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn fence<S: State>(
        &mut self,
        qp: QueuePair<S>,
        deadline: Deadline,
    ) -> Result<(), Refused<QueuePair<S>, FenceError>> {
        self.core.fence(qp.handle(), deadline).map_err(|error| Refused { object: qp, error })
    }

    /// Makes the next completion raise an event on [`event_fd`](Self::event_fd).
    ///
    /// Poll once more afterwards, before sleeping: what completed in between raises none.
    ///
    /// # Errors
    ///
    /// [`PollError::Refused`].
    ///
    /// See `ibv_req_notify_cq(3)`.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn request_notify(&mut self) -> Result<(), PollError> {
        self.core.request_notify()
    }

    /// Takes the events raised so far.
    ///
    /// # Errors
    ///
    /// [`PollError::Refused`].
    ///
    /// See `ibv_get_cq_event(3)` and `ibv_ack_cq_events(3)`.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn consume_events(&mut self) -> Result<(), PollError> {
        self.core.consume_events()
    }

    /// Readable once the event that was asked for is raised.
    #[must_use]
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.core.channel_fd()
    }

    /// The device that it works on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn core(&mut self) -> &mut Core<AnyWorker> {
        &mut self.core
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("context", &self.context).finish_non_exhaustive()
    }
}
