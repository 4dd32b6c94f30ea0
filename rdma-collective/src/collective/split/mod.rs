//! Split: communicators of some of the ranks of an existing one.
//!
//! `members` decides which ranks belong together; `parent_rendezvous` lets them meet over the existing communicator.

mod codec;
mod members;
mod parent_rendezvous;

use rdma_core::Deadline;

use self::members::SplitRequest;
use self::parent_rendezvous::ParentRendezvous;
use super::DataType;
use super::call::Collective;
use super::execute::Borrowed;
use crate::collective::CollectiveError;
use crate::collective::CommunicatorError;
use crate::collective::communicator::{Communicator, CommunicatorOptions, Parent};

impl Communicator {
    /// Makes one communicator of the ranks of each `color`, and returns that of this rank; `None` without a color.
    ///
    /// All ranks call it, like any operation. In the communicator of a color the ranks are in the order of their `key`,
    /// and ranks with the same key in the order of their numbers here; [`rank_in_parent`](Self::rank_in_parent) maps
    /// them back. The new communicator has the engine and the options of this one, but for the name. It needs no store,
    /// because the ranks exchange what they need over this communicator.
    ///
    /// The two communicators are independent afterwards: either may fail or be closed, operations of both may be
    /// pending at the same time, and each can be split again. A communicator of a single rank is cheap.
    ///
    /// # Errors
    ///
    /// [`CommunicatorError::Parent`] names the rank that is lost, late until `deadline` or called something else: this
    /// communicator has ended, and some ranks may have no new one. Any other error says which rank of this color could
    /// not be set up; all ranks of the color get it, and this communicator goes on. Errors number ranks as here.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(3, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// // Tensor parallelism within pairs of ranks; the last one of an odd number has no part in it.
    /// let pair = comm.rank() / 2;
    /// let color = (2 * pair + 1 < comm.size()).then_some(pair);
    /// if let Some(mut tensor_parallel) = comm.split(color, 0, deadline)? {
    ///     let mut data = [comm.rank()];
    ///     tensor_parallel.all_reduce(&mut data, ReduceOp::Sum, deadline)?;
    ///     assert_eq!(data, [4 * pair + 1]);
    ///     tensor_parallel.close(deadline)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclCommSplit")]
    #[doc(alias = "MPI_Comm_split")]
    pub fn split(
        &mut self,
        color: Option<u32>,
        key: i32,
        deadline: Deadline,
    ) -> Result<Option<Self>, CommunicatorError> {
        let requests = self.gather_for_split(&SplitRequest { color, key }.encode(), deadline)?;
        let number = self.next_split();
        let made = color.map(|color| {
            let rank = self.rank();
            let ranks = members::members_of(&requests, color)
                .map_err(|_| CommunicatorError::Introduction { rank })?;
            self.make(Parent { name: self.options().name.clone(), ranks, color, key }, number, deadline)
        });
        // Ranks of other colors may need more rounds than this rank did.
        let others = self.join_rounds(deadline).map_err(original_failure);
        match (made.transpose(), others) {
            // An error of the parent comes first, because it is the cause of any other.
            (Err(error @ CommunicatorError::Parent(_)), _) | (_, Err(error)) | (Err(error), _) => Err(error),
            (Ok(made), Ok(())) => Ok(made),
        }
    }

    fn make(&mut self, parent: Parent, number: u32, deadline: Deadline) -> Result<Self, CommunicatorError> {
        let Parent { name, ranks, color, .. } = &parent;
        let ranks = ranks.clone();
        let name = format!("{name}/split{number}/color{color}");
        let options = CommunicatorOptions { name, ..self.options().clone() };
        let engine = self.engine().clone();
        Self::meet(&engine, &mut ParentRendezvous::new(self, parent, deadline), options, deadline)
            .map_err(|error| in_parent_ranks(error, &ranks))
    }

    /// Gathers as many bytes of each rank, in the order of ranks.
    fn gather_for_split(&mut self, own: &[u8], deadline: Deadline) -> Result<Vec<u8>, CollectiveError> {
        let mut all = vec![0; own.len() * self.size() as usize];
        self.call(Collective::Split.into(), DataType::U8, Borrowed::out_of_place(own, &mut all), deadline)?;
        Ok(all)
    }
}

/// Replaces "has ended" by the error that ended the parent.
fn original_failure(error: CommunicatorError) -> CommunicatorError {
    match error {
        CommunicatorError::Parent(CollectiveError::Ended { first }) => {
            CommunicatorError::Parent((*first).clone())
        }
        other => other,
    }
}

/// Renumbers the rank that an error names to its number in the parent.
fn in_parent_ranks(error: CommunicatorError, ranks: &[u32]) -> CommunicatorError {
    let here = |rank: u32| ranks.get(rank as usize).copied().unwrap_or(rank);
    match error {
        CommunicatorError::Rank { rank, reason } => CommunicatorError::Rank { rank: here(rank), reason },
        CommunicatorError::Introduction { rank } => CommunicatorError::Introduction { rank: here(rank) },
        CommunicatorError::Differs { field, rank, ours, theirs } => {
            CommunicatorError::Differs { field, rank: here(rank), ours, theirs }
        }
        other => other,
    }
}
