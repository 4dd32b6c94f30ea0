//! Questions to git about the workspace: its files and its revisions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Paths from `root` of the files that git tracks or would track. One of them may be deleted and not yet committed.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let names = answer(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    Ok(split(&names).map(str::to_owned).collect())
}

/// Short hash of the commit that `revision` names.
pub fn short_hash(root: &Path, revision: &str) -> Result<String> {
    let hash = answer(root, &["rev-parse", "--verify", "--short", &format!("{revision}^{{commit}}")])?;
    Ok(hash.trim().to_owned())
}

/// Answer of `git ARGS` at `root`.
pub fn answer(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("`git {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("git's answer is not UTF-8")
}

/// Names in an answer that a `-z` of git has ended with a zero each.
pub fn split(names: &str) -> impl Iterator<Item = &str> {
    names.split('\0').filter(|name| !name.is_empty())
}
