//! The output of rank 0 as it goes, and the files of `-J` and `--plot`; `examples::columns` has the format.

use super::args::Args;
use super::job::Job;
use super::lanes::Plan;
use super::plot::Plot;
use crate::columns::header::Config;
use crate::columns::{Closing, Row, json, print};
use crate::output;
use crate::sizes::sweep::{Step, Sweep};
use anyhow::Context;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// The rows so far; silent on all ranks but 0.
pub struct Report {
    prints: bool,
    started: SystemTime,
    config: Config,
    rows: Vec<Row>,
    file: Option<(PathBuf, File)>,
    plot: Option<Plot>,
}

impl Report {
    /// Prints the header, and makes the files: one that cannot be written is known now.
    ///
    /// # Errors
    ///
    /// The system's error at the file or at standard output.
    pub fn begin(job: &Job, args: &Args, sweep: &Sweep, plan: &Plan) -> anyhow::Result<Self> {
        let (step_factor, step_bytes) = match sweep.step() {
            Step::Factor(factor) => (Some(factor), None),
            Step::Bytes(bytes) => (None, Some(bytes)),
        };
        let config = Config {
            program: args.collective.name().to_owned(),
            ranks: job.ranks(),
            minimum_bytes: sweep.first(),
            maximum_bytes: sweep.last(),
            step_factor,
            step_bytes,
            warmup_iters: args.warmup_iters,
            iterations: args.iters,
            aggregated_iterations: args.agg_iters,
            validation: args.check,
            lanes: plan.describe(job.own_devices.iter().map(String::as_str)),
            ignored: plan.ignored.clone(),
            devices: job.devices.clone(),
            refused: job.refused.clone(),
        };
        let prints = job.prints();
        let mut report =
            Self { prints, started: SystemTime::now(), config, rows: Vec::new(), file: None, plot: None };
        if let Some(path) = args.json.as_ref().filter(|_| prints) {
            let (path, file) =
                json::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
            report.say(&format!("# Writing JSON output to {}\n", path.display()))?;
            report.file = Some((path, file));
        }
        if prints {
            report.plot = Plot::open(args)?;
        }
        report.say(&report.config.lines())?;
        report.say(&print::column_titles())?;
        Ok(report)
    }

    /// Prints a row.
    ///
    /// # Errors
    ///
    /// The system's error at standard output.
    pub fn row(&mut self, row: Row) -> anyhow::Result<()> {
        self.say(&print::row(&row))?;
        self.rows.push(row);
        Ok(())
    }

    /// Says which lanes of this rank the run has lost: it went on without them.
    ///
    /// # Errors
    ///
    /// The system's error at standard output.
    pub fn lost(&self, job: &Job) -> anyhow::Result<()> {
        job.comm.lost_lanes().iter().try_for_each(|lost| {
            let why = lost.reason.replace('\n', " ");
            let (lane, device, rank) = (lost.lane, &lost.device, lost.rank);
            self.say(&format!("# Lane {lane} ({device}) to rank {rank} was lost on the way ({why})\n"))
        })
    }

    /// Prints the closing lines and draws, unless the run failed, and writes the file; true when no element was wrong.
    ///
    /// # Errors
    ///
    /// The system's error at the file or at standard output.
    pub fn end(self, error: Option<String>) -> anyhow::Result<bool> {
        let closing = Closing::of(&self.rows);
        if error.is_none() {
            self.say(&print::closing(&closing, &self.config.program))?;
            if let Some(plot) = self.plot {
                plot.write(&self.config.program, &self.rows)?;
            }
        }
        if let Some((path, file)) = self.file {
            let report = json::Report {
                started: self.started,
                ended: SystemTime::now(),
                args: std::env::args_os().map(readable).collect(),
                env: steering(std::env::vars_os().map(|(name, value)| (readable(name), readable(value)))),
                config: self.config,
                rows: self.rows,
                errors: error.into_iter().collect(),
            };
            report
                .write(io::BufWriter::new(file))
                .with_context(|| format!("-J {} cannot be written", path.display()))?;
        }
        Ok(closing.ok())
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.prints { output::say(text) } else { Ok(()) }
    }
}

/// As text, whatever bytes there are.
fn readable(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

/// The variables that steer a run, as `NAME=value`.
fn steering(variables: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"];
    let steers = |name: &str| name.starts_with("NCCL_") || names.contains(&name);
    let mut found: Vec<String> =
        variables.filter(|(name, _)| steers(name)).map(|(name, value)| format!("{name}={value}")).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_environment_has_no_secrets() {
        let all = ["NCCL_DEBUG=INFO", "RDMA_JOB_TOKEN=00ff", "AWS_SECRET=x", "RANK=0", "NCCL_IB_HCA="];
        let split = all.iter().filter_map(|pair| pair.split_once('='));
        let kept = steering(split.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(kept, ["NCCL_DEBUG=INFO", "NCCL_IB_HCA=", "RANK=0"]);
    }
}
