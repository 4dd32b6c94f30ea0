//! The software device between two processes of one host, beside what people would use instead.
//!
//! `cargo run --release -p benches --bin mapped`. The variable `PEERS` names the folder of the peers
//! (`venv-nixl/bin/python` for NIXL, `venv-mc/bin/python` for Mooncake; `bin`, and then `PATH`, for `ucx_perftest`). A
//! peer that is not there is not measured, and the exit status is 1 then, as when a row does not hold.

use std::path::PathBuf;
use std::process::ExitCode;

use benches::blocks::{self, List};
use benches::kv::{self, Case, Other};
use benches::only::OnlyArgs;
use benches::ratio::{Bound, HEAD, Row, rate};
use benches::report::{Line, Report, SaveArgs};
use benches::soft::Outcome as Result;
use benches::turns::{self, Turn};
use benches::{pair, ucx, windows};
use clap::{Parser, Subcommand, ValueEnum};
use rdma_core::Wire;

/// Blocks of a KV transfer come to this.
const KV_BYTES: usize = 256 << 20;
/// Writes of a KV transfer that share a doorbell.
const KV_BATCH: usize = 64;

/// Ratios of one run between two processes of this host.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    #[command(flatten)]
    only: OnlyArgs,
    /// Another wire instead.
    #[arg(long, default_value = "mapped")]
    wire: WireName,
    /// Ours alone, for profilers.
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    save: SaveArgs,
    #[command(subcommand)]
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WireName {
    Mapped,
    Tcp,
}

impl WireName {
    fn wire(self) -> Wire {
        match self {
            Self::Mapped => Wire::Mapped,
            Self::Tcp => Wire::Tcp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Tcp => "tcp",
        }
    }
}

/// The task of a child.
#[derive(Subcommand)]
enum End {
    #[command(hide = true)]
    End { role: Role, kind: Kind, bytes: usize, block: usize },
    #[command(hide = true)]
    Kv { role: Role, case: Case },
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    First,
    Second,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A message of that size over and over.
    Put,
    /// All blocks of that size, each from somewhere to somewhere else.
    Scattered,
    /// All in order.
    Contiguous,
    /// Writes that are answered.
    WriteTurns,
    /// Sends that are answered.
    SendTurns,
    /// Stores to windows that are answered.
    WindowTurns,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Scattered => "scattered",
            Self::Contiguous => "contiguous",
            Self::WriteTurns => "write-turns",
            Self::SendTurns => "send-turns",
            Self::WindowTurns => "window-turns",
        }
    }

    fn list(self, bytes: usize, block: usize) -> List {
        match self {
            Self::Put => List::one(block),
            _ => List { bytes, block, times: 1, batch: KV_BATCH, scattered: self == Self::Scattered },
        }
    }
}

fn main() -> ExitCode {
    benches::main("mapped", run)
}

fn run(args: &Args) -> Result<bool> {
    match args.end {
        None => compare(args),
        Some(End::End { role, kind, bytes, block }) => {
            be(role, kind, args.wire.wire(), (bytes, block)).map(|()| true)
        }
        Some(End::Kv { role: Role::First, case }) => kv::receive(args.wire.wire(), case).map(|()| true),
        Some(End::Kv { role: Role::Second, case }) => kv::send(args.wire.wire(), case).map(|()| true),
    }
}

fn be(role: Role, kind: Kind, wire: Wire, (bytes, block): (usize, usize)) -> Result<()> {
    let turn = if kind == Kind::SendTurns { Turn::Send } else { Turn::Write };
    match (kind, role) {
        (Kind::WriteTurns | Kind::SendTurns, Role::First) => turns::begin(wire, turn, block),
        (Kind::WriteTurns | Kind::SendTurns, Role::Second) => turns::answer(wire, turn, block),
        (Kind::WindowTurns, Role::First) => windows::begin(wire, block),
        (Kind::WindowTurns, Role::Second) => windows::answer(wire, block),
        (_, Role::First) => blocks::write(wire, kind.list(bytes, block)),
        (_, Role::Second) => blocks::be_written(wire, kind.list(bytes, block)),
    }
}

