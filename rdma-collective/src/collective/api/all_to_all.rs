//! All-to-all: the calls on slices, on bytes and on tensors, and those on parts of any length (`_v`).

use super::*;

impl Communicator {
    /// Exchanges parts between all ranks: part `j` of rank `i` becomes part `i` of rank `j`.
    ///
    /// `data` has one part for each rank, in the order of ranks, before and after. All ranks pass the same count and
    /// type. The library copies the slice through its own memory, so that nothing uses the slice after the return,
    /// even after an error.
    ///
    /// The first call that needs links to all ranks opens them, and takes longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] if the ranks cannot share the elements evenly; nothing was sent then.
    /// Otherwise the error names the rank that is lost, late, called something else or could not be connected: `data`
    /// is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut data: Vec<u32> = (0..comm.size()).flat_map(|to| [to; 1000]).collect();
    /// comm.all_to_all(&mut data, deadline)?;
    /// assert!(data.iter().all(|element| *element == comm.rank()));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.all_to_all_bytes(T::as_bytes_mut(data), T::DATA_TYPE, deadline)
    }

    /// Exchanges parts between all ranks: part `j` of the `input` of rank `i` becomes part `i` of the `output` of
    /// rank `j`.
    ///
    /// `output` has the length of `input`.
    ///
    /// Ranks may mix this with the in-place form.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] if `input` and `output` differ in length; nothing was sent then. Otherwise
    /// as for [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_to_all_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, deadline)
    }

    /// [`all_to_all`](Self::all_to_all) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`all_to_all`](Self::all_to_all).
    pub fn all_to_all_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllToAll.into(), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_to_all_into`](Self::all_to_all_into) for an element type that is known only at run time.
    ///
    /// # Errors
    ///
    /// As for [`all_to_all_into`](Self::all_to_all_into) and [`all_to_all_bytes`](Self::all_to_all_bytes).
    pub fn all_to_all_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllToAll.into(), data_type, Borrowed::out_of_place(input, output), deadline)
    }

    /// Starts [`all_to_all`](Self::all_to_all) on a tensor and returns at once; [`Pending::wait`] gives the tensor
    /// back.
    ///
    /// The operation runs after those that are pending. Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`all_to_all`](Self::all_to_all). [`Pending::wait`] returns any later error; the tensor is then lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// let mut parts = comm.alloc::<f32>(comm.size() as usize * 1000)?;
    /// parts.fill(2.5);
    /// let parts = comm.start_all_to_all(parts, deadline)?.wait(deadline)?;
    /// assert!(parts.iter().all(|element| *element == 2.5));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn start_all_to_all<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllToAll.into(), tensor, deadline)
    }

    /// Starts [`all_to_all_into`](Self::all_to_all_into) on two tensors and returns at once; [`Pending::wait`] gives
    /// both back.
    ///
    /// # Errors
    ///
    /// As for [`start_all_to_all`](Self::start_all_to_all) and [`all_to_all_into`](Self::all_to_all_into).
    pub fn start_all_to_all_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_out_of_place(Collective::AllToAll.into(), input, output, deadline)
    }

    /// Exchanges parts of any lengths: this rank sends `send_counts[j]` elements to rank `j` and receives
    /// `receive_counts[i]` from rank `i`.
    ///
    /// `input` holds the parts for all ranks, and `output` those of all ranks, in the order of ranks. Both ends of a
    /// pair pass the same count, even 0, and the same type. Ranks that do not know their receive counts exchange them
    /// first, by an [`all_to_all`](Self::all_to_all) of one element a rank.
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
    /// // Tokens for the experts on each rank: how many come from where is told before.
    /// let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    /// let send_counts: Vec<usize> = (0..size).map(|to| 10 * rank + to).collect();
    /// let mut counts: Vec<u64> = send_counts.iter().map(|count| *count as u64).collect();
    /// comm.all_to_all(&mut counts, deadline)?;
    /// let receive_counts: Vec<usize> = counts.iter().map(|count| *count as usize).collect();
    ///
    /// let tokens = vec![comm.rank(); send_counts.iter().sum()];
    /// let mut received = vec![0; receive_counts.iter().sum()];
    /// comm.all_to_all_v(&tokens, &send_counts, &mut received, &receive_counts, deadline)?;
    /// let from = |from: usize| vec![from as u32; 10 * from + rank];
    /// assert_eq!(received, (0..size).flat_map(from).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "MPI_Alltoallv")]
    pub fn all_to_all_v<T: Element>(
        &mut self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        receive_counts: &[usize],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_to_all_v_bytes(
            T::as_bytes(input),
            send_counts,
            T::as_bytes_mut(output),
            receive_counts,
            T::DATA_TYPE,
            deadline,
        )
    }

    /// [`all_to_all_v`](Self::all_to_all_v) for an element type that is known only at run time.
    ///
    /// The slices hold the bytes of the elements as in memory, at any alignment; counts are of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`all_to_all_v`](Self::all_to_all_v).
    pub fn all_to_all_v_bytes(
        &mut self,
        input: &[u8],
        send_counts: &[usize],
        output: &mut [u8],
        receive_counts: &[usize],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call_uneven(
            (Collective::AllToAllV.into(), Counts { sent: send_counts, received: receive_counts }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Starts [`all_to_all_v`](Self::all_to_all_v) on two tensors and returns at once; [`Pending::wait`] gives both
    /// back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking call.
    ///
    /// # Errors
    ///
    /// The tensors come back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated one, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts
    /// that do not fit, as for [`all_to_all_v`](Self::all_to_all_v). [`Pending::wait`] returns any later error; the
    /// tensors are then lost.
    pub fn start_all_to_all_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        send_counts: &[usize],
        output: Tensor<T>,
        receive_counts: &[usize],
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven(
            (Collective::AllToAllV.into(), Counts { sent: send_counts, received: receive_counts }),
            input,
            output,
            deadline,
        )
    }
}
