//! Reduce to one rank: the calls on slices, on bytes and on tensors.

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks and leaves the result on rank `root`.
    ///
    /// All ranks pass the same count, type, reduction and root; on the other ranks `data` stays as it was. The
    /// library copies the slice through its own memory, so that nothing uses the slice after the return, even after
    /// an error.
    ///
    /// `Ok` says that this rank has done its part: the root has the result; the others may change `data` again. On
    /// one host ranks leave small messages for the root in shared memory and may be some calls ahead. A later call
    /// reports a rank that called something else or never came.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] if `root` is no rank; nothing was sent then. Otherwise the error names the rank
    /// that is lost, late or called something else: `data` is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut losses = vec![1.0_f64; 1000];
    /// comm.reduce(&mut losses, ReduceOp::Sum, 0, deadline)?;
    /// let expected = if comm.rank() == 0 { comm.size() } else { 1 };
    /// assert!(losses.iter().all(|sum| *sum == f64::from(expected)));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclReduce")]
    pub fn reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.reduce_bytes(T::as_bytes_mut(data), T::DATA_TYPE, op, root, deadline)
    }

    /// Reduces `input` over all ranks into the `output` of rank `root`.
    ///
    /// Other ranks may pass an empty `output`; it is not written.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] if the two differ in length on the root; nothing was sent there then.
    /// Otherwise as for [`reduce`](Self::reduce).
    #[doc(alias = "ncclReduce")]
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.reduce_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, op, root, deadline)
    }

    /// [`reduce`](Self::reduce) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`reduce`](Self::reduce).
    pub fn reduce_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Reduce.by(op).at(root), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`reduce_into`](Self::reduce_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`reduce_into`](Self::reduce_into) and [`reduce_bytes`](Self::reduce_bytes).
    pub fn reduce_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(
            Collective::Reduce.by(op).at(root),
            data_type,
            Borrowed::out_of_place(input, output),
            deadline,
        )
    }

    /// Starts [`reduce`](Self::reduce) on a tensor and returns at once; [`Pending::wait`] gives the tensor back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`reduce`](Self::reduce). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut losses = comm.alloc::<f64>(1000)?;
    /// losses.fill(1.0);
    /// let losses = comm.start_reduce(losses, ReduceOp::Avg, 0, deadline)?.wait(deadline)?;
    /// assert!(losses.iter().all(|mean| *mean == 1.0));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_reduce<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Reduce.by(op).at(root), tensor, deadline)
    }

    /// Starts [`reduce_into`](Self::reduce_into) on two tensors and returns at once; [`Pending::wait`] gives both
    /// back.
    ///
    /// # Errors
    ///
    /// As for [`start_reduce`](Self::start_reduce) and [`reduce_into`](Self::reduce_into).
    pub fn start_reduce_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::Reduce.by(op).at(root), input, output, deadline)
    }
}
