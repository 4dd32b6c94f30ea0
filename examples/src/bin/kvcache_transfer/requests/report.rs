//! The result of many requests: latencies, verdicts, the closing table and the JSON. This file measures nothing.

use crate::args::Args;
use crate::presets::Request;
use crate::report::Device;
use rdma_collective::kv::BlockVerdict;
use serde::Serialize;
use std::time::Duration;

/// Counts of one worker, or of all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// From the grant until the last block could be used, of each request that completed.
    latencies: Vec<Duration>,
    /// From giving up until nothing could land any more, of each request that was given up.
    revocations: Vec<Duration>,
    bytes: u64,
    verified: u64,
    corrupt: u64,
    untrue: u64,
}

impl Summary {
    /// A request arrived.
    pub fn completed(&mut self, latency: Duration, bytes: u64) {
        self.latencies.push(latency);
        self.bytes += bytes;
    }

    /// A request was given up.
    pub fn aborted(&mut self, revocation: Duration) {
        self.revocations.push(revocation);
    }

    /// A block was looked at: its verdict, whether its bytes are right, and whether its request was given up or failed.
    pub fn block(&mut self, verdict: BlockVerdict, right: bool, ended_early: bool) {
        match verdict {
            BlockVerdict::Valid if !right => self.untrue += 1,
            BlockVerdict::Valid if !ended_early => self.verified += 1,
            BlockVerdict::Valid => {}
            BlockVerdict::Missing => self.untrue += u64::from(!ended_early),
            BlockVerdict::Corrupt => self.corrupt += 1,
        }
    }

    /// Another worker's.
    pub fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.revocations.extend(other.revocations);
        self.bytes += other.bytes;
        self.verified += other.verified;
        self.corrupt += other.corrupt;
        self.untrue += other.untrue;
    }
}

/// Milliseconds of so many, by nearest rank; 0 of none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half were no longer.
    pub p50_ms: f64,
    /// 99 of 100 were no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latency {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let rank = |percent: usize| {
            let rank = (all.len() * percent).div_ceil(100).max(1);
            all.get(rank - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        Self { p50_ms: rank(50), p99_ms: rank(99), max_ms: rank(100) }
    }
}

/// All requests, seen from decode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    model: String,
    prompt: u32,
    block: u32,
    seed: u64,
    device: Device,
    requests: u32,
    concurrency: u32,
    completed: u64,
    aborted: u64,
    /// Bytes of the requests that completed.
    bytes: u64,
    seconds: f64,
    gigabytes_per_second: f64,
    latency: Latency,
    revocation: Latency,
    blocks: u64,
    blocks_verified: u64,
    blocks_corrupt: u64,
    verdicts_untrue: u64,
    other_bytes_changed: u64,
    /// The verdict.
    pub ok: bool,
    error: Option<String>,
}

