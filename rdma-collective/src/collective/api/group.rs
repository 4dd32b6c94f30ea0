//! Groups of sends and receives as callers see them.

use std::fmt;

use super::*;

/// Sends and receives that go on together when it is [run](Self::run), so that none of them waits for another.
///
/// What goes to one rank goes in the order in which it was added, and so does what comes from
/// one; the other end of each may be in a group, too, or alone. There are 4096 of them at most.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
#[must_use = "nothing is sent before it is run"]
#[doc(alias = "ncclGroupStart")]
pub struct Group<'a> {
    calls: Vec<Call>,
    slices: Slices<'a>,
    /// What cannot be, of the first that cannot.
    refused: Option<ReduceError>,
}

impl<'a> Group<'a> {
    /// One of nothing.
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

    /// [`send`](Self::send) for a type that is known at run time: the bytes of elements as in memory, at any alignment.
    pub fn send_bytes(mut self, data: &'a [u8], data_type: DataType, to: u32) -> Self {
        self.add(Call::point(Collective::Send.at(to), data_type, data.len()));
        self.slices.send(data);
        self
    }

    /// [`recv`](Self::recv) for a type that is known at run time.
    pub fn recv_bytes(mut self, data: &'a mut [u8], data_type: DataType, from: u32) -> Self {
        self.add(Call::point(Collective::Receive.at(from), data_type, data.len()));
        self.slices.receive(data);
        self
    }

    fn add(&mut self, call: std::result::Result<Call, ReduceError>) {
        match call {
            Ok(call) => self.calls.push(call),
            Err(error) => self.refused = self.refused.or(Some(error)),
        }
    }

    /// Carries all of it out, as one operation of `comm`. A group of nothing is done at once.
    ///
    /// # Errors
    ///
    /// As for [`Communicator::send_bytes`] and [`Communicator::recv`], and [`CollectiveError::GroupTooLong`]; nothing was sent then. What
    /// a rank sends to itself it receives in the same group, as much of it and of the same type.
    #[doc(alias = "ncclGroupEnd")]
    pub fn run(self, comm: &mut Communicator, deadline: Deadline) -> Result<()> {
        let Self { calls, slices, refused } = self;
        match refused {
            Some(error) => Err(error.into()),
            None => comm.call_points(&calls, slices, deadline),
        }
    }
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("len", &self.calls.len()).finish_non_exhaustive()
    }
}
