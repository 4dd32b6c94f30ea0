//! [`Worker`]: a completion queue and the queue pairs that one thread serves.

mod batch;
mod wait;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

pub use batch::Batch;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker::WorkerCore;
use crate::error::{CreateError, DetachError, FenceError, Forked, PollError, PostRefused, ReachError};
use crate::memory::OwnProcess;
use crate::{
    Attached, Completion, Context, Deadline, PeerSlice, PeerWindow, Posting, ProtectionDomain, QueuePair,
    QueuePairOptions, ReadyToSend, Receiving, Refused, Region, RemoteMemory, Reset, Segment, State, Work,
    WorkId,
};

/// A completion queue, its queue pairs, and the memory of the requests that are in flight on them.
///
/// A single thread at a time uses a worker (`Send`, not `Sync`), so that posting takes no lock. Posting moves a
/// buffer into the worker; [`poll`](Self::poll) or [`wait`](Self::wait) gives it back. Dropping a worker
/// destroys its queue pairs and drops the buffers that are still in flight.
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
    core: OwnProcess<WorkerCore<AnyWorker>>,
    context: Context,
    /// Makes the worker `!Sync`, because only one thread at a time may use it.
    not_sync: PhantomData<Cell<()>>,
}

impl Worker {
    pub(crate) fn new(core: WorkerCore<AnyWorker>, context: Context) -> Self {
        Self { core: OwnProcess::new(core), context, not_sync: PhantomData }
    }

    /// Creates a reliable-connection queue pair in RESET.
    ///
    /// # Errors
    ///
    /// - [`CreateError::CompletionQueueTooSmall`] when its completions might overrun the worker's completion
    ///   queue.
    /// - [`CreateError::ForeignProtectionDomain`] when `pd` is of another device.
    /// - [`CreateError::BeyondLimit`] when an option is more than the device allows.
    /// - [`CreateError::Refused`] when the device or a memory limit refuses.
    ///
    /// See `ibv_create_qp(3)`.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_queue_pair(
        &mut self,
        pd: &ProtectionDomain,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, CreateError> {
        Ok(QueuePair::new(self.core.get_mut()?.create_qp(pd.inner()?, pd.id(), options)?))
    }

    /// Attaches `region`, so that requests of this worker's queue pairs can use ranges of it. [`Batch`] has
    /// an example.
    ///
    /// The worker holds a handle to the region until [`detach`](Self::detach).
    pub fn attach(&mut self, region: &Region) -> Attached {
        self.core.unasked_mut().attach(region.clone())
    }

    /// Detaches a region and returns the handle that the worker held.
    ///
    /// # Errors
    ///
    /// [`DetachError::InFlight`] while requests use the region, and [`DetachError::NotAttached`].
    pub fn detach(&mut self, attached: Attached) -> Result<Region, DetachError> {
        self.core.unasked_mut().detach(attached)
    }

