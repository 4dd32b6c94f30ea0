//! All-gather as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Brings the parts of all ranks to each of them: `data` is as long as all of them, one behind the other by rank.
    ///
    /// This rank's own part is in its place already, which is from `rank * data.len() / size` on. All ranks call it with the
    /// same count and type; the elements are the same bytes on all of them.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`] when the elements cannot be shared evenly among the ranks, and then nothing is lost.
    /// Otherwise a rank that is lost, late until `deadline` or calls something else, by its number: the data is then
    /// undefined, and the communicator has ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.all_gather_bytes(T::as_bytes_mut(data), T::DATA_TYPE, deadline)
    }

    /// Brings the `input` of all ranks to each of them, into `output`, one behind the other by rank; otherwise as
    /// [`all_gather`](Self::all_gather).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when `output` is not as long as there are ranks times `input`, and then nothing is lost;
    /// or as for [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.all_gather_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, deadline)
    }

    /// [`all_gather`](Self::all_gather) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_gather`](Self::all_gather).
    pub fn all_gather_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        self.call(Collective::AllGather.into(), data_type, Borrowed::InPlace(data), deadline)
    }

    /// [`all_gather_into`](Self::all_gather_into) for a type that is known at run time.
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

    /// Begins to bring the parts of all ranks into `tensor`, which has this rank's in its place, and returns at once; the
    /// tensor comes back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`all_gather`](Self::all_gather). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_all_gather<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::AllGather.into(), tensor, deadline)
    }

    /// Begins to bring the `input` of all ranks into `output`, and returns at once; both come back. Otherwise as
    /// [`start_all_gather`](Self::start_all_gather).
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

    /// Brings the `input` of all ranks, of any length each, into the `output` of all: `counts[i]` elements come from rank `i`, one behind
    /// the other by rank.
    ///
    /// All ranks call it with the same counts and type, and each with an input of its own count.
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
    /// // One element of rank 0, two of rank 1, and so on.
    /// let input = vec![comm.rank(); comm.rank() as usize + 1];
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let mut output = vec![9; counts.iter().sum()];
    /// comm.all_gather_v(&input, &mut output, &counts, deadline)?;
    /// assert_eq!(output, [0, 1, 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// [`all_gather_v`](Self::all_gather_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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
            (Collective::AllGatherV.into(), Counts { received: counts, ..Counts::default() }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`all_gather_v`](Self::all_gather_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`all_gather_v`](Self::all_gather_v). Waiting tells of the others; the tensors are lost then.
    pub fn start_all_gather_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        counts: &[usize],
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven(
            (Collective::AllGatherV.into(), Counts { received: counts, ..Counts::default() }),
            input,
            output,
            deadline,
        )
    }
}
