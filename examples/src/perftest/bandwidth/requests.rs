//! The client's side: requests are posted wherever there is room, and completions taken as they come.

use super::record::{Recorder, Report};
use crate::perftest::plan::Plan;
use crate::perftest::session::{Channel, Session, message_offset};
use crate::perftest::test::Verb;
use anyhow::{Context, bail};
use rdma_core::{Work, Worker};

/// How far one queue pair has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    completed: u64,
}

/// Carries out all requests of one size and waits until the last one is complete.
pub fn measure(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    let Session { worker, queue_pairs, plan, idle, .. } = session;
    idle.reset();
    let mut recorder = Recorder::new(plan.messages());
    let mut progress = vec![Progress::default(); queue_pairs.len()];
    let (mut posted, mut total, mut owner) = (0, 0, 0);
    while total < plan.messages() {
        for (channel, progress) in queue_pairs.iter().zip(&mut progress) {
            let room = room(plan, progress);
            if room > 0 {
                recorder.burst(posted);
                fill(worker, channel, progress, room, plan, size)?;
                posted += room;
            }
        }
        let before = total;
        while let Some(completion) = worker.poll()? {
            if let Err(failure) = completion.result {
                bail!("a request of queue pair {} failed: {failure}", completion.qp_num);
            }
            // Completions of one queue pair come in runs: the last owner is looked at first.
            let is_owner = |index: &usize| queue_pairs[*index].queue_pair.num() == completion.qp_num;
            owner =
                (owner..queue_pairs.len()).chain(0..owner).find(is_owner).context("an unknown queue pair")?;
            progress[owner].completed += 1;
            total += 1;
        }
        if total > before {
            recorder.complete(total);
            idle.reset();
        } else {
            idle.step().with_context(|| format!("{total} of {} requests complete", plan.messages()))?;
        }
    }
    Ok(recorder.report(size))
}

/// How many more messages the queue pair takes now.
fn room(plan: &Plan, progress: &Progress) -> u64 {
    let outstanding = progress.posted - progress.completed;
    (u64::from(plan.tx_depth) - outstanding).min(u64::from(plan.iters) - progress.posted)
}

/// Posts so many messages, one doorbell each as perftest does.
fn fill(
    worker: &mut Worker,
    channel: &Channel,
    progress: &mut Progress,
    messages: u64,
    plan: &Plan,
    size: u64,
) -> anyhow::Result<()> {
    let (iters, every) = (u64::from(plan.iters), u64::from(plan.cq_moderation.max(1)));
    let inline = plan.is_inline(size);
    for _ in 0..messages {
        let number = progress.posted;
        let offset = message_offset(size, number);
        let local = channel.local.range(channel.offset + offset as usize, size as usize);
        let remote = channel.remote.slice(offset..offset + size)?;
        let work = match plan.test.verb() {
            Verb::Write if inline => Work::write(local, remote).inline(),
            Verb::Write => Work::write(local, remote),
            Verb::Read => Work::read(local, remote),
        };
        let signalled = number % every == every - 1 || number + 1 == iters;
        worker.post(&channel.queue_pair, if signalled { work } else { work.unsignalled() })?;
        progress.posted += 1;
    }
    Ok(())
}
