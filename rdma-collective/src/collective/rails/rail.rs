//! A single rail: the communicator on a device, and the memory that its operations use.
//!
//! `run` decides which operation goes over which rail.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::Deadline;

use crate::collective::call::Request;
use crate::collective::communicator::{Communicator, Pending, StillPending, WaitError};
use crate::collective::{AllocError, CollectiveError};
use crate::collective::{DataType, Tensor};

/// The most operations on a rail that nobody waits for: beyond it the rail is waited for, and given up if it stays
/// behind.
const BEHIND_MAX: usize = 8;
/// The smallest piece of memory in bytes. Sizes are powers of two from here on, so that later operations can use it
/// again.
const BYTES_MIN: usize = 4096;
/// The most unused pieces of memory that a rail keeps for later operations.
const SPARE_MAX: usize = 2 * BEHIND_MAX;
/// The time that closing a failed rail may take: its error is known already, so nothing is worth waiting for.
const FAILED_WITHIN: Duration = Duration::from_millis(100);

/// A communicator with its spare memory, its late operations and its failure.
#[derive(Debug)]
pub(super) struct Rail {
    comm: Communicator,
    /// Memory that no operation uses.
    spare: Vec<Tensor<u8>>,
    /// Operations whose result came over another rail, in the order in which they began.
    behind: VecDeque<Pending<Tensor<u8>>>,
    /// The error after which the rail carries nothing any more.
    failure: Option<CollectiveError>,
}

impl Rail {
    pub(super) fn new(comm: Communicator) -> Self {
        Self { comm, spare: Vec::new(), behind: VecDeque::new(), failure: None }
    }

    pub(super) fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// The error after which the rail carries nothing any more.
    pub(super) fn failure(&self) -> Option<&CollectiveError> {
        self.failure.as_ref()
    }

    /// Closes the communicator; a failed rail within 100 ms and without its error, which is known.
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
                    crate::log::debug!("a rail that had failed ends: {error}");
                }
                Ok(())
            }
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Marks the rail as failed and aborts its communicator. Returns whether it had worked until now.
    pub(super) fn fail(&mut self, number: usize, error: &CollectiveError) -> bool {
        if self.has_failed() {
            return false;
        }
        crate::log::warn!(rail = number, rank = self.comm.rank(), "a rail has failed: {error}");
        self.failure = Some(error.clone());
        // The other ranks must not wait until their deadline for a rail that only this rank has lost.
        self.comm.aborter().abort();
        self.behind.clear();
        self.spare.clear();
        true
    }

    /// Starts an operation on memory of `bytes`, which `fill` writes.
    ///
    /// # Errors
    ///
    /// The rail has failed, or refuses the operation.
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
            |refused| {
                self.spare.push(refused.object);
                refused.error
            },
        )
    }

    /// Takes spare memory for an operation on `bytes`, or allocates it.
    fn memory(&mut self, bytes: usize) -> Result<Tensor<u8>, CollectiveError> {
        // Only memory of the exact size class is taken, so that large pieces stay free for large operations.
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

    /// Keeps the memory of a finished operation for later ones.
    pub(super) fn take_back(&mut self, tensor: Tensor<u8>) {
        if !self.has_failed() && self.spare.len() < SPARE_MAX {
            self.spare.push(tensor);
        }
    }

    /// Keeps an operation whose result came over another rail: its memory returns when it ends.
    pub(super) fn leave_behind(&mut self, pending: Pending<Tensor<u8>>) {
        if !self.has_failed() {
            self.behind.push_back(pending);
        }
    }

    /// Takes back the memory of late operations that have ended. If too many are late, waits for the oldest, at most
    /// half of the time left, because the other rails need the rest.
    ///
    /// # Errors
    ///
    /// The rail has failed, or is too far behind.
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
