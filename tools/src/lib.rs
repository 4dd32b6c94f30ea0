//! `rdma-tools`: the tools that people meet RDMA by, with the text that they know, and a doctor that says what is
//! wrong.
//!
//! The program is in `src/bin`, and calls [`main`]. [`cli`] has the flags of each subcommand as types, so that man
//! pages and completions can be made of them.

#![allow(rustdoc::invalid_html_tags, reason = "the comments on options are help texts, in another syntax")]

pub mod cli;
mod devices;
mod devinfo;
mod doctor;
mod gids;
mod netdevs;
mod output;
mod pingpong;
mod sheet;
mod source;
mod stat;

use std::process::ExitCode;

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
            if let Command::Pingpong(flags) = &cli.command {
                pingpong::findings(flags, &error).iter().for_each(|finding| eprintln!("{finding}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Devices(flags) => devices::run(flags),
        Command::Devinfo(flags) => devinfo::run(flags),
        Command::Stat(flags) => stat::run(flags),
        Command::Gids(flags) => gids::run(flags),
        Command::Netdevs(flags) => netdevs::run(flags),
        Command::Doctor(flags) => doctor::run(flags),
        Command::Pingpong(flags) => pingpong::run(flags),
    }
}
