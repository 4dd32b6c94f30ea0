//! Links to all ranks, for those that send to each other alone.

use super::*;

impl Communicator {
    /// Connects each rank to all others, so that any two can [send](Self::send) and [receive](Self::recv) without a third.
    ///
    /// All ranks call it, once; a later call only waits until the rank before this one is in it, too. What the links take is bounded: less than 64 MiB
    /// together, up to a thousand ranks.
    ///
    /// # Errors
    ///
    /// A rank that is lost, late until `deadline` or calls something else, by its number, or one that could not be connected;
    /// the communicator has ended then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// comm.connect(deadline)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(&mut self, deadline: Deadline) -> Result<()> {
        self.call(Collective::Connect.into(), DataType::U8, Borrowed::InPlace(&mut []), deadline)
    }
}
