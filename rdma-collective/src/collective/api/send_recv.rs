//! Sends and receives as callers see them: alone and both at once, typed and by bytes.

use super::*;

impl Communicator {
    /// Sends `data` to rank `to`, which receives as many elements of the same type.
    ///
    /// All ranks must have called [`connect`](Self::connect) before. Messages between two ranks arrive in the order
    /// in which they were sent. Each of the two calls its end at the same place among the operations of all ranks;
    /// the others have nothing to call.
    ///
    /// The library copies the slice through its own memory, so that nothing uses the slice after the return, even
    /// after an error. `Ok` does not say that the other rank has received: the slots of the link take some messages
    /// ahead, and only what exceeds them waits. Two ranks that both send first and receive then may therefore wait
    /// for each other until their deadline; use [`send_recv`](Self::send_recv) or a [`Group`] instead.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Unconnected`] without links, also if a pending operation finds that there can be none;
    /// [`CollectiveError::Schedule`] if `to` is no rank; [`CollectiveError::ToItself`] if `to` is this rank; nothing
    /// was sent then. Otherwise the error names the rank, possibly a third one, that is lost, late or called
    /// something else; the communicator has ended on all ranks.
    ///
    /// The receiving rank finds differing counts or types, as [`CollectiveError::Mismatch`]; the sending rank learns
    /// of it, possibly in a later operation.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclSend")]
    #[doc(alias = "MPI_Send")]
    pub fn send<T: Element>(&mut self, data: &[T], to: u32, deadline: Deadline) -> Result<()> {
        self.send_bytes(T::as_bytes(data), T::DATA_TYPE, to, deadline)
    }

    /// Receives the next message of rank `from` to this rank: as many elements as `data` has, of the same type.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send). [`CollectiveError::Mismatch`] if rank `from` sends something else, or calls
    /// another operation with this rank first; the text quotes both calls. After any error `data` is undefined, and
    /// no late message is written there.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclRecv")]
    #[doc(alias = "MPI_Recv")]
    pub fn recv<T: Element>(&mut self, data: &mut [T], from: u32, deadline: Deadline) -> Result<()> {
        self.recv_bytes(T::as_bytes_mut(data), T::DATA_TYPE, from, deadline)
    }

    /// Sends `data` to rank `to` and receives into `output` from rank `from` at the same time.
    ///
    /// A ring of ranks that all do so cannot wait in a circle. `to` and `from` may be one rank, also this one: then
    /// both must be, and the lengths must agree. Otherwise the two lengths are independent. The other ranks may use
    /// [`send`](Self::send), [`recv`](Self::recv) or a [`Group`] for their ends.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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

    /// Sends `data` to rank `to` and receives as much from rank `from` in its place, at the same time.
    ///
    /// Ranks that pass data on around a ring so need one buffer each. Otherwise as [`send_recv`](Self::send_recv).
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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

    /// [`send`](Self::send) for an element type that is known only at run time.
    ///
    /// `data` holds the bytes of the elements as in memory, at any alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] if the bytes end inside an element; nothing was sent then. Otherwise as for
    /// [`send`](Self::send).
    pub fn send_bytes(
        &mut self,
        data: &[u8],
        data_type: DataType,
        to: u32,
        deadline: Deadline,
    ) -> Result<()> {
        let call = Call::point(Collective::Send.at(to), data_type, data.len())?;
        self.call_points(&[call], vec![Borrowed::out_of_place(data, &mut [])], deadline)
    }

    /// [`recv`](Self::recv) for an element type that is known only at run time.
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
        self.call_points(&[call], vec![Borrowed::InPlace(data)], deadline)
    }

    /// [`send_recv`](Self::send_recv) for an element type that is known only at run time.
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
        let buffers = vec![Borrowed::out_of_place(data, &mut []), Borrowed::InPlace(output)];
        self.call_points(&[send, receive], buffers, deadline)
    }

    /// [`send_recv_replace`](Self::send_recv_replace) for an element type that is known only at run time.
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

    /// Starts [`send`](Self::send) of a tensor and returns at once; [`Pending::wait`] gives the tensor back.
    ///
    /// The operation sends from the tensor's memory, without a copy. The operation runs after those that are pending.
    /// Ranks may mix this with the blocking calls.
    ///
    /// # Errors
    ///
    /// The tensor comes back with the error if the operation cannot start: [`CollectiveError::ForeignMemory`] if
    /// another engine allocated it, [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`], or a refusal
    /// as for [`send`](Self::send). [`Pending::wait`] returns any later error; the tensor is then lost.
    pub fn start_send<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        to: u32,
        deadline: Deadline,
    ) -> Started<Tensor<T>> {
        self.start_points_on(&[Collective::Send.at(to)], tensor, deadline)
    }

    /// Starts [`recv`](Self::recv) into a tensor and returns at once; [`Pending::wait`] gives the tensor back.
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

    /// Starts [`send_recv`](Self::send_recv) on two tensors and returns at once; [`Pending::wait`] gives both back.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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
        let job = output.into_job(Some(input));
        self.start_points(job, &points, T::DATA_TYPE, deadline, Tensor::both_from_job)
    }

    /// Starts [`send_recv_replace`](Self::send_recv_replace) on a tensor and returns at once; [`Pending::wait`] gives
    /// the tensor back.
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
    }
}
