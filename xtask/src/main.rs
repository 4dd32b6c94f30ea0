//! `cargo xtask`: the project's own checks. Each subcommand is a module; what they share (bounded child
//! processes, where the workspace is) is in [`process`] and [`workspace`].

mod process;
mod soft_roce;
mod tidy;
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
    /// Checks the measurable part of the house style.
    Tidy,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    process::watch_signals();
    let result = match cli.command {
        Command::SoftRoce(args) => soft_roce::main(&args),
        Command::Tidy => tidy::main().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
