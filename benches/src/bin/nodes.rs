//! Transfers between nodes, prefill and decode in processes of their own: what a server feels, and whole requests
//! beside what people would use instead.
//!
//! `cargo run --release -p benches --bin nodes`. The variable `PEERS` names the folder of the peers, as for the bench
//! `mapped`. A peer that is not there is not measured, and the exit status is 1 then, as when a row does not hold.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use benches::blocks::{self, List};
use benches::kv::Other;
use benches::nodes::{self, Member, Role, Sizes};
use benches::only::OnlyArgs;
use benches::pair;
use benches::ratio::{Bound, HEAD, Row, rate};
use benches::report::{Line, Report, SaveArgs};
use benches::samples::percentile;
use benches::soft::Outcome as Result;
use clap::{Parser, Subcommand, ValueEnum};
use rdma_core::Wire;

/// Rows of one run between nodes of this host.
#[derive(Parser)]
struct Args {
    /// Pairs a row, each of processes of their own.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Takes small requests and few samples: this shows whether everything runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Calls that are timed, of each end and wire [default: 10000].
    #[arg(long)]
    calls: Option<usize>,
    #[command(flatten)]
    only: OnlyArgs,
    #[command(flatten)]
    save: SaveArgs,
    #[command(subcommand)]
    end: Option<End>,
}

/// The task of a child.
#[derive(Subcommand)]
enum End {
    #[command(hide = true)]
    End { part: Part, wire: WireName, name: String },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WireName {
    Mapped,
    Tcp,
}

/// The task that processes do with each other.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Prefill times its calls.
    CallsOfPrefill,
    /// Decode times its calls.
    CallsOfDecode,
    /// Prefill pushes to two peers.
    Two,
    /// Prefill pushes layer by layer.
    Stream,
    /// Decode revokes.
    Revoke,
    /// Decode grants to a node and to a link.
    Link,
    /// Prefill is killed.
    Killed,
    /// Prefill is killed, and has more memory.
    KilledLarge,
}

impl Part {
    /// The names of the nodes, of which the first says the result.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::CallsOfPrefill | Self::Stream => &["prefill-0", "decode-0"],
            Self::Two => &["prefill-0", "decode-0", "decode-1"],
            Self::CallsOfDecode | Self::Revoke | Self::Link => &["decode-0", "prefill-0"],
            Self::Killed | Self::KilledLarge => &["prefill-0"],
        }
    }

    /// Requests of the part that are under way at once at one node, which its pool has room for.
    fn requests(self) -> u32 {
        if matches!(self, Self::CallsOfPrefill | Self::CallsOfDecode) { 2 } else { 1 }
    }

    /// How much the part measures.
    fn sizes(self, sizes: Sizes) -> Sizes {
        match self {
            // 64 MiB, which take long enough to be revoked under way in a quick run, too.
            Self::Revoke => Sizes { blocks: 32, ..sizes },
            // 16 MiB.
            Self::Killed => Sizes { blocks: 8, ..sizes },
            Self::KilledLarge => Sizes { kills: sizes.kills.div_ceil(10), ..sizes },
            _ => sizes,
        }
    }

    fn arguments(self, wire: WireName, name: &str, args: &Args) -> Vec<String> {
        let value = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let quick = args.quick.then(|| "--quick".to_owned());
        let calls = args.calls.map(|calls| format!("--calls={calls}"));
        let end = [
            "end".to_owned(),
            value(self.to_possible_value()),
            value(wire.to_possible_value()),
            name.to_owned(),
        ];
        quick.into_iter().chain(calls).chain(end).collect()
    }
}

fn main() -> ExitCode {
    benches::main("nodes", run)
}

fn run(args: &Args) -> Result<bool> {
    let sizes = if args.quick { Sizes::QUICK } else { Sizes::FULL };
    let sizes = Sizes { calls: args.calls.unwrap_or(sizes.calls), ..sizes };
    match &args.end {
        None => compare(args, sizes),
        Some(End::End { part, wire, name }) => end(*part, (*wire).into(), name, sizes).map(|()| true),
    }
}

impl From<WireName> for Wire {
    fn from(name: WireName) -> Self {
        match name {
            WireName::Mapped => Self::Mapped,
            WireName::Tcp => Self::Tcp,
        }
    }
}

