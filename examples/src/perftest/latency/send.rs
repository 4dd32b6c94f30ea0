//! Each side sends in turn, into receives that the other one has posted ahead.

use super::record::{Recorder, Report};
use crate::perftest::idle::Idle;
use crate::perftest::session::{Channel, Session};
use anyhow::{Context, Error, ensure};
use rdma_core::{Opcode, Work, Worker};

/// Exchanges all messages of one size; the client begins.
pub fn measure(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    let Session { worker, queue_pairs, plan, client, exchange, idle, .. } = session;
    let channel = queue_pairs.first().context("no queue pair")?;
    let (messages, bytes) = (u64::from(plan.iters), usize::try_from(size)?);
    let mut side = Side { worker, channel, idle, messages, bytes, sent: 0, received: 0, posted: 0 };
    side.refill(u64::from(plan.rx_depth))?;
    // Nothing is sent before there is a receive for it; from now on each message shows that there is another one.
    let () = exchange.swap("readiness", &())?;
    let inline = plan.is_inline(size);
    let mut recorder = Recorder::of_exchanges(plan.iters);
    for round in 1..=messages {
        if !*client {
            side.wait(|side| side.received >= round)
                .with_context(|| format!("message {round} of {messages} did not come"))?;
        }
        side.refill(1)?;
        let work = Work::send(channel.local.range(0, bytes));
        side.worker.post(&channel.queue_pair, if inline { work.inline() } else { work })?;
        recorder.post(); // after the post: a clock that is slow to read is then read while the peer is busy
        side.refill(u64::from(plan.rx_depth))?;
        side.wait(|side| side.sent >= round).with_context(|| format!("message {round}"))?;
        if *client {
            side.wait(|side| side.received >= round)
                .with_context(|| format!("the answer to message {round} of {messages} did not come"))?;
        }
    }
    recorder.report(size).context("too few exchanges for a report")
}

/// A side, and how far it has come.
struct Side<'a> {
    worker: &'a mut Worker,
    channel: &'a Channel,
    idle: &'a mut Idle,
    messages: u64,
    bytes: usize,
    sent: u64,
    received: u64,
    /// Receives posted so far.
    posted: u64,
}

impl Side<'_> {
    /// Posts receives until so many wait, or as many as there are messages to come.
    fn refill(&mut self, depth: u64) -> anyhow::Result<()> {
        while self.posted < self.messages.min(self.received + depth) {
            let landing = self.channel.landing.range(0, self.bytes);
            self.worker.post_recv(&self.channel.queue_pair, landing)?;
            self.posted += 1;
        }
        Ok(())
    }

    /// Takes completions until `done`.
    fn wait(&mut self, done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        self.idle.reset();
        while !done(self) {
            let Some(completion) = self.worker.poll()? else {
                self.idle.step()?;
                continue;
            };
            match completion.result {
                Ok(success) if success.opcode == Opcode::Recv => {
                    ensure!(
                        success.bytes as usize == self.bytes,
                        "a message of {} bytes came",
                        success.bytes
                    );
                    self.received += 1;
                }
                Ok(_) => self.sent += 1,
                Err(failure) => return Err(Error::new(failure).context("failed")),
            }
        }
        Ok(())
    }
}
