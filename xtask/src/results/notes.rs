//! Notes on saved rows: which ones README shows, and why those that do not hold do not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::saved::{Row, Saved};

/// The notes, as `benches/results/notes.json` has them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notes {
    /// README's rows, in their order.
    pub readme: Vec<Shown>,
    /// One sentence for each row that does not hold, by the run's name and the row's.
    pub why: BTreeMap<String, BTreeMap<String, String>>,
}

/// A row of README.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The run's name.
    pub run: String,
    /// The row's name in that run.
    pub row: String,
    /// The text of README's first column.
    pub what: String,
    /// The other side, as README names it.
    pub beside: String,
}

impl Notes {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Fails unless exactly the rows that do not hold have a sentence.
    pub fn check(&self, runs: &[Saved]) -> Result<()> {
        let mut wrong = Vec::new();
        for run in runs {
            for row in run.rows.iter().filter(|row| row.is_bounded()) {
                match (row.holds(), self.why(&run.name, row).is_some()) {
                    (false, false) => {
                        wrong.push(format!("{}: `{}` does not hold; say why", run.name, row.what))
                    }
                    (true, true) => {
                        wrong.push(format!("{}: `{}` holds; drop its reason", run.name, row.what))
                    }
                    _ => {}
                }
            }
        }
        for (name, reasons) in &self.why {
            for what in reasons.keys() {
                if row(runs, name, what).is_none() {
                    wrong.push(format!("{name}: there is no row `{what}`"));
                }
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            bail!("{}/{}: {}", super::FOLDER, super::NOTES, wrong.join("\n"))
        }
    }

    /// The sentence on a row.
    pub fn why(&self, run: &str, row: &Row) -> Option<&str> {
        Some(self.why.get(run)?.get(&row.what)?.as_str())
    }
}

/// The row of that name in the run of that name.
pub fn row<'a>(runs: &'a [Saved], run: &str, what: &str) -> Option<&'a Row> {
    runs.iter().find(|saved| saved.name == run)?.rows.iter().find(|row| row.what == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ratio: f64) -> Saved {
        let row = Row { what: "put".into(), ratio: Some(ratio), bound: ">= 1".into(), ..Row::default() };
        let [command, commit, date, machine] = [""; 4].map(str::to_owned);
        Saved { name: "mapped".into(), command, commit, date, machine, rows: vec![row] }
    }

    fn with_reason(what: &str) -> Notes {
        let why = BTreeMap::from([(what.to_owned(), "because".to_owned())]);
        Notes { readme: Vec::new(), why: BTreeMap::from([("mapped".to_owned(), why)]) }
    }

    #[test]
    fn a_row_that_does_not_hold_needs_a_reason_and_no_other_has_one() {
        assert!(Notes::default().check(&[run(1.0)]).is_ok());
        assert!(Notes::default().check(&[run(0.9)]).unwrap_err().to_string().contains("say why"));
        assert!(with_reason("put").check(&[run(0.9)]).is_ok());
        assert!(with_reason("put").check(&[run(1.0)]).unwrap_err().to_string().contains("drop its reason"));
        assert!(with_reason("get").check(&[run(1.0)]).unwrap_err().to_string().contains("no row `get`"));
    }
}
