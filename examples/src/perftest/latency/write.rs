//! Each side writes in turn and watches the last byte of its own memory for the other's write. That is what the
//! test measures; a protocol must not do it (a device may place bytes in any order): it counts immediates.

use super::complete;
use super::record::{Recorder, Report};
use crate::perftest::idle::Idle;
use crate::perftest::session::Session;
use anyhow::{Context, ensure};
use rdma_core::{Region, Work, Worker};

/// Exchanges all messages of one size; the client begins.
pub fn measure(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    let last = usize::try_from(size - 1)?;
    let Session { worker, queue_pairs, inbox, outbox, plan, client, idle, .. } = session;
    let channel = queue_pairs.first().context("no queue pair")?;
    let remote = channel.remote.slice(0..size)?;
    let inline = plan.is_inline(size);
    // The byte is 0 to begin with: every size so far was smaller and did not reach it.
    let mut recorder = Recorder::of_exchanges(plan.iters);
    for round in 1..=plan.iters {
        let mark = round as u8; // perftest's mark: the count's low byte
        if !*client {
            watch(worker, inbox, last, mark, idle)
                .with_context(|| format!("write {round} of {} did not come", plan.iters))?;
        }
        outbox.copy_in(last, &[mark])?;
        let work = Work::write(channel.local.range(0, size as usize), remote);
        worker.post(&channel.queue_pair, if inline { work.inline() } else { work })?;
        recorder.post(); // after the post: a clock that is slow to read is then read while the peer is busy
        complete(worker, idle).with_context(|| format!("write {round}"))?;
        if *client {
            watch(worker, inbox, last, mark, idle)
                .with_context(|| format!("the answer to write {round} of {} did not come", plan.iters))?;
        }
    }
    recorder.report(size).context("too few exchanges for a report")
}

/// Waits until the byte is the mark; before the next one it can only be the mark of the round before.
fn watch(worker: &mut Worker, inbox: &Region, at: usize, mark: u8, idle: &mut Idle) -> anyhow::Result<()> {
    idle.reset();
    let mut byte = [0];
    loop {
        // The software device places what comes while it is polled; one that is not waits for its own thread.
        if idle.lends() {
            ensure!(worker.poll()?.is_none(), "a completion of nothing");
        }
        inbox.copy_out(at, &mut byte)?;
        if byte[0] == mark {
            return Ok(());
        }
        idle.step()?;
    }
}
