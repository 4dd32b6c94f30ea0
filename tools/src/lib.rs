//! `rdma-tools`: the tools that people meet RDMA by, with the text that they know, and a doctor that says what is
//! wrong.
//!
//! The program is in `src/bin`, and calls [`main`]. [`cli`] has the flags of each subcommand as types, so that man
//! pages and completions can be made of them.

#![allow(rustdoc::invalid_html_tags, reason = "the comments on options are help texts, in another syntax")]

pub mod cli;
mod devices;
mod output;
mod pingpong;

use std::process::ExitCode;

use anyhow::bail;
use cli::Command;

/// Runs the subcommand that the arguments of this process name, and returns its exit status.
///
/// A wrong flag ends the process with status 2, as clap does.
pub fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    let name = cli.command.name();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", output::in_a_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Devices(flags) => devices::run(flags),
        Command::Pingpong(flags) => pingpong::run(flags),
        Command::Devinfo(_)
        | Command::Stat(_)
        | Command::Gids(_)
        | Command::Netdevs(_)
        | Command::Doctor(_) => bail!("this build has the flags of the subcommand, and not the subcommand"),
    }
}
