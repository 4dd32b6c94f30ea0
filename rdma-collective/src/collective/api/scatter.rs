//! Scatter as callers see it: in place and out of place, typed and by bytes.

use super::*;

impl Communicator {
    /// Brings each rank its part of what rank `root` has: `data` is as long as all parts, one behind the other by rank.
    ///
    /// Afterwards each rank has its part in its place, which is from `rank * data.len() / size` on, and the rest stays as it was. All
    /// ranks call it with the same count, type and root.
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened.
    ///
    /// `Ok` says that this rank's part is done, on the root that `data` may be changed again, and not that the others have
    /// their parts: on one host what is small is left for them, some calls ahead at most. A rank that calls something
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
    /// if comm.rank() == 0 {
    ///     data.chunks_mut(1000).zip(0..).for_each(|(part, rank)| part.fill(rank));
    /// }
    /// comm.scatter(&mut data, 0, deadline)?;
    /// assert_eq!(data[own..own + 1000], [comm.rank(); 1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclScatter")]
    pub fn scatter<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.scatter_bytes(T::as_bytes_mut(data), T::DATA_TYPE, root, deadline)
    }

    /// Brings each rank its part of the `input` of rank `root`, into `output`; otherwise as
    /// [`scatter`](Self::scatter). The input of other ranks is not
    /// looked at, and may be empty.
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when the root's `input` is not as long as there are ranks times `output`, and then nothing is
    /// lost there; or as for
    /// [`scatter`](Self::scatter).
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

    /// [`scatter`](Self::scatter) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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

    /// [`scatter_into`](Self::scatter_into) for a type that is known at run time.
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

    /// Begins to bring each rank its part of the `tensor` of rank `root`, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a buffer or root that cannot be, as for
    /// [`scatter`](Self::scatter). Waiting tells of the others; the tensor is lost then.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_scatter<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_in_place(Collective::Scatter.at(root), tensor, deadline)
    }

    /// Begins to bring each rank its part of the `input` of rank `root`, into `output`, and returns at once; both come back. Otherwise as
    /// [`start_scatter`](Self::start_scatter).
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

    /// Brings a part of the `input` of rank `root` to each rank: there `counts[j]` elements, one behind the other by rank, go to rank `j`,
    /// which has an `output` of as many.
    ///
    /// On other ranks input and counts are not looked at, and may be empty. All ranks call it with the same type and root.
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
    /// // Each rank gets as many elements as its number, and one.
    /// let counts: Vec<usize> = (1..=comm.size() as usize).collect();
    /// let input = if comm.rank() == 0 { vec![0, 1, 1] } else { Vec::new() };
    /// let mut output = vec![9; comm.rank() as usize + 1];
    /// comm.scatter_v(&input, &counts, &mut output, 0, deadline)?;
    /// assert!(output.iter().all(|element| *element == comm.rank()));
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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

    /// [`scatter_v`](Self::scatter_v) for a type that is known at run time: the bytes of elements as in memory, at any alignment. Counts are
    /// of elements.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
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
            (Collective::ScatterV.at(root), Counts { sent: counts, ..Counts::default() }),
            data_type,
            input,
            output,
            deadline,
        )
    }

    /// Begins what [`scatter_v`](Self::scatter_v) does, on tensors, and returns at once; both come back.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix this with the
    /// other calls.
    ///
    /// # Errors
    ///
    /// The tensors come back when it cannot begin: [`CollectiveError::ForeignMemory`] when one is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or counts that cannot be, as for
    /// [`scatter_v`](Self::scatter_v). Waiting tells of the others; the tensors are lost then.
    pub fn start_scatter_v<T: Element>(
        &mut self,
        input: Tensor<T>,
        counts: &[usize],
        output: Tensor<T>,
        root: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        self.start_uneven(
            (Collective::ScatterV.at(root), Counts { sent: counts, ..Counts::default() }),
            input,
            output,
            deadline,
        )
    }
}
