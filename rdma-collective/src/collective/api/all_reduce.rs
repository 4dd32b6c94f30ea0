//! All-reduce: the calls on slices, on bytes and on tensors.

use std::ops::Range;

use rdma_core::Region;

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks and leaves the result in `data` on every rank.
    ///
    /// All ranks pass the same count, type and reduction, and get the same bits. The library copies the slice through
    /// its own memory, so that nothing uses the slice after the return, even after an error.
    ///
    /// # Errors
    ///
    /// The error names the rank that is lost, late or called something else: `data` is then undefined, and the
    /// communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut gradients = vec![1.0_f32; 1 << 20];
    /// comm.all_reduce(&mut gradients, ReduceOp::Sum, deadline)?;
    /// assert!(gradients.iter().all(|sum| *sum == comm.size() as f32));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp, deadline: Deadline) -> Result<()> {
        let buffers = Borrowed::InPlace(T::as_bytes_mut(data));
        self.call(Collective::AllReduce.by(op), T::DATA_TYPE, buffers, deadline)
    }

    /// Reduces `input` over all ranks into `output`, which has the same length.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] if `input` and `output` differ in length; nothing was sent then. Otherwise
    /// as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.all_reduce_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, op, deadline)
    }

    /// [`all_reduce`](Self::all_reduce) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllReduce.by(op), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_reduce_into`](Self::all_reduce_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`all_reduce_into`](Self::all_reduce_into) and [`all_reduce_bytes`](Self::all_reduce_bytes).
    pub fn all_reduce_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllReduce.by(op), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`all_reduce`](Self::all_reduce) on a tensor and returns at once; [`Pending::wait`] gives the tensor
    /// back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`all_reduce`](Self::all_reduce). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut gradients = comm.alloc::<f32>(1 << 20)?;
    /// gradients.fill(1.0);
    /// let pending = comm.start_all_reduce(gradients, ReduceOp::Sum, deadline)?;
    /// // … compute something else …
    /// let gradients = pending.wait(deadline)?;
    /// assert!(gradients.iter().all(|sum| *sum == comm.size() as f32));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_all_reduce<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllReduce.by(op), tensor, deadline)
    }

    /// Starts [`all_reduce_into`](Self::all_reduce_into) on two tensors and returns at once; [`Pending::wait`] gives
    /// both back.
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce) and [`all_reduce_into`](Self::all_reduce_into).
    pub fn start_all_reduce_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::AllReduce.by(op), input, output, deadline)
    }

    /// Starts an all-reduce of `range` of a registered region, in bytes and in place, and returns at once.
    ///
    /// Peers may have the right to write the region, as with the region of a KV pool; but nobody else may write the
    /// range during the operation, or the result is undefined. The operation keeps a handle to the region.
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce); [`CollectiveError::Range`] if the region has no such
    /// bytes; [`CollectiveError::ForeignMemory`] if it is not registered in the [engine's
    /// domain](crate::engine::Engine::register).
    pub fn start_all_reduce_region(
        &mut self,
        region: &Region,
        range: Range<usize>,
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<Pending<()>> {
        if range.start > range.end || range.end > region.len() {
            let Range { start, end } = range;
            return Err(CollectiveError::Range { start, end, len: region.len() });
        }
        if !self.engine().pd().owns(region) {
            return Err(CollectiveError::ForeignMemory);
        }
        let job = Box::new(Job::of_region(self.engine().id(), region.clone(), range));
        self.start_call(Collective::AllReduce.by(op), data_type, job, deadline, |_| ())
            .map_err(|refused| refused.error)
    }
}
