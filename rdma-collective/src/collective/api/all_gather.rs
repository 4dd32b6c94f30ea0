//! All-gather: the calls on slices, on bytes and on tensors, and those on parts of any length (`_v`).

use super::*;

impl Communicator {
    /// Gathers one part of each rank into `data` on every rank, in the order of ranks.
    ///
    /// The part of rank `i` begins at `i * data.len() / size`. Before the call each rank has put its own part there.
    /// All ranks pass the same count and type, and get the same bytes. The library copies the slice through its own
    /// memory, so that nothing uses the slice after the return, even after an error.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] if the ranks cannot share the elements evenly; nothing was sent then.
    /// Otherwise the error names the rank that is lost, late or called something else: `data` is then undefined, and
    /// the communicator has ended.
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
    /// comm.all_gather(&mut data, deadline)?;
    /// assert!(data.chunks(1000).zip(0..).all(|(part, rank)| part == [rank; 1000]));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.all_gather_bytes(T::as_bytes_mut(data), T::DATA_TYPE, deadline)
    }

    /// Gathers the `input` of every rank into `output` on every rank, in the order of ranks.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] if `output` is not `size` times as long as `input`; nothing was sent then.
    /// Otherwise as for [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_gather_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, deadline)
    }

    /// [`all_gather`](Self::all_gather) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`all_gather`](Self::all_gather).
    pub fn all_gather_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllGather.into(), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_gather_into`](Self::all_gather_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`all_gather_into`](Self::all_gather_into) and [`all_gather_bytes`](Self::all_gather_bytes).
    pub fn all_gather_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllGather.into(), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`all_gather`](Self::all_gather) on a tensor and returns at once; [`Pending::wait`] gives the tensor
    /// back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`all_gather`](Self::all_gather). [`Pending::wait`] returns any later error; the tensor is then lost.
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
    /// let parts = comm.start_all_gather(parts, deadline)?.wait(deadline)?;
    /// assert!(parts.iter().all(|element| *element == 1.0));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_all_gather<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllGather.into(), tensor, deadline)
    }

    /// Starts [`all_gather_into`](Self::all_gather_into) on two tensors and returns at once; [`Pending::wait`] gives
    /// both back.
    ///
    /// # Errors
    ///
    /// As for [`start_all_gather`](Self::start_all_gather) and [`all_gather_into`](Self::all_gather_into).
    pub fn start_all_gather_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::AllGather.into(), input, output, deadline)
    }

    /// Gathers parts of any lengths: `counts[i]` elements of rank `i` into `output` on every rank, in the order of
    /// ranks.
    ///
    /// All ranks pass the same counts and type, and each an `input` of its own count.
    ///
    /// The library copies the slices through its own memory, so that nothing uses them after the return, even after
    /// an error. The first call that needs links to all ranks opens them, and takes longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::CountsDoNotFit`] if there is not one count for each rank, or if the counts do not add up to
    /// the length of the buffer; nothing was sent then. [`CollectiveError::CountsDiffer`] names both ranks and both
    /// counts if a rank sends this one another count than expected. Otherwise the error names the rank that is lost,
    /// late, called something else or could not be connected: the output is then undefined, and the communicator has
    /// ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(2, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// // One element of rank 0, two of rank 1, and so on.
    /// let input = vec![comm.rank(); comm.rank() as usize + 1];
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let mut output = vec![9; counts.iter().sum()];
    /// comm.all_gather_v(&input, &mut output, &counts, deadline)?;
    /// assert_eq!(output, [0, 1, 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "MPI_Allgatherv")]
    pub fn all_gather_v<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_gather_v_bytes(T::as_bytes(input), T::as_bytes_mut(output), counts, T::DATA_TYPE, deadline)
    }

    /// [`all_gather_v`](Self::all_gather_v) for an element type that is known only at run time.
    ///
    /// The slices hold the bytes of the elements as in memory, at any alignment; counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`all_gather_v`](Self::all_gather_v).
    pub fn all_gather_v_bytes(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call_uneven(
            (Collective::AllGatherV.into(), Counts::received(counts)),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Starts [`all_gather_v`](Self::all_gather_v) on two tensors and returns at once; [`Pending::wait`] gives both
    /// back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking call.
    ///
    /// # Errors
    ///
    /// The tensors come back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated one, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts
    /// that do not fit, as for [`all_gather_v`](Self::all_gather_v). [`Pending::wait`] returns any later error; the
    /// tensors are then lost.
    pub fn start_all_gather_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        counts: &[usize],
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven((Collective::AllGatherV.into(), Counts::received(counts)), input, output, deadline)
    }
}