impl Args {
    /// Seconds of a sample of ours.
    fn seconds(&self, kind: Kind, bytes: usize, block: usize) -> Result<f64> {
        let end = |role: &str| {
            let sizes = [bytes.to_string(), block.to_string()];
            let mut arguments = vec![format!("--wire={}", self.wire.name())];
            arguments.extend(["end", role, kind.name()].map(str::to_owned).into_iter().chain(sizes));
            arguments
        };
        Ok(pair::run(&end("first"), &end("second"))?.trim().parse()?)
    }

    /// GB/s of transfers between the layouts of a case.
    fn between(&self, case: Case) -> Result<f64> {
        let wire = format!("--wire={}", self.wire.name());
        let end = |role: &str| [&wire, "kv", role, &case.name()].map(str::to_owned);
        Ok(rate(case.bytes(), pair::run(&end("first"), &end("second"))?.trim().parse()?))
    }
}

/// Rows as they are measured.
struct Table<'a> {
    args: &'a Args,
    report: Report,
    all_hold: bool,
}

fn compare(args: &Args) -> Result<bool> {
    println!("{HEAD}");
    let mut table = Table { args, report: Report::default(), all_hold: true };
    table.puts()?;
    table.latencies()?;
    table.key_values()?;
    table.layouts()?;
    table.begin()?;
    table.report.save(&args.save, args.wire.name())?;
    Ok(table.all_hold)
}

