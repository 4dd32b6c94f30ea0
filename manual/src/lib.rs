//! Man pages and shell completions of the programs, made of their flags: `PROGRAM [SUBCOMMAND] --generate KIND` prints
//! them, where KIND is `man`, `bash`, `zsh` or `fish`.
//!
//! Every program parses its arguments by [`parse`], or asks [`print_if_asked`] before. `--generate` is no flag of the
//! program's own, so it stands in no help text, and no option can come between.

mod completions;
mod page;

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::process::exit;

use clap::error::ErrorKind;
use clap::{Command, Parser};
use clap_complete::Shell;

/// Parses the arguments of this process, as [`Parser::parse`] does, unless they ask for `--generate KIND`.
#[must_use]
pub fn parse<P: Parser>() -> P {
    print_if_asked(P::command, std::env::args_os().skip(1));
    P::parse()
}

/// Prints what `--generate KIND` at the end of `args` asks for, and ends the process.
///
/// Returns where `args`, which begin behind the name of the program, do not end so. The arguments before are the
/// subcommand whose page is meant.
///
/// ```
/// manual::print_if_asked(|| clap::Command::new("hello"), ["--verbose".into()]); // goes on
/// ```
pub fn print_if_asked(command: impl FnOnce() -> Command, args: impl IntoIterator<Item = OsString>) {
    let args: Vec<String> = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let [subcommands @ .., flag, kind] = args.as_slice() else { return };
    if flag != "--generate" {
        return;
    }
    let mut command = command();
    let text = generate(&command, subcommands, kind)
        .unwrap_or_else(|reason| command.error(ErrorKind::InvalidValue, reason).exit());
    // Whoever closes the pipe has read enough.
    exit(i32::from(stdout().write_all(text.as_bytes()).is_err()));
}

/// Makes a page or a script.
///
/// # Errors
///
/// When the kind is none of ours, or a subcommand does not exist.
pub fn generate(command: &Command, subcommands: &[String], kind: &str) -> Result<String, String> {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    let chosen = subcommands.iter().try_fold(&command, |command, name| {
        command.find_subcommand(name).ok_or_else(|| format!("no subcommand is named {name}"))
    })?;
    let source = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    match (kind, subcommands) {
        ("man", _) => Ok(page::page(chosen, source)),
        ("bash", []) => Ok(completions::script(&command, Shell::Bash)),
        ("zsh", []) => Ok(completions::script(&command, Shell::Zsh)),
        ("fish", []) => Ok(completions::script(&command, Shell::Fish)),
        ("bash" | "zsh" | "fish", _) => {
            Err("completions are those of the program: leave the subcommand out".to_owned())
        }
        _ => Err(format!("--generate makes man, bash, zsh and fish, not {kind}")),
    }
}

#[cfg(test)]
mod tests;
