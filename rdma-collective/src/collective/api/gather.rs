//! Gather as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Brings the parts of all ranks to rank `root`: `data` is as long as all of them, one behind the other by rank.
    ///
    /// Each rank's own part is in its place already, which is from `rank * data.len() / size` on; on other ranks than the root the
    /// rest stays as it was. All ranks call it with the same count, type and root.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// `Ok` says that this rank's part is done, on the root that all parts are there, on others that their `data` may be changed
    /// again: on one host what is small is left for the root, some calls ahead at most. A rank that calls something
    /// else, or never comes, is told of by a later call.
    ///
    /// The first call that needs it connects each rank to those at distances of powers of two, `2 log2 n` of them, and takes
    /// the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and [`CollectiveError::Indivisible`] when the elements cannot be
    /// shared evenly among the ranks; then nothing is lost. Otherwise a rank that is lost, late until `deadline` or calls
    /// something else, by its number, or one that could not be connected: the data is then undefined, and the communicator has
    /// ended.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclGather")]
    pub fn gather<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.gather_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Brings the `input` of all ranks into the `output` of rank `root`, one behind the other by rank; otherwise as
    /// [`gather`](Self::gather). The output of other ranks
    /// stays as it is, and may be empty.
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when the root's `output` is not as long as there are ranks times `input`, and then nothing is
    /// lost there; or as for
    /// [`gather`](Self::gather).
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

    /// [`gather`](Self::gather) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// [`gather_into`](Self::gather_into) for a type that is known at run time.
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

    /// Begins to bring the parts of all ranks into the `tensor` of rank `root`, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`gather`](Self::gather). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_gather<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Gather.at(root), tensor, deadline)
    }

    /// Begins to bring the `input` of all ranks into the `output` of rank `root`, and returns at once; both come back. Otherwise as
    /// [`start_gather`](Self::start_gather).
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

    /// Brings the `input` of all ranks, of any length each, into the `output` of rank `root`: there `counts[i]` elements come from rank
    /// `i`, one behind the other by rank.
    ///
    /// On other ranks output and counts are not looked at, and may be empty. All ranks call it with the same type and root.
    /// Slices are copied through memory of the library, so that nothing of them is in use when this returns, whatever happened.
    /// The first call that needs it connects each rank to all others, and takes the longer for that.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank; then nothing is lost.
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
    /// // Rank 0 gets one element of itself, two of rank 1, and so on.
    /// let input = vec![comm.rank(); comm.rank() as usize + 1];
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let mut output = vec![0; if comm.rank() == 0 { counts.iter().sum() } else { 0 }];
    /// comm.gather_v(&input, &mut output, &counts, 0, deadline)?;
    /// assert!(comm.rank() != 0 || output == [0, 1, 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// [`gather_v`](Self::gather_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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
            (Collective::GatherV.at(root), Counts { received: counts, ..Counts::default() }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`gather_v`](Self::gather_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`gather_v`](Self::gather_v). Waiting tells of the others; the tensors are lost then.
    pub fn start_gather_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        counts: &[usize],
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven(
            (Collective::GatherV.at(root), Counts { received: counts, ..Counts::default() }),
            input,
            output,
            deadline,
        )
    }
}
