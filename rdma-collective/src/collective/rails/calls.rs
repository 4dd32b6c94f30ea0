//! Operations over rails as callers see them; those that only move parts are in `parts`.

use rdma_core::Deadline;

use super::Rails;
use super::buffers::Buffers;
use crate::collective::CollectiveError;
use crate::collective::call::{Collective, Request};
use crate::collective::{Element, ReduceOp};

impl Rails {
    /// Reduces `data` over all ranks in its place, as [`Communicator::all_reduce`](crate::collective::communicator::Communicator::all_reduce)
    /// does.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the last rail failed with: a rank that is lost, late until `deadline` or calls something else, by its number. The
    /// data is then undefined, and later operations fail with the same.
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::AllReduce.by(op), data, deadline)
    }

    /// Reduces `input` over all ranks into `output`; otherwise as [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::AllReduce.by(op), input, output, deadline)
    }

    /// Brings the parts of all ranks to all, as [`Communicator::all_gather`](crate::collective::communicator::Communicator::all_gather) does:
    /// this rank's own part is in its place in `data` already.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<T: Element>(
        &mut self,
        data: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::AllGather.into(), data, deadline)
    }

    /// Brings the `input` of all ranks to the `output` of all, one behind the other by rank.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::AllGather.into(), input, output, deadline)
    }

    /// Reduces `data` over all ranks and leaves this rank's part of the result in its place, as
    /// [`Communicator::reduce_scatter`](crate::collective::communicator::Communicator::reduce_scatter) does. The other parts stay as they were.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Indivisible`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::ReduceScatter.by(op), data, deadline)
    }

    /// Reduces `input` over all ranks and leaves this rank's part of the result in `output`.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::PartsDiffer`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclReduceScatter")]
    pub fn reduce_scatter_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::ReduceScatter.by(op), input, output, deadline)
    }

    /// Brings what rank `root` has in `data` to all, as
    /// [`Communicator::broadcast`](crate::collective::communicator::Communicator::broadcast) does.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and then nothing is lost; or as for
    /// [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::Broadcast.at(root), data, deadline)
    }

    /// Brings the `input` of rank `root` to the `output` of all ranks, its own too. The input of other ranks is not looked at,
    /// and may be empty.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when the two are not of one length on the root, and then nothing is lost there; or as
    /// for [`broadcast`](Self::broadcast).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::Broadcast.at(root), input, output, deadline)
    }

    /// Reduces `data` over all ranks and leaves the result at rank `root`, as
    /// [`Communicator::reduce`](crate::collective::communicator::Communicator::reduce) does; on other ranks it stays as it was.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Schedule`] when `root` is no rank, and then nothing is lost; or as for
    /// [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclReduce")]
    pub fn reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.in_place(Collective::Reduce.by(op).at(root), data, deadline)
    }

    /// Reduces `input` over all ranks into the `output` of rank `root`; that of other ranks stays as it is, and may be empty.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`] when the two are not of one length on the root, and then nothing is lost there; or as
    /// for [`reduce`](Self::reduce).
    #[doc(alias = "ncclReduce")]
    pub fn reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: u32,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.apart(Collective::Reduce.by(op).at(root), input, output, deadline)
    }

    pub(super) fn in_place<T: Element>(
        &mut self,
        request: Request,
        data: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let mut buffers = Buffers::InPlace(T::as_bytes_mut(data));
        self.carry_out(request, T::DATA_TYPE, &mut buffers, deadline)
    }

    pub(super) fn apart<T: Element>(
        &mut self,
        request: Request,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let mut buffers = Buffers::Apart { input: T::as_bytes(input), output: T::as_bytes_mut(output) };
        self.carry_out(request, T::DATA_TYPE, &mut buffers, deadline)
    }
}
