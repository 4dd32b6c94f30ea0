//! nccl-tests' flags and defaults, and which of them do not go together; no device is asked here.

use super::kind::Collective;
use crate::fault::FaultAt;
use crate::metrics::Metrics;
use crate::sizes::parse_size;
use crate::sizes::sweep::{Sweep, SweepError};
use crate::wire::WireName;
use anyhow::ensure;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use rdma_collective::collective::{DataType, ReduceOp};
use std::path::PathBuf;
use std::time::Duration;

/// Flags of a collective's program: those of nccl-tests, and some of ours. `command_of` adds the program's name and
/// description, because each collective has its own.
#[derive(Debug, Clone, Parser)]
#[command(version, after_help = AFTER)]
pub struct Args {
    /// The collective whose flags these are.
    #[arg(skip = Collective::AllReduce)]
    pub collective: Collective,

    /// Smallest size in bytes (8, 4K, 1M, 2G)
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    pub min_bytes: u64,

    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    pub max_bytes: u64,

    /// Bytes between one size and the next
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", default_value = "1M", value_parser = parse_size)]
    pub step_bytes: u64,

    /// Factor between one size and the next; above 1 it takes the place of -i
    #[arg(short = 'f', long = "stepfactor", value_name = "FACTOR", default_value_t = 1)]
    pub step_factor: u64,

    /// Timed iterations for each size
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Operations of each iteration, at most 64: all are started before the first is waited for, each on buffers of
    /// its own
    #[arg(short = 'm', long = "agg_iters", value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=AGGREGATED_MAX))]
    pub agg_iters: u32,

    /// Iterations before each size's timing, which count for nothing
    #[arg(short = 'w', long = "warmup_iters", value_name = "COUNT", default_value_t = 1)]
    pub warmup_iters: u32,

    /// Untimed operations for each size whose every element is checked; 0 checks nothing
    #[arg(short = 'c', long = "check", value_name = "COUNT", default_value_t = 1)]
    pub check: u32,

    /// Reduction, or all of them one after the other; only allreduce, reducescatter and reduce have one, and the table
    /// of others says `none`
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum", value_parser = choice(ReduceOp::ALL, ReduceOp::name))]
    pub op: Choice<ReduceOp>,

    /// Type of an element, or all of them one after the other
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float", value_parser = choice(DataType::ALL, DataType::name))]
    pub dtype: Choice<DataType>,

    /// Root rank, or all of them one after the other (`all`, -1); only broadcast, reduce, gather and scatter have one,
    /// and the table of others says -1
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", value_parser = parse_roots, allow_negative_numbers = true)]
    pub root: Roots,

    /// 0 and 2: iterations follow each other; 1: all ranks meet after each; 3: likewise, and the meeting is not timed.
    /// An operation is complete when its call returns, whichever it is
    #[arg(short = 'z', long = "blocking", value_name = "0..3", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub blocking: u8,

    /// Time of which ranks is in the table: 0 rank 0's, 1 the mean, 2 the least, 3 the most
    #[arg(short = 'a', long = "average", value_name = "0..3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub average: u8,

    /// Elements by which the buffers begin behind an aligned address
    #[arg(short = 'u', long = "unalign", value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=UNALIGN_MAX))]
    pub unalign: u32,

    /// Write the results to <FILE> as JSON, too; an existing file is kept and a number appended to the name
    #[arg(short = 'J', long = "output_file", value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw bus bandwidth and time against size as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Draw a run that -J has saved, or nccl-tests', into the same picture; may be given more than once
    #[arg(long, value_name = "RUN", requires = "plot")]
    pub overlay: Vec<PathBuf>,

