//! Reduce as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks, and leaves the result on rank `root` in its place.
    ///
    /// All ranks call it with the same count, type, operation and root. What other ranks have in `data` stays as it was.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// `Ok` says that this rank's part is done, on the root that the result is there, on others that their `data` may be changed
    /// again: on one host what is small is left for the root, some calls ahead at most. A rank that calls something else, or never
    /// comes, is told of by a later call.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and then nothing is lost. Otherwise a rank that is lost, late
    /// until `deadline` or calls something else, by its number: the data is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// Reduces `input` over all ranks into the `output` of rank `root`; otherwise as [`reduce`](Self::reduce). The output of
    /// other ranks stays as it is, and may be empty.
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when the two are not of one length on the root, and then nothing is lost there; or as
    /// for [`reduce`](Self::reduce).
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

    /// [`reduce`](Self::reduce) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// [`reduce_into`](Self::reduce_into) for a type that is known at run time.
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

    /// Begins to reduce `tensor` over all ranks, and returns at once; the tensor comes back, that of rank `root` with the
    /// result.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`reduce`](Self::reduce). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// Begins to reduce `input` over all ranks into the `output` of rank `root`, and returns at once; both come back.
    /// Otherwise as [`start_reduce`](Self::start_reduce).
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
