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
    /// Sentences on rows that do not hold, by the run's name and the beginning of the row's.
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

    /// Fails unless each row that does not hold has a sentence, and each sentence such a row.
    pub fn check(&self, runs: &[Saved]) -> Result<()> {
        let mut wrong = Vec::new();
        let mut unused: Vec<(&str, &str)> = Vec::new();
        for (run, reasons) in &self.why {
            unused.extend(reasons.keys().map(|begin| (run.as_str(), begin.as_str())));
        }
        for run in runs {
            for row in run.rows.iter().filter(|row| row.is_bounded() && !row.holds()) {
                match self.reason(&run.name, row) {
                    Some((begin, _)) => unused.retain(|reason| *reason != (run.name.as_str(), begin)),
                    None => wrong.push(format!("{}: `{}` does not hold; say why", run.name, row.what)),
                }
            }
        }
        for (run, begin) in unused {
            wrong.push(format!(
                "{run}: no row that begins with `{begin}` is outside its bound; drop the reason"
            ));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            bail!("{}/{}: {}", super::FOLDER, super::NOTES, wrong.join("\n"))
        }
    }

    /// The sentence on a row.
    pub fn why(&self, run: &str, row: &Row) -> Option<&str> {
        self.reason(run, row).map(|(_, sentence)| sentence)
    }

    /// The longest beginning that fits the row's name, and its sentence.
    fn reason(&self, run: &str, row: &Row) -> Option<(&str, &str)> {
        let reasons = self.why.get(run)?.iter();
        let fitting = reasons.filter(|(begin, _)| row.what.starts_with(begin.as_str()));
        let (begin, sentence) = fitting.max_by_key(|(begin, _)| begin.len())?;
        Some((begin, sentence))
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

    fn with_reason(begin: &str) -> Notes {
        let why = BTreeMap::from([(begin.to_owned(), "because".to_owned())]);
        Notes { readme: Vec::new(), why: BTreeMap::from([("mapped".to_owned(), why)]) }
    }

    #[test]
    fn a_row_that_does_not_hold_needs_a_reason_and_a_reason_such_a_row() {
        let told = |notes: Notes, ratio| notes.check(&[run(ratio)]).map_err(|error| error.to_string());
        assert_eq!(told(Notes::default(), 1.0), Ok(()));
        assert!(told(Notes::default(), 0.9).unwrap_err().contains("`put` does not hold; say why"));
        assert_eq!(told(with_reason("pu"), 0.9), Ok(()));
        assert!(
            told(with_reason("put"), 1.0)
                .unwrap_err()
                .contains("`put` is outside its bound; drop the reason")
        );
        assert!(told(with_reason("get"), 0.9).unwrap_err().contains("say why"));
        let row = Row { what: "put, 8 B".to_owned(), ..Row::default() };
        let mut notes = with_reason("put");
        notes.why.get_mut("mapped").unwrap().insert("put, 8".to_owned(), "short".to_owned());
        assert_eq!(notes.why("mapped", &row), Some("short"));
    }
}
