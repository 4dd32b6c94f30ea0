//! `cargo xtask figures`: draws the figures of `docs/collectives.md` anew, each by the command that the page gives.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, cargo};
use crate::{process, programs, workspace};

/// The programs that draw one each.
const PROGRAMS: [&str; 9] = [
    "allreduce",
    "allgather",
    "reducescatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
];

/// Arguments of each run, besides the file.
const FLAGS: &str = "--device soft --wire mapped --ranks 2 -b 8 -e 32M -f 4 -n 400 -w 20";

/// Where a program draws, seen from the workspace's root.
fn figure(program: &str) -> String {
    format!("docs/figures/{program}.svg")
}

/// Builds the programs, and runs one after the other.
pub fn main() -> Result<()> {
    let root = workspace::root()?;
    fs::create_dir_all(root.join("docs/figures"))?;
    let built = cargo::build(&mut cargo(programs::BUILD)?)?;
    for program in PROGRAMS {
        let found = built.iter().find(|executable| executable.name == program);
        let mut command = found.with_context(|| format!("there is no program {program}"))?.command();
        command.current_dir(&root);
        command.args(FLAGS.split(' ')).args(["--plot", &figure(program)]);
        if !process::run(&mut command, cargo::LIMIT)?.success() {
            bail!("{program} failed: its last line says why");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_figure_and_the_command_that_drew_it() {
        let root = workspace::root().unwrap();
        let page = fs::read_to_string(root.join("docs/collectives.md")).unwrap();
        for program in PROGRAMS {
            let figure = figure(program);
            assert!(root.join(&figure).exists(), "{figure}");
            let shown = format!("]({})", figure.trim_start_matches("docs/"));
            let command = format!("$ {program} {FLAGS} --plot {figure}\n");
            assert!(page.contains(&shown) && page.contains(&command), "{program}: {command}");
        }
    }
}
