//! `cargo xtask`: the project's own checks. Each subcommand is a module; what they share (bounded child
//! processes, where the workspace is) is in [`process`] and [`workspace`].

mod beside;
mod callgrind;
mod cargo;
mod checkout;
mod ci;
mod compare;
mod count;
mod docs;
mod figures;
mod git;
mod instructions;
mod lines;
mod metrics_cost;
mod packages;
mod process;
mod programs;
mod results;
mod soak;
mod soft_roce;
mod tally;
mod test;
mod tidy;
mod times;
mod transcripts;
mod walk;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a command where there is a soft-RoCE device: on this host, or in a virtual machine.
    SoftRoce(soft_roce::Args),
    /// Runs on a host of `cargo xtask soft-roce`, with the suite's plan.
    #[command(hide = true)]
    SoftRoceInside(soft_roce::InsideArgs),
    /// Runs every test there is, on soft-RoCE too, and says how many ran where.
    Test(test::Args),
    /// Runs the tests that repeat themselves (chaos, rounds), with their full counts.
    Soak(soak::Args),
    /// Runs the checks of CI, all of them or those named.
    Ci(ci::Args),
    /// Compares the public API with what is checked in.
    PublicApi(ci::PublicApiArgs),
    /// Checks the measurable part of the house style.
    Tidy(tidy::Args),
    /// Counts code, comments, import circles and names, now and at a revision.
    Count(count::Args),
    /// Counts the functions that one all-reduce of a slice enters, now and at a revision.
    Walk(walk::Args),
    /// Counts the instructions of a post and its poll on the software device, now and at a revision.
    Instructions(instructions::Args),
    /// Compares the instructions and the time of calls with metrics on and off.
    MetricsCost(metrics_cost::Args),
    /// Compares the speed of the working tree with that of a revision.
    Compare(compare::Args),
    /// Makes benches/RESULTS.md and README's rows of what the benches have saved.
    Results(results::Args),
    /// Writes man pages and shell completions of all programs.
    Docs(docs::Args),
    /// Draws the figures of docs/collectives.md and docs/layouts.md anew, by programs that run on this machine.
    Figures(figures::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    process::watch_signals();
    let result = match cli.command {
        Command::SoftRoce(args) => soft_roce::main(&args),
        Command::SoftRoceInside(args) => soft_roce::inside(&args).map(|()| ExitCode::SUCCESS),
        Command::Test(args) => test::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Soak(args) => soak::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Ci(args) => ci::main(&args).map(|()| ExitCode::SUCCESS),
        Command::PublicApi(args) => ci::public_api(&args).map(|()| ExitCode::SUCCESS),
        Command::Tidy(args) => tidy::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Count(args) => count::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Walk(args) => walk::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Instructions(args) => instructions::main(&args).map(|()| ExitCode::SUCCESS),
        Command::MetricsCost(args) => metrics_cost::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Compare(args) => compare::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Results(args) => results::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Docs(args) => docs::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Figures(args) => figures::main(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
