//! All-reduce as callers see it: in place and out of place, typed and by bytes.

use std::ops::Range;

use rdma_core::Region;

use super::*;

impl Communicator {
    /// Reduces `data` over all ranks, and leaves the result on each of them in its place.
    ///
    /// All ranks call it with the same count, type and operation; the result is the same bytes on all of them. The slice
    /// is copied through memory of the library, so that nothing of it is in use when this returns, whatever happened.
    ///
    /// # Errors
    ///
    /// [`CollectiveError`]: a rank that is lost, late until `deadline` or calls something else, by its number. The data
    /// is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp, deadline: Deadline) -> Result<()> {
        self.all_reduce_bytes(T::as_bytes_mut(data), T::DATA_TYPE, op, deadline)
    }

    /// Reduces `input` over all ranks into `output`, which is as long; otherwise as [`all_reduce`](Self::all_reduce).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
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

    /// [`all_reduce`](Self::all_reduce) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// [`all_reduce_into`](Self::all_reduce_into) for a type that is known at run time.
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

    /// Begins to reduce `tensor` over all ranks in its place, and returns at once; the tensor comes back with the result.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`]. Waiting tells of the others, as for
    /// [`all_reduce`](Self::all_reduce); the tensor is lost then.
    pub fn start_all_reduce<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllReduce.by(op), tensor, deadline)
    }

    /// Begins to reduce `input` over all ranks into `output`, and returns at once; both come back. Otherwise as
    /// [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce), and [`CollectiveError::LengthsDiffer`].
    pub fn start_all_reduce_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::AllReduce.by(op), input, output, deadline)
    }

    /// Begins to reduce `range` of a registered region over all ranks in its place, and returns at once.
    ///
    /// The region may be one that peers write, such as a KV pool's; nobody else may write the range meanwhile, or the
    /// result is undefined. The operation keeps a handle to it. Otherwise as [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce), [`CollectiveError::Range`] for bytes that are not there, and
    /// [`CollectiveError::ForeignMemory`] when it is not registered in the [engine's domain](crate::engine::Engine::register).
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
        if !self.engine().lock().pd().owns(region) {
            return Err(CollectiveError::ForeignMemory);
        }
        let job = Box::new(Job::of_region(self.engine().id(), region.clone(), range));
        self.start_call(Collective::AllReduce.by(op), data_type, job, deadline, |_| ())
            .map_err(|(_, error)| error)
    }
}
