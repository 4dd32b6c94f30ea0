//! Sides that are timed: our ranks, those of peers that are installed, and the machine's limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::programs;
use crate::soft::Outcome;

use super::Network;
use super::table::{Table, large, limited};

/// Microseconds of one operation at each size in bytes.
pub type Times = BTreeMap<usize, f64>;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Ours, on memory of the library's.
    Owned,
    /// Ours, on slices.
    Borrowed,
    /// Ours, on memory of the library's, over TCP.
    Tcp,
    /// Intel MPI, over shared memory on one host.
    IntelMpi,
    /// Open MPI, likewise.
    OpenMpi,
    /// Over TCP, which is what it has on one host.
    Gloo,
    /// The machine's limit, by the additions of one core.
    Limit,
    /// The machine's limit for cores that wait for nobody.
    Cores,
}

/// How all of one run are timed.
pub struct Setup {
    /// Processes.
    pub ranks: u32,
    /// How long each size is timed.
    pub milliseconds: u32,
    /// Whether it is the best batch that counts, and not the median: on a machine that does other things.
    pub best: bool,
    /// Where the ranks are.
    pub network: Network,
    /// Where peers are installed.
    peers: PathBuf,
}

/// Options of Open MPI for hosts that share their cores, which it cannot see: its ranks leave the cores to each other,
/// and a thread takes what comes, because ranks that also share memory look at their sockets seldom.
const SHARED_CORES: [&str; 11] = [
    "--bind-to",
    "none",
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "--mca",
    "btl_tcp_progress_thread",
    "1",
];

impl Setup {
    /// Builds what is run beside ours, for each peer that is there.
    ///
    /// # Errors
    ///
    /// There is no C compiler, or it fails.
    pub fn new(network: Network, ranks: u32, milliseconds: u32, best: bool) -> Outcome<Self> {
        let peers = std::env::var_os("PEERS").map(PathBuf::from).unwrap_or_default();
        let setup = Self { ranks, milliseconds, best, network, peers };
        for side in [Side::IntelMpi, Side::OpenMpi, Side::Limit] {
            if setup.has(side) {
                setup.build(side)?;
            }
        }
        Ok(setup)
    }

    /// Where an MPI, or gloo's interpreter, is installed.
    fn root(&self, side: Side) -> PathBuf {
        self.peers.join(match side {
            Side::IntelMpi => "venv-impi",
            Side::OpenMpi => "venv-mpi5",
            _ => "venv-torch",
        })
    }

    /// Whether a side is there.
    #[must_use]
    pub fn has(&self, side: Side) -> bool {
        match side {
            Side::IntelMpi | Side::OpenMpi => self.root(side).join("include/mpi.h").exists(),
            Side::Gloo => self.root(side).join("bin/python").exists(),
            Side::Limit | Side::Cores => matches!(self.ranks, 2 | 4),
            Side::Owned | Side::Borrowed | Side::Tcp => true,
        }
    }

    /// Where its program is built.
    fn program(side: Side) -> Outcome<PathBuf> {
        let this = std::env::current_exe()?;
        Ok(this.with_file_name(match side {
            Side::IntelMpi => "mpi_collectives-impi",
            Side::OpenMpi => "mpi_collectives-mpi5",
            _ => "limit",
        }))
    }

    fn build(&self, side: Side) -> Outcome<()> {
        let mut command = Command::new("gcc");
        command.args(["-O3", "-march=native", "-o"]).arg(Self::program(side)?);
        if side == Side::Limit {
            command.arg(source("limit.c")).arg("-lpthread");
        } else {
            let root = self.root(side);
            command.arg(source("mpi_collectives.c")).arg("-I").arg(root.join("include"));
            let lib = root.join("lib");
            command.arg("-L").arg(&lib).arg("-lmpi").arg(format!("-Wl,-rpath,{}", lib.display()));
        }
        programs::output(&mut command).map(drop)
    }

    /// How long `table`'s operation takes at those of the sizes that count for this side; none where the side is not
    /// there, or has no such type.
    ///
    /// # Errors
    ///
    /// The side's program fails, or finds wrong elements.
    pub fn times(&self, side: Side, table: Table, sizes: &[usize]) -> Outcome<Times> {
        let counts = |bytes: &&usize| match side {
            Side::Borrowed => large(**bytes),
            Side::Limit | Side::Cores => limited(**bytes),
            _ => true,
        };
        let list: Vec<String> = sizes.iter().filter(counts).map(usize::to_string).collect();
        if list.is_empty() || !self.has(side) {
            return Ok(Times::new());
        }
        let list = list.join(",");
        if let (Side::Owned | Side::Borrowed | Side::Tcp, Network::Spread(spread)) = (side, &self.network) {
            let printed = spread.output(&std::env::current_exe()?, &self.job(side, table, &list))?;
            return parse(&printed, self.best);
        }
        let mut command = self.command(side, table, &list)?;
        let printed = String::from_utf8(programs::output(command.stdin(Stdio::null()))?.stdout)?;
        parse(&printed, self.best).map_err(|error| format!("{command:?}: {error}").into())
    }

