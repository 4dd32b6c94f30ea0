//! Reduce-scatter as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks, and leaves each of them its part of the result, in its place.
    ///
    /// `data` has one part for each rank, one behind the other by rank. Afterwards this rank's, from `rank * data.len() / size`
    /// on, is reduced, and the others are as they were. All ranks call it with the same count, type and operation.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] when the elements cannot be shared evenly among the ranks, and then nothing is lost.
    /// Otherwise a rank that is lost, late until `deadline` or calls something else, by its number: the data is then
    /// undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let own = comm.rank() as usize * 1000;
    /// let mut gradients = vec![1.0_f32; comm.size() as usize * 1000];
    /// comm.reduce_scatter(&mut gradients, ReduceOp::Sum, deadline)?;
    /// assert!(gradients[own..own + 1000].iter().all(|sum| *sum == comm.size() as f32));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.reduce_scatter_bytes(T::as_bytes_mut(data), T::DATA_TYPE, op, deadline)
    }

    /// Reduces `input` over all ranks, and leaves this rank's part of the result in `output`; otherwise as
    /// [`reduce_scatter`](Self::reduce_scatter).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when `input` is not as long as there are ranks times `output`, and then nothing is lost;
    /// or as for [`reduce_scatter`](Self::reduce_scatter).
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.reduce_scatter_bytes_into(
            T::as_bytes(input),
            T::as_bytes_mut(output),
            T::DATA_TYPE,
            op,
            deadline,
        )
    }

    /// [`reduce_scatter`](Self::reduce_scatter) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`reduce_scatter`](Self::reduce_scatter).
    pub fn reduce_scatter_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::ReduceScatter.by(op), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`reduce_scatter_into`](Self::reduce_scatter_into) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`reduce_scatter_into`](Self::reduce_scatter_into) and [`reduce_scatter_bytes`](Self::reduce_scatter_bytes).
    pub fn reduce_scatter_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(
            Collective::ReduceScatter.by(op),
            data_type,
            Borrowed::out_of_place(input, output),
            deadline,
        )
    }

    /// Begins to reduce `tensor` over all ranks, and returns at once; the tensor comes back with this rank's part of the
    /// result in its place.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`reduce_scatter`](Self::reduce_scatter). Waiting tells of the others; the tensor is lost then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut gradients = comm.alloc::<f32>(comm.size() as usize * 1000)?;
    /// gradients.fill(1.0);
    /// let gradients = comm.start_reduce_scatter(gradients, ReduceOp::Avg, deadline)?.wait(deadline)?;
    /// let own = comm.rank() as usize * 1000;
    /// assert!(gradients[own..own + 1000].iter().all(|mean| *mean == 1.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_reduce_scatter<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::ReduceScatter.by(op), tensor, deadline)
    }

    /// Begins to reduce `input` over all ranks, this rank's part into `output`, and returns at once; both come back.
    /// Otherwise as [`start_reduce_scatter`](Self::start_reduce_scatter).
    ///
    /// # Errors
    ///
    /// As for [`start_reduce_scatter`](Self::start_reduce_scatter) and [`reduce_scatter_into`](Self::reduce_scatter_into).
    pub fn start_reduce_scatter_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::ReduceScatter.by(op), input, output, deadline)
    }

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
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(2, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// // One element of the sum for rank 0, two for rank 1, and so on.
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let input = vec![1.5_f32; counts.iter().sum()];
    /// let mut output = vec![0.0; comm.rank() as usize + 1];
    /// comm.reduce_scatter_v(&input, &mut output, &counts, ReduceOp::Sum, deadline)?;
    /// assert!(output.iter().all(|sum| *sum == 1.5 * comm.size() as f32));
    /// # Ok(())
    /// # })?;
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
    ) -> Result<()> {
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
    ) -> Result<()> {
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
