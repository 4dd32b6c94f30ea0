//! `cargo xtask ci docs`: makes all pages and completions, and reads them. man finds nothing to say about a page, and
//! none lacks a flag that the help text of its program has; shells complete by the scripts.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Page, Programs, SHELLS, flags};
use crate::{packages, process, programs, workspace};

/// man, and the shells.
const NEEDED: [&str; 6] = ["bash", "fish", "groff-base", "man-db", "python3", "zsh"];
const LIMIT: Duration = Duration::from_secs(300);

/// Makes and reads everything.
pub fn run() -> Result<()> {
    let work = workspace::target()?.join("docs");
    let share = work.join("share");
    let programs = Programs::build(&work, programs::TESTS_OF_SERVERS)?;
    if let Err(reason) = packages::ensure(&NEEDED, &work.join("log"))? {
        println!("{reason}");
    }
    let pages = programs.write(&share)?;
    let mut wrong = Vec::new();
    for page in &pages {
        let (text, warnings) = formatted(&page.file)?;
        wrong.extend(warnings);
        wrong.extend(lacks(&programs, &share, page, text)?);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} man pages, of which man says nothing, with every flag", pages.len());
    in_shells(&work, &share)
}

/// The flags of the help text that the page, whose text is `text`, or the completions of its program lack.
fn lacks(programs: &Programs, share: &Path, page: &Page, text: String) -> Result<Vec<String>> {
    let mut command: Vec<&str> = page.words.iter().map(String::as_str).collect();
    command.push("--help");
    // A C tool's name takes the program's place, and its help text is the subcommand's.
    let flags = flags::flags(&programs.answer(&command)?);
    ensure!(flags.iter().any(|flag| flag == "--help"), "`{}` names no flag", command.join(" "));
    let program = page.words.first().context("a page has a program")?;
    let mut texts = vec![("man", text)];
    for (shell, folder, [before, after]) in SHELLS {
        let script = fs::read_to_string(share.join(folder).join(format!("{before}{program}{after}")))?;
        texts.push((shell, if shell == "fish" { flags::of_fish(&script) } else { script }));
    }
    let lack = |(kind, text): &(&str, String)| {
        let missing = flags::missing(&flags, text);
        (!missing.is_empty())
            .then(|| format!("{} for {kind} lacks {}", page.words.join(" "), missing.join(" ")))
    };
    Ok(texts.iter().filter_map(lack).collect())
}

/// A page as man formats it, and what man says about it meanwhile.
fn formatted(page: &Path) -> Result<(String, Option<String>)> {
    let mut man = Command::new("man");
    // All warnings, and not only those that man asks for by itself.
    man.args(["--warnings=w", "-P", "cat", "-l"]).arg(page).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
    let output = man.stdin(Stdio::null()).output().context("man is not installed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let is_silent = output.status.success() && said.is_empty();
    let warnings = format!("{}: man ends with {}: {}", page.display(), output.status, said.trim());
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), (!is_silent).then_some(warnings)))
}

fn in_shells(path: &Path, share: &Path) -> Result<()> {
    let home = path.join("home");
    fs::create_dir_all(&home)?;
    let mut python = Command::new("python3");
    python.args(["-B", "-E", "-s"]).arg(workspace::root()?.join("xtask/src/docs/shells.py"));
    if !process::run(python.arg(share).arg(path).arg(home).stdin(Stdio::null()), LIMIT)?.success() {
        bail!("completions are wrong");
    }
    Ok(())
}
