//! An open device.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::backend::dispatch::AnyContext;
use crate::backend::worker::Core;
use crate::error::{CreateError, QueryError};
use crate::{
    AsyncEvent, DeviceAttributes, GidEntry, PortAttributes, PortNum, ProtectionDomain, Worker, WorkerOptions,
};

/// An open device. Cloning it clones the handle; the device closes with the last thing made from it.
///
/// ```
/// use rdma_core::{Device, PortNum, PortState, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// assert_eq!(context.port(PortNum(1))?.state, PortState::ACTIVE);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_context")]
#[derive(Clone)]
pub struct Context {
    inner: AnyContext,
    soft: bool,
}

impl Context {
    pub(crate) fn new(inner: AnyContext, soft: bool) -> Self {
        Self { inner, soft }
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Whether it is the software device of this crate.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.soft
    }

    /// The device's limits and identity.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the device does not answer.
    ///
    /// See `ibv_query_device(3)`.
    #[doc(alias = "ibv_query_device")]
    pub fn attributes(&self) -> Result<DeviceAttributes, QueryError> {
        self.inner.query_device()
    }

    /// The state of a port.
    ///
    /// # Errors
    ///
    /// [`QueryError::NoSuchPort`], or [`QueryError::Refused`] when the device does not answer.
    ///
    /// See `ibv_query_port(3)`.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        self.inner.query_port(port)
    }

    /// The filled entries of a port's GID table; [`gid::choose`](crate::gid::choose) picks one.
    ///
    /// # Errors
    ///
    /// As for [`port`](Self::port).
    ///
    /// See `ibv_query_gid_table(3)`.
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        self.inner.gid_table(port)
    }

    /// A protection domain: memory and queue pairs of different ones cannot reach each other.
    ///
    /// # Errors
    ///
    /// [`CreateError::Refused`] when the device has no more.
    ///
    /// See `ibv_alloc_pd(3)`.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, CreateError> {
        Ok(ProtectionDomain::new(self.inner.alloc_pd()?))
    }

    /// A worker: a completion queue with its channel, for the queue pairs that one thread serves.
    ///
    /// # Errors
    ///
    /// [`CreateError::BeyondLimit`] when `max_cqe` is more than the device has,
    /// [`CreateError::Refused`] when the device or a memory limit refuses.
    ///
    /// See `ibv_create_cq(3)` and `ibv_create_comp_channel(3)`.
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn worker(&self, options: WorkerOptions) -> Result<Worker, CreateError> {
        let raw = self.inner.create_worker(&options)?;
        Ok(Worker::new(Core::new(raw, options), self.clone()))
    }

    /// The next thing that happened to the device, without waiting; `None` when nothing did.
    ///
    /// # Errors
    ///
    /// [`QueryError::Refused`] when the device does not answer.
    ///
    /// See `ibv_get_async_event(3)`.
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        self.inner.next_event()
    }

    /// Readable when [`next_event`](Self::next_event) has something to tell.
    #[must_use]
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.name()).finish_non_exhaustive()
    }
}
