//! Broadcast as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Brings the `data` of rank `root` to all ranks.
    ///
    /// All ranks call it with the same count, type and root. What other ranks have in `data` is overwritten.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// `Ok` says that this rank's part is done, on the root that `data` may be changed again, and not that the others have it: what is
    /// small is left for them on one host, some calls ahead at most, and theirs though the root leaves in good order. A rank that calls
    /// something else, or never comes, is told of by a later call; a [`barrier`](Self::barrier) behind it says that all have
    /// come. The root may as well wait for the others, so let no rank wait for the root before it calls.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and then nothing is lost. Otherwise a rank that is lost, late
    /// until `deadline` or calls something else, by its number: the data is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.broadcast_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Brings the `input` of rank `root` to the `output` of all ranks, its own too; otherwise as
    /// [`broadcast`](Self::broadcast). The input of other ranks is not looked at, and may be empty.
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when the two are not of one length on the root, and then nothing is lost there; or as
    /// for [`broadcast`](Self::broadcast).
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

    /// [`broadcast`](Self::broadcast) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// [`broadcast_into`](Self::broadcast_into) for a type that is known at run time.
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

    /// Begins to bring the `tensor` of rank `root` to all ranks, and returns at once; the tensor comes back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`broadcast`](Self::broadcast). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_broadcast<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Broadcast.at(root), tensor, deadline)
    }

    /// Begins to bring the `input` of rank `root` to the `output` of all ranks, and returns at once; both come back.
    /// Otherwise as [`start_broadcast`](Self::start_broadcast).
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
