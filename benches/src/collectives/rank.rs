//! A rank of ours, timed as peers' benches time theirs (`peers/mpi_collectives.c`); every element of a result is
//! checked.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{DataType, Element, ReduceOp, Tensor, bf16, f16};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::env;
use rdma_core::{Deadline, Device, SoftOptions, Wire};

use crate::soft::{Outcome, PATIENCE};

use super::side::Side;
use super::table::{Operation, Table};

/// How long a batch takes about, in seconds.
const BATCH: f64 = 1e-3;

/// The longest that one job of ours may take.
const JOB_MAX: Duration = Duration::from_secs(300);

/// Our side: starts the ranks on this host, or is one of them.
#[derive(Debug, clap::Args)]
pub struct Job {
    /// The operation and its type.
    table: Table,
    /// On which memory, and over which wire.
    side: Side,
    ranks: u32,
    /// How long each size is timed.
    milliseconds: u32,
    /// Bytes of the whole.
    #[arg(value_delimiter = ',')]
    sizes: Vec<usize>,
}

impl Job {
    /// Carries the job out. Rank 0 prints a line a size: the bytes, the slowest rank's microseconds of an operation in
    /// the median and in the best batch, and the elements that were wrong.
    ///
    /// # Errors
    ///
    /// The device refuses, or another rank does not come.
    pub fn run(&self) -> Outcome<()> {
        let deadline = Deadline::after(PATIENCE);
        if let Some(join) = LocalRanks::joined()? {
            let mut store = StoreClient::connect(join, deadline)?;
            return self.rank(&mut store, Ipv4Addr::LOCALHOST.into());
        }
        if std::env::var_os("RANK").is_some() {
            let (_, mut joined) = env::join(deadline)?;
            return self.rank(&mut joined.store, joined.address);
        }
        let this = std::env::current_exe()?;
        let command = |_| {
            let mut command = Command::new(&this);
            command.args(std::env::args_os().skip(1));
            command
        };
        Ok(LocalRanks::spawn(self.ranks, command)?.wait(Deadline::after(JOB_MAX))?)
    }

    fn rank(&self, store: &mut StoreClient, address: IpAddr) -> Outcome<()> {
        match self.table.data_type() {
            DataType::F16 => Rank::<f16>::run(store, address, self),
            DataType::Bf16 => Rank::<bf16>::run(store, address, self),
            _ => Rank::<f32>::run(store, address, self),
        }
    }
}

/// Buffers of operations; only an operation out of place has an input.
enum Memory<T> {
    /// Memory of the library's; absent while an operation has it.
    Owned {
        input: Option<Tensor<T>>,
        output: Option<Tensor<T>>,
    },
    Borrowed {
        input: Vec<T>,
        output: Vec<T>,
    },
}

const LOST: &str = "the memory went with an operation that failed";

impl<T: Element + Default> Memory<T> {
    fn new(comm: &Communicator, side: Side, count: usize) -> Outcome<Self> {
        if side == Side::Borrowed {
            return Ok(Self::Borrowed {
                input: vec![T::default(); count],
                output: vec![T::default(); count],
            });
        }
        let alloc = || comm.alloc(count).map(Some);
        Ok(Self::Owned { input: alloc()?, output: alloc()? })
    }

    fn both(&mut self) -> Outcome<(&mut [T], &mut [T])> {
        Ok(match self {
            Self::Owned { input, output } => (input.as_mut().ok_or(LOST)?, output.as_mut().ok_or(LOST)?),
            Self::Borrowed { input, output } => (input, output),
        })
    }
}

struct Rank<T> {
    comm: Communicator,
    operation: Operation,
    memory: Memory<T>,
}

impl<T: Element + Default + PartialEq + From<u8>> Rank<T> {
    fn run(store: &mut StoreClient, address: IpAddr, work: &Job) -> Outcome<()> {
        let wire = if work.side == Side::Tcp { Wire::Tcp } else { Wire::Auto };
        let device = Device::soft(SoftOptions { wire, address, ..SoftOptions::default() });
        let engine = Engine::new(&device.open()?, EngineOptions::default())?;
        let options = CommunicatorOptions::default();
        let comm = Communicator::new(&engine, store, options, Deadline::after(PATIENCE))?;
        let memory = Memory::new(&comm, work.side, 0)?;
        let mut rank = Self { comm, operation: work.table.operation(), memory };
        for &bytes in &work.sizes {
            rank.memory = Memory::new(&rank.comm, work.side, bytes / size_of::<T>())?;
            let wrong = rank.wrong()?;
            let times = rank.times(bytes, f64::from(work.milliseconds) / 1e3)?;
            if rank.comm.rank() == 0 {
                println!("{bytes} {:.4} {:.4} {wrong}", times[times.len() / 2] * 1e6, times[0] * 1e6);
            }
        }
        Ok(rank.comm.close(Deadline::after(PATIENCE))?)
    }