    /// Posts one request. [`Worker`] has an example.
    ///
    /// The trap: a request is accepted before it is carried out. Its outcome is in its completion.
    ///
    /// # Errors
    ///
    /// [`PostRefused`] gives the request back, including its buffer, with the reason. A full queue
    /// ([`PostError::QueueFull`](crate::error::PostError::QueueFull)) is back-pressure: poll, then post
    /// again.
    ///
    /// See `ibv_post_send(3)` and `ibv_post_recv(3)`.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<S: Posting>(&mut self, qp: &QueuePair<S>, work: Work) -> Result<WorkId, PostRefused<Work>> {
        match self.core.get_mut() {
            Ok(core) => core.post(qp.handle(), work),
            Err(forked) => Err(PostRefused { work, error: forked.into() }),
        }
    }

    /// Posts one receive. Unlike other requests, receives may be posted from INIT on.
    ///
    /// # Errors
    ///
    /// The errors of [`post`](Self::post).
    ///
    /// See `ibv_post_recv(3)`.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_recv<S: Receiving>(
        &mut self,
        qp: &QueuePair<S>,
        segment: impl Into<Segment>,
    ) -> Result<WorkId, PostRefused<Work>> {
        match self.core.get_mut() {
            Ok(core) => core.post(qp.handle(), Work::recv(segment)),
            Err(forked) => Err(PostRefused { work: Work::recv(segment), error: forked.into() }),
        }
    }

    /// Starts a batch of requests for `qp` that are posted together, with one doorbell. [`Batch`] has an example.
    pub fn batch(&mut self, qp: &QueuePair<ReadyToSend>) -> Batch<'_> {
        let origin = self.core.origin();
        Batch::new(self.core.unasked_mut().batch(qp.handle()), origin)
    }

    /// Returns access without requests to memory of the peer that `qp` is connected to.
    ///
    /// The call itself checks nothing and costs nothing. Operations on the result end by `deadline`; the
    /// first one waits until the memory is mapped. They fail when the peer is reached by a device or over
    /// TCP. [`PeerSlice`] has an example.
    pub fn peer_slice(
        &mut self,
        qp: &QueuePair<ReadyToSend>,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> PeerSlice<'_> {
        PeerSlice::new(&mut self.core, qp.handle(), memory, deadline)
    }

    /// Maps a [`Window`](crate::Window) of the peer that `qp` is connected to, or a range of one, and waits
    /// until it is mapped.
    ///
    /// [`Window`](crate::Window) has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerSlice::ready`], and [`ReachError::AccessDenied`] for memory that is not a window.
    /// After [`ReachError::NotMapped`] the peer is reached by a device or over TCP: post requests to a
    /// [`Region`] instead.
    pub fn peer_window(
        &mut self,
        qp: &QueuePair<ReadyToSend>,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerWindow, ReachError> {
        self.core.get_mut()?.window(qp.handle(), memory, deadline)
    }

    /// Returns the next completion without waiting; `None` when there is none yet.
    ///
    /// On the software device a loop that polls in vain must yield its core ([`std::thread::yield_now`]) where there
    /// may be fewer cores than threads, because the peer needs one to send anything. [`wait`](Self::wait) does so.
    ///
    /// # Errors
    ///
    /// [`PollError`] when completions were lost or cannot be trusted; drop the worker then.
    ///
    /// See `ibv_poll_cq(3)`.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        self.core.get_mut()?.poll()
    }

    /// Ends a queue pair: after `Ok`, no byte of this queue pair or of its peer lands here any more.
    ///
    /// Every outstanding request completes, most with `WR_FLUSH_ERR`, and gives its buffer back at the next
    /// polls. `deadline` bounds the wait for the flush; destroying the queue pair ends whatever the device
    /// has not flushed by then.
    ///
    /// A worker whose polls fail can still fence its queue pairs; requests whose completions it lost are
    /// reported as flushed.
    ///
    /// With [`Wire::Mapped`](crate::Wire::Mapped), a peer process may be stopped (SIGSTOP) in the middle of
    /// an access. The fence then waits up to half a second, at most three, and never beyond `deadline`. After
    /// that the pages that the peer accesses are replaced, so that its late write lands where nobody reads.
    ///
    /// # Errors
    ///
    /// [`FenceError`], with the queue pair, when the device refuses to destroy it, when a
    /// [`Quarantine`](crate::error::Quarantine) holds its memory, or in a forked child. The memory in flight
    /// is kept then.
    ///
    /// See `ibv_modify_qp(3)` and `ibv_destroy_qp(3)`.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn fence<S: State>(
        &mut self,
        qp: QueuePair<S>,
        deadline: Deadline,
    ) -> Result<(), Refused<QueuePair<S>, FenceError>> {
        let core = self.core.get_mut().map_err(FenceError::from);
        core.and_then(|core| core.fence(qp.handle(), deadline)).map_err(|error| Refused { object: qp, error })
    }

    /// Makes the next completion raise an event on [`event_fd`](Self::event_fd).
    ///
    /// The trap: poll once more after this call and before sleeping, because a completion that arrived in
    /// between raises no event.
    ///
    /// # Errors
    ///
    /// [`PollError::Refused`] when the device refuses.
    ///
    /// See `ibv_req_notify_cq(3)`.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn request_notify(&mut self) -> Result<(), PollError> {
        self.core.get_mut()?.request_notify()
    }

    /// Consumes the events that were raised so far.
    ///
    /// # Errors
    ///
    /// [`PollError::Refused`] when the device refuses.
    ///
    /// See `ibv_get_cq_event(3)` and `ibv_ack_cq_events(3)`.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn consume_events(&mut self) -> Result<(), PollError> {
        self.core.get_mut()?.consume_events()
    }

    /// Returns a descriptor that becomes readable when the requested event is raised.
    #[must_use]
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.core.unasked().channel_fd()
    }

    /// Returns how many completions the queue can hold at present: the entries that its queue pairs have reserved, at
    /// most [`max_cqe`](crate::WorkerOptions::max_cqe). Completions of queue pairs that were
    /// fenced may be there besides.
    ///
    /// ```
    /// use rdma_core::{Device, QueuePairOptions, SoftOptions, WorkerOptions};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// let pd = context.alloc_pd()?;
    /// let mut worker = context.worker(WorkerOptions::default())?;
    /// assert_eq!(worker.cqe_reserved(), 0);
    /// let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default())?;
    /// assert!(worker.cqe_reserved() > 0);
    /// # drop(qp);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn cqe_reserved(&self) -> u32 {
        self.core.unasked().cqe_reserved()
    }

    /// Returns the device that the worker was created on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn core(&mut self) -> Result<&mut WorkerCore<AnyWorker>, Forked> {
        self.core.get_mut()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("context", &self.context).finish_non_exhaustive()
    }
}
