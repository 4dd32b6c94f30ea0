//! Bandwidth: the client keeps as many requests under way as its queue holds; both sides print what it measured.

mod credits;
mod receives;
mod record;
mod requests;

pub use credits::GRANTS_AHEAD;
pub use record::{Report, line, titles};

use super::session::Session;
use super::test::Verb;
use crate::output;
use anyhow::Context;

/// Runs all sizes, and prints and returns a line for each.
///
/// # Errors
///
/// A request fails, or the other side is lost or does nothing for too long.
pub fn run(session: &mut Session) -> anyhow::Result<Vec<Report>> {
    output::say(titles())?;
    let mut reports = Vec::new();
    for size in session.plan.sizes() {
        let report = if session.client {
            let report = requests::measure(session, size).with_context(|| format!("{size} bytes"))?;
            session.exchange.send("report", &report)?;
            report
        } else {
            if session.plan.test.verb() == Verb::Send {
                receives::serve(session, size).with_context(|| format!("{size} bytes"))?;
            }
            session.exchange.receive("report")?
        };
        output::say(line(&report))?;
        reports.push(report);
    }
    // Neither side's memory goes before all has landed.
    let () = session.exchange.swap("end", &())?;
    Ok(reports)
}
