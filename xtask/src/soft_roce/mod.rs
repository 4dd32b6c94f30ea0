//! `cargo xtask soft-roce`: runs a command where there is a soft-RoCE device. This file decides where; the
//! neighbours make it happen: [`native`] on this host, [`prepare`] what a virtual machine needs, [`session`]
//! the machines themselves.

mod guest;
mod kvm;
mod native;
mod prepare;
mod session;
mod suite;
mod tail;
mod verdict;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::tally::table;
use crate::workspace;

pub use suite::{InsideArgs, Share, inside, run as suite};

/// The exit status of a run that did not take place, as automake's test harness has it.
const EXIT_SKIPPED: u8 = 77;

/// Options of `cargo xtask soft-roce`.
#[derive(Parser, Clone)]
pub struct Args {
    /// How many hosts: two are two virtual machines on one wire, and both run the command.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    hosts: u8,
    /// Keep the folder with the logs of a run that passed.
    #[arg(long)]
    keep: bool,
    /// Boot a virtual machine even where this host has a device.
    #[arg(long)]
    vm: bool,
    /// Install what virtual machines need, and run nothing.
    #[arg(long)]
    prepare: bool,
    /// Memory of each machine in MiB [default: 4096 for one host, 2048 for two].
    #[arg(long)]
    memory: Option<u32>,
    /// Processors of each machine [default: 2 for one host, 1 for two].
    #[arg(long)]
    cpus: Option<u8>,
    /// Build and run this part of the suite, in place of a command.
    #[arg(long, value_enum, conflicts_with_all = ["keep", "vm", "prepare", "memory", "cpus", "timeout", "command"])]
    suite: Option<Share>,
    /// Seconds that the command may take.
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// The command; it finds ROCE_DEVICE, ROCE_HOST, ROCE_SELF, ROCE_PEER and ROCE_OUT in its environment.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// How a run ended.
pub enum Outcome {
    /// Every host gave the verdict `ok`.
    Passed,
    /// A host failed, or gave no verdict; the reason is for people.
    Failed(String),
    /// There was nowhere to run; the reason says what to install.
    Skipped(String),
}

/// A run, and what its hosts left.
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// For each host, the files that were asked for; an absent file is empty.
    pub files: Vec<Vec<String>>,
}

impl From<Outcome> for Run {
    fn from(outcome: Outcome) -> Run {
        Run { outcome, files: Vec::new() }
    }
}

/// The subcommand: runs, and turns the outcome into an exit status.
pub fn main(args: &Args) -> Result<ExitCode> {
    if args.prepare {
        if let prepare::Ready::No(reason) = prepare::prepare()? {
            println!("soft-roce: {reason}");
            return Ok(ExitCode::from(EXIT_SKIPPED));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = match args.suite {
        Some(share) => {
            let run = suite(args.hosts, share)?;
            println!("\n{}", table(&run.rows));
            run.outcome
        }
        None => run(args, &[])?.outcome,
    };
    Ok(match outcome {
        Outcome::Passed => {
            println!("soft-roce: passed");
            ExitCode::SUCCESS
        }
        Outcome::Failed(reason) => {
            println!("soft-roce: failed: {reason}");
            ExitCode::FAILURE
        }
        Outcome::Skipped(reason) => {
            println!("soft-roce: skipped: {reason}");
            if workspace::in_ci() {
                println!("soft-roce: CI=true, so a run that did not take place is a failure");
                ExitCode::FAILURE
            } else {
                ExitCode::from(EXIT_SKIPPED)
            }
        }
    })
}

/// Runs the command on this host's own device, else in one or two virtual machines; then reads the files named
/// `wanted` that each host left in its `$ROCE_OUT`.
pub fn run(args: &Args, wanted: &[&str]) -> Result<Run> {
    let command = guest::Command {
        argv: if args.command.is_empty() { default_command() } else { args.command.clone() },
        timeout: Duration::from_secs(args.timeout),
    };
    if args.hosts == 1
        && !args.vm
        && let Some(device) = native::find()?
    {
        return native::run(&device, &command, wanted);
    }
    let tools = match prepare::prepare()? {
        prepare::Ready::Yes(tools) => tools,
        prepare::Ready::No(reason) => return Ok(Outcome::Skipped(reason).into()),
    };
    let accelerated = kvm::answers(&tools)?;
    println!("soft-roce: {}", kvm::describe(accelerated));
    session::run(&tools, accelerated, args, &command, wanted)
}

/// Runs a command on one host within `limit`.
pub fn command(command: Vec<OsString>, limit: Duration) -> Result<Outcome> {
    let args = Args {
        hosts: 1,
        keep: false,
        vm: false,
        prepare: false,
        memory: None,
        cpus: None,
        suite: None,
        timeout: limit.as_secs(),
        command,
    };
    Ok(run(&args, &[])?.outcome)
}

/// With no command: show the device, and pass one message through it.
fn default_command() -> Vec<OsString> {
    ["bash", "-c", include_str!("smoke.sh")].map(OsString::from).to_vec()
}