impl Report {
    /// Puts together what was asked for and what came of it.
    pub fn new(args: &Args, request: &Request, device: Device, summary: Summary, took: Duration) -> Self {
        let Summary { latencies, revocations, bytes, verified, corrupt, untrue } = summary;
        let (completed, aborted) = (latencies.len() as u64, revocations.len() as u64);
        let (blocks, seconds) = (completed * request.layer_blocks(), took.as_secs_f64());
        Self {
            model: args.model.name.to_owned(),
            prompt: args.prompt,
            block: args.block,
            seed: args.seed,
            device,
            requests: args.requests,
            concurrency: args.concurrency(),
            completed,
            aborted,
            bytes,
            seconds,
            gigabytes_per_second: if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 },
            latency: Latency::of(latencies),
            revocation: Latency::of(revocations),
            blocks,
            blocks_verified: verified,
            blocks_corrupt: corrupt,
            verdicts_untrue: untrue,
            other_bytes_changed: 0,
            ok: verified == blocks && untrue == 0 && corrupt == 0,
            error: None,
        }
    }

    /// Bytes of decode's pool that are not what they were, when all is over.
    pub fn other_bytes_changed(&mut self, changed: u64) {
        self.other_bytes_changed = changed;
        self.ok &= changed == 0;
    }

    /// A transfer failed.
    pub fn fail(&mut self, error: String) {
        (self.ok, self.error) = (false, Some(error));
    }

    /// The table and the lines of the verdict.
    pub fn closing(&self) -> String {
        let verdict = |ok| if ok { "OK" } else { "FAILED" };
        let row = |what: &str, count: u64, Latency { p50_ms, p99_ms, max_ms }: Latency| {
            format!("{what:>14}  {count:>8}  {p50_ms:>10.3}  {p99_ms:>10.3}  {max_ms:>10.3}\n")
        };
        let mut text = format!(
            "# {:>12}  {:>8}  {:>10}  {:>10}  {:>10}\n# {:>12}  {:>8}  {:>10}  {:>10}  {:>10}\n",
            "latency", "requests", "p50", "p99", "max", "", "", "(ms)", "(ms)", "(ms)"
        );
        text += &row("transfer", self.completed, self.latency);
        if self.aborted > 0 {
            text += &row("revocation", self.aborted, self.revocation);
        }
        let Self { bytes, gigabytes_per_second, blocks, blocks_verified, .. } = self;
        let Self { verdicts_untrue, other_bytes_changed, .. } = self;
        text += &format!(
            "# Moved and verified   : {bytes} bytes in {:.3} s ({gigabytes_per_second:.3} GB/s), {} at a time\n\
             # Blocks verified      : {blocks_verified} of {blocks} {}\n\
             # Untrue verdicts      : {verdicts_untrue} {}\n\
             # Other bytes changed  : {other_bytes_changed} {}\n",
            self.seconds,
            self.concurrency,
            verdict(blocks_verified == blocks),
            verdict(*verdicts_untrue == 0),
            verdict(*other_bytes_changed == 0),
        );
        text
    }

    /// Prints the report as an object on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sides::Rank;
    use clap::Parser;

    fn report(summary: Summary) -> Report {
        let args = Args::parse_from("kvcache_transfer --prompt 16 --requests 3 --concurrency 2".split(' '));
        let device =
            Device { name: "soft0".into(), wire: "tcp".into(), gid: "1 ::1".into(), refused: vec![] };
        Report::new(
            &args,
            &args.request(Rank::default()).unwrap(),
            device,
            summary,
            Duration::from_millis(50),
        )
    }

    fn summary() -> Summary {
        let mut summary = Summary::default();
        summary.completed(Duration::from_millis(3), 2 << 20);
        summary.completed(Duration::from_millis(9), 2 << 20);
        summary.aborted(Duration::from_micros(700));
        for _ in 0..64 {
            summary.block(BlockVerdict::Valid, true, false);
        }
        for right in [true, false] {
            summary.block(BlockVerdict::Missing, right, true);
        }
        summary.block(BlockVerdict::Valid, true, true);
        summary
    }

    #[test]
    fn the_table_reads_from_top_to_bottom() {
        let report = report(summary());
        assert!(report.ok);
        insta::assert_snapshot!(report.closing() + &report.json());
    }

    #[test]
    fn an_untrue_verdict_a_missing_block_or_a_changed_byte_fails() {
        for (verdict, right, aborted) in [
            (BlockVerdict::Valid, false, false),
            (BlockVerdict::Valid, false, true),
            (BlockVerdict::Missing, true, false),
            (BlockVerdict::Corrupt, false, false),
        ] {
            let mut wrong = summary();
            wrong.block(verdict, right, aborted);
            assert!(!report(wrong).ok, "{verdict:?} {right} {aborted}");
        }
        let mut changed = report(summary());
        changed.other_bytes_changed(1);
        assert!(!changed.ok && changed.closing().contains("changed  : 1 FAILED"));
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let of = |count: u64| Latency::of((1..=count).rev().map(Duration::from_millis).collect());
        assert_eq!(of(200), Latency { p50_ms: 100.0, p99_ms: 198.0, max_ms: 200.0 });
        assert_eq!(of(1), Latency { p50_ms: 1.0, p99_ms: 1.0, max_ms: 1.0 });
        assert_eq!(of(0), Latency::default());
    }
}
