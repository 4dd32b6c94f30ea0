//! Reduce-scatter: the calls on slices, on bytes and on tensors, and those on parts of any length (`_v`).

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks and leaves each rank its own part of the result.
    ///
    /// The part of rank `i` begins at `i * data.len() / size`. After the call the part of this rank is reduced, and
    /// the other parts are as before. All ranks pass the same count, type and reduction. The library copies the slice
    /// through its own memory, so that nothing uses the slice after the return, even after an error.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] if the ranks cannot share the elements evenly; nothing was sent then.
    /// Otherwise the error names the rank that is lost, late or called something else: `data` is then undefined, and
    /// the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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

    /// Reduces `input` over all ranks and leaves this rank's part of the result in `output`.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] if `input` is not `size` times as long as `output`; nothing was sent then.
    /// Otherwise as for [`reduce_scatter`](Self::reduce_scatter).
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

    /// [`reduce_scatter`](Self::reduce_scatter) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
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

    /// [`reduce_scatter_into`](Self::reduce_scatter_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`reduce_scatter_into`](Self::reduce_scatter_into) and
    /// [`reduce_scatter_bytes`](Self::reduce_scatter_bytes).
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

    /// Starts [`reduce_scatter`](Self::reduce_scatter) on a tensor and returns at once; [`Pending::wait`] gives the
    /// tensor back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`reduce_scatter`](Self::reduce_scatter). [`Pending::wait`] returns any later error; the tensor is then
    /// lost.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_reduce_scatter<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::ReduceScatter.by(op), tensor, deadline)
    }

    /// Starts [`reduce_scatter_into`](Self::reduce_scatter_into) on two tensors and returns at once;
    /// [`Pending::wait`] gives both back.
    ///
    /// # Errors
    ///
    /// As for [`start_reduce_scatter`](Self::start_reduce_scatter) and
    /// [`reduce_scatter_into`](Self::reduce_scatter_into).
    pub fn start_reduce_scatter_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::ReduceScatter.by(op), input, output, deadline)
    }

    /// Reduces `input` over all ranks and leaves `counts[i]` elements of the result in the `output` of rank `i`.
    ///
    /// The parts lie in the order of ranks. All ranks pass the same counts, type and reduction. The call is one
    /// [`reduce_into`](Self::reduce_into) to each rank in turn and gives its bits; for equal counts
    /// [`reduce_scatter_into`](Self::reduce_scatter_into) is faster. The library copies the slices through its own
    /// memory, so that nothing uses them after the return, even after an error.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::CountsDoNotFit`] if there is not one count for each rank, or if the counts do not add up to
    /// the length of `input`; [`CollectiveError::CountsDiffer`] if the count of this rank is not the length of
    /// `output`; nothing was sent then. Otherwise the error names the rank that is lost, late or called something
    /// else, such as other counts: the output is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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

    /// [`reduce_scatter_v`](Self::reduce_scatter_v) for an element type that is known only at run time.
    ///
    /// The slices hold the bytes of the elements as in memory, at any alignment; counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
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
        let parts = sides.reduced(Counts::sent(counts))?;
        for (root, part) in (0..).zip(parts) {
            // A part without elements is reduced as well, because its call finds ranks with other counts.
            let output = if root == rank { &mut *output } else { &mut [] };
            let buffers = Borrowed::out_of_place(&input[part.range()], output);
            self.call(Collective::Reduce.by(op).at(root), data_type, buffers, deadline)?;
        }
        Ok(())
    }
}
