//! `cargo xtask ci transcripts`: every transcript in the Markdown files is what its command prints today.
//!
//! [`block`] finds the transcripts, [`compare`] judges them; this file builds the programs and runs the commands.

mod block;
mod compare;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, check};
use crate::{git, process, programs, workspace};
use block::{Block, Entry};

/// A transcript's command runs for seconds; a program that hangs must not hang CI.
const LIMIT: Duration = Duration::from_secs(240);

/// Builds the programs, runs every command that has output below it, and compares.
pub fn main() -> Result<()> {
    let root = workspace::root()?;
    check(&mut cargo(programs::BUILD_FOR_TESTS)?)?;
    let (mut compared, mut differences) = (0, Vec::new());
    for path in git::files(&root)?.into_iter().filter(|path| path.ends_with(".md")) {
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        for block in block::find(&text).with_context(|| format!("in {path}"))? {
            for (entry, printed) in run(&root, &block).with_context(|| format!("{path}:{}", block.line))? {
                compared += 1;
                let place = format!("{path}:{}", entry.line);
                differences
                    .extend(compare::difference(entry, &printed).map(|found| format!("{place}: {found}")));
            }
        }
    }
    for difference in &differences {
        println!("{difference}");
    }
    match differences.len() {
        // A pattern that no longer finds the transcripts would pass for ever.
        0 if compared == 0 => bail!("no transcript was found in any Markdown file"),
        0 => {
            println!("transcripts: {compared} commands print what the documents say");
            Ok(())
        }
        count => bail!("{count} of {compared} transcripts differ: run the command and paste what it prints"),
    }
}

/// Runs the commands of a block in one shell, in their order, and returns what each one with expected output printed.
///
/// A single shell, because a block may set a variable or start a server in the background for its later commands.
fn run<'a>(root: &Path, block: &'a Block) -> Result<Vec<(&'a Entry, String)>> {
    if block.entries.iter().all(|entry| entry.expected.is_empty()) {
        return Ok(Vec::new());
    }
    let dir = root.join("target/transcripts");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let mut script = String::from("set -m\n");
    for (index, entry) in block.entries.iter().enumerate() {
        script += &match entry.command.strip_suffix('&') {
            // A server of a later command: its own output is not the transcript's.
            Some(server) => format!("{server} >/dev/null 2>&1 &\nsleep 2\n"),
            None => format!("( {} ) >{index} 2>&1 || {{ cat {index}; exit 1; }}\n", entry.command),
        };
    }
    script += "wait\n";
    fs::write(dir.join("run.sh"), script)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = workspace::target()?.join("debug");
    let mut command = Command::new("bash");
    command
        .arg("run.sh")
        .current_dir(&dir)
        .env("PATH", format!("{}:{path}", bin.display()))
        .stdin(Stdio::null());
    // The documents show what a person sees who has set nothing.
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("NCCL_") || name.starts_with("RDMA_"))
    {
        command.env_remove(name);
    }
    let status = process::run_logged(&mut command, LIMIT, &dir.join("log"))?;
    if !status.success() {
        bail!("a command failed ({status}):\n    {}", process::last_lines(&dir.join("log")));
    }
    let with_output = block.entries.iter().enumerate().filter(|(_, entry)| !entry.expected.is_empty());
    with_output.map(|(index, entry)| Ok((entry, fs::read_to_string(dir.join(index.to_string()))?))).collect()
}
