//! The call that is asked of the library: which collective, with which reduction and root, in place or out of place.

use super::kind::Collective;
use anyhow::Result;
use rdma_collective::collective::{Communicator, Pending};
use rdma_collective::collective::{Element, ReduceOp, Tensor};
use rdma_core::Deadline;

/// Whether an operation's result takes the place of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// From one buffer to another.
    Out,
    /// From a buffer to itself.
    In,
}

/// An operation; all ranks run the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The collective.
    pub collective: Collective,
    /// How elements are combined, where they are; the inputs follow from it anyway.
    pub op: ReduceOp,
    /// The root, where there is one.
    pub root: u32,
}

impl Call {
    /// Returns the text of the column `redop`.
    pub fn redop(self) -> String {
        if self.collective.reduces() { self.op.to_string() } else { "none".to_owned() }
    }

    /// Returns the number of the column `root`.
    pub fn root_column(self) -> i64 {
        if self.collective.is_rooted() { self.root.into() } else { -1 }
    }

    /// Begins it in place.
    ///
    /// # Errors
    ///
    /// The communicator's error; the tensor is lost then.
    pub fn start<T: Element>(
        self,
        comm: &mut Communicator,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>> {
        let Self { collective, op, root } = self;
        Ok(match collective {
            Collective::AllReduce => comm.start_all_reduce(tensor, op, deadline)?,
            Collective::AllGather => comm.start_all_gather(tensor, deadline)?,
            Collective::ReduceScatter => comm.start_reduce_scatter(tensor, op, deadline)?,
            Collective::Broadcast => comm.start_broadcast(tensor, root, deadline)?,
            Collective::Reduce => comm.start_reduce(tensor, op, root, deadline)?,
            Collective::AllToAll => comm.start_all_to_all(tensor, deadline)?,
            Collective::Gather => comm.start_gather(tensor, root, deadline)?,
            Collective::Scatter => comm.start_scatter(tensor, root, deadline)?,
            Collective::SendRecv => {
                let (next, previous) = around(comm);
                comm.start_send_recv_replace(tensor, next, previous, deadline)?
            }
        })
    }

    /// Does it in place, on a slice.
    ///
    /// # Errors
    ///
    /// The communicator's error.
    pub fn run<T: Element>(self, comm: &mut Communicator, data: &mut [T], deadline: Deadline) -> Result<()> {
        let Self { collective, op, root } = self;
        match collective {
            Collective::AllReduce => comm.all_reduce(data, op, deadline)?,
            Collective::AllGather => comm.all_gather(data, deadline)?,
            Collective::ReduceScatter => comm.reduce_scatter(data, op, deadline)?,
            Collective::Broadcast => comm.broadcast(data, root, deadline)?,
            Collective::Reduce => comm.reduce(data, op, root, deadline)?,
            Collective::AllToAll => comm.all_to_all(data, deadline)?,
            Collective::Gather => comm.gather(data, root, deadline)?,
            Collective::Scatter => comm.scatter(data, root, deadline)?,
            Collective::SendRecv => {
                let (next, previous) = around(comm);
                comm.send_recv_replace(data, next, previous, deadline)?;
            }
        }
        Ok(())
    }

    /// Does it out of place, on slices.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_into<T: Element>(
        self,
        comm: &mut Communicator,
        input: &[T],
        output: &mut [T],
        deadline: Deadline,
    ) -> Result<()> {
        let Self { collective, op, root } = self;
        match collective {
            Collective::AllReduce => comm.all_reduce_into(input, output, op, deadline)?,
            Collective::AllGather => comm.all_gather_into(input, output, deadline)?,
            Collective::ReduceScatter => comm.reduce_scatter_into(input, output, op, deadline)?,
            Collective::Broadcast => comm.broadcast_into(input, output, root, deadline)?,
            Collective::Reduce => comm.reduce_into(input, output, op, root, deadline)?,
            Collective::AllToAll => comm.all_to_all_into(input, output, deadline)?,
            Collective::Gather => comm.gather_into(input, output, root, deadline)?,
            Collective::Scatter => comm.scatter_into(input, output, root, deadline)?,
            Collective::SendRecv => {
                let (next, previous) = around(comm);
                comm.send_recv(input, next, output, previous, deadline)?;
            }
        }
        Ok(())
    }

    /// Begins it out of place.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_into<T: Element>(
        self,
        comm: &mut Communicator,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>> {
        let Self { collective, op, root } = self;
        Ok(match collective {
            Collective::AllReduce => comm.start_all_reduce_into(input, output, op, deadline)?,
            Collective::AllGather => comm.start_all_gather_into(input, output, deadline)?,
            Collective::ReduceScatter => comm.start_reduce_scatter_into(input, output, op, deadline)?,
            Collective::Broadcast => comm.start_broadcast_into(input, output, root, deadline)?,
            Collective::Reduce => comm.start_reduce_into(input, output, op, root, deadline)?,
            Collective::AllToAll => comm.start_all_to_all_into(input, output, deadline)?,
            Collective::Gather => comm.start_gather_into(input, output, root, deadline)?,
            Collective::Scatter => comm.start_scatter_into(input, output, root, deadline)?,
            Collective::SendRecv => {
                let (next, previous) = around(comm);
                comm.start_send_recv(input, next, output, previous, deadline)?
            }
        })
    }
}

/// The rank after this one, and the rank before it.
fn around(comm: &Communicator) -> (u32, u32) {
    let (rank, size) = (comm.rank(), comm.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}
