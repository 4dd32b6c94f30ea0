//! Bandwidth of RDMA write between two processes, after perftest's `ib_write_bw`.
//!
//! The server (no host argument) only lends its memory and prints what the client measured.

use anyhow::{Context, bail};
use clap::Parser;
use examples::output;
use examples::perftest::RULE;
use examples::perftest::args::{BandwidthArgs, Plan};
use examples::perftest::bandwidth::{Recorder, Report, line, titles};
use examples::perftest::exchange::Test;
use examples::perftest::idle::Idle;
use examples::perftest::session::{Channel, Session, connect, message_offset};
use rdma_core::{Work, Worker};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match run(&BandwidthArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("write_bw: {}", output::in_a_line(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &BandwidthArgs) -> anyhow::Result<()> {
    let plan = args.plan();
    let mut session = connect(Test::WriteBw, &args.common, &plan)?;
    output::say(titles())?;
    if args.common.host.is_some() {
        let within = Duration::from_secs(args.common.timeout_s);
        for size in plan.sizes() {
            let report =
                measure(&mut session, &plan, size, within).with_context(|| format!("{size} bytes"))?;
            output::say(line(&report))?;
            session.exchange.send("report", &Some(report))?;
        }
        session.exchange.send("end", &None::<Report>)?;
        let () = session.exchange.receive("end")?; // the server's memory stays until all has landed
    } else {
        while let Some(report) = session.exchange.receive::<Option<Report>>("report")? {
            output::say(line(&report))?;
        }
        session.exchange.send("end", &())?;
    }
    output::say(format_args!("{RULE}\n"))
}

/// How far one queue pair has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    completed: u64,
}

/// Writes all messages of one size and waits until the last one is complete.
fn measure(session: &mut Session, plan: &Plan, size: u64, within: Duration) -> anyhow::Result<Report> {
    let inline = size <= u64::from(session.inline_bytes);
    let Session { worker, queue_pairs, soft, .. } = session;
    let mut recorder = Recorder::new(plan.messages());
    let mut progress = vec![Progress::default(); queue_pairs.len()];
    let mut idle = Idle::new(within, *soft);
    let (mut posted, mut total, mut owner) = (0, 0, 0);
    while total < plan.messages() {
        for (channel, progress) in queue_pairs.iter().zip(&mut progress) {
            let room = room(plan, progress);
            if room > 0 {
                recorder.burst(posted);
                fill(worker, channel, progress, room, plan, size, inline)?;
                posted += room;
            }
        }
        let before = total;
        while let Some(completion) = worker.poll()? {
            if let Err(failure) = completion.result {
                bail!("a write of queue pair {} failed: {failure}", completion.qp_num);
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
            idle.step().with_context(|| format!("{total} of {} writes complete", plan.messages()))?;
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
    inline: bool,
) -> anyhow::Result<()> {
    let (iters, every) = (u64::from(plan.iters), u64::from(plan.cq_moderation.max(1)));
    for _ in 0..messages {
        let number = progress.posted;
        let offset = message_offset(size, number);
        let source = channel.source.range(channel.offset + offset as usize, size as usize);
        let mut work = Work::write(source, channel.remote.slice(offset..offset + size)?);
        if inline {
            work = work.inline();
        }
        let signalled = number % every == every - 1 || number + 1 == iters;
        worker.post(&channel.queue_pair, if signalled { work } else { work.unsignalled() })?;
        progress.posted += 1;
    }
    Ok(())
}
