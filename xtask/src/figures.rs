//! `cargo xtask figures`: draws the figures of `docs/collectives.md` and of `docs/layouts.md` anew, each by the command
//! that the page gives.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, cargo};
use crate::{process, programs, workspace};

/// Page of the plans, whose commands draw into [`FOLDER`].
const LAYOUTS: &str = "docs/layouts.md";

/// Folder of all figures.
const FOLDER: &str = "docs/figures";

/// Program that draws plans, and how its commands begin.
const PLANNER: &str = "kvcache_transfer";
const PLAN: &str = "$ kvcache_transfer ";

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Draw the plans of docs/layouts.md alone, which take no measurement
    #[arg(long)]
    plans: bool,
}

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
    format!("{FOLDER}/{program}.svg")
}

/// The arguments of the commands on a page that draw plans.
fn plans(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix(PLAN)).filter(|flags| flags.contains("--explain"))
}

/// Builds the programs, and runs one after the other.
pub fn main(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    fs::create_dir_all(root.join(FOLDER))?;
    let built = cargo::build(&mut cargo(programs::BUILD)?)?;
    let run = |program: &str, folder: &Path, flags: &[&str]| -> Result<()> {
        let found = built.iter().find(|executable| executable.name == program);
        let mut command = found.with_context(|| format!("there is no program {program}"))?.command();
        command.current_dir(folder).args(flags);
        if !process::run(&mut command, cargo::LIMIT)?.success() {
            bail!("{program} failed: its last line says why");
        }
        Ok(())
    };
    let page = fs::read_to_string(root.join(LAYOUTS)).with_context(|| format!("cannot read {LAYOUTS}"))?;
    for flags in plans(&page) {
        run(PLANNER, &root.join(FOLDER), &flags.split_whitespace().collect::<Vec<_>>())?;
    }
    for program in PROGRAMS.iter().filter(|_| !args.plans) {
        let figure = figure(program);
        let flags = FLAGS.split(' ').chain(["--plot", &figure]);
        run(program, &root, &flags.collect::<Vec<_>>())?;
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

    /// The commands of the plans draw where they run: the figures' folder, or that of the check of transcripts.
    #[test]
    fn the_page_of_layouts_shows_the_figure_of_every_plan() {
        let root = workspace::root().unwrap();
        let page = fs::read_to_string(root.join(LAYOUTS)).unwrap();
        let mut shown = 0;
        for flags in plans(&page) {
            let (_, figure) = flags.split_once(" --plot ").unwrap_or_else(|| panic!("{flags}: no figure"));
            assert!(!figure.contains('/') && root.join(FOLDER).join(figure).exists(), "{figure}");
            let (_, after) = page.split_once(flags).unwrap();
            let next = after.split(PLAN).next().unwrap();
            assert!(
                next.contains(&format!("](figures/{figure})")),
                "{flags}: no figure before the next command"
            );
            shown += 1;
        }
        assert_eq!(shown, page.matches("](figures/").count(), "figures without a command");
        assert!(shown > 0, "no command was found");
    }
}
