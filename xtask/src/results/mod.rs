//! `cargo xtask results`: makes `benches/RESULTS.md` and README's rows of the files that the benches have saved.

mod document;
mod notes;
mod readme;
mod saved;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::workspace;
use notes::Notes;
use saved::Saved;

/// Folder of the saved runs, and of the notes on their rows.
const FOLDER: &str = "benches/results";
const NOTES: &str = "notes.json";

/// Options of `cargo xtask results`.
#[derive(Parser)]
pub struct Args {
    /// Changes nothing, and fails where a document is not what its files say.
    #[arg(long)]
    check: bool,
}

/// Writes the documents, or compares them.
pub fn main(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    for (path, text) in documents(&workspace::root()?)? {
        fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Fails where a document is not what the saved files say.
pub fn check() -> Result<()> {
    for (path, text) in documents(&workspace::root()?)? {
        let there = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        if let Some((number, got, want)) = first_difference(&there, &text) {
            let path = path.display();
            bail!(
                "{path}:{number} says `{got}`, the saved files say `{want}`; `cargo xtask results` writes it anew"
            );
        }
    }
    Ok(())
}

/// The documents and their text.
fn documents(root: &Path) -> Result<[(std::path::PathBuf, String); 2]> {
    let folder = root.join(FOLDER);
    let (runs, notes) = (Saved::read_all(&folder)?, Notes::read(&folder.join(NOTES))?);
    notes.check(&runs)?;
    let readme = root.join("README.md");
    let text = fs::read_to_string(&readme)?;
    Ok([
        (root.join("benches/RESULTS.md"), document::text(&runs, &notes)),
        (readme, readme::with_rows(&text, &runs, &notes)?),
    ])
}

/// Line number from 1, the line that is there, and the line that should be.
fn first_difference<'a>(there: &'a str, wanted: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let (mut there, mut wanted) = (there.lines(), wanted.lines());
    for number in 1.. {
        match (there.next(), wanted.next()) {
            (None, None) => return None,
            (got, want) if got == want => {}
            (got, want) => return Some((number, got.unwrap_or_default(), want.unwrap_or_default())),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_change_of_a_figure_is_caught() {
        for (path, text) in documents(&workspace::root().unwrap()).unwrap() {
            let there = fs::read_to_string(&path).unwrap();
            assert_eq!(first_difference(&there, &text), None, "{}", path.display());
            let row = text.lines().find(|line| line.starts_with("| ") && line.contains("us | ")).unwrap();
            let planted = row.replacen(|it: char| it.is_ascii_digit(), "77", 1);
            let changed = there.replacen(row, &planted, 1);
            let (_, got, want) = first_difference(&changed, &text).unwrap();
            assert_eq!((got, want), (planted.as_str(), row));
        }
    }

    #[test]
    fn a_missing_last_line_is_a_difference() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, "", "b")));
    }
}
