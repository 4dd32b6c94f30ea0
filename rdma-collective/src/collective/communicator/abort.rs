//! Aborting a communicator from any thread, and asking why it has failed.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Instant;

use rdma_core::Deadline;

use super::{Communicator, Shared};
use crate::collective::CollectiveError;
use crate::engine::Service;

/// A handle that ends a communicator from any thread. Clones end the same communicator.
///
/// Returned by [`Communicator::aborter`](crate::collective::Communicator::aborter).
#[derive(Clone)]
pub struct Aborter {
    shared: Weak<Shared>,
}

impl Communicator {
    /// Returns a handle that ends this communicator from any thread, for example from a watchdog of the job.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::ReduceOp;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// let aborter = comm.aborter();
    /// std::thread::spawn(move || aborter.abort()).join().unwrap();
    /// let error = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum, deadline).unwrap_err();
    /// assert!(error.to_string().contains("it asked for the end"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    #[doc(alias = "ncclCommAbort")]
    pub fn aborter(&self) -> Aborter {
        Aborter { shared: Arc::downgrade(&self.shared) }
    }

    /// Waits until this rank learns why the communicator has failed; `None` if it knows of no failure at `deadline`.
    ///
    /// Use it after another sign of trouble, such as the loss of the store. Ranks that fail tell the others why, so
    /// the error names the rank at fault.
    #[must_use]
    pub fn failure(&self, deadline: Deadline) -> Option<CollectiveError> {
        let shared = &self.shared;
        if let Err(forked) = shared.engine.check_process() {
            return Some(forked.into());
        }
        shared.engine.wait_for(deadline, |core, _| match shared.lock().failure(core) {
            Some(failure) => Poll::Ready(failure),
            None => Poll::Pending,
        })
    }
}

impl Aborter {
    /// Ends all pending and later operations of the communicator, on all ranks. Does not wait for the other ranks.
    ///
    /// The operations fail with [`Requested`](crate::collective::AbortReason::Requested), which names this rank. A
    /// communicator that has ended stays as it is.
    pub fn abort(&self) {
        let Some(shared) = self.shared.upgrade().filter(|shared| !shared.engine.is_forked()) else { return };
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.abort(core);
            state.advance(core, Instant::now());
        });
    }
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aborter").finish_non_exhaustive()
    }
}
