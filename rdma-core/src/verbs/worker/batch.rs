//! Several requests, one doorbell.

use std::fmt;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker;
use crate::error::{PartialPost, PostRefused};
use crate::{Work, WorkId};

/// Requests gathered for one queue pair, posted together by [`submit`](Self::submit).
///
/// Dropping it posts nothing and drops the buffers; [`cancel`](Self::cancel) gives them back.
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
}

impl<'w> Batch<'w> {
    pub(crate) fn new(inner: worker::Batch<'w, AnyWorker>) -> Self {
        Self { inner }
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// The request comes back with the reason, as from [`Worker::post`](crate::Worker::post);
    /// what was added before stays.
    pub fn push(&mut self, work: Work) -> Result<WorkId, PostRefused<Work>> {
        self.inner.push(work)
    }

    /// Posts what was added: receives first, then the rest in order, one doorbell each.
    ///
    /// # Errors
    ///
    /// [`PartialPost`] tells exactly what was posted and gives the rest back.
    pub fn submit(self) -> Result<(), PartialPost<Work>> {
        self.inner.submit()
    }

    /// Posts nothing and gives the requests back.
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
