//! The carrier of the data: one communicator, or rails, which are several.

use super::call::Call;
use anyhow::{Context, Result};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::Communicator;
use rdma_collective::collective::{Element, Rails};
use rdma_core::Deadline;

/// The communicators that carry the data of a rank.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
pub enum Carrier {
    /// On memory of the library's, or slices.
    One(Communicator),
    /// On slices alone.
    Rails(Rails),
}

impl Carrier {
    /// This process's rank.
    pub fn rank(&self) -> u32 {
        match self {
            Self::One(comm) => comm.rank(),
            Self::Rails(rails) => rails.rank(),
        }
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        match self {
            Self::One(comm) => comm.size(),
            Self::Rails(rails) => rails.size(),
        }
    }

    /// The communicator, for what rails have not.
    ///
    /// # Errors
    ///
    /// There are rails.
    pub fn one(&mut self) -> Result<&mut Communicator> {
        match self {
            Self::One(comm) => Some(comm),
            Self::Rails(_) => None,
        }
        .context("there are several rails, and not one communicator")
    }

    /// The communicators that there are.
    pub fn all(&self) -> impl Iterator<Item = &Communicator> {
        let (one, rails) = match self {
            Self::One(comm) => (Some(comm), None),
            Self::Rails(rails) => (None, Some(rails)),
        };
        let numbers = 0..rails.map_or(0, Rails::count);
        one.into_iter().chain(numbers.filter_map(move |number| rails?.communicator(number)))
    }

    /// Carries an operation on slices out, in place.
    ///
    /// # Errors
    ///
    /// The error of the communicator or the rails.
    pub fn run<T: Element>(&mut self, call: Call, data: &mut [T], deadline: Deadline) -> Result<()> {
        match self {
            Self::One(comm) => call.run(comm, data, deadline),
            Self::Rails(rails) => call.run_over(rails, data, deadline),
        }
    }

    /// Carries an operation on slices out, out of place.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_into<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        match self {
            Self::One(comm) => call.run_into(comm, input, output, deadline),
            Self::Rails(rails) => call.run_over_into(rails, input, output, deadline),
        }
    }

    /// Rails that have failed, by their numbers, and why.
    pub fn lost(&self) -> impl Iterator<Item = (usize, &CollectiveError)> {
        let rails = match self {
            Self::One(_) => None,
            Self::Rails(rails) => Some(rails),
        };
        rails.into_iter().flat_map(Rails::failed)
    }

    /// Why operations fail from now on, as soon as this rank knows.
    pub fn failure(&self, deadline: Deadline) -> Option<CollectiveError> {
        let lost: Vec<usize> = self.lost().map(|(number, _)| number).collect();
        let mut left = self.all().enumerate().filter(|(number, _)| !lost.contains(number)).peekable();
        if left.peek().is_none() {
            return self.lost().last().map(|(_, error)| error.clone());
        }
        // Ranks that leave say so on each rail: one that hears nothing takes no time from the next.
        let share = deadline.remaining() / (self.all().count() - lost.len()).max(1) as u32;
        left.find_map(|(_, comm)| comm.failure(deadline.min(Deadline::after(share))))
    }

    /// Ends in order: what this rank has sent arrives first.
    ///
    /// # Errors
    ///
    /// The error of a message that did not arrive.
    pub fn close(self, deadline: Deadline) -> Result<(), CollectiveError> {
        match self {
            Self::One(comm) => comm.close(deadline),
            Self::Rails(rails) => rails.close(deadline),
        }
    }
}