    /// Seconds that starting up, or any one iteration, may take: then the run fails and says who was missing. Nothing
    /// waits for ever: 0, which is no timeout in nccl-tests, is the longest, 86400
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=TIMEOUT_MAX_S))]
    pub timeout_s: u64,

    /// Read for nccl-tests' sake: threads of a process, each of which would be ranks; 1
    #[arg(short = 't', long = "nthreads", value_name = "COUNT", default_value_t = 1, value_parser = one_rank)]
    pub threads: u32,

    /// Read for nccl-tests' sake: GPUs of a thread, each of which would be a rank; 1
    #[arg(short = 'g', long = "ngpus", value_name = "COUNT", default_value_t = 1, value_parser = one_rank)]
    pub gpus: u32,

    /// Ranks to start, each a process on this host [default: one a core, 2 to 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=RANKS_MAX))]
    pub ranks: Option<u16>,

    /// `auto` (the first usable NIC, else soft), `rdma` (the first usable NIC), `soft`, or a name as in ibv_devices;
    /// one that is named is used or the run fails. Of several (`a,b`, or more than once) each is a rail: operations
    /// are cut over all of them, and go on over those that are left when one fails
    #[arg(long, value_name = "DEVICE,…", default_value = "auto", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub device: Vec<String>,

    /// How the software device reaches the other ranks
    #[arg(long, value_enum, value_name = "WIRE", default_value_t = WireName::Auto)]
    pub wire: WireName,

    /// Borrow slices of the program's own memory instead of using memory of the library's; the operations of an
    /// iteration (-m) then follow each other
    #[arg(long)]
    pub plain: bool,

    /// Reduce in the order of ranks, so that floating point gives the same bits whatever sizes it is cut into
    #[arg(long)]
    pub reproducible: bool,

    /// For tests: `corrupt@N` flips a byte of the Nth payload that reaches rank 0 in a check, and `kill@N` ends its
    /// device at the Nth message
    #[arg(long, hide = true, value_name = "FAULT")]
    pub fault: Option<FaultAt>,

    /// Metrics for Prometheus.
    #[command(flatten)]
    pub metrics: Metrics,
}

/// The most ranks: their inputs stay exact in half precision.
pub const RANKS_MAX: i64 = 256;

const AFTER: &str = "\
Started by torchrun, mpirun, srun, LeaderWorkerSet, Kubeflow Trainer, Volcano or an Indexed Job, or with RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, this process is one rank. NCCL_IB_HCA, NCCL_DEBUG and others of NCCL's
variables count: docs/environment.md has them all. With NCCL_IB_QPS_PER_CONNECTION each device has so many lanes to a peer.

Exit status:
  0  the run is complete, and every element that was checked is right
  1  an element is wrong, or the run failed: the last line says why, and names the rank at fault
  2  wrong flags";

/// The most operations that a communicator has under way.
const AGGREGATED_MAX: i64 = 64;

/// The longest that may be waited for anything: a day.
const TIMEOUT_MAX_S: u64 = 86_400;

/// The most elements that buffers may be shifted by.
const UNALIGN_MAX: i64 = 4096;

/// The ranks that are the root, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// Every rank.
    All,
    /// This one.
    One(u32),
}

impl Roots {
    /// Yields the roots among so many ranks.
    pub fn each(self, ranks: u32) -> impl Iterator<Item = u32> {
        let (first, count) = match self {
            Self::All => (0, ranks),
            Self::One(root) => (root, 1),
        };
        (first..ranks).take(count as usize)
    }
}

fn parse_roots(text: &str) -> Result<Roots, String> {
    match text {
        "all" | "-1" => Ok(Roots::All),
        rank => rank.parse().map(Roots::One).map_err(|_| "write a rank's number, or `all`".to_owned()),
    }
}

/// A single value of several, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<T: 'static> {
    /// All, in this order.
    All(&'static [T]),
    /// This one.
    One(T),
}

impl<T: Copy> Choice<T> {
    /// Yields the chosen values, in order.
    pub fn each(self) -> impl Iterator<Item = T> {
        let (all, one) = match self {
            Self::All(all) => (all, None),
            Self::One(one) => (&[][..], Some(one)),
        };
        all.iter().copied().chain(one)
    }
}

