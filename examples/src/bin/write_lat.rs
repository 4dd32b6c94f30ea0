//! Latency of RDMA write between two processes, after perftest's `ib_write_lat`.
//!
//! Each side writes in turn and watches the last byte of its own memory for the other's write. That is what the
//! test measures; a protocol must not do it (a device may place bytes in any order): it counts immediates.

use anyhow::{Context, bail};
use clap::Parser;
use examples::output;
use examples::perftest::RULE;
use examples::perftest::args::{LatencyArgs, Plan};
use examples::perftest::exchange::Test;
use examples::perftest::idle::Idle;
use examples::perftest::latency::{Recorder, Report, line, titles};
use examples::perftest::session::{Session, connect};
use rdma_core::{Region, Work, Worker};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match run(&LatencyArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("write_lat: {}", output::in_a_line(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &LatencyArgs) -> anyhow::Result<()> {
    let plan = args.plan();
    let within = Duration::from_secs(args.common.timeout_s);
    let client = args.common.host.is_some();
    let mut session = connect(Test::WriteLat, &args.common, &plan)?;
    output::say(titles())?;
    for size in plan.sizes() {
        let report =
            measure(&mut session, &plan, size, client, within).with_context(|| format!("{size} bytes"))?;
        output::say(line(&report))?;
        // Neither side's next size may write over a byte that the other one still watches.
        let () = session.exchange.swap("end of a size", &())?;
    }
    output::say(format_args!("{RULE}\n"))
}

/// Exchanges all messages of one size; the client begins.
fn measure(
    session: &mut Session,
    plan: &Plan,
    size: u64,
    client: bool,
    within: Duration,
) -> anyhow::Result<Report> {
    let inline = size <= u64::from(session.inline_bytes);
    let last = usize::try_from(size - 1)?;
    let Session { worker, queue_pairs, inbox, outbox, soft, .. } = session;
    let channel = queue_pairs.first().context("no queue pair")?;
    let remote = channel.remote.slice(0..size)?;
    // The byte is 0 to begin with: every size so far was smaller and did not reach it.
    let mut recorder = Recorder::new(plan.iters);
    for round in 1..=plan.iters {
        let mark = round as u8; // what perftest writes: the count's low byte
        if !client {
            watch(inbox, last, mark, &mut Idle::new(within, *soft))
                .with_context(|| format!("write {round} of {} did not come", plan.iters))?;
        }
        outbox.copy_in(last, &[mark])?;
        let work = Work::write(channel.source.range(0, size as usize), remote);
        worker.post(&channel.queue_pair, if inline { work.inline() } else { work })?;
        recorder.post(); // after the post: a clock that is slow to read is then read while the peer is busy
        complete(worker, &mut Idle::new(within, *soft)).with_context(|| format!("write {round}"))?;
        if client {
            watch(inbox, last, mark, &mut Idle::new(within, *soft))
                .with_context(|| format!("the answer to write {round} of {} did not come", plan.iters))?;
        }
    }
    recorder.report(size).context("too few exchanges for a report")
}

/// Waits until the byte is the mark; before the next one it can only be the mark of the round before.
fn watch(inbox: &Region, at: usize, mark: u8, idle: &mut Idle) -> anyhow::Result<()> {
    let mut byte = [0];
    loop {
        inbox.copy_out(at, &mut byte)?;
        if byte[0] == mark {
            return Ok(());
        }
        idle.step()?;
    }
}

/// Waits for the one write in flight.
fn complete(worker: &mut Worker, idle: &mut Idle) -> anyhow::Result<()> {
    loop {
        match worker.poll()? {
            None => idle.step()?,
            Some(completion) => match completion.result {
                Ok(_) => return Ok(()),
                Err(failure) => bail!("failed: {failure}"),
            },
        }
    }
}
