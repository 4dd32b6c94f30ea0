//! Communicators of some of the ranks of one, as callers see it.

mod beneath;
mod members;
mod words;

use rdma_core::Deadline;

use self::beneath::Beneath;
use self::members::Wish;
use super::DataType;
use super::call::Collective;
use super::execute::Borrowed;
use crate::collective::CollectiveError;
use crate::collective::CommunicatorError;
use crate::collective::communicator::{Communicator, CommunicatorOptions, Parent};

impl Communicator {
    /// Makes communicators of the ranks of each `color`, of which this rank gets its own; `None` when it has no color.
    ///
    /// All ranks call it, as any operation. In the communicator of a color, ranks are in the order of their `key`, and those of one key in
    /// their order here; [`rank_in_parent`](Self::rank_in_parent) tells which is which. It is on the same engine and of the same
    /// options, but for its name, and needs no store: the ranks tell each other by this one what they need to connect.
    ///
    /// The two do not depend on each other from then on: either may fail or be closed, and operations of both may be pending at the same
    /// time. One of a single rank is cheap. It can be split again.
    ///
    /// # Errors
    ///
    /// [`CommunicatorError::Parent`] when a rank is lost, late until `deadline` or calls something else, by its number: this communicator has
    /// ended then, and no rank need have got another. Otherwise one of the ranks of this color could not be set up, which all of that
    /// color are told, and this communicator goes on. All errors name ranks of this communicator.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclCommSplit")]
    #[doc(alias = "MPI_Comm_split")]
    pub fn split(
        &mut self,
        color: Option<u32>,
        key: i32,
        deadline: Deadline,
    ) -> Result<Option<Self>, CommunicatorError> {
        let wishes = self.gather_words(&Wish { color, key }.encode(), deadline)?;
        let number = self.next_split();
        let made = color.map(|color| {
            let rank = self.rank();
            let ranks =
                members::of_color(&wishes, color).map_err(|_| CommunicatorError::Introduction { rank })?;
            self.make(Parent { name: self.options().name.clone(), ranks, color, key }, number, deadline)
        });
        // Those of other colors may not be done.
        let others = self.sit_out(deadline).map_err(first_of_all);
        match (made.transpose(), others) {
            // What the ranks met by has failed, and whatever else did by that.
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
        Self::meet(&engine, &mut Beneath::new(self, parent, deadline), options, deadline)
            .map_err(|error| named_here(error, &ranks))
    }

    /// What all ranks tell, one behind the other by rank.
    fn gather_words(&mut self, own: &[u8], deadline: Deadline) -> Result<Vec<u8>, CollectiveError> {
        let mut all = vec![0; own.len() * self.size() as usize];
        self.call(Collective::Split.into(), DataType::U8, Borrowed::out_of_place(own, &mut all), deadline)?;
        Ok(all)
    }
}

/// What a communicator that has ended meanwhile has ended for.
fn first_of_all(error: CommunicatorError) -> CommunicatorError {
    match error {
        CommunicatorError::Parent(CollectiveError::Ended { first }) => {
            CommunicatorError::Parent((*first).clone())
        }
        other => other,
    }
}

/// With the rank that it names as it is called in the communicator that was split.
fn named_here(error: CommunicatorError, ranks: &[u32]) -> CommunicatorError {
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
