//! nccl-tests' flags and defaults, and which of them do not go together; no device is asked here.

use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, ValueEnum};
use examples::fault::CorruptAt;
use examples::sizes::parse_size;
use examples::sizes::sweep::{Sweep, SweepError};
use std::path::PathBuf;
use std::time::Duration;

/// Ring all-reduce among local processes, measured and checked as nccl-tests' all_reduce_perf does
#[derive(Debug, Clone, Parser)]
#[command(name = "allreduce", version, after_help = AFTER)]
pub struct Args {
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

    /// Timed operations for each size
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Operations before each size's timing, which count for nothing
    #[arg(short = 'w', long = "warmup_iters", value_name = "COUNT", default_value_t = 1)]
    pub warmup_iters: u32,

    /// Untimed operations for each size whose every element is checked; 0 checks nothing
    #[arg(short = 'c', long = "check", value_name = "COUNT", default_value_t = 1)]
    pub check: u32,

    /// Reduction
    #[arg(short = 'o', long = "op", value_name = "OP", value_enum, default_value_t = Op::Sum)]
    pub op: Op,

    /// Type of an element
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", value_enum, default_value_t = Dtype::Float)]
    pub dtype: Dtype,

    /// Write the results to <FILE> as JSON, too; an existing file is kept and a number appended to the name
    #[arg(short = 'J', long = "output_file", value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Seconds that starting up, or any one operation, may take: then the run fails and says who was missing
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,

    /// Ranks, each a process on this host [default: one a core, 2 to 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=RANKS_MAX))]
    pub ranks: Option<u16>,

    /// `auto` (the first usable NIC, else soft), `soft`, or a name as in ibv_devices; one that is named is used or
    /// the run fails
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = NonEmptyStringValueParser::new())]
    pub device: String,

    /// For tests: `corrupt@N` flips a byte of the Nth payload that reaches rank 0 in a check
    #[arg(long, hide = true, value_name = "FAULT")]
    pub fault: Option<CorruptAt>,
}

/// The most ranks: their inputs stay exact in half precision.
pub const RANKS_MAX: i64 = 256;

const AFTER: &str = "\
With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as launchers do, this process is that one rank.
The exit status is 0 when every element that was checked is right, 1 when not or when the run failed, 2 for wrong flags.";

/// A reduction; nccl-tests has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Addition.
    Sum,
}

/// An element's type; nccl-tests has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32 bits.
    Float,
    /// 16 bits.
    Half,
}

impl Args {
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

    /// What any one wait may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }
}

impl Op {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
        }
    }
}

impl Dtype {
    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Half => "half",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn help() {
        Args::command().debug_assert();
        insta::assert_snapshot!(Args::command().render_long_help());
    }

    #[test]
    fn the_defaults_are_nccl_tests() {
        let args = parse("allreduce").unwrap();
        assert_eq!((args.min_bytes, args.max_bytes, args.step_bytes), (32 << 20, 32 << 20, 1 << 20));
        assert_eq!((args.step_factor, args.iters, args.warmup_iters, args.check), (1, 20, 1, 1));
        assert_eq!((args.op, args.dtype), (Op::Sum, Dtype::Float));
        assert_eq!(args.sweep().unwrap().sizes().count(), 1);
    }

    #[test]
    fn long_names_are_nccl_tests() {
        let line = "allreduce --minbytes 8 --maxbytes 1K --stepbytes 4 --stepfactor 2 --iters 3 --warmup_iters 0 \
                    --check 0 --op sum --datatype half --output_file x.json --timeout 9 --ranks 3 --device soft";
        let args = parse(&line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap();
        assert_eq!((args.min_bytes, args.max_bytes, args.iters, args.check), (8, 1024, 3, 0));
        assert_eq!((args.dtype, args.timeout(), args.ranks(1)), (Dtype::Half, Duration::from_secs(9), 3));
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
    fn what_is_not_there_yet_is_refused_by_name() {
        let error = parse("allreduce -d bfloat16").unwrap_err().to_string();
        assert!(error.contains("bfloat16") && error.contains("float, half"), "{error}");
        assert!(parse("allreduce -o max").is_err());
        assert!(parse("allreduce --ranks 0").is_err());
        assert!(parse("allreduce -n 0").is_err());
        assert!(parse("allreduce -T 0").is_err());
    }
}
