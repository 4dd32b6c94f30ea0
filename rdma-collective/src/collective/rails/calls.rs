//! Blocking calls over rails, with the signatures of [`Communicator`](crate::collective::Communicator); `run` carries
//! them out.

use rdma_core::Deadline;

use super::Rails;
use super::buffers::Buffers;
use crate::collective::call::{Collective, Request};
use crate::collective::{Element, ReduceOp, Result};

impl Rails {
    /// Reduces `data` over all ranks in place, as
    /// [`Communicator::all_reduce`](crate::collective::Communicator::all_reduce) does.
    ///
    /// # Errors
    ///
    /// The error of the last rail: it names the rank that is lost, late or called something else. `data` is then
    /// undefined, and later operations fail with the same error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rdma_collective::collective::{Rails, RailsOptions, ReduceOp};
    /// # use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::engine::{Engine, EngineOptions};
    /// # use rdma_core::{Deadline, Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// // One device twice: two queue pairs to each neighbour.
    /// let engines = [engine.clone(), engine];
    /// let mut rails = Rails::new(&engines, &mut store, RailsOptions::default(), deadline)?;
    /// let mut data = vec![1_i32; 1000];
    /// rails.all_reduce(&mut data, ReduceOp::Sum, deadline)?;
    /// assert!(data.iter().all(|sum| *sum == rails.size() as i32));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp, deadline: Deadline) -> Result<()> {
        self.in_place(Collective::AllReduce.by(op), data, deadline)
    }

    /// Reduces `input` over all ranks into `output`, as
    /// [`Communicator::all_reduce_into`](crate::collective::Communicator::all_reduce_into) does.
    ///
    /// # Errors
    ///
    /// [`LengthsDiffer`](crate::collective::CollectiveError::LengthsDiffer) as for the communicator; nothing was sent
    /// then. Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::AllReduce.by(op), input, output, deadline)
    }

    /// Gathers one part of each rank into `data` on every rank, as
    /// [`Communicator::all_gather`](crate::collective::Communicator::all_gather) does.
    ///
    /// # Errors
    ///
    /// [`Indivisible`](crate::collective::CollectiveError::Indivisible) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.in_place(Collective::AllGather.into(), data, deadline)
    }

    /// Gathers the `input` of every rank into `output` on every rank, as
    /// [`Communicator::all_gather_into`](crate::collective::Communicator::all_gather_into) does.
    ///
    /// # Errors
    ///
    /// [`PartsDiffer`](crate::collective::CollectiveError::PartsDiffer) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::AllGather.into(), input, output, deadline)
    }

    /// Reduces `data` and leaves each rank its own part, as
    /// [`Communicator::reduce_scatter`](crate::collective::Communicator::reduce_scatter) does.
    ///
    /// # Errors
    ///
    /// [`Indivisible`](crate::collective::CollectiveError::Indivisible) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.in_place(Collective::ReduceScatter.by(op), data, deadline)
    }

    /// Reduces `input` and leaves this rank's part of the result in `output`, as
    /// [`Communicator::reduce_scatter_into`](crate::collective::Communicator::reduce_scatter_into) does.
    ///
    /// # Errors
    ///
    /// [`PartsDiffer`](crate::collective::CollectiveError::PartsDiffer) as for the communicator; nothing was sent then.
    /// Otherwise as for [`reduce_scatter`](Self::reduce_scatter).
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::ReduceScatter.by(op), input, output, deadline)
    }

    /// Copies the `data` of rank `root` to all ranks, as
    /// [`Communicator::broadcast`](crate::collective::Communicator::broadcast) does.
    ///
    /// # Errors
    ///
    /// [`Schedule`](crate::collective::CollectiveError::Schedule) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.in_place(Collective::Broadcast.at(root), data, deadline)
    }

    /// Copies the `input` of rank `root` to the `output` of all ranks, as
    /// [`Communicator::broadcast_into`](crate::collective::Communicator::broadcast_into) does.
    ///
    /// # Errors
    ///
    /// [`LengthsDiffer`](crate::collective::CollectiveError::LengthsDiffer) as for the communicator; nothing was sent
    /// then. Otherwise as for [`broadcast`](Self::broadcast).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::Broadcast.at(root), input, output, deadline)
    }

    /// Reduces `data` and leaves the result on rank `root`, as
    /// [`Communicator::reduce`](crate::collective::Communicator::reduce) does.
    ///
    /// # Errors
    ///
    /// [`Schedule`](crate::collective::CollectiveError::Schedule) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclReduce")]
    pub fn reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.in_place(Collective::Reduce.by(op).at(root), data, deadline)
    }

    /// Reduces `input` into the `output` of rank `root`, as
    /// [`Communicator::reduce_into`](crate::collective::Communicator::reduce_into) does.
    ///
    /// # Errors
    ///
    /// [`LengthsDiffer`](crate::collective::CollectiveError::LengthsDiffer) as for the communicator; nothing was sent
    /// then. Otherwise as for [`reduce`](Self::reduce).
    #[doc(alias = "ncclReduce")]
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::Reduce.by(op).at(root), input, output, deadline)
    }

    /// Exchanges parts between all ranks, as
    /// [`Communicator::all_to_all`](crate::collective::Communicator::all_to_all) does.
    ///
    /// The first call that needs links to all ranks opens them on each rail, and takes longer for that. A rail on
    /// which ranks cannot be connected has failed.
    ///
    /// # Errors
    ///
    /// [`Indivisible`](crate::collective::CollectiveError::Indivisible) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all<T: Element>(&mut self, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.in_place(Collective::AllToAll.into(), data, deadline)
    }

    /// Exchanges parts between all ranks, from `input` to `output`, as
    /// [`Communicator::all_to_all_into`](crate::collective::Communicator::all_to_all_into) does.
    ///
    /// # Errors
    ///
    /// [`LengthsDiffer`](crate::collective::CollectiveError::LengthsDiffer) as for the communicator; nothing was sent
    /// then. Otherwise as for [`all_to_all`](Self::all_to_all).
    #[doc(alias = "ncclAlltoAll")]
    pub fn all_to_all_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::AllToAll.into(), input, output, deadline)
    }

    /// Gathers one part of each rank on rank `root`, as
    /// [`Communicator::gather`](crate::collective::Communicator::gather) does.
    ///
    /// # Errors
    ///
    /// [`Schedule`](crate::collective::CollectiveError::Schedule) or
    /// [`Indivisible`](crate::collective::CollectiveError::Indivisible) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclGather")]
    pub fn gather<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.in_place(Collective::Gather.at(root), data, deadline)
    }

    /// Gathers the `input` of every rank into the `output` of rank `root`, as
    /// [`Communicator::gather_into`](crate::collective::Communicator::gather_into) does.
    ///
    /// # Errors
    ///
    /// [`PartsDiffer`](crate::collective::CollectiveError::PartsDiffer) as for the communicator; nothing was sent then.
    /// Otherwise as for [`gather`](Self::gather).
    #[doc(alias = "ncclGather")]
    pub fn gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::Gather.at(root), input, output, deadline)
    }

    /// Gives each rank its part of the `data` of rank `root`, as
    /// [`Communicator::scatter`](crate::collective::Communicator::scatter) does.
    ///
    /// # Errors
    ///
    /// [`Schedule`](crate::collective::CollectiveError::Schedule) or
    /// [`Indivisible`](crate::collective::CollectiveError::Indivisible) as for the communicator; nothing was sent then.
    /// Otherwise as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclScatter")]
    pub fn scatter<T: Element>(&mut self, data: &mut [T], root: u32, deadline: Deadline) -> Result<()> {
        self.in_place(Collective::Scatter.at(root), data, deadline)
    }

    /// Gives each rank its part of the `input` of rank `root`, into `output`, as
    /// [`Communicator::scatter_into`](crate::collective::Communicator::scatter_into) does.
    ///
    /// # Errors
    ///
    /// [`PartsDiffer`](crate::collective::CollectiveError::PartsDiffer) as for the communicator; nothing was sent then.
    /// Otherwise as for [`scatter`](Self::scatter).
    #[doc(alias = "ncclScatter")]
    pub fn scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<()> {
        self.out_of_place(Collective::Scatter.at(root), input, output, deadline)
    }

    fn in_place<T: Element>(&mut self, request: Request, data: &mut [T], deadline: Deadline) -> Result<()> {
        self.carry_out(request, T::DATA_TYPE, &mut Buffers::InPlace(T::as_bytes_mut(data)), deadline)
    }

    fn out_of_place<T: Element>(
        &mut self,
        request: Request,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        let mut buffers = Buffers::OutOfPlace { input: T::as_bytes(input), output: T::as_bytes_mut(output) };
        self.carry_out(request, T::DATA_TYPE, &mut buffers, deadline)
    }
}