impl Table<'_> {
    /// Measures a row if it is wanted, and the other side is there.
    fn row<P>(
        &mut self,
        name: &str,
        (unit, bound): (&'static str, Bound),
        ours: impl Fn() -> Result<f64>,
        peer: Option<P>,
        theirs: impl Fn(&P) -> Result<f64>,
    ) -> Result<()> {
        if !self.args.only.has(name) {
            return Ok(());
        }
        if self.args.alone {
            println!("{name}: {:.3} {unit}", ours()?);
            return Ok(());
        }
        let Some(peer) = peer else {
            println!("| {name} | | not measured | | {bound} | |");
            self.report.line(Line::absent(name, unit, bound));
            self.all_hold = false;
            return Ok(());
        };
        let row = Row::measure(name, unit, bound, self.args.pairs, ours, || theirs(&peer))?;
        self.all_hold &= self.report.row(&row);
        Ok(())
    }

    fn puts(&mut self) -> Result<()> {
        for (size, against_ucx) in [(64 << 10, 0.95), (1 << 20, 0.95), (16 << 20, 1.2), (64 << 20, 1.2)] {
            let list = List::one(size);
            let args = self.args;
            let ours = || {
                let seconds = args.seconds(Kind::Put, size, size)?;
                Ok(rate(list.moved(), seconds))
            };
            let name = format!("put, {} KiB, against", size >> 10);
            let iterations = (1 << 30) / size;
            let theirs = |ucx: &PathBuf| Ok(rate(size, ucx::median(ucx, "put_bw", size, iterations)?));
            let bound = ("GB/s", Bound::AtLeast(against_ucx));
            self.row(&format!("{name} UCX posix put_bw"), bound, ours, ucx::program(), theirs)?;
            let copied = |(): &()| Ok(rate(list.moved(), blocks::copy(list)?));
            self.row(&format!("{name} memcpy"), ("GB/s", Bound::AtLeast(0.9)), ours, Some(()), copied)?;
        }
        Ok(())
    }

    fn latencies(&mut self) -> Result<()> {
        let rows = [
            (Kind::WriteTurns, 8, "put_lat", Bound::AtMost(1.4)),
            (Kind::WriteTurns, 8, "ucp_put_lat", Bound::AtMost(1.4)),
            (Kind::WriteTurns, 4096, "put_lat", Bound::AtMost(1.2)),
            (Kind::WriteTurns, 4096, "ucp_put_lat", Bound::AtMost(1.2)),
            (Kind::SendTurns, 8, "am_lat", Bound::AtMost(1.5)),
            (Kind::SendTurns, 8, "ucp_am_lat", Bound::AtMost(1.5)),
            (Kind::WindowTurns, 8, "put_lat", Bound::Told),
        ];
        for (kind, size, test, bound) in rows {
            let what = match kind {
                Kind::SendTurns => "send and receive",
                Kind::WindowTurns => "window latency",
                _ => "put latency",
            };
            let args = self.args;
            let ours = || Ok(args.seconds(kind, size, size)? * 1e9);
            let theirs = |ucx: &PathBuf| Ok(ucx::median(ucx, test, size, 200_000)? * 1e9);
            let name = format!("{what}, {size} B, against UCX posix {test}");
            self.row(&name, ("ns", bound), ours, ucx::program(), theirs)?;
        }
        Ok(())
    }

    fn key_values(&mut self) -> Result<()> {
        let args = self.args;
        let scattered = |block| {
            let seconds = args.seconds(Kind::Scattered, KV_BYTES, block)?;
            Ok(rate(KV_BYTES, seconds))
        };
        let name = "KV, 4096 scattered blocks of 64 KiB, against";
        let ours = || scattered(64 << 10);
        for other in Other::ALL {
            let theirs = |python: &PathBuf| other.rate(python);
            self.row(
                &format!("{name} {}", other.name()),
                ("GB/s", other.bound()),
                ours,
                other.python(),
                theirs,
            )?;
        }
        let list = Kind::Scattered.list(KV_BYTES, 64 << 10);
        let copy = |(): &()| Ok(rate(KV_BYTES, blocks::copy(list)?));
        self.row(&format!("{name} memcpy"), ("GB/s", Bound::AtLeast(0.9)), ours, Some(()), copy)?;
        for (block, bound) in [(4 << 10, 0.8), (16 << 10, 0.85), (64 << 10, 0.92), (256 << 10, 0.94)] {
            let name =
                format!("KV, scattered blocks of {} KiB against one process, around the caches", block >> 10);
            let list = Kind::Scattered.list(KV_BYTES, block);
            let theirs = |(): &()| Ok(rate(KV_BYTES, blocks::copy_around_caches(list)?));
            let bound = ("GB/s", Bound::AtLeast(bound));
            self.row(&name, bound, || scattered(block), Some(()), theirs)?;
            self.limits(block)?;
        }
        Ok(())
    }

    /// Measures transfers between layouts that differ.
    fn layouts(&mut self) -> Result<()> {
        let args = self.args;
        for (name, case, bound) in [
            ("KV, TP 4 to 2, HND, against the same bytes unsharded", Case::FourToTwo, 0.8),
            ("KV, TP 2 to 4, HND, against the same bytes unsharded", Case::TwoToFour, 0.8),
            ("KV, a pool of 80 tensors against one of one tensor", Case::Tensors, 0.97),
        ] {
            let whole = |(): &()| args.between(Case::Whole);
            self.row(name, ("GB/s", Bound::AtLeast(bound)), || args.between(case), Some(()), whole)?;
        }
        for (name, case) in [
            ("KV, TP 1 to 2, NHD, against a naive copy by one thread", Case::NhdSplit),
            ("KV, NHD to HND, against a naive copy by one thread", Case::NhdToHnd),
        ] {
            let naive = |(): &()| Ok(rate(case.bytes(), kv::copy(case)?));
            self.row(name, ("GB/s", Bound::AtLeast(1.0)), || args.between(case), Some(()), naive)?;
        }
        Ok(())
    }

    /// Measures the beginning of a request.
    fn begin(&mut self) -> Result<()> {
        let name = "KV, begin 8 blocks in a pool of 1000000, against a pool of 1000";
        let micros = |blocks| Ok(kv::begin(blocks)? * 1e6);
        self.row(name, ("us", Bound::AtMost(1.5)), || micros(1_000_000), Some(()), |(): &()| micros(1000))?;
        let name = "KV, begin 8 blocks in a pool of 1000000, in microseconds";
        self.row(name, ("us", Bound::AtMost(20.0)), || micros(1_000_000), Some(()), |(): &()| Ok(1.0))
    }

    /// Measures the limit of this memory: one thread of one process, blocks of that size, scattered against contiguous.
    fn limits(&mut self, block: usize) -> Result<()> {
        for how in ["memcpy", "copies around the caches"] {
            let copy = if how == "memcpy" { blocks::copy } else { blocks::copy_around_caches };
            let of = |list| Ok(rate(KV_BYTES, copy(list)?));
            let scattered = || of(Kind::Scattered.list(KV_BYTES, block));
            let contiguous = |(): &()| of(Kind::Contiguous.list(KV_BYTES, KV_BYTES));
            let name = format!(
                "in one process by {how}: scattered blocks of {} KiB against contiguous",
                block >> 10
            );
            self.row(&name, ("GB/s", Bound::Told), scattered, Some(()), contiguous)?;
        }
        Ok(())
    }
}