/// Is an end. The first of its part says figures, with spaces between.
fn end(part: Part, wire: Wire, name: &str, sizes: Sizes) -> Result<()> {
    let sizes = part.sizes(sizes);
    if matches!(part, Part::Killed | Part::KilledLarge) {
        return nodes::victim(wire, sizes);
    }
    let role = if name.starts_with("prefill") { Role::Prefill } else { Role::Decode };
    let member = Member::new(wire, name, role, &sizes.layout(part.requests())?)?;
    let first = part.names().first() == Some(&name);
    if part == Part::Link {
        return if first { say(nodes::link(&member, sizes)?) } else { nodes::serve_link(&member, sizes) };
    }
    let peers = member.meet("")?;
    let peer = peers.first().ok_or("no other end")?;
    match part {
        Part::CallsOfPrefill | Part::CallsOfDecode if first => {
            let pauses = nodes::calls(&member, &peer.name, sizes)?;
            return say((pauses.p99, pauses.beyond_idle()));
        }
        Part::Two if first => return say(nodes::two(&member, &peers, sizes)?),
        Part::Stream if first => return say(nodes::stream(&member, peer, sizes)?),
        Part::Revoke if first => {
            let seconds = nodes::revokes(&member, peer, sizes)?;
            return say((percentile(seconds.clone(), 99), percentile(seconds, 100)));
        }
        Part::CallsOfPrefill | Part::CallsOfDecode => nodes::serve_both(&member, &peer.name, sizes)?,
        _ => member.serve(&peer.name, 1, &sizes.list(0, role), &AtomicBool::new(false))?,
    }
    Ok(pair::stay()?)
}

/// Tells the parent two figures.
fn say((first, second): (f64, f64)) -> Result<()> {
    Ok(pair::say(&format!("{first} {second}"))?)
}

/// Rows as they are measured.
struct Table<'a> {
    args: &'a Args,
    sizes: Sizes,
    report: Report,
    all_hold: bool,
}

fn compare(args: &Args, sizes: Sizes) -> Result<bool> {
    println!("{HEAD}");
    let mut table = Table { args, sizes, report: Report::default(), all_hold: true };
    table.calls()?;
    table.idle_peers()?;
    table.together()?;
    table.revoke()?;
    table.deaths()?;
    table.whole_requests()?;
    table.report.save(&args.save, "nodes")?;
    Ok(table.all_hold)
}

