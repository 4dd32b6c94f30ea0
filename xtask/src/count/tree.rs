//! Files of the workspace as they are now or at a revision. Both come as text in memory, so that one counter reads
//! both.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::git;

/// Text of each file by its path from the workspace's root.
pub struct Tree {
    /// Title of the tree's column in the report.
    pub title: String,
    /// Text of each wanted file, by path.
    pub files: BTreeMap<String, String>,
}

/// Whether the counter reads the file at `path`.
fn is_wanted(path: &str) -> bool {
    path.ends_with(".rs") || path.ends_with("/public-api.txt")
}

/// Reads the working tree: files that git tracks or would track.
pub fn working(root: &Path) -> Result<Tree> {
    let mut files = BTreeMap::new();
    for path in git::files(root)?.into_iter().filter(|path| is_wanted(path)) {
        // A file may be deleted but not yet committed.
        if let Ok(text) = fs::read_to_string(root.join(&path)) {
            files.insert(path, text);
        }
    }
    Ok(Tree { title: "working tree".to_owned(), files })
}

/// Reads the tree of a revision from git's objects, with no checkout.
pub fn revision(root: &Path, revision: &str) -> Result<Tree> {
    let title = git::short_hash(root, revision)?;
    let names = git::answer(root, &["ls-tree", "-r", "-z", "--name-only", revision])?;
    let paths: Vec<&str> = git::split(&names).filter(|path| is_wanted(path)).collect();
    let wanted: String = paths.iter().map(|path| format!("{revision}:{path}\n")).collect();
    let mut command = Command::new("git");
    command.args(["cat-file", "--batch"]).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot run git")?;
    let mut stdin = child.stdin.take().context("no pipe to git")?;
    // git answers while it reads, so one thread must write while another reads; otherwise both pipes fill up.
    let writer = thread::spawn(move || stdin.write_all(wanted.as_bytes()));
    let output = child.wait_with_output().context("git did not answer")?;
    writer.join().ok().context("cannot ask git")?.context("cannot ask git")?;
    let mut rest = output.stdout.as_slice();
    let mut files = BTreeMap::new();
    for path in paths {
        let (text, after) = object(rest).with_context(|| format!("git does not have {revision}:{path}"))?;
        rest = after;
        files.insert(path.to_owned(), String::from_utf8_lossy(text).into_owned());
    }
    Ok(Tree { title, files })
}

/// Splits the first object off the answer of `git cat-file --batch`: `HASH TYPE SIZE\n`, the bytes, `\n`.
fn object(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let header_end = answer.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&answer[..header_end]).ok()?;
    let size: usize = header.rsplit(' ').next()?.parse().ok()?;
    let body = answer.get(header_end + 1..)?;
    Some((body.get(..size)?, body.get(size + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_split_by_their_sizes() {
        let answer = b"0a blob 3\na\nb\n0b blob 0\n\n";
        let (first, rest) = object(answer).unwrap();
        assert_eq!(first, b"a\nb");
        assert_eq!(object(rest).unwrap(), (&b""[..], &b""[..]));
        assert!(object(b"HEAD:x missing\n").is_none());
    }
}
