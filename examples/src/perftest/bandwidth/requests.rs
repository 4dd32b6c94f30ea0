//! The client's side: requests are posted wherever there is room, and completions taken as they come.

use super::credits::{Credits, GRANTS_AHEAD};
use super::record::{Recorder, Report};
use crate::perftest::plan::Plan;
use crate::perftest::session::{Channel, Session, failed, message_offset, owner};
use crate::perftest::test::Verb;
use anyhow::Context;
use rdma_core::{Opcode, Segment, Work, Worker};

/// How far one queue pair has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    completed: u64,
    /// Messages that may be posted in all by now.
    allowed: u64,
    /// Receives for further grants that are to be posted yet.
    grants: u64,
}

/// Carries out all requests of one size and waits until the last one is complete.
pub fn measure(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    let mut progress = begin(session)?;
    let Session { worker, queue_pairs, plan, idle, .. } = session;
    let mut recorder = Recorder::new(plan.messages());
    let (mut posted, mut total, mut at) = (0, 0, 0);
    idle.reset();
    while total < plan.messages() {
        for (channel, progress) in queue_pairs.iter().zip(&mut progress) {
            let room = room(plan, progress);
            if room > 0 {
                recorder.burst(posted);
                fill(worker, channel, progress, room, plan, size)?;
                posted += room;
            }
        }
        let (before, mut found) = (total, false);
        while let Some(completion) = worker.poll()? {
            found = true;
            at = owner(queue_pairs, at, completion.qp_num)?;
            match completion.result {
                Ok(done) if done.opcode == Opcode::Recv => {
                    granted(worker, &queue_pairs[at], &mut progress[at], done.imm)?;
                }
                Ok(_) => {
                    progress[at].completed += 1;
                    total += 1;
                }
                Err(failure) => return Err(failed(completion.qp_num, failure)),
            }
        }
        if total > before {
            recorder.complete(total);
        }
        if found {
            idle.reset();
        } else {
            idle.step().with_context(|| format!("{total} of {} requests complete", plan.messages()))?;
        }
    }
    Ok(recorder.report(size))
}

/// Sends need receives: those of the server for them, and here those for its grants.
fn begin(session: &mut Session) -> anyhow::Result<Vec<Progress>> {
    let Session { worker, queue_pairs, plan, exchange, .. } = session;
    let messages = u64::from(plan.iters);
    if plan.test.verb() != Verb::Send {
        return Ok(vec![Progress { allowed: messages, ..Progress::default() }; queue_pairs.len()]);
    }
    let credits = Credits::new(messages, plan.rx_depth);
    let ahead = credits.grants().min(u64::from(GRANTS_AHEAD));
    for channel in queue_pairs.iter() {
        for _ in 0..ahead {
            worker.post_recv(&channel.queue_pair, Segment::Empty)?;
        }
    }
    let () = exchange.swap("readiness", &())?;
    let begun =
        Progress { allowed: credits.ahead(), grants: credits.grants() - ahead, ..Progress::default() };
    Ok(vec![begun; queue_pairs.len()])
}

/// Takes a grant, and makes room for another one.
fn granted(
    worker: &mut Worker,
    channel: &Channel,
    progress: &mut Progress,
    grant: Option<u32>,
) -> anyhow::Result<()> {
    progress.allowed += u64::from(grant.context("a message without a grant came")?);
    if progress.grants > 0 {
        worker.post_recv(&channel.queue_pair, Segment::Empty)?;
        progress.grants -= 1;
    }
    Ok(())
}

/// How many more messages the queue pair takes now.
fn room(plan: &Plan, progress: &Progress) -> u64 {
    let Progress { posted, completed, allowed, .. } = *progress;
    (u64::from(plan.tx_depth) - (posted - completed)).min(allowed.min(u64::from(plan.iters)) - posted)
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
    let (verb, inline) = (plan.test.verb(), plan.is_inline(size));
    for _ in 0..messages {
        let number = progress.posted;
        let offset = message_offset(size, number);
        let local = channel.local.range(channel.offset + offset as usize, size as usize);
        let remote = channel.remote.slice(offset..offset + size)?;
        let work = match verb {
            Verb::Write => Work::write(local, remote),
            Verb::Read => Work::read(local, remote),
            Verb::Send => Work::send(local),
        };
        let work = if inline { work.inline() } else { work };
        let signalled = number % every == every - 1 || number + 1 == iters;
        worker.post(&channel.queue_pair, if signalled { work } else { work.unsignalled() })?;
        progress.posted += 1;
    }
    Ok(())
}