    /// The arguments by which this program is our side.
    fn job(&self, side: Side, table: Table, sizes: &str) -> Vec<String> {
        let (ranks, milliseconds) = (self.ranks.to_string(), self.milliseconds.to_string());
        let [job, table, side] = ["job".to_owned(), value_name(&table), value_name(&side)];
        vec![job, table, side, ranks, milliseconds, sizes.to_owned()]
    }

    fn command(&self, side: Side, table: Table, sizes: &str) -> Outcome<Command> {
        let (ranks, milliseconds) = (self.ranks.to_string(), self.milliseconds.to_string());
        let (of, what) = (table.type_at_peers(), table.operation().at_peers());
        Ok(match side {
            Side::Owned | Side::Borrowed | Side::Tcp => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(self.job(side, table, sizes));
                command
            }
            Side::IntelMpi => {
                let root = self.root(side);
                let mut command = Command::new(root.join("bin/mpiexec"));
                command.env("I_MPI_ROOT", &root).env("FI_PROVIDER_PATH", root.join("lib"));
                // The library opens its libfabric by name, and the system may have none.
                command.env("LD_LIBRARY_PATH", root.join("lib"));
                match self.network {
                    // Otherwise ranks of one host would exchange short buffers by shared memory all the same.
                    Network::Loopback => command
                        .env("I_MPI_FABRICS", "ofi")
                        .env("FI_PROVIDER", "tcp")
                        .env("I_MPI_COLL_INTRANODE", "pt2pt"),
                    _ => command.env("I_MPI_FABRICS", "shm"),
                };
                command.args(["-n", &ranks]).arg(Self::program(side)?).args([what, of, &milliseconds, sizes]);
                command
            }
            Side::OpenMpi => {
                let mpirun = self.root(side).join("bin/mpirun");
                let mut command = match &self.network {
                    Network::Host | Network::Loopback => Command::new(mpirun),
                    Network::Spread(spread) => {
                        spread.mpirun(&mpirun, &Self::program(side)?.with_extension("sh"))?
                    }
                };
                match self.network {
                    Network::Spread(_) => command.args(SHARED_CORES),
                    _ => command.args(["--map-by", ":OVERSUBSCRIBE"]),
                };
                if matches!(self.network, Network::Loopback) {
                    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
                }
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.args(["-n", &ranks]);
                command.arg(Self::program(side)?).args([what, of, &milliseconds, sizes]);
                command
            }
            Side::Gloo => {
                let mut command = Command::new(self.root(side).join("bin/python"));
                command.arg(source("gloo.py")).args([&ranks, of, &milliseconds, sizes]);
                command
            }
            Side::Limit | Side::Cores => {
                let way = if side == Side::Limit { "add" } else { "cores" };
                let mut command = Command::new(Self::program(side)?);
                command.args([way, &ranks, &milliseconds, sizes]);
                command
            }
        })
    }
}

impl Side {
    /// The name of its column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owned => "ours",
            Self::Borrowed => "ours, borrowed",
            Self::Tcp => "ours over TCP",
            Self::IntelMpi => "Intel MPI",
            Self::OpenMpi => "Open MPI",
            Self::Gloo => "gloo",
            Self::Limit => "the machine",
            Self::Cores => "cores that wait for nobody",
        }
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")).join(name)
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Reads lines of a size, the microseconds of the median and of the best batch, and the number of wrong elements; or
/// `absent`.
fn parse(printed: &str, best: bool) -> Outcome<Times> {
    let mut times = Times::new();
    for line in printed.lines().filter(|line| *line != "absent") {
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>();
        let [bytes, median, least, wrong] = numbers.as_deref().unwrap_or_default() else {
            return Err(format!("not a line of times: {line}").into());
        };
        if *wrong != 0.0 {
            return Err(format!("{wrong} elements of {bytes} bytes are wrong").into());
        }
        times.insert(*bytes as usize, if best { *least } else { *median });
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_elements_are_errors_and_absent_is_none() {
        assert_eq!(parse("8 2.5 2.25 0\n16 3 2 0\n", false).unwrap(), Times::from([(8, 2.5), (16, 3.0)]));
        assert_eq!(parse("8 2.5 2.25 0\n", true).unwrap(), Times::from([(8, 2.25)]));
        assert!(parse("absent\n", false).unwrap().is_empty());
        assert!(parse("8 2.5 2.25 1\n", false).unwrap_err().to_string().contains("1 elements of 8 bytes"));
        assert!(parse("8 2.5\n", false).is_err());
    }
}
