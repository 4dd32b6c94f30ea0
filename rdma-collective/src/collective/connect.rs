//! Links to all ranks, for those that send to each other alone.

use rdma_core::Deadline;

use super::DataType;
use super::call::Collective;
use super::execute::Borrowed;
use crate::collective::CollectiveError;
use crate::collective::communicator::Communicator;

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
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::collective::{Communicator, CommunicatorOptions};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// comm.connect(Deadline::after(Duration::from_secs(5)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(&mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        self.call(Collective::Connect.into(), DataType::U8, Borrowed::InPlace(&mut []), deadline)
    }
}