impl Table<'_> {
    /// The two figures of a part's first process.
    fn run(&self, part: Part, wire: WireName) -> Result<(f64, f64)> {
        let ends: Vec<_> = part.names().iter().map(|name| part.arguments(wire, name, self.args)).collect();
        let (first, others) = ends.split_first().ok_or("a part without ends")?;
        let others: Vec<_> = others.iter().map(Vec::as_slice).collect();
        let said = pair::run_among(first, &others)?;
        let (one, other) = said.trim().split_once(' ').ok_or("the first end did not say two figures")?;
        Ok((one.parse()?, other.parse()?))
    }

    /// Prints and keeps a figure of ours that was measured.
    fn single(&mut self, name: &str, unit: &str, (ours, bound): (f64, Bound)) {
        self.all_hold &= self.report.single(name, unit, ours, bound);
    }

    fn row(
        &mut self,
        name: &str,
        (unit, bound): (&'static str, Bound),
        pair: impl Fn(&Self) -> Result<(f64, f64)>,
    ) -> Result<()> {
        if self.args.only.has(name) {
            let pairs = if self.args.quick { 1 } else { self.args.pairs };
            let row = Row::of_pairs(name, unit, bound, pairs, || pair(self))?;
            self.all_hold &= self.report.row(&row);
        }
        Ok(())
    }

    /// Measures calls in the thread of their caller while requests of 256 MiB are under way to the same peer.
    fn calls(&mut self) -> Result<()> {
        for (part, end) in [(Part::CallsOfPrefill, "prefill"), (Part::CallsOfDecode, "decode")] {
            for (wire, how) in [(WireName::Mapped, "mapped"), (WireName::Tcp, "TCP")] {
                let name = format!("calls of {end} beside a request of 256 MiB, {how}:");
                if !self.args.only.has(&name) {
                    continue;
                }
                let (p99, beyond) = self.run(part, wire)?;
                self.single(&format!("{name} 99 of 100 take"), "us", (p99 * 1e6, Bound::AtMost(50.0)));
                let what = format!("{name} the longest beyond an idle thread's worst pause");
                self.single(&what, "ms", (beyond * 1e3, Bound::AtMost(1.0)));
            }
        }
        Ok(())
    }

    /// Measures a request beside peers to which nothing moves.
    fn idle_peers(&mut self) -> Result<()> {
        let name = "one request of one block beside 512 idle peers, against beside none";
        let micros = |idle| -> Result<f64> { Ok(nodes::beside_idle(idle)? * 1e6) };
        self.row(name, ("us", Bound::AtMost(1.2)), |table| Ok((micros(table.sizes.idle)?, micros(0)?)))
    }

    /// Measures what gains by going on at once.
    fn together(&mut self) -> Result<()> {
        for (name, part, bound) in [
            ("256 MiB to each of two peers at once, mapped, against one after the other", Part::Two, 1.05),
            (
                "256 MiB by layer, mapped, against sending at the end, compute as long as the transfer",
                Part::Stream,
                0.6,
            ),
        ] {
            self.row(name, ("ms", Bound::AtMost(bound)), |table| {
                let (ours, theirs) = table.run(part, WireName::Mapped)?;
                Ok((ours * 1e3, theirs * 1e3))
            })?;
        }
        Ok(())
    }

    fn revoke(&mut self) -> Result<()> {
        let name = "revoke without a fault, 64 MiB under way, mapped: 99 of 100 take";
        if self.args.only.has(name) {
            let (p99, _) = self.run(Part::Revoke, WireName::Mapped)?;
            self.single(name, "ms", (p99 * 1e3, Bound::AtMost(5.0)));
        }
        Ok(())
    }

    /// Measures the time after kill -9 of a prefill. The kernel unmaps and frees the memory of a process before it
    /// tells anybody of the end, so prefill has little of it in the rows that have a bound.
    fn deaths(&mut self) -> Result<()> {
        let bounds = [Bound::AtMost(50.0), Bound::AtMost(1.0)];
        for (part, pool, [noticed, replaced]) in
            [(Part::Killed, "16 MiB", bounds), (Part::KilledLarge, "256 MiB", [Bound::Told; 2])]
        {
            let name = format!("kill -9 of a peer with a pool of {pool}, mapped:");
            if !self.args.only.has(&name) {
                continue;
            }
            let victim = part.arguments(WireName::Mapped, "prefill-0", self.args);
            let deaths = nodes::deaths(Wire::Mapped, part.sizes(self.sizes), &victim)?;
            let errors = percentile(deaths.noticed, 99) * 1e3;
            self.single(
                &format!("{name} 99 of 100 requests with it have their error after"),
                "ms",
                (errors, noticed),
            );
            let next = percentile(deaths.replaced, 100);
            self.single(
                &format!("{name} a request with the next of its name has ended after"),
                "s",
                (next, replaced),
            );
        }
        Ok(())
    }

    /// Measures requests of 4096 scattered blocks of 64 KiB.
    fn whole_requests(&mut self) -> Result<()> {
        let bytes = self.sizes.bytes();
        let gigabytes = |table: &Self| -> Result<(f64, f64)> {
            let (node, link) = table.run(Part::Link, WireName::Mapped)?;
            Ok((rate(bytes, node), rate(bytes, link)))
        };
        let name = "4096 blocks of 64 KiB through a node, mapped, against";
        self.row(&format!("{name} a link made by hand"), ("GB/s", Bound::AtLeast(0.98)), gigabytes)?;
        for other in Other::ALL {
            let (name, bound) = (format!("{name} {}", other.name()), other.bound());
            match other.python() {
                Some(python) => {
                    self.row(&name, ("GB/s", bound), |table| Ok((gigabytes(table)?.0, other.rate(&python)?)))?
                }
                None if self.args.only.has(&name) => {
                    println!("| {name} | | not measured | | {bound} | |");
                    self.report.line(Line::absent(&name, "GB/s", bound));
                    self.all_hold = false;
                }
                None => {}
            }
        }
        let list =
            List { bytes: bytes.next_power_of_two(), block: 64 << 10, times: 1, batch: 1, scattered: true };
        self.row(&format!("{name} memcpy"), ("GB/s", Bound::AtLeast(0.9)), |table| {
            Ok((gigabytes(table)?.0, rate(list.moved(), blocks::copy(list)?)))
        })
    }
}