/// Takes the names of `all`, and `all`.
fn choice<T: Copy + Send + Sync>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = Choice<T>> {
    let names = all.iter().map(move |one| name(*one)).chain(["all"]);
    PossibleValuesParser::new(names).map(move |chosen| {
        let one = all.iter().copied().find(|one| name(*one) == chosen);
        one.map_or(Choice::All(all), Choice::One)
    })
}

fn one_rank(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Ok(1),
        _ => Err("a process is one rank, on the host's memory; start more ranks with --ranks or a launcher"
            .to_owned()),
    }
}

impl Args {
    /// The command line of a collective's program; it ends the process when it asks for help or is wrong.
    pub fn read(collective: Collective) -> Self {
        manual::print_if_asked(|| Self::command_of(collective), std::env::args_os().skip(1));
        let args = Self::from_arg_matches(&Self::command_of(collective).get_matches());
        Self { collective, ..args.unwrap_or_else(|error| error.exit()) }
    }

    /// Returns the command that reads the flags of `collective`.
    pub fn command_of(collective: Collective) -> Command {
        Self::command().name(collective.name()).about(collective.about())
    }

    /// Checks that the root is one of so many ranks.
    ///
    /// # Errors
    ///
    /// Says which ranks there are.
    pub fn check_root(&self, ranks: u32) -> anyhow::Result<()> {
        match self.root {
            Roots::One(root) if self.collective.is_rooted() => {
                ensure!(
                    root < ranks,
                    "-r {root} is no rank: there are {ranks}, from 0 on; choose a lower one"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The sizes to run.
    ///
    /// # Errors
    ///
    /// [`SweepError`], for instance when `-b` is above `-e`.
    pub fn sweep(&self) -> Result<Sweep, SweepError> {
        Sweep::new(self.min_bytes, self.max_bytes, self.step_bytes, self.step_factor)
    }

    /// Ranks to start: one a core, but at least 2, so that there is a ring, and at most 4 unasked.
    pub fn ranks(&self, cores: usize) -> usize {
        self.ranks.map_or(cores.clamp(2, 4), usize::from)
    }

    /// The longest time that any one wait may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(if self.timeout_s == 0 { TIMEOUT_MAX_S } else { self.timeout_s })
    }

    /// Bytes of the buffers of one rank: an input and an output for each operation of an iteration.
    pub fn buffer_bytes(&self, size_max: u64) -> u64 {
        size_max.saturating_mul(2).saturating_mul(self.agg_iters.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn help() {
        let mut command = Args::command_of(Collective::AllReduce);
        command.clone().debug_assert();
        insta::assert_snapshot!(command.render_long_help());
    }

    #[test]
    fn the_defaults_are_nccl_tests() {
        let args = parse("allreduce").unwrap();
        assert_eq!((args.min_bytes, args.max_bytes, args.step_bytes), (32 << 20, 32 << 20, 1 << 20));
        assert_eq!((args.step_factor, args.iters, args.warmup_iters, args.check), (1, 20, 1, 1));
        assert_eq!((args.op, args.dtype), (Choice::One(ReduceOp::Sum), Choice::One(DataType::F32)));
        assert_eq!((args.agg_iters, args.root, args.blocking), (1, Roots::One(0), 0));
        assert_eq!((args.average, args.unalign, args.reproducible), (1, 0, false));
        assert_eq!(args.sweep().unwrap().sizes().count(), 1);
    }

    #[test]
    fn long_names_are_nccl_tests() {
        let line = "allreduce --minbytes 8 --maxbytes 1K --stepbytes 4 --stepfactor 2 --iters 3 --warmup_iters 0 \
                    --check 0 --op sum --datatype half --output_file x.json --timeout 9 --ranks 3 --device soft \
                    --agg_iters 2 --root 1 --blocking 3 --average 0 --unalign 1";
        let args = parse(&line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap();
        assert_eq!((args.min_bytes, args.max_bytes, args.iters, args.check), (8, 1024, 3, 0));
        assert_eq!(args.dtype, Choice::One(DataType::F16));
        assert_eq!((args.timeout(), args.ranks(1)), (Duration::from_secs(9), 3));
        assert_eq!((args.agg_iters, args.root, args.blocking), (2, Roots::One(1), 3));
        assert_eq!((args.average, args.unalign), (0, 1));
    }

    #[test]
    fn all_is_every_type_and_operation_in_nccl_tests_order() {
        let args = parse("allreduce -o all -d all").unwrap();
        let ops: Vec<_> = args.op.each().map(ReduceOp::name).collect();
        assert_eq!(ops, ["sum", "prod", "max", "min", "avg"]);
        let types: Vec<_> = args.dtype.each().map(DataType::name).collect();
        assert_eq!(types[..3], ["int8", "uint8", "int16"]);
        assert_eq!((types.len(), types[8..].join(" ")), (12, "half float double bfloat16".to_owned()));
        assert_eq!(
            parse("allreduce -d bfloat16").unwrap().dtype.each().collect::<Vec<_>>(),
            [DataType::Bf16]
        );
    }

    #[test]
    fn a_root_is_a_rank_or_all_of_them() {
        let roots = |line: &str| parse(line).unwrap().root.each(3).collect::<Vec<_>>();
        assert_eq!([roots("broadcast"), roots("broadcast -r 2")], [[0], [2]]);
        assert_eq!([roots("broadcast -r all"), roots("broadcast -r -1")], [[0, 1, 2], [0, 1, 2]]);
        let of = |collective| Args { collective, ..parse("reduce -r 2").unwrap() };
        of(Collective::Reduce).check_root(3).unwrap();
        let error = of(Collective::Reduce).check_root(2).unwrap_err().to_string();
        assert!(error.contains("-r 2 is no rank") && error.contains("there are 2"), "{error}");
        of(Collective::AllReduce).check_root(2).unwrap();
    }

    #[test]
    fn ranks_follow_the_cores() {
        let args = parse("allreduce").unwrap();
        assert_eq!([1, 2, 3, 4, 64].map(|cores| args.ranks(cores)), [2, 2, 3, 4, 4]);
        assert_eq!(parse("allreduce --ranks 1").unwrap().ranks(64), 1);
    }

    #[test]
    fn minbytes_above_maxbytes_is_an_error() {
        let error = parse("allreduce -b 1G -e 1M").unwrap().sweep().unwrap_err();
        assert!(error.to_string().contains("-b 1G"), "{error}");
        assert!(parse("allreduce -b 64M").unwrap().sweep().is_err()); // -e keeps its 32M
    }

    #[test]
    fn sizes_that_overflow_are_errors() {
        for line in
            ["allreduce -e 99999999999G", "allreduce -b 18446744073709551616", "allreduce -i 8589934592G"]
        {
            let error = parse(line).unwrap_err();
            assert!(error.to_string().contains("overflows"), "{error}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let error = parse("allreduce -d f8e4m3").unwrap_err().to_string();
        assert!(error.contains("f8e4m3") && error.contains("bfloat16, all"), "{error}");
        for line in ["-o mulsum", "-z 4", "-a 4", "-m 0", "-m 65", "-u 5000", "-r -2", "-r most", "-T 86401"]
        {
            assert!(parse(&format!("allreduce {line}")).is_err(), "{line}");
        }
        assert!(parse("allreduce --ranks 0").is_err());
        assert!(parse("allreduce -n 0").is_err());
        for line in ["-g 2", "-t 2", "-g 0"] {
            let error = parse(&format!("allreduce {line}")).unwrap_err().to_string();
            assert!(error.contains("--ranks"), "{error}");
        }
    }

    #[test]
    fn command_lines_of_nccl_tests_are_read() {
        let args = parse("allreduce -b 8 -e 128M -f 2 -g 1 -t 1 -T 0 -m 4").unwrap();
        assert_eq!((args.gpus, args.threads, args.agg_iters), (1, 1, 4));
        assert_eq!(args.timeout(), Duration::from_secs(86_400));
        assert_eq!(args.buffer_bytes(10), 80);
    }
}
