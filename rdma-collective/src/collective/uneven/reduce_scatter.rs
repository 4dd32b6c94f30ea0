//! Reduce-scatter of any counts as callers see it: typed, and by bytes.

use rdma_core::Deadline;

use super::{Counts, Sides};
use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::Communicator;
use crate::collective::execute::Borrowed;
use crate::collective::{DataType, Element, ReduceOp};

impl Communicator {
    /// Reduces `input` over all ranks and leaves each its part of the result: `counts[i]` elements, one behind the other by rank, go to
    /// the `output` of rank `i`, which has as many.
    ///
    /// All ranks call it with the same counts, type and reduction. It is a [`reduce_into`](Self::reduce_into) to each rank in turn, with the
    /// bits of that: where all counts are alike [`reduce_scatter_into`](Self::reduce_scatter_into) is faster.
    /// Slices are copied through memory of the library, so that nothing of them is in use when this returns, whatever happened.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::CountsDoNotFit`] when there is not a count for each rank, or they are together not as many as the elements of
    /// `input`, and [`CollectiveError::CountsDiffer`] when the count of this rank is not that of `output`; then nothing is lost. Otherwise
    /// a rank that is lost, late until `deadline` or calls something else, such as other counts, by its number: the output is then
    /// undefined, and the communicator has ended.
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
    /// # fn run(join: Join) -> Result<(), Box<dyn std::error::Error>> {
    /// # let deadline = Deadline::after(Duration::from_secs(30));
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// // One element of the sum for rank 0, two for rank 1, and so on.
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let input = vec![1.5_f32; counts.iter().sum()];
    /// let mut output = vec![0.0; comm.rank() as usize + 1];
    /// comm.reduce_scatter_v(&input, &mut output, &counts, ReduceOp::Sum, deadline)?;
    /// assert!(output.iter().all(|sum| *sum == 1.5 * comm.size() as f32));
    /// # comm.close(deadline)?;
    /// # Ok(())
    /// # }
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 2))?;
    /// # let join = |rank| Join { address: server.address(), token, rank, world: 2 };
    /// # let (zero, one) = (join(0), join(1));
    /// # let other = std::thread::spawn(move || run(one).map_err(|error| error.to_string()));
    /// # run(zero)?;
    /// # other.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "MPI_Reduce_scatter")]
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let (input, output) = (T::as_bytes(input), T::as_bytes_mut(output));
        self.reduce_scatter_v_bytes(input, output, counts, T::DATA_TYPE, op, deadline)
    }

    /// [`reduce_scatter_v`](Self::reduce_scatter_v) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment. Counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`reduce_scatter_v`](Self::reduce_scatter_v).
    pub fn reduce_scatter_v_bytes(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let (rank, ranks) = (self.rank(), self.size());
        let sides = Sides { rank, ranks, data_type, input: input.len(), output: output.len() };
        let parts = sides.reduced(Counts { sent: counts, ..Counts::default() })?;
        for (root, part) in (0..).zip(parts) {
            // One of nothing, too, by which other counts are found.
            let output = if root == rank { &mut *output } else { &mut [] };
            let buffers = Borrowed::out_of_place(&input[part.range()], output);
            self.call(Collective::Reduce.by(op).at(root), data_type, buffers, deadline)?;
        }
        Ok(())
    }
}
