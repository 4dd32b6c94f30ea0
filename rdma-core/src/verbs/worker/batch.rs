//! [`Batch`]: several requests, one doorbell.

use std::fmt;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker;
use crate::error::{Forked, PartialPost, PostRefused};
use crate::memory::fork::Origin;
use crate::{Work, WorkId};

/// Requests for one queue pair that [`submit`](Self::submit) posts together.
///
/// A batch saves doorbells: a device is notified once instead of once a request.
///
/// The trap: dropping a batch posts nothing and drops its buffers; [`cancel`](Self::cancel) gives them back.
///
/// ```
/// use rdma_core::{Access, Device, SoftOptions, Work, WorkerOptions, loopback};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let mut worker = context.worker(WorkerOptions::default())?;
/// let (left, _right) = loopback(&mut worker, &pd)?;
/// let target = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let source = pd.alloc_region(64, Access::LOCAL_WRITE)?;
/// let source = worker.attach(&source);
///
/// let mut batch = worker.batch(&left);
/// for i in 0..4 {
///     let to = target.remote().slice(i * 16..i * 16 + 16)?;
///     let work = Work::write(source.range(i as usize * 16, 16), to);
///     batch.push(if i < 3 { work.unsignalled() } else { work })?;
/// }
/// batch.submit()?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a batch posts nothing until it is submitted"]
pub struct Batch<'w> {
    inner: worker::Batch<'w, AnyWorker>,
    /// The process that made the worker.
    origin: Origin,
}

impl<'w> Batch<'w> {
    pub(crate) fn new(inner: worker::Batch<'w, AnyWorker>, origin: Origin) -> Self {
        Self { inner, origin }
    }

    /// Adds a request to the batch.
    ///
    /// # Errors
    ///
    /// The request comes back with the reason, as from [`Worker::post`](crate::Worker::post). Requests that
    /// were added before stay in the batch.
    pub fn push(&mut self, work: Work) -> Result<WorkId, PostRefused<Work>> {
        self.inner.push(work)
    }

    /// Posts the requests: receives first, then the others in order, with one doorbell for each of the two
    /// queues.
    ///
    /// # Errors
    ///
    /// [`PartialPost`] says how many requests were posted, and gives the others back.
    pub fn submit(self) -> Result<(), PartialPost<Work>> {
        if self.origin.is_here() {
            self.inner.submit()
        } else {
            Err(PartialPost { posted: 0, rejected: self.inner.cancel(), error: Forked::new().into() })
        }
    }

    /// Posts nothing and returns the requests.
    #[must_use]
    pub fn cancel(self) -> Vec<Work> {
        self.inner.cancel()
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}
