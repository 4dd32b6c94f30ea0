//! The flags of `tune`: those of the collectives' programs that make sense here, and where to write.

use super::tunable::Tunable;
use crate::collectives::args::{Args, RANKS_MAX};
use crate::collectives::lanes;
use crate::metrics::Metrics;
use crate::sizes::parse_size;
use crate::wire::WireName;
use anyhow::ensure;
use clap::Parser;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;

/// Measures every way that each collective can take among these ranks, and says which was the fastest for each size
#[derive(Debug, Clone, Parser)]
#[command(name = "tune", version)]
pub struct TuneArgs {
    /// Smallest size in bytes, of each rank's buffer or of its part; sizes are powers of two
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", default_value = "8", value_parser = parse_size)]
    pub min_bytes: u64,

    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "4M", value_parser = parse_size)]
    pub max_bytes: u64,

    /// Timed iterations for each size
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Iterations before each size's timing, which count for nothing
    #[arg(short = 'w', long = "warmup_iters", value_name = "COUNT", default_value_t = 2)]
    pub warmup_iters: u32,

    /// How often all of it is done; the best time of each counts
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,

    /// Collectives to measure [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = tunable())]
    pub collectives: Vec<Tunable>,

    /// Where to write the table; of a file that is there already the rows of other numbers of ranks are kept. Without
    /// it the table is printed
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Seconds that starting up, or any one iteration, may take
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,

    /// Ranks to start, each a process on this host [default: one a core, 2 to 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=RANKS_MAX))]
    pub ranks: Option<u16>,

    /// As that of the collectives' programs, but one alone
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = NonEmptyStringValueParser::new())]
    pub device: String,

    /// How the software device reaches the other ranks
    #[arg(long, value_enum, value_name = "WIRE", default_value_t = WireName::Auto)]
    pub wire: WireName,

    /// Metrics for Prometheus.
    #[command(flatten)]
    pub metrics: Metrics,
}

fn tunable() -> impl TypedValueParser<Value = Tunable> {
    PossibleValuesParser::new(Tunable::all().map(Tunable::name))
        .try_map(|name| Tunable::all().find(|of| of.name() == name).ok_or("no collective"))
}

impl TuneArgs {
    /// Returns the flags of each run.
    pub fn each(&self) -> Args {
        let Self { iters, warmup_iters, timeout_s, ranks, ref device, wire, .. } = *self;
        Args {
            iters,
            warmup_iters,
            timeout_s,
            ranks,
            device: device.split(',').map(str::to_owned).collect(),
            wire,
            ..Args::parse_from(["tune"])
        }
    }

    /// Checks that there is a size, and devices that can be used together.
    pub fn check(&self) -> anyhow::Result<()> {
        let Self { min_bytes, max_bytes, .. } = self;
        lanes::check(&self.each())?;
        ensure!(
            !self.sizes().is_empty(),
            "there is no power of two of 4 or more from -b {min_bytes} to -e {max_bytes}; lower -b, or raise -e"
        );
        Ok(())
    }

    /// Powers of two, of one element at least.
    pub fn sizes(&self) -> Vec<u64> {
        let powers = (2..u64::BITS).map(|bit| 1_u64 << bit);
        powers.filter(|size| (self.min_bytes..=self.max_bytes).contains(size)).collect()
    }

    /// Yields the collectives, once each.
    pub fn collectives(&self) -> impl Iterator<Item = Tunable> {
        Tunable::all().filter(|of| self.collectives.is_empty() || self.collectives.contains(of))
    }

    /// Bytes of the buffers of one rank.
    pub fn buffer_bytes(&self, ranks: usize) -> u64 {
        let longest = self.sizes().last().copied().unwrap_or(0);
        self.each().buffer_bytes(longest.saturating_mul(ranks as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_powers_of_two_between() {
        let sizes = |line: &str| {
            let args = TuneArgs::try_parse_from(line.split(' ')).unwrap();
            (args.check().is_ok(), args.sizes())
        };
        assert_eq!(sizes("tune -b 1 -e 16"), (true, vec![4, 8, 16]));
        assert_eq!(sizes("tune -b 9 -e 15"), (false, vec![]));
        assert_eq!(sizes("tune -b 1M -e 2M"), (true, vec![1 << 20, 2 << 20]));
        assert_eq!(sizes("tune").1.len(), 20);
        assert!(sizes("tune --device soft,soft").0);
        assert!(!sizes("tune --device soft,auto").0);
    }

    #[test]
    fn collectives_are_all_or_those_that_are_named() {
        let named = |line: &str| {
            let args = TuneArgs::try_parse_from(line.split(' ')).unwrap();
            args.collectives().map(Tunable::name).collect::<Vec<_>>().join(" ")
        };
        let all = "allreduce allgather reducescatter broadcast reduce alltoall gather scatter barrier";
        assert_eq!(named("tune"), all);
        assert_eq!(named("tune --collectives gather,allreduce,gather"), "allreduce gather");
        assert_eq!(named("tune --collectives barrier"), "barrier");
        assert!(TuneArgs::try_parse_from(["tune", "--collectives", "sendrecv"]).is_err());
    }
}
