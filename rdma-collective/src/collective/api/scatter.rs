//! Scatter: the calls on slices, on bytes and on tensors, and those on parts of any length (`_v`).

use super::*;

impl Communicator {
    /// Gives each rank its part of the `data` of rank `root`.
    ///
    /// The part of rank `i` begins at `i * data.len() / size`. After the call each rank has its own part there, and
    /// the rest of `data` is as before. All ranks pass the same count, type and root. The library copies the slice
    /// through its own memory, so that nothing uses the slice after the return, even after an error.
    ///
    /// `Ok` says that this rank has done its part: the root may change `data` again, but the other ranks need not
    /// have their parts yet. On one host the root leaves small parts in shared memory and may be some calls ahead. A
    /// later call reports a rank that called something else or never came.
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
    /// if comm.rank() == 0 {
    ///     data.chunks_mut(1000).zip(0..).for_each(|(part, rank)| part.fill(rank));
    /// }
    /// comm.scatter(&mut data, 0, deadline)?;
    /// assert_eq!(data[own..own + 1000], [comm.rank(); 1000]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclScatter")]
    pub fn scatter<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.scatter_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Gives each rank its part of the `input` of rank `root`, into `output`.
    ///
    /// Other ranks may pass an empty `input`; it is not read.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] if the root's `input` is not `size` times as long as `output`; nothing was
    /// sent there then. Otherwise as for [`scatter`](Self::scatter).
    #[doc(alias = "ncclScatter")]
    pub fn scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.scatter_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, root, deadline)
    }

    /// [`scatter`](Self::scatter) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`scatter`](Self::scatter).
    pub fn scatter_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Scatter.at(root), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`scatter_into`](Self::scatter_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`scatter_into`](Self::scatter_into) and [`scatter_bytes`](Self::scatter_bytes).
    pub fn scatter_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::Scatter.at(root), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`scatter`](Self::scatter) on a tensor and returns at once; [`Pending::wait`] gives the tensor back.
    ///
    /// The operation runs after those that are pending. Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`scatter`](Self::scatter). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut parts = comm.alloc::<f32>(comm.size() as usize * 1000)?;
    /// parts.fill(1.5);
    /// let parts = comm.start_scatter(parts, 0, deadline)?.wait(deadline)?;
    /// let own = comm.rank() as usize * 1000;
    /// assert!(parts[own..own + 1000].iter().all(|element| *element == 1.5));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_scatter<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Scatter.at(root), tensor, deadline)
    }

    /// Starts [`scatter_into`](Self::scatter_into) on two tensors and returns at once; [`Pending::wait`] gives both
    /// back.
    ///
    /// # Errors
    ///
    /// As for [`start_scatter`](Self::start_scatter) and [`scatter_into`](Self::scatter_into).
    pub fn start_scatter_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::Scatter.at(root), input, output, deadline)
    }

    /// Gives each rank a part of any length of the `input` of rank `root`: `counts[j]` elements to rank `j`.
    ///
    /// The parts lie in the order of ranks, and the `output` of rank `j` has `counts[j]` elements. Other ranks may
    /// pass an empty `input` and no counts; neither is read. All ranks pass the same type and root.
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
    /// // Each rank gets as many elements as its number, and one.
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let input = if comm.rank() == 0 { vec![0, 1, 1] } else { Vec::new() };
    /// let mut output = vec![9; comm.rank() as usize + 1];
    /// comm.scatter_v(&input, &counts, &mut output, 0, deadline)?;
    /// assert!(output.iter().all(|element| *element == comm.rank()));
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "MPI_Scatterv")]
    pub fn scatter_v<T: Element>(
        &mut self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.scatter_v_bytes(
            T::as_bytes(input),
            counts,
            T::as_bytes_mut(output),
            root,
            T::DATA_TYPE,
            deadline,
        )
    }

    /// [`scatter_v`](Self::scatter_v) for an element type that is known only at run time.
    ///
    /// The slices hold the bytes of the elements as in memory, at any alignment; counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`scatter_v`](Self::scatter_v).
    pub fn scatter_v_bytes(
        &mut self,
        input: &[u8],
        counts: &[usize],
        output: &mut [u8],
        root: u32,
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call_uneven(
            (Collective::ScatterV.at(root), Counts::sent(counts)),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Starts [`scatter_v`](Self::scatter_v) on two tensors and returns at once; [`Pending::wait`] gives both back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking call.
    ///
    /// # Errors
    ///
    /// The tensors come back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated one, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts
    /// that do not fit, as for [`scatter_v`](Self::scatter_v). [`Pending::wait`] returns any later error; the tensors
    /// are then lost.
    pub fn start_scatter_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        counts: &[usize],
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven((Collective::ScatterV.at(root), Counts::sent(counts)), input, output, deadline)
    }
}
