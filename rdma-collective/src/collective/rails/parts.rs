//! Operations that bring parts from rank to rank and reduce nothing: all-to-all, gather and scatter.

use rdma_core::Deadline;

use super::Rails;
use crate::collective::CollectiveError;
use crate::collective::Element;
use crate::collective::call::Collective;

impl Rails {
    /// Brings part `j` of rank `i` to rank `j` as its part `i`, for all of them, as
    /// [`Communicator::all_to_all`](crate::collective::communicator::Communicator::all_to_all) does.
    ///
    /// The first call connects each rank to all others on each rail, and takes the longer for that.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rdma_collective::collective::{Rails, RailsOptions};
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Deadline, Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let engines = [engine.clone(), engine];
    /// # let mut rails = Rails::new(&engines, &mut store, RailsOptions::default(), deadline)?;
    /// let mut data: Vec<u32> = (0..rails.size()).flat_map(|to| [to; 1000]).collect();
    /// rails.all_to_all(&mut data, deadline)?;
    /// assert!(data.iter().all(|element| *element == rails.rank()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce). A rail on which
    /// ranks cannot be connected has failed.
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all<T: Element>(
        &mut self,
        data: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::AllToAll.into(), data, deadline)
    }

    /// Brings part `j` of the `input` of rank `i` to rank `j` as part `i` of its `output`, which is as long.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`], and then nothing is lost; or as for [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::AllToAll.into(), input, output, deadline)
    }

    /// Brings the parts of all ranks to rank `root`, as [`Communicator::gather`](crate::collective::communicator::Communicator::gather) does: each
    /// rank's own part is in its place already, and on other ranks than the root all stays as it was.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and [`CollectiveError::Indivisible`]; then nothing is lost. Or as
    /// for [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclGather")]
    pub fn gather<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::Gather.at(root), data, deadline)
    }

    /// Brings the `input` of all ranks into the `output` of rank `root`, one behind the other by rank; that of other ranks stays
    /// as it is, and may be empty.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when the root's `output` is not as long as there are ranks times `input`, and then
    /// nothing is lost there; or as for [`gather`](Self::gather).
    #[doc(alias = "ncclGather")]
    pub fn gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::Gather.at(root), input, output, deadline)
    }

    /// Brings each rank its part of what rank `root` has, as [`Communicator::scatter`](crate::collective::communicator::Communicator::scatter)
    /// does: it is in its place then, and the other parts stay as they were.
    ///
    /// # Errors
    ///
    /// As for [`gather`](Self::gather).
    #[doc(alias = "ncclScatter")]
    pub fn scatter<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::Scatter.at(root), data, deadline)
    }

    /// Brings each rank its part of the `input` of rank `root`, into `output`. The input of other ranks is not looked at, and
    /// may be empty.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`] when the root's `input` is not as long as there are ranks times `output`, and then
    /// nothing is lost there; or as for [`gather`](Self::gather).
    #[doc(alias = "ncclScatter")]
    pub fn scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::Scatter.at(root), input, output, deadline)
    }
}
