//! Sums a vector over all ranks: those that a launcher started, or else two processes on this host.

use std::error::Error;
use std::time::Duration;

use rdma_collective::collective::{Communicator, ReduceOp};
use rdma_core::Deadline;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let deadline = Deadline::after(Duration::from_secs(60));
    let Some(mut comm) = Communicator::init_or_spawn(2, deadline)? else { return Ok(()) };
    let mut data = vec![comm.rank() as f32 + 1.0; 4];
    comm.all_reduce(&mut data, ReduceOp::Sum, deadline)?;
    println!("rank {} of {}: sum is {data:?}", comm.rank(), comm.size());
    comm.close(deadline)?;
    Ok(())
}
