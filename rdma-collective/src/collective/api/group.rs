//! Groups of sends and receives that run as one operation.

use std::fmt;

use super::*;

/// Sends and receives that [run](Self::run) at the same time, so that none of them waits for another.
///
/// Messages to one rank go in the order in which they were added, and so do messages from one rank. The other end of
/// each message may be in a group or alone. A group has at most 4096 of them.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::collective::{Communicator, Group};
/// use rdma_core::Deadline;
///
/// let mut comm = Communicator::init()?;
/// let deadline = Deadline::after(Duration::from_secs(5));
/// comm.connect(deadline)?;
/// // One element for each rank, and one from each.
/// let sent: Vec<u32> = (0..comm.size()).map(|to| 100 * comm.rank() + to).collect();
/// let mut received = vec![0; sent.len()];
/// let own = comm.rank();
/// let mut group = Group::new();
/// for ((rank, sent), received) in (0..).zip(sent.chunks(1)).zip(received.chunks_mut(1)) {
///     group = group.send(sent, rank).recv(received, rank);
/// }
/// group.run(&mut comm, deadline)?;
/// assert!((0..).zip(received).all(|(from, received)| received == 100 * from + own));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Default)]
#[must_use = "nothing is sent before it is run"]
#[doc(alias = "ncclGroupStart")]
pub struct Group<'a> {
    calls: Vec<Call>,
    buffers: Vec<Borrowed<'a>>,
    /// The error of the first send or receive that cannot be.
    refused: Option<ReduceError>,
}

impl<'a> Group<'a> {
    /// Makes an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a [`send`](Communicator::send) of `data` to rank `to`, which may be this one.
    pub fn send<T: Element>(self, data: &'a [T], to: u32) -> Self {
        self.send_bytes(T::as_bytes(data), T::DATA_TYPE, to)
    }

    /// Adds a [`recv`](Communicator::recv) into `data` from rank `from`, which may be this one.
    pub fn recv<T: Element>(self, data: &'a mut [T], from: u32) -> Self {
        self.recv_bytes(T::as_bytes_mut(data), T::DATA_TYPE, from)
    }

    /// [`send`](Self::send) for an element type that is known only at run time: the bytes as in memory, at any
    /// alignment.
    pub fn send_bytes(mut self, data: &'a [u8], data_type: DataType, to: u32) -> Self {
        self.add(Call::point(Collective::Send.at(to), data_type, data.len()));
        self.buffers.push(Borrowed::out_of_place(data, &mut []));
        self
    }

    /// [`recv`](Self::recv) for an element type that is known only at run time.
    pub fn recv_bytes(mut self, data: &'a mut [u8], data_type: DataType, from: u32) -> Self {
        self.add(Call::point(Collective::Receive.at(from), data_type, data.len()));
        self.buffers.push(Borrowed::InPlace(data));
        self
    }

    fn add(&mut self, call: std::result::Result<Call, ReduceError>) {
        match call {
            Ok(call) => self.calls.push(call),
            Err(error) => self.refused = self.refused.or(Some(error)),
        }
    }

    /// Runs all sends and receives, as one operation of `comm`. An empty group is done at once.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::send_bytes`] and [`Communicator::recv`], and [`CollectiveError::GroupTooLong`]; nothing
    /// was sent then. A message of a rank to itself needs its receive in the same group, with the same count and type.
    #[doc(alias = "ncclGroupEnd")]
    pub fn run(self, comm: &mut Communicator, deadline: Deadline) -> Result<()> {
        let Self { calls, buffers, refused } = self;
        match refused {
            Some(error) => Err(error.into()),
            None => comm.call_points(&calls, buffers, deadline),
        }
    }
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("len", &self.calls.len()).finish_non_exhaustive()
    }
}
