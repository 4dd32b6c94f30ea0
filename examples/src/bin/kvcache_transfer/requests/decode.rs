//! Decode's side of many requests: workers that grant theirs one after the other, give some up, and look at every byte.

use super::report::{Report, Summary};
use super::{Requests, Turn, request_id};
use crate::args::Args;
use crate::blocks::Blocks;
use crate::content::Owner;
use crate::pool::{self, Owners};
use crate::presets::Request;
use crate::report::Device;
use crate::way;
use anyhow::Context;
use examples::output;
use rdma_collective::kv::{BlockVerdict, Joint, Pool, Sources, Verdicts};
use rdma_core::Deadline;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a transfer that is to be given up.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// So long nothing has to arrive.
const STILL: Duration = Duration::from_secs(2);

/// State that the workers have in common.
struct Shared<'a> {
    args: &'a Args,
    request: &'a Request,
    requests: &'a Requests,
    sources: &'a Sources,
    blocks: Blocks,
}

/// Takes all requests, and says what came of them; true when nothing was wrong.
///
/// # Errors
///
/// The first transfer that failed.
pub fn run(
    args: &Args,
    request: &Request,
    requests: &Requests,
    sources: Sources,
    device: Device,
) -> anyhow::Result<bool> {
    let pool = sources.pool().clone();
    let blocks = Blocks::new(request, args.seed)?;
    let begin = Instant::now();
    let outcome = {
        let shared = Shared { args, request, requests, sources: &sources, blocks: blocks.clone() };
        work_all(&shared)
    };
    let took = begin.elapsed();
    drop(sources); // nothing lands any more while the pool is looked at
    let (summary, error) = outcome;
    let verified = pool::verify(&pool, &Owners::none(request), &blocks, |_| {})?;
    let mut report = Report::new(args, request, device, summary, took);
    report.other_bytes_changed(verified.other_bytes);
    if let Some(error) = &error {
        report.fail(output::in_a_line(error));
    }
    output::say(if args.json { report.json() + "\n" } else { report.closing() })?;
    error.map_or(Ok(report.ok), Err)
}

/// Runs all workers; returns the sum of their counts, and the first error.
fn work_all(shared: &Shared<'_>) -> (Summary, Option<anyhow::Error>) {
    thread::scope(|scope| {
        let workers = (0..shared.requests.workers()).map(|worker| {
            scope.spawn(move || {
                let mut summary = Summary::default();
                let mut bytes = vec![0; shared.request.layout.layer_block_bytes() as usize];
                let outcome = shared
                    .requests
                    .of(worker)
                    .try_for_each(|turn| shared.take(turn, &mut summary, &mut bytes));
                (summary, outcome.err())
            })
        });
        let workers: Vec<_> = workers.collect();
        let (mut all, mut first) = (Summary::default(), None);
        for worker in workers {
            match worker.join() {
                Ok((summary, error)) => {
                    all.add(summary);
                    first = first.or(error);
                }
                Err(_) => first = first.or_else(|| Some(anyhow::anyhow!("a worker panicked"))),
            }
        }
        (all, first)
    })
}

impl Shared<'_> {
    /// Takes one request, from its grant until its blocks hold again what they held before.
    fn take(&self, turn: Turn, summary: &mut Summary, bytes: &mut [u8]) -> anyhow::Result<()> {
        let named = || format!("request {}", request_id(turn));
        let deadline = Deadline::after(self.args.timeout());
        let begin = Instant::now();
        let ids = self.requests.destination(turn);
        let incoming = way::receive(self.args, self.sources, request_id(turn), ids).with_context(named)?;
        match turn.abort_at {
            None => {
                let layers = way::wait_layers(self.args, &incoming);
                // The request's blocks are free after this wait, whatever became of the layers. The request's own
                // error says why.
                let received = incoming.wait().and_then(|received| layers.map(|()| received));
                match received {
                    Ok(received) => {
                        summary.completed(begin.elapsed(), received.bytes);
                        self.look(turn, &received.verdicts, true, summary, bytes)
                    }
                    Err(error) => {
                        // A failure to look is dropped, because it would be one more consequence of `error`.
                        let _ = self.look(turn, &error.verdicts, false, summary, bytes);
                        Err(anyhow::anyhow!("{error}")).with_context(named)
                    }
                }
            }
            Some(percent) => {
                until(&incoming, percent, self.args.pull.then_some(deadline));
                let given_up = Instant::now();
                let verdicts = incoming.revoke(deadline).with_context(named)?;
                summary.aborted(given_up.elapsed());
                self.look(turn, &verdicts, false, summary, bytes)
            }
        }
    }

    /// Whether each block holds what its verdict says; afterwards it holds what it held before.
    fn look(
        &self,
        turn: Turn,
        verdicts: &Verdicts,
        completed: bool,
        summary: &mut Summary,
        bytes: &mut [u8],
    ) -> anyhow::Result<()> {
        let (pool, first): (&Pool, u32) = (self.sources.pool(), self.requests.first_place(turn));
        for layer in 0..self.request.layers() {
            for (place, &block) in self.requests.destination(turn).iter().enumerate() {
                pool.read(layer, block, 0, bytes)?;
                let owner = Owner::Request { layer, block: first + place as u32 };
                let right = self.blocks.wrong(owner, bytes) == 0;
                let verdict = verdicts.get(layer, place).unwrap_or(BlockVerdict::Missing);
                summary.block(verdict, right, !completed);
                self.blocks.fill(Owner::Pool { layer, block }, bytes);
                pool.write(layer, block, 0, bytes)?;
            }
        }
        Ok(())
    }
}

/// Waits until so much of a transfer has arrived, at least its announcement: both sides have met then. One that stands
/// still is not waited for; but nobody would tell prefill of a pull that has not met its offer, which it has by
/// `pulls`.
fn until(incoming: &Joint, percent: u8, pulls: Option<Deadline>) {
    let (mut last, mut since) = (incoming.progress(), Instant::now());
    while since.elapsed() < STILL || (last.writes == 0 && pulls.is_some_and(|until| !until.expired())) {
        let progress = incoming.progress();
        let enough =
            progress.bytes_arrived.saturating_mul(100) >= progress.bytes.saturating_mul(percent.into());
        if progress.writes > 0 && enough {
            return;
        }
        if progress != last {
            (last, since) = (progress, Instant::now());
        }
        thread::sleep(LOOK_EVERY);
    }
}
