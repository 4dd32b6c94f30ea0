//! README's rows of measured leads.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::notes::{self, Notes};
use super::saved::{Saved, figure};

const BEGIN: &str = "<!-- rows of benches/results -->\n";
const END: &str = "<!-- end of rows -->\n";

/// The README with its rows as the saved runs have them.
pub fn with_rows(readme: &str, runs: &[Saved], notes: &Notes) -> Result<String> {
    let (before, rest) = readme.split_once(BEGIN).with_context(|| format!("README has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("README has no {END}"))?;
    let mut rows = "| what | ours | other side | lead |\n|---|---|---|---|\n".to_owned();
    for shown in &notes.readme {
        let row = notes::row(runs, &shown.run, &shown.row)
            .with_context(|| format!("README's row `{}` is not in run {}", shown.row, shown.run))?;
        let side =
            |value: Option<f64>| value.map_or("".to_owned(), |it| format!("{} {}", figure(it), row.unit));
        let lead = row.lead().with_context(|| format!("`{}` has no ratio", row.what))?;
        let (ours, theirs, what) = (side(row.ours), side(row.theirs), &shown.what);
        let _ = writeln!(rows, "| {what} | {ours} | {}: {theirs} | {lead:.2} times |", shown.beside);
    }
    Ok(format!("{before}{BEGIN}{rows}{END}{after}"))
}
