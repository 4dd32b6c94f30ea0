//! [`Context`], an open device, from which everything else is made.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::backend::dispatch::AnyContext;
use crate::backend::worker::WorkerCore;
use crate::error::{CreateError, Forked, QueryError};
use crate::memory::OwnProcess;
use crate::{
    AsyncEvent, DeviceAttributes, DeviceDetails, GidEntry, PortAttributes, PortDetails, PortNum,
    ProtectionDomain, Worker, WorkerOptions,
};

/// An open device.
///
/// Cloning a context clones the handle. The device closes when the last object that was made from it is
/// dropped. A forked child can use no context of its parent; every call returns
/// [`Forked`](crate::error::Forked).
///
/// ```
/// use rdma_core::{Device, PortNum, PortState, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// assert_eq!(context.port(PortNum(1))?.state, PortState::ACTIVE);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[doc(alias = "ibv_context")]
#[derive(Clone)]
pub struct Context {
    inner: OwnProcess<AnyContext>,
    soft: bool,
}

impl Context {
    pub(crate) fn new(inner: AnyContext, soft: bool) -> Self {
        Self { inner: OwnProcess::new(inner), soft }
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.unasked().name()
    }

    /// Returns whether this is the software device of this crate.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.soft
    }

    /// Returns the limits and the identity of the device.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the device does not answer.
    ///
    /// See `ibv_query_device(3)`.
    #[doc(alias = "ibv_query_device")]
    pub fn attributes(&self) -> Result<DeviceAttributes, QueryError> {
        self.inner.get()?.query_device()
    }

    /// Returns the state and the limits of a port. [`Context`] has an example.
    ///
    /// # Errors
    ///
    /// [`QueryError::NoSuchPort`] when the device has no such port; [`QueryError::Refused`] when the device
    /// does not answer.
    ///
    /// See `ibv_query_port(3)`.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        self.inner.get()?.query_port(port)
    }

    /// Returns everything that the device reports about itself, for tools that print it.
    ///
    /// ```
    /// use rdma_core::{Device, PortNum, SoftOptions};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// assert_eq!(context.details()?.attributes, context.attributes()?);
    /// assert_eq!(context.port_details(PortNum(1))?.attributes, context.port(PortNum(1))?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the device does not answer.
    ///
    /// See `ibv_query_device_ex(3)`.
    #[doc(alias = "ibv_query_device_ex")]
    pub fn details(&self) -> Result<DeviceDetails, QueryError> {
        self.inner.get()?.device_details()
    }

    /// Returns everything that a port reports about itself, for tools that print it. [`details`](Self::details) has an
    /// example.
    ///
    /// # Errors
    ///
    /// The errors of [`port`](Self::port).
    pub fn port_details(&self, port: PortNum) -> Result<PortDetails, QueryError> {
        self.inner.get()?.port_details(port)
    }

    /// Returns the filled entries of a port's GID table; [`gid::choose`](crate::gid::choose) picks one of
    /// them.
    ///
    /// # Errors
    ///
    /// The errors of [`port`](Self::port).
    ///
    /// See `ibv_query_gid_table(3)`.
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        self.inner.get()?.gid_table(port)
    }

    /// Allocates a protection domain. Memory and queue pairs of different domains cannot reach each other.
    ///
    /// # Errors
    ///
    /// [`CreateError::Refused`] when the device has no protection domains left.
    ///
    /// See `ibv_alloc_pd(3)`.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, CreateError> {
        Ok(ProtectionDomain::new(self.inner.get()?.alloc_pd()?))
    }

    /// Creates a worker: a completion queue with its event channel, for queue pairs that one thread serves.
    ///
    /// [`Worker`] has an example.
    ///
    /// # Errors
    ///
    /// - [`CreateError::BeyondLimit`] when `max_cqe` is more than the device allows.
    /// - [`CreateError::Refused`] when the device or a memory limit refuses; the message names the limit.
    ///
    /// See `ibv_create_cq(3)` and `ibv_create_comp_channel(3)`.
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn worker(&self, options: WorkerOptions) -> Result<Worker, CreateError> {
        let raw = self.inner.get()?.create_worker(&options)?;
        Ok(Worker::new(WorkerCore::new(raw, options), self.clone()))
    }

    /// Returns the next asynchronous event of the device, without waiting; `None` when there is none.
    ///
    /// The trap: each event is reported once, to the context that polls first among the clones of one
    /// context.
    ///
    /// # Errors
    ///
    /// [`QueryError::Refused`] when the device does not answer.
    ///
    /// See `ibv_get_async_event(3)`.
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        self.inner.get()?.next_event()
    }

    /// Returns how many requests of peers the device has refused since it was opened, because a key was wrong or had
    /// ended, a range reached beyond the registration, or a right was missing. `None` on a device of libibverbs, which
    /// may count them in `/sys/class/infiniband/DEVICE/ports/PORT/hw_counters` (on mlx5, `resp_remote_access_errors`).
    ///
    /// A number that grows tells of a peer that writes late, or where it may not: each refusal ends the queue pair of
    /// both ends, and raises [`QP_ACCESS_ERR`](crate::EventKind::QP_ACCESS_ERR) or
    /// [`QP_REQ_ERR`](crate::EventKind::QP_REQ_ERR). The trap: a request to a queue pair that is gone or in ERR is not
    /// answered, and so not counted; neither is an access of a [`PeerSlice`](crate::PeerSlice), which is no request. A
    /// peer on the mapped wire that does not run this library need not ask at all.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, RemoteKey, RemoteMemory, SoftOptions, Work, WorkerOptions, loopback};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// let (left, _right) = loopback(&mut worker, &pd)?;
    /// let region = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// assert_eq!(context.refused_requests()?, Some(0));
    /// let wrong = RemoteMemory { rkey: RemoteKey(region.rkey().0 ^ 1), ..region.remote() };
    /// worker.post(&left, Work::write(pd.alloc_local(64)?, wrong)).map_err(|refused| refused.error)?;
    /// worker.wait(Deadline::after(Duration::from_secs(5)))?.result.unwrap_err();
    /// assert_eq!(context.refused_requests()?, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Forked`] in a forked child, because the device is its parent's.
    pub fn refused_requests(&self) -> Result<Option<u64>, Forked> {
        Ok(self.inner.get()?.refused_requests())
    }

    /// Returns a descriptor that is readable while [`next_event`](Self::next_event) has an event to return.
    #[must_use]
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.unasked().event_fd()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.name()).finish_non_exhaustive()
    }
}
