//! The server's side of sends: receives are posted ahead and again, and granted to the client.

use super::credits::Credits;
use crate::perftest::idle::Idle;
use crate::perftest::session::{Channel, Session, failed, message_offset, owner};
use anyhow::{Context, ensure};
use rdma_core::{Opcode, Segment, Work, Worker};

/// How far one queue pair has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    received: u64,
    granted: u64,
    /// Grants that are not complete.
    under_way: u32,
}

/// Receives all messages of one size.
pub fn serve(session: &mut Session, size: u64) -> anyhow::Result<()> {
    let Session { worker, queue_pairs, plan, idle, exchange, .. } = session;
    let credits = Credits::new(u64::from(plan.iters), plan.rx_depth);
    let mut progress = vec![Progress::default(); queue_pairs.len()];
    for (channel, progress) in queue_pairs.iter().zip(&mut progress) {
        for _ in 0..credits.ahead() {
            receive(worker, channel, progress, size)?;
        }
    }
    let () = exchange.swap("readiness", &())?;
    let mut server = Server { worker, queue_pairs, progress, credits, size, tx_depth: plan.tx_depth };
    server.run(plan.messages(), idle)
}

struct Server<'a> {
    worker: &'a mut Worker,
    queue_pairs: &'a [Channel],
    progress: Vec<Progress>,
    credits: Credits,
    size: u64,
    tx_depth: u32,
}

impl Server<'_> {
    /// Until all has come, and the peer has all grants.
    fn run(&mut self, messages: u64, idle: &mut Idle) -> anyhow::Result<()> {
        idle.reset();
        let mut at = 0;
        loop {
            let mut found = false;
            while let Some(completion) = self.worker.poll()? {
                found = true;
                at = owner(self.queue_pairs, at, completion.qp_num)?;
                match completion.result {
                    Ok(done) if done.opcode == Opcode::Recv => self.received(at, u64::from(done.bytes))?,
                    Ok(_) => self.progress[at].under_way -= 1,
                    Err(failure) => return Err(failed(completion.qp_num, failure)),
                }
                self.grant(at)?;
            }
            let received: u64 = self.progress.iter().map(|progress| progress.received).sum();
            if received == messages && self.progress.iter().all(|progress| progress.under_way == 0) {
                return Ok(());
            }
            if found {
                idle.reset();
            } else {
                idle.step().with_context(|| format!("{received} of {messages} messages have come"))?;
            }
        }
    }

    fn received(&mut self, at: usize, bytes: u64) -> anyhow::Result<()> {
        ensure!(bytes == self.size, "a message of {bytes} bytes came");
        let progress = &mut self.progress[at];
        progress.received += 1;
        if progress.posted < self.credits.messages() {
            receive(self.worker, &self.queue_pairs[at], progress, self.size)?;
        }
        Ok(())
    }

    /// Grants what is due; what the send queue has no room for waits for the next completion.
    fn grant(&mut self, at: usize) -> anyhow::Result<()> {
        let progress = &mut self.progress[at];
        while progress.under_way < self.tx_depth
            && let Some(grant) = self.credits.next_grant(progress.posted, progress.granted)
        {
            let work = Work::send(Segment::Empty).with_imm(grant);
            self.worker.post(&self.queue_pairs[at].queue_pair, work)?;
            progress.granted += u64::from(grant);
            progress.under_way += 1;
        }
        Ok(())
    }
}

/// Posts a receive.
fn receive(worker: &mut Worker, channel: &Channel, progress: &mut Progress, size: u64) -> anyhow::Result<()> {
    let offset = message_offset(size, progress.posted);
    let landing = channel.landing.range(channel.offset + offset as usize, size as usize);
    worker.post_recv(&channel.queue_pair, landing)?;
    progress.posted += 1;
    Ok(())
}
