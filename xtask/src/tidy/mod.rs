//! `cargo xtask tidy`: the part of the house style that can be measured. [`rust`] looks at the syntax of
//! `.rs` files, [`text`] at the lines of every file; this file finds the files and reports.

mod layers;
mod rust;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the workspace's root.
    pub path: String,
    /// From 1; 0 for the whole file.
    pub line: usize,
    /// Which rule, and the mend.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Looks at every file that git tracks or would track; fails when one breaks a rule.
pub fn main() -> Result<()> {
    let root = workspace::root()?;
    let paths = files(&root)?;
    let mut findings = Vec::new();
    for path in &paths {
        // A link's target, or a file deleted and not yet committed, is not this file's matter.
        if !fs::symlink_metadata(root.join(path)).is_ok_and(|data| data.is_file()) {
            continue;
        }
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        findings.extend(text::check_name(path));
        let Ok(text) = String::from_utf8(bytes) else { continue };
        findings.extend(text::check(path, &text));
        if path.ends_with(".rs") {
            findings.extend(rust::check(path, &text));
            findings.extend(layers::check(path, &text));
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files keep the house style", paths.len());
            Ok(())
        }
        count => bail!("tidy: {count} places break the house style"),
    }
}

fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git cannot list the files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
