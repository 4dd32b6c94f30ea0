//! All-to-all as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Brings part `j` of rank `i` to rank `j` as its part `i`, for all of them: `data` has one part for each rank, one behind the
    /// other by rank, before and after.
    ///
    /// All ranks call it with the same count and type.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] when the elements cannot be shared evenly among the ranks, and then nothing is lost.
    /// Otherwise a rank that is lost, late until `deadline` or calls something else, by its number, or one that could not be
    /// connected: the data is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.all_to_all_bytes(T::as_bytes_mut(data), T::DATA_TYPE, deadline)
    }

    /// Brings part `j` of the `input` of rank `i` to rank `j` as part `i` of its `output`, which is as long; otherwise as
    /// [`all_to_all`](Self::all_to_all).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when `input` and `output` are not of one length, and then nothing is lost; or as for
    /// [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_to_all_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, deadline)
    }

    /// [`all_to_all`](Self::all_to_all) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_to_all`](Self::all_to_all).
    pub fn all_to_all_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllToAll.into(), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_to_all_into`](Self::all_to_all_into) for a type that is known at run time.
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

    /// Begins to bring part `j` of rank `i` to rank `j` as its part `i`, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`all_to_all`](Self::all_to_all). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_all_to_all<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllToAll.into(), tensor, deadline)
    }

    /// Begins to bring part `j` of the `input` of rank `i` to rank `j` as part `i` of its `output`, and returns at once; both come back. Otherwise as
    /// [`start_all_to_all`](Self::start_all_to_all).
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

    /// Brings so many elements from each rank to each other one: of `input`, which has what goes to each rank one behind the other by rank,
    /// `send_counts[j]` go to rank `j`, and `receive_counts[i]` come from rank `i` to `output`, which has them by rank.
    ///
    /// What a rank sends another one that one expects, be it nothing; a rank that does not know its counts gets them by an
    /// [`all_to_all`](Self::all_to_all) of one element each. What goes between two ranks is of the same type.
    /// Slices are copied through memory of the library, so that nothing of them is in use when this returns, whatever happened.
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::CountsDoNotFit`] when there is not a count for each rank, or they are together not as many as the buffer's elements,
    /// and then nothing is lost. [`CollectiveError::CountsDiffer`] when another rank sends this one another count than it expects: it
    /// names both ranks and counts. Otherwise a rank that is lost, late until `deadline` or calls something else, by its
    /// number, or one that could not be connected: the output is then undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// [`all_to_all_v`](Self::all_to_all_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// Begins what [`all_to_all_v`](Self::all_to_all_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`all_to_all_v`](Self::all_to_all_v). Waiting tells of the others; the tensors are lost then.
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
