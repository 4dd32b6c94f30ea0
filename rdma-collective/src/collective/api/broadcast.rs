//! Broadcast: the calls on slices, on bytes and on tensors.

use super::*;

impl Communicator {
    /// Copies the `data` of rank `root` to all ranks.
    ///
    /// All ranks pass the same count, type and root; on the other ranks `data` is overwritten. The library copies the
    /// slice through its own memory, so that nothing uses the slice after the return, even after an error.
    ///
    /// `Ok` says that this rank has done its part: the root may change `data` again, but the other ranks need not
    /// have it yet. On one host the root leaves small messages in shared memory and may be some calls ahead; they
    /// arrive even if the root then leaves in good order. A later call reports a rank that called something else or
    /// never came; a [`barrier`](Self::barrier) after the broadcast tells that all have come. The root may also wait
    /// for the others, so no rank may wait for the root before its own call.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] if `root` is no rank; nothing was sent then. Otherwise the error names the rank
    /// that is lost, late or called something else: `data` is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut weights = vec![0.0_f32; 1000];
    /// if comm.rank() == 0 {
    ///     weights.fill(1.5);
    /// }
    /// comm.broadcast(&mut weights, 0, deadline)?;
    /// assert!(weights.iter().all(|weight| *weight == 1.5));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.broadcast_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Copies the `input` of rank `root` to the `output` of all ranks, the root included.
    ///
    /// Other ranks may pass an empty `input`; it is not read.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] if the two differ in length on the root; nothing was sent there then.
    /// Otherwise as for [`broadcast`](Self::broadcast).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.broadcast_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, root, deadline)
    }

    /// [`broadcast`](Self::broadcast) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`broadcast`](Self::broadcast).
    pub fn broadcast_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Broadcast.at(root), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`broadcast_into`](Self::broadcast_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`broadcast_into`](Self::broadcast_into) and [`broadcast_bytes`](Self::broadcast_bytes).
    pub fn broadcast_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Broadcast.at(root), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`broadcast`](Self::broadcast) on a tensor and returns at once; [`Pending::wait`] gives the tensor
    /// back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`broadcast`](Self::broadcast). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut weights = comm.alloc::<f32>(1000)?;
    /// weights.fill(1.5);
    /// let weights = comm.start_broadcast(weights, 0, deadline)?.wait(deadline)?;
    /// assert!(weights.iter().all(|weight| *weight == 1.5));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_broadcast<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Broadcast.at(root), tensor, deadline)
    }

    /// Starts [`broadcast_into`](Self::broadcast_into) on two tensors and returns at once; [`Pending::wait`] gives
    /// both back.
    ///
    /// # Errors
    ///
    /// As for [`start_broadcast`](Self::start_broadcast) and [`broadcast_into`](Self::broadcast_into).
    pub fn start_broadcast_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::Broadcast.at(root), input, output, deadline)
    }
}
