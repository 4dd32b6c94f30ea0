//! Gather: the calls on slices, on bytes and on tensors, and those on parts of any length (`_v`).

use super::*;

impl Communicator {
    /// Gathers one part of each rank into the `data` of rank `root`, in the order of ranks.
    ///
    /// The part of rank `i` begins at `i * data.len() / size`. Before the call each rank has put its own part there;
    /// on the other ranks the rest of `data` stays as it was. All ranks pass the same count, type and root. The
    /// library copies the slice through its own memory, so that nothing uses the slice after the return, even after
    /// an error.
    ///
    /// `Ok` says that this rank has done its part: the root has all parts; the others may change `data` again. On one
    /// host ranks leave small parts for the root in shared memory and may be some calls ahead. A later call reports a
    /// rank that called something else or never came.
    ///
    /// The first call that needs links at distances of powers of two opens them, about `2 log2 n` for each rank, and
    /// takes longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] if `root` is no rank and [`CollectiveError::Indivisible`] if the ranks cannot
    /// share the elements evenly; nothing was sent then. Otherwise the error names the rank that is lost, late,
    /// called something else or could not be connected: `data` is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let own = comm.rank() as usize * 1000;
    /// let mut data = vec![0; comm.size() as usize * 1000];
    /// data[own..own + 1000].fill(comm.rank());
    /// comm.gather(&mut data, 0, deadline)?;
    /// if comm.rank() == 0 {
    ///     assert!(data.chunks(1000).zip(0..).all(|(part, rank)| part == [rank; 1000]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclGather")]
    pub fn gather<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.gather_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Gathers the `input` of every rank into the `output` of rank `root`, in the order of ranks.
    ///
    /// Other ranks may pass an empty `output`; it is not written.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] if the root's `output` is not `size` times as long as `input`; nothing was
    /// sent there then. Otherwise as for [`gather`](Self::gather).
    #[doc(alias = "ncclGather")]
    pub fn gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.gather_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, root, deadline)
    }

    /// [`gather`](Self::gather) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`gather`](Self::gather).
    pub fn gather_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Gather.at(root), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`gather_into`](Self::gather_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`gather_into`](Self::gather_into) and [`gather_bytes`](Self::gather_bytes).
    pub fn gather_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Gather.at(root), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`gather`](Self::gather) on a tensor and returns at once; [`Pending::wait`] gives the tensor back.
    ///
    /// The operation runs after those that are pending. Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`gather`](Self::gather). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut parts = comm.alloc::<f32>(comm.size() as usize * 1000)?;
    /// let own = comm.rank() as usize * 1000;
    /// parts[own..own + 1000].fill(1.0);
    /// let parts = comm.start_gather(parts, 0, deadline)?.wait(deadline)?;
    /// assert!(comm.rank() != 0 || parts.iter().all(|element| *element == 1.0));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_gather<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Gather.at(root), tensor, deadline)
    }

    /// Starts [`gather_into`](Self::gather_into) on two tensors and returns at once; [`Pending::wait`] gives both
    /// back.
    ///
    /// # Errors
    ///
    /// As for [`start_gather`](Self::start_gather) and [`gather_into`](Self::gather_into).
    pub fn start_gather_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::Gather.at(root), input, output, deadline)
    }

    /// Gathers parts of any lengths: `counts[i]` elements of rank `i` into the `output` of rank `root`, in the order
    /// of ranks.
    ///
    /// Other ranks may pass an empty `output` and no counts; neither is read. All ranks pass the same type and root.
    ///
    /// The library copies the slices through its own memory, so that nothing uses them after the return, even after
    /// an error. The first call that needs links to all ranks opens them, and takes longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] if `root` is no rank; nothing was sent then. [`CollectiveError::CountsDoNotFit`]
    /// if there is not one count for each rank, or if the counts do not add up to the length of the buffer; nothing
    /// was sent then. [`CollectiveError::CountsDiffer`] names both ranks and both counts if a rank sends this one
    /// another count than expected. Otherwise the error names the rank that is lost, late, called something else or
    /// could not be connected: the output is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(2, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// // Rank 0 gets one element of itself, two of rank 1, and so on.
    /// let input = vec![comm.rank(); comm.rank() as usize + 1];
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let mut output = vec![0; if comm.rank() == 0 { counts.iter().sum() } else { 0 }];
    /// comm.gather_v(&input, &mut output, &counts, 0, deadline)?;
    /// assert!(comm.rank() != 0 || output == [0, 1, 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "MPI_Gatherv")]
    pub fn gather_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.gather_v_bytes(T::as_bytes(input), T::as_bytes_mut(output), counts, root, T::DATA_TYPE, deadline)
    }

    /// [`gather_v`](Self::gather_v) for an element type that is known only at run time.
    ///
    /// The slices hold the bytes of the elements as in memory, at any alignment; counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`gather_v`](Self::gather_v).
    pub fn gather_v_bytes(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        root: u32,
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call_uneven(
            (Collective::GatherV.at(root), Counts::received(counts)),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Starts [`gather_v`](Self::gather_v) on two tensors and returns at once; [`Pending::wait`] gives both back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking call.
    ///
    /// # Errors
    ///
    /// The tensors come back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated one, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts
    /// that do not fit, as for [`gather_v`](Self::gather_v). [`Pending::wait`] returns any later error; the tensors
    /// are then lost.
    pub fn start_gather_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        counts: &[usize],
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven((Collective::GatherV.at(root), Counts::received(counts)), input, output, deadline)
    }
}
