//! Collectives on slices of the caller's, in place, of sizes at which a copy takes no time: how long one takes, as peers' benches time theirs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rdma_collective::collective::ReduceOp;
use rdma_collective::comm::bootstrap::StoreClient;
use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions};

use crate::soft::Outcome;

/// How long one size is timed.
const FOR: Duration = Duration::from_millis(400);
/// How long a batch takes about, as in peers' benches.
const BATCH: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// What is timed: what peers' benches have, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Collective {
    /// Sums.
    AllReduce,
    /// A part of each rank.
    AllGather,
    /// Sums, of which each rank gets a part.
    ReduceScatter,
    /// From rank 0.
    Broadcast,
}

impl Collective {
    /// What it is called in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
        }
    }

    /// What peers' benches call it.
    const fn at_peers(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "bcast",
        }
    }

    /// Of so many sizes in bytes those that so many ranks can share evenly, where each has a part.
    pub fn shared(self, sizes: impl Iterator<Item = usize>, ranks: u32) -> Vec<usize> {
        let parts = if matches!(self, Self::AllGather | Self::ReduceScatter) { ranks as usize } else { 1 };
        sizes.filter(|bytes| bytes.is_multiple_of(parts * size_of::<f32>())).collect()
    }

    fn run(self, comm: &mut Communicator, data: &mut [f32]) -> Outcome<()> {
        let deadline = Deadline::after(PATIENCE);
        match self {
            Self::AllReduce => comm.all_reduce(data, ReduceOp::Sum, deadline)?,
            Self::AllGather => comm.all_gather(data, deadline)?,
            Self::ReduceScatter => comm.reduce_scatter(data, ReduceOp::Sum, deadline)?,
            Self::Broadcast => comm.broadcast(data, 0, deadline)?,
        }
        Ok(())
    }
}

/// Bytes of the whole, and the microseconds that one takes.
pub type Times = Vec<(usize, f64)>;

/// One rank: rank 0 prints a line a size, of the bytes and the microseconds of one in the slowest rank's best batch: what else runs
/// on the machine keeps one of the ranks from its core in most of the others.
///
/// # Errors
///
/// The device refuses, or another rank does not come.
pub fn rank(store: &mut StoreClient, collective: Collective, sizes: &[usize]) -> Outcome<()> {
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    let options = CommunicatorOptions::default();
    let mut comm = Communicator::new(&engine, store, options, Deadline::after(PATIENCE))?;
    for &bytes in sizes {
        let mut data = vec![0.0_f32; bytes / size_of::<f32>()];
        let mut batch = |comm: &mut Communicator, count: u32| -> Outcome<f64> {
            let begin = Instant::now();
            for _ in 0..count {
                collective.run(comm, &mut data)?;
            }
            Ok(begin.elapsed().as_secs_f64() / f64::from(count))
        };
        batch(&mut comm, 200)?;
        let mut slowest = [batch(&mut comm, 200)?];
        comm.all_reduce(&mut slowest, ReduceOp::Max, Deadline::after(PATIENCE))?;
        let count = (BATCH.as_secs_f64() / slowest[0]).clamp(10.0, 10_000.0) as u32;
        let batches = (FOR.as_secs_f64() / slowest[0] / f64::from(count)).clamp(11.0, 400.0) as usize;
        let mut times = (0..batches).map(|_| batch(&mut comm, count)).collect::<Outcome<Vec<f64>>>()?;
        comm.all_reduce(&mut times, ReduceOp::Max, Deadline::after(PATIENCE))?;
        if comm.rank() == 0 {
            let best = times.into_iter().fold(f64::INFINITY, f64::min);
            println!("{bytes} {}", best * 1e6);
        }
    }
    Ok(comm.close(Deadline::after(PATIENCE))?)
}

/// What ranks of an MPI take, whose bench is in the folder `peers`: `impi` or `mpi5`.
///
/// # Errors
///
/// It is not there, or fails.
pub fn mpi(peers: &Path, name: &str, collective: Collective, ranks: u32, sizes: &[usize]) -> Outcome<Times> {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let root = peers.join(if name == "impi" { "venv-impi" } else { "venv-mpi5" });
    let mut command = Command::new(root.join(if name == "impi" { "bin/mpiexec" } else { "bin/mpirun" }));
    command.env("I_MPI_ROOT", &root).env("FI_PROVIDER_PATH", root.join("lib")).env("I_MPI_FABRICS", "shm");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if name == "mpi5" {
        command.args(["--map-by", ":OVERSUBSCRIBE"]);
    }
    command.arg("-n").arg(ranks.to_string()).arg(peers.join(format!("build/allreduce-{name}")));
    command.args([
        "-o",
        collective.at_peers(),
        "-t",
        name,
        "-p",
        "in",
        "-m",
        &FOR.as_millis().to_string(),
        "-s",
        &sizes.join(","),
    ]);
    command.stdin(std::process::Stdio::null());
    let printed = String::from_utf8(crate::programs::output(&mut command)?.stdout)?;
    let line = |line: &str| -> Option<(usize, f64)> {
        let fields: Vec<&str> = line.split(',').collect();
        Some((fields.get(5)?.trim().parse().ok()?, fields.get(7)?.trim().parse().ok()?))
    };
    let times: Times = printed.lines().filter(|line| line.starts_with("R,")).filter_map(line).collect();
    if times.len() == sizes.len() { Ok(times) } else { Err(format!("{command:?}: {printed}").into()) }
}

/// What a rank prints.
///
/// # Errors
///
/// It is no times.
pub fn parse(printed: &str) -> Outcome<Times> {
    let line = |line: &str| -> Outcome<(usize, f64)> {
        let (bytes, time) = line.split_once(' ').ok_or_else(|| format!("no time: {line}"))?;
        Ok((bytes.parse()?, time.parse()?))
    };
    printed.lines().map(line).collect()
}
