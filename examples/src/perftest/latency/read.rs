//! The client reads, one read after the other: each is a whole round trip, and the server's processor takes no part.

use super::complete;
use super::record::{Recorder, Report};
use crate::perftest::session::Session;
use anyhow::Context;
use rdma_core::Work;

/// Carries out all reads of one size.
pub fn measure(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    let Session { worker, queue_pairs, plan, idle, .. } = session;
    let channel = queue_pairs.first().context("no queue pair")?;
    let remote = channel.remote.slice(0..size)?;
    let mut recorder = Recorder::of_round_trips(plan.iters);
    for round in 1..=plan.iters {
        worker.post(&channel.queue_pair, Work::read(channel.local.range(0, size as usize), remote))?;
        recorder.post();
        complete(worker, idle).with_context(|| format!("read {round}"))?;
    }
    recorder.report(size).context("too few reads for a report")
}
