//! Sends and receives as callers see them: alone and both at once, typed and by bytes.

use super::*;

impl Communicator {
    /// Sends `data` to rank `to`, which receives as many elements of the same type.
    ///
    /// [`connect`](Self::connect) comes before, on all ranks. What two ranks send each other arrives in the order in which it was
    /// sent; each calls it at the same place among the operations of all ranks, in which the others have nothing to do.
    ///
    /// The slice is copied through memory of the library, so that nothing of it is in use when this returns, whatever
    /// happened. That it returned does not say that the other rank has received: what fits the slots of the link goes ahead of that,
    /// and the rest waits for it. Ranks that send to each other first and receive then may so wait until their deadline; they use
    /// [`send_recv`](Self::send_recv), or a [`Group`](super::Group).
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Unconnected`] without links, be it that an operation under way finds that there can be none,
    /// [`CollectiveError::Schedule`] when `to` is no rank, and [`CollectiveError::ToItself`] when it is this one; then nothing is lost.
    /// Otherwise a rank that is lost, be it a third one, that is late until
    /// `deadline` or calls something else, by its number: the communicator has ended on all ranks, as it does for collectives.
    ///
    /// The rank that receives finds out that the two have called different counts or types, as [`CollectiveError::Mismatch`]; this one
    /// hears of it, possibly in a later operation.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(2, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// comm.connect(deadline)?;
    /// let mut data = [0.0_f32; 1000];
    /// match comm.rank() {
    ///     0 => comm.send(&[2.5_f32; 1000], 1, deadline)?,
    ///     1 => comm.recv(&mut data, 0, deadline)?,
    ///     _ => {}
    /// }
    /// assert!(comm.rank() != 1 || data == [2.5; 1000]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclSend")]
    #[doc(alias = "MPI_Send")]
    pub fn send<T: Element>(&mut self, data: &[T], to: u32, deadline: Deadline) -> Result<()> {
        self.send_bytes(T::as_bytes(data), T::DATA_TYPE, to, deadline)
    }

    /// Receives what rank `from` [sends](Self::send) to this one next: as many elements as `data` has, of the same type.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send). [`CollectiveError::Mismatch`] when rank `from` sends something else, or calls another
    /// operation with this rank first: it says what both have called. After any error `data` is undefined, and nothing that comes late is put
    /// there.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// # Communicator::on_threads(2, |comm| {
    /// let deadline = Deadline::after(Duration::from_secs(30));
    /// comm.connect(deadline)?;
    /// let mut data = [0.0_f32; 1000];
    /// match comm.rank() {
    ///     0 => comm.send(&[2.5_f32; 1000], 1, deadline)?,
    ///     1 => comm.recv(&mut data, 0, deadline)?,
    ///     _ => {}
    /// }
    /// assert!(comm.rank() != 1 || data == [2.5; 1000]);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclRecv")]
    #[doc(alias = "MPI_Recv")]
    pub fn recv<T: Element>(&mut self, data: &mut [T], from: u32, deadline: Deadline) -> Result<()> {
        self.recv_bytes(T::as_bytes_mut(data), T::DATA_TYPE, from, deadline)
    }

    /// Sends `data` to rank `to` and receives into `output` from rank `from` at the same time, so that a ring of ranks that all do
    /// so does not wait in a circle.
    ///
    /// The two ranks may be one, and may be this one: both are then, and `output` is as long as `data`. Otherwise the lengths have
    /// nothing to do with each other. The other ranks may call [`send`](Self::send) and [`recv`](Self::recv), or a
    /// [`Group`](super::Group), for their side of it.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send) and [`recv`](Self::recv).
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// comm.connect(deadline)?;
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let mut found = [0];
    /// comm.send_recv(&[rank], (rank + 1) % size, &mut found, (rank + size - 1) % size, deadline)?;
    /// assert_eq!(found, [(rank + size - 1) % size]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "MPI_Sendrecv")]
    pub fn send_recv<T: Element>(
        &mut self,
        data: &[T],
        to: u32,
        output: &mut [T],
        from: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let (data, output) = (T::as_bytes(data), T::as_bytes_mut(output));
        self.send_recv_bytes(data, to, output, from, T::DATA_TYPE, deadline)
    }

    /// Sends `data` to rank `to` and receives as much from rank `from` in its place, at the same time: ranks that hand what they
    /// have on around a ring need one buffer each. Otherwise as [`send_recv`](Self::send_recv).
    ///
    /// # Errors
    ///
    /// As for [`send_recv`](Self::send_recv); after an error `data` is undefined.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// comm.connect(deadline)?;
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let mut data = [rank; 1000];
    /// for _ in 0..size {
    ///     // … work with what is there …
    ///     comm.send_recv_replace(&mut data, (rank + 1) % size, (rank + size - 1) % size, deadline)?;
    /// }
    /// assert_eq!(data, [rank; 1000], "once around");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "MPI_Sendrecv_replace")]
    pub fn send_recv_replace<T: Element>(
        &mut self,
        data: &mut [T],
        to: u32,
        from: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.send_recv_replace_bytes(T::as_bytes_mut(data), T::DATA_TYPE, to, from, deadline)
    }

    /// [`send`](Self::send) for a type that is known at run time: the bytes of elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for [`send`](Self::send).
    pub fn send_bytes(
        &mut self,
        data: &[u8],
        data_type: DataType,
        to: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let mut slices = Slices::default();
        slices.send(data);
        let call = Call::point(Collective::Send.at(to), data_type, data.len())?;
        self.call_points(&[call], slices, deadline)
    }

    /// [`recv`](Self::recv) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`send_bytes`](Self::send_bytes) and [`recv`](Self::recv).
    pub fn recv_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        from: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let call = Call::point(Collective::Receive.at(from), data_type, data.len())?;
        let mut slices = Slices::default();
        slices.receive(data);
        self.call_points(&[call], slices, deadline)
    }

    /// [`send_recv`](Self::send_recv) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`send_bytes`](Self::send_bytes) and [`recv`](Self::recv).
    pub fn send_recv_bytes(
        &mut self,
        data: &[u8],
        to: u32,
        output: &mut [u8],
        from: u32,
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<()> {
        let send = Call::point(Collective::Send.at(to), data_type, data.len())?;
        let receive = Call::point(Collective::Receive.at(from), data_type, output.len())?;
        let mut slices = Slices::default();
        slices.send(data);
        slices.receive(output);
        self.call_points(&[send, receive], slices, deadline)
    }

    /// [`send_recv_replace`](Self::send_recv_replace) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`send_bytes`](Self::send_bytes) and [`recv`](Self::recv).
    pub fn send_recv_replace_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        to: u32,
        from: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let [send, receive] = [Collective::Send.at(to), Collective::Receive.at(from)];
        let calls = [Call::point(send, data_type, data.len())?, Call::point(receive, data_type, data.len())?];
        self.call_in_place(calls, data, deadline)
    }

    /// Begins to send a tensor to rank `to`, from where it lies, and returns at once; the tensor comes back.
    ///
    /// It runs behind the operations that are pending. Ranks may mix this with the other calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or no links or a rank that cannot be, as for
    /// [`send`](Self::send). Waiting tells of the others; the tensor is lost then.
    pub fn start_send<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        to: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_points_on(&[Collective::Send.at(to)], tensor, deadline)
    }

    /// Begins to receive a tensor from rank `from`, and returns at once; the tensor comes back. Otherwise as
    /// [`start_send`](Self::start_send).
    ///
    /// # Errors
    ///
    /// As for [`start_send`](Self::start_send) and [`recv`](Self::recv).
    pub fn start_recv<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        from: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_points_on(&[Collective::Receive.at(from)], tensor, deadline)
    }

    /// Begins to send `input` to rank `to` and to receive `output` from rank `from` at the same time, and returns at once; both come
    /// back. Otherwise as [`start_send`](Self::start_send).
    ///
    /// # Errors
    ///
    /// As for [`start_send`](Self::start_send) and [`send_recv`](Self::send_recv).
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// comm.connect(deadline)?;
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let [mut input, output] = [comm.alloc::<u32>(1000)?, comm.alloc(1000)?];
    /// input.fill(rank);
    /// let pending = comm.start_send_recv(input, (rank + 1) % size, output, (rank + size - 1) % size, deadline)?;
    /// let (_, output) = pending.wait(deadline)?;
    /// assert!(output.iter().all(|found| *found == (rank + size - 1) % size));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_send_recv<T: Element>(
        &mut self,
        input: Tensor<T>,
        to: u32,
        output: Tensor<T>,
        from: u32,
        deadline: Deadline,
    ) -> Started<(Tensor<T>, Tensor<T>)> {
        let points = [Collective::Send.at(to), Collective::Receive.at(from)];
        self.start_points(
            output.into_job(Some(input)),
            &points,
            T::DATA_TYPE,
            deadline,
            Tensor::both_from_job,
        )
        .map_err(|(job, error)| Refused { object: Tensor::both_from_job(job), error })
    }

    /// Begins to send a tensor to rank `to` and to receive as much from rank `from` in its place, and returns at once; the tensor comes
    /// back. Otherwise as [`start_send`](Self::start_send).
    ///
    /// # Errors
    ///
    /// As for [`start_send`](Self::start_send) and [`recv`](Self::recv).
    pub fn start_send_recv_replace<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        to: u32,
        from: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_points_on(&[Collective::Send.at(to), Collective::Receive.at(from)], tensor, deadline)
    }

    fn start_points_on<T: Element>(
        &mut self,
        points: &[Request],
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_points(tensor.into_job(None), points, T::DATA_TYPE, deadline, Tensor::from_job)
            .map_err(|(job, error)| Refused { object: Tensor::from_job(job), error })
    }
}
