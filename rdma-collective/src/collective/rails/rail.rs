//! One rail: the communicator on a device, and memory of it that operations go through.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::Deadline;

use crate::collective::call::Request;
use crate::collective::communicator::{Communicator, Pending, StillPending, WaitError};
use crate::collective::{AllocError, CollectiveError};
use crate::collective::{DataType, Tensor};

/// Operations on a rail that nobody waits for, at most.
const BEHIND_MAX: usize = 8;
/// Memory of a rail comes in powers of two from so many bytes on, so that it is used again.
const BYTES_MIN: usize = 4096;
/// Pieces of memory that are kept for the next operation.
const SPARE_MAX: usize = 2 * BEHIND_MAX;
/// How long the end of a rail that has failed may take.
const FAILED_WITHIN: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(super) struct Rail {
    comm: Communicator,
    /// Memory that is not in use.
    spare: Vec<Tensor<u8>>,
    /// Operations whose result came by another rail.
    behind: VecDeque<Pending<Tensor<u8>>>,
    /// Why it carries nothing any more.
    failure: Option<CollectiveError>,
}

impl Rail {
    pub(super) fn new(comm: Communicator) -> Self {
        Self { comm, spare: Vec::new(), behind: VecDeque::new(), failure: None }
    }

    pub(super) fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// Why it carries nothing any more.
    pub(super) fn failure(&self) -> Option<&CollectiveError> {
        self.failure.as_ref()
    }

    /// Ends it: one that has failed soon, whatever it says.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::close`].
    pub(super) fn close(self, deadline: Deadline) -> Result<(), CollectiveError> {
        let Self { comm, behind, failure, .. } = self;
        drop(behind);
        match failure {
            None => comm.close(deadline),
            Some(_) => {
                if let Err(error) = comm.close(deadline.min(Deadline::after(FAILED_WITHIN))) {
                    tracing::debug!("a rail that had failed ends: {error}");
                }
                Ok(())
            }
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Nothing goes over it from now on; whether something did.
    pub(super) fn fail(&mut self, number: usize, error: &CollectiveError) -> bool {
        if self.has_failed() {
            return false;
        }
        tracing::warn!(rail = number, rank = self.comm.rank(), "a rail has failed: {error}");
        self.failure = Some(error.clone());
        // Others need not wait for what this rank alone cannot do.
        self.comm.aborter().abort();
        self.behind.clear();
        self.spare.clear();
        true
    }

    /// Begins an operation on `bytes` that `fill` writes.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub(super) fn start(
        &mut self,
        (request, data_type): (Request, DataType),
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
        deadline: Deadline,
    ) -> Result<Pending<Tensor<u8>>, CollectiveError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let mut tensor = self.memory(bytes)?;
        fill(&mut tensor);
        self.comm.start_call(request, data_type, tensor.into_job(None), deadline, Tensor::from_job).map_err(
            |(job, error)| {
                self.spare.push(Tensor::from_job(job));
                error
            },
        )
    }

    /// Memory of `bytes` for one operation.
    fn memory(&mut self, bytes: usize) -> Result<Tensor<u8>, CollectiveError> {
        // Of the least that is enough: a large one is for large operations.
        let room = bytes.max(BYTES_MIN).checked_next_power_of_two().unwrap_or(bytes);
        if let Some(at) = self.spare.iter().position(|tensor| tensor.room() == room) {
            let mut tensor = self.spare.swap_remove(at);
            tensor.select(0..bytes);
            return Ok(tensor);
        }
        let refused = |source: AllocError| CollectiveError::Memory { source: Arc::new(source) };
        let mut tensor = self.comm.alloc(room).map_err(refused)?;
        let fits = tensor.select(0..bytes);
        debug_assert!(fits, "less than was asked for");
        Ok(tensor)
    }

    /// The memory of an operation that is done.
    pub(super) fn take_back(&mut self, tensor: Tensor<u8>) {
        if !self.has_failed() && self.spare.len() < SPARE_MAX {
            self.spare.push(tensor);
        }
    }

    /// Nobody waits for an operation any more: its result has come by another rail.
    pub(super) fn leave_behind(&mut self, pending: Pending<Tensor<u8>>) {
        if !self.has_failed() {
            self.behind.push_back(pending);
        }
    }

    /// Takes back what is done meanwhile. While there is too much it waits for it, and leaves half of the time to the other
    /// rails.
    ///
    /// # Errors
    ///
    /// Why the rail has failed, be it that it is too far behind.
    pub(super) fn catch_up(&mut self, number: usize, deadline: Deadline) -> Result<(), CollectiveError> {
        while let Some(pending) = self.behind.pop_front() {
            let too_much = self.behind.len() >= BEHIND_MAX;
            let patience = if too_much { deadline.remaining() / 2 } else { Duration::ZERO };
            match pending.wait(Deadline::after(patience)) {
                Ok(tensor) => self.take_back(tensor),
                Err(WaitError::StillPending(StillPending(pending))) => {
                    self.behind.push_front(pending);
                    return if too_much { Err(CollectiveError::RailLost { rail: number }) } else { Ok(()) };
                }
                Err(WaitError::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }
}
