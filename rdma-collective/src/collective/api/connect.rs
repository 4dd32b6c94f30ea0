//! Links to all ranks, for those that send to each other alone.

use super::*;

impl Communicator {
    /// Connects each rank to all others, so that any two can [send](Self::send) and [receive](Self::recv) without a
    /// third.
    ///
    /// All ranks call it once. A later call only waits until the rank before this one has called it, too. All links
    /// of a rank together take less than 64 MiB, up to a thousand ranks.
    ///
    /// # Errors
    ///
    /// The error names the rank that is lost, late, called something else or could not be connected; the communicator
    /// has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    /// comm.connect(deadline)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn connect(&mut self, deadline: Deadline) -> Result<()> {
        self.call(Collective::Connect.into(), DataType::U8, Borrowed::InPlace(&mut []), deadline)
    }
}
