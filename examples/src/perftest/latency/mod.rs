//! Latency: one message is under way at a time.

mod read;
mod record;
mod send;
mod write;

pub use record::{Report, line, titles};

use super::idle::Idle;
use super::session::Session;
use super::test::Verb;
use crate::output;
use anyhow::{Context, Error};
use rdma_core::Worker;

/// Runs all sizes, and prints and returns a line for each.
///
/// # Errors
///
/// A request fails, or the other side is lost or does nothing for too long.
pub fn run(session: &mut Session) -> anyhow::Result<Vec<Report>> {
    output::say(titles())?;
    let mut reports = Vec::new();
    for size in session.plan.sizes() {
        let report = one_size(session, size).with_context(|| format!("{size} bytes"))?;
        output::say(line(&report))?;
        reports.push(report);
        // Neither side's next size may write over a byte that the other one still watches.
        let () = session.exchange.swap("end of a size", &())?;
    }
    Ok(reports)
}

/// Exchanges are seen by both sides, each with its own times; reads by the client alone, which tells the server.
fn one_size(session: &mut Session, size: u64) -> anyhow::Result<Report> {
    match session.plan.test.verb() {
        Verb::Write => write::measure(session, size),
        Verb::Send => send::measure(session, size),
        Verb::Read if session.client => {
            let report = read::measure(session, size)?;
            session.exchange.send("report", &report)?;
            Ok(report)
        }
        Verb::Read => Ok(session.exchange.receive("report")?),
    }
}

/// Waits for the one request in flight.
fn complete(worker: &mut Worker, idle: &mut Idle) -> anyhow::Result<()> {
    idle.reset();
    loop {
        match worker.poll()? {
            None => idle.step()?,
            Some(completion) => match completion.result {
                Ok(_) => return Ok(()),
                Err(failure) => return Err(Error::new(failure).context("failed")),
            },
        }
    }
}
