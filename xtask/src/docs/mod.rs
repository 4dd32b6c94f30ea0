//! `cargo xtask docs`: man pages and completions of every program that people run. The programs make them
//! (`--generate`, of the crate `manual`); this file builds the programs and asks each one. [`check`] reads what came.

mod check;
mod flags;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use crate::cargo::{build, cargo};
use crate::{programs, workspace};

pub use check::run as check;

/// Options of `cargo xtask docs`.
#[derive(Parser)]
pub struct Args {
    /// The folder `share` to write to, such as /usr/local/share [default: share in the build output].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Packages whose programs people run.
const PACKAGES: [&str; 3] = ["examples", "tools", "servers"];
/// Names of `rdma-tools`, under which it is a C tool.
const TWINS: [&str; 6] =
    ["ibv_devices", "ibv_devinfo", "ibstat", "show_gids", "ibdev2netdev", "ibv_rc_pingpong"];
/// The shells, each with the folder in `share` that it looks in, and the name of a file there around the program's.
const SHELLS: [(&str, &str, [&str; 2]); 3] = [
    ("bash", "bash-completion/completions", ["", ""]),
    ("zsh", "zsh/site-functions", ["_", ""]),
    ("fish", "fish/vendor_completions.d", ["", ".fish"]),
];

/// Writes all pages and completions.
pub fn main(args: &Args) -> Result<()> {
    let target = workspace::target()?;
    let out = args.out.clone().unwrap_or_else(|| target.join("share"));
    let programs = Programs::build(&target.join("docs"), programs::SERVERS_FOR_DOCS)?;
    let pages = programs.write(&out)?;
    println!(
        "{} man pages, and completions of {} programs: {}",
        pages.len(),
        programs.names.len(),
        out.display()
    );
    Ok(())
}

/// The page of a program, or of a subcommand of it.
struct Page {
    /// The words that run what the page is about.
    words: Vec<String>,
    file: PathBuf,
}

/// All programs, in a folder for `PATH`.
struct Programs {
    folder: PathBuf,
    names: Vec<String>,
}

impl Programs {
    /// Builds the programs, those of the servers by the arguments of cargo `servers`.
    fn build(folder: &Path, servers: &[&str]) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let mut names = Vec::new();
        for args in [programs::BUILD_FOR_TESTS, servers] {
            for built in build(&mut cargo(args)?)?.into_iter().filter(|built| !built.is_test) {
                let package = built.package.file_name().unwrap_or_default().to_string_lossy();
                if !PACKAGES.contains(&&*package) || names.contains(&built.name) {
                    continue;
                }
                symlink(&built.path, folder.join(&built.name))?;
                names.push(built.name);
            }
        }
        ensure!(names.iter().any(|name| name == "rdma-tools"), "rdma-tools was not built: {names:?}");
        for twin in TWINS {
            symlink("rdma-tools", folder.join(twin))?;
            names.push(twin.to_owned());
        }
        Ok(Self { folder: folder.to_path_buf(), names })
    }

    /// Writes everything below the folder `out`; returns the pages.
    fn write(&self, out: &Path) -> Result<Vec<Page>> {
        let mut pages = Vec::new();
        for name in &self.names {
            self.write_pages(out, vec![name.clone()], &mut pages)?;
            for (shell, folder, [before, after]) in SHELLS {
                let script = self.answer(&[name, "--generate", shell])?;
                write(&out.join(folder).join(format!("{before}{name}{after}")), &script)?;
            }
        }
        Ok(pages)
    }

    /// Writes the page of a command, and those that it names: its subcommands'.
    fn write_pages(&self, out: &Path, words: Vec<String>, pages: &mut Vec<Page>) -> Result<()> {
        let mut command: Vec<&str> = words.iter().map(String::as_str).collect();
        command.extend(["--generate", "man"]);
        let (page, title) = (self.answer(&command)?, words.join("-"));
        let file = out.join("man/man1").join(format!("{title}.1"));
        write(&file, &page)?;
        let subcommands = references(&page, &title);
        pages.push(Page { words: words.clone(), file });
        for subcommand in subcommands {
            self.write_pages(out, [words.as_slice(), &[subcommand]].concat(), pages)?;
        }
        Ok(())
    }

    /// Runs a program; returns the text that it prints.
    fn answer(&self, words: &[&str]) -> Result<String> {
        let (program, args) = words.split_first().context("no program")?;
        let mut command = Command::new(self.folder.join(program));
        let output = command.args(args).stdin(Stdio::null()).output().with_context(|| words.join(" "))?;
        if !output.status.success() {
            bail!("`{}` failed: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{}`: text is not UTF-8", words.join(" ")))
    }
}

/// The subcommands whose pages a page names, as `rdma-tools-devices(1)`.
fn references(page: &str, title: &str) -> Vec<String> {
    let names = page.lines().filter_map(|line| {
        let name = line.replace('\\', "");
        Some(name.strip_suffix("(1)")?.strip_prefix(title)?.strip_prefix('-')?.to_owned())
    });
    names.collect()
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_pages_of_its_subcommands() {
        let page = ".TH rdma-tools 1\n.TP\nrdma\\-tools\\-devices(1)\nLists\n.TP\nrdma\\-tools\\-stat(1)\nibstat(1)\n";
        assert_eq!(references(page, "rdma-tools"), ["devices", "stat"]);
        assert!(references(page, "ibstat").is_empty());
    }
}