    /// Seconds of an operation in each batch, of the slowest rank, the best first.
    fn times(&mut self, bytes: usize, seconds: f64) -> Outcome<Vec<f64>> {
        let (input, output) = self.memory.both()?;
        input.fill(T::default());
        output.fill(T::default());
        let warm = match bytes {
            0..=65_536 => 50,
            65_537..=4_194_304 => 5,
            _ => 2,
        };
        self.batch(warm)?;
        self.comm.barrier(Deadline::after(PATIENCE))?;
        let mut one = [self.batch(warm)?];
        self.comm.all_reduce(&mut one, ReduceOp::Max, Deadline::after(PATIENCE))?;
        let calls = (BATCH / one[0] + 1.0).clamp(1.0, 10_000.0).floor();
        let least = if one[0] > 0.2 { 3.0 } else { 11.0 };
        let batches = (seconds / (one[0] * calls)).clamp(least, 400.0) as usize;
        let mut times = Vec::with_capacity(batches);
        for _ in 0..batches {
            self.comm.barrier(Deadline::after(PATIENCE))?;
            times.push(self.batch(calls as u32)?);
        }
        self.comm.all_reduce(&mut times, ReduceOp::Max, Deadline::after(PATIENCE))?;
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Seconds of an operation.
    fn batch(&mut self, calls: u32) -> Outcome<f64> {
        let begin = Instant::now();
        // A deadline for all of them, as the operations of a step have.
        let deadline = Deadline::after(PATIENCE);
        for _ in 0..calls {
            self.call(deadline)?;
        }
        Ok(begin.elapsed().as_secs_f64() / f64::from(calls))
    }

    fn call(&mut self, deadline: Deadline) -> Outcome<()> {
        let comm = &mut self.comm;
        match &mut self.memory {
            Memory::Borrowed { input, output } => match self.operation {
                Operation::AllReduce => comm.all_reduce(output, ReduceOp::Sum, deadline)?,
                Operation::AllGather => comm.all_gather(output, deadline)?,
                Operation::ReduceScatter => comm.reduce_scatter(output, ReduceOp::Sum, deadline)?,
                Operation::Broadcast => comm.broadcast(output, 0, deadline)?,
                Operation::AllToAll => comm.all_to_all_into(input, output, deadline)?,
            },
            Memory::Owned { input, output } => {
                let owned = output.take().ok_or(LOST)?;
                let pending = match self.operation {
                    Operation::AllReduce => comm.start_all_reduce(owned, ReduceOp::Sum, deadline)?,
                    Operation::AllGather => comm.start_all_gather(owned, deadline)?,
                    Operation::ReduceScatter => comm.start_reduce_scatter(owned, ReduceOp::Sum, deadline)?,
                    Operation::Broadcast => comm.start_broadcast(owned, 0, deadline)?,
                    Operation::AllToAll => {
                        let from = input.take().ok_or(LOST)?;
                        let (from, to) = comm.start_all_to_all_into(from, owned, deadline)?.wait(deadline)?;
                        (*input, *output) = (Some(from), Some(to));
                        return Ok(());
                    }
                };
                *output = Some(pending.wait(deadline)?);
            }
        }
        Ok(())
    }

    /// Elements that are wrong after one operation, on all ranks.
    fn wrong(&mut self) -> Outcome<u64> {
        let (operation, me, ranks) = (self.operation, self.comm.rank() as usize, self.comm.size() as usize);
        let (input, output) = self.memory.both()?;
        let part = (output.len() / ranks).max(1);
        for (at, (input, output)) in input.iter_mut().zip(output).enumerate() {
            let has = match operation {
                Operation::AllReduce | Operation::ReduceScatter => true,
                Operation::AllGather => at / part == me,
                Operation::Broadcast => me == 0,
                Operation::AllToAll => false,
            };
            *input = T::from(value(me, at));
            *output = if has { *input } else { T::default() };
        }
        self.call(Deadline::after(PATIENCE))?;
        let (_, output) = self.memory.both()?;
        let of =
            if operation == Operation::ReduceScatter { me * part..(me + 1) * part } else { 0..output.len() };
        let is_wrong = |at: &usize| {
            output[*at]
                != T::from(match operation {
                    Operation::AllReduce | Operation::ReduceScatter => {
                        (0..ranks).map(|rank| value(rank, *at)).sum()
                    }
                    Operation::AllGather => value(at / part, *at),
                    Operation::Broadcast => value(0, *at),
                    Operation::AllToAll => value(at / part, me * part + at % part),
                })
        };
        let mut wrong = [of.filter(is_wrong).count() as u64];
        self.comm.all_reduce(&mut wrong, ReduceOp::Sum, Deadline::after(PATIENCE))?;
        Ok(wrong[0])
    }
}

/// Small whole numbers, which are exact in every type, and so are their sums over up to 23 ranks.
fn value(rank: usize, index: usize) -> u8 {
    ((rank * 3 + index) % 11 + 1) as u8
}
