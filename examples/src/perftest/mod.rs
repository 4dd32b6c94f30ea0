//! The twins of perftest: its flags, its header and tables, an exchange of parameters of their own. A twin's program
//! is one line: it calls [`main`] with its flags.

pub mod args;
pub mod bandwidth;
pub mod banner;
pub mod curve;
pub mod exchange;
pub mod idle;
pub mod latency;
pub mod plan;
pub mod session;
mod side;
pub mod test;

use crate::output;
use anyhow::Context;
use args::Flags;
use curve::{Figures, Outputs, Run};
use session::Session;
use std::process::ExitCode;
use std::time::Duration;
use test::Measure;

/// The line perftest draws between the parts of its output.
pub const RULE: &str =
    "---------------------------------------------------------------------------------------";

/// Runs one side of the twin whose flags these are.
pub fn main<F: Flags>() -> ExitCode {
    let flags = manual::parse::<F>();
    let patience = Duration::from_secs(flags.common().timeout_s);
    output::end(run(&flags).map(|()| 0).with_context(|| F::TEST.to_string()), patience)
}

fn run<F: Flags>(flags: &F) -> anyhow::Result<()> {
    flags.common().metrics.serve(0)?;
    let outputs = Outputs::open(&flags.common().files, F::TEST)?;
    let mut session = session::connect(flags.common(), flags.plan())?;
    let measured = match F::TEST.measure() {
        Measure::Bandwidth => bandwidth::run(&mut session).map(Figures::Bandwidth),
        Measure::Latency => latency::run(&mut session).map(Figures::Latency),
    };
    let figures = measured.map_err(|error| session.in_use.explain(error))?;
    output::say(format_args!("{RULE}\n"))?;
    let Session { device, plan, .. } = session;
    outputs.write(Run {
        test: plan.test,
        device: device.name,
        wire: device.wire,
        mtu: device.mtu,
        queue_pairs: plan.queue_pairs,
        figures,
    })?;
    Ok(())
}
