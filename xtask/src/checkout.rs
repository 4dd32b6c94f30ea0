//! Copies of the workspace in folders of their own, of the working tree or of a revision, so that each can be built
//! beside the other. A copy has no git data: nothing has to be cleaned up in the repository afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{git, process};

/// Longest that git and tar may take for a copy of some 2,000 small files on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Copy of the workspace.
#[derive(Debug, Clone)]
pub struct Checkout {
    /// Short hash of the revision, or `working tree`.
    pub title: String,
    /// Root of the copy.
    pub root: PathBuf,
    /// Folder for what is built of it, beside the copy so that a new copy does not start from nothing.
    pub build: PathBuf,
}

/// Copies the files that git tracks or would track, as they are now, below `folder`.
pub fn working(root: &Path, folder: &Path) -> Result<Checkout> {
    let checkout = prepare(folder, "working tree", "working")?;
    for name in git::files(root)? {
        let (from, to) = (root.join(&name), checkout.root.join(&name));
        // A file may be deleted but not yet committed.
        if from.is_file() {
            fs::create_dir_all(to.parent().context("a file without a folder")?)?;
            copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
        }
    }
    Ok(checkout)
}

/// Copies a file with its time, because cargo builds anew whatever is younger than its last build.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)?;
    let modified = fs::metadata(from)?.modified()?;
    Ok(fs::File::options().write(true).open(to)?.set_modified(modified)?)
}

/// Copies the files of a revision below `folder`.
pub fn revision(root: &Path, revision: &str, folder: &Path) -> Result<Checkout> {
    let hash = git::short_hash(root, revision)?;
    let checkout = prepare(folder, &hash, &hash)?;
    let mut archive = Command::new("git");
    archive.args(["archive", "--format=tar", &hash]).current_dir(root).stdin(Stdio::null());
    let mut archive = archive.stdout(Stdio::piped()).spawn().context("cannot run git")?;
    let tar = archive.stdout.take().context("no pipe from git")?;
    let mut extract = Command::new("tar");
    extract.args(["-x", "-C"]).arg(&checkout.root).stdin(tar);
    let extracted = process::run(&mut extract, LIMIT);
    let archived = archive.wait().context("git did not end")?;
    if !archived.success() || !extracted?.success() {
        bail!("cannot copy {hash} to {}", checkout.root.display());
    }
    Ok(checkout)
}

/// Makes an empty folder for the copy; the folder of what was built of an earlier copy stays.
fn prepare(folder: &Path, title: &str, name: &str) -> Result<Checkout> {
    let folder = folder.join(name);
    let (root, build) = (folder.join("tree"), folder.join("build"));
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
    Ok(Checkout { title: title.to_owned(), root, build })
}
