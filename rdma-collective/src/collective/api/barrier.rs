//! The barrier as callers see it.

use super::*;

impl Communicator {
    /// Waits until all ranks have called `barrier`.
    ///
    /// A rank then sees what the others wrote to memory that all share. A rank that returns knows that all others
    /// have come; it does not know that they have returned.
    ///
    /// # Errors
    ///
    /// The error names the rank that is lost, late or called something else; the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// // … all ranks prepare their part …
    /// comm.barrier(deadline)?;
    /// // … and here each of them may rely on what the others have prepared.
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "MPI_Barrier")]
    pub fn barrier(&mut self, deadline: Deadline) -> Result<()> {
        let around = &mut [0; BARRIER_BYTES];
        self.call(Collective::Barrier.into(), DataType::U8, Borrowed::InPlace(around), deadline)
    }

    /// Tells the other ranks that this one has come and returns at once; [`Pending::wait`] waits for the others.
    ///
    /// The operation runs after those that are pending. Ranks may mix this with [`barrier`](Self::barrier).
    ///
    /// # Errors
    ///
    /// [`CollectiveError::TooManyOperations`] or [`CollectiveError::Ended`] if the operation cannot start.
    /// [`Pending::wait`] returns any later error, as for [`barrier`](Self::barrier).
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let all_here = comm.start_barrier(deadline)?;
    /// // … what need not wait for the others …
    /// all_here.wait(deadline)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_barrier(&mut self, deadline: Deadline) -> Result<Pending<()>> {
        let job = Box::new(Job::of_nothing(self.engine().id()));
        self.start_call(Collective::Barrier.into(), DataType::U8, job, deadline, |_| ())
            .map_err(|refused| refused.error)
    }
}
