//! A run as a bench has saved it; `benches/src/report.rs` writes it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A saved run.
#[derive(Debug, Deserialize)]
pub struct Saved {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    pub command: String,
    pub commit: String,
    pub date: String,
    pub machine: String,
    pub rows: Vec<Row>,
}

/// A saved row.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Row {
    pub what: String,
    pub unit: String,
    pub ours: Option<f64>,
    pub theirs: Option<f64>,
    pub ratio: Option<f64>,
    pub range: Option<(f64, f64)>,
    pub pairs: usize,
    pub bound: String,
}

impl Saved {
    /// All runs of a folder, by name.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name == super::NOTES)
                || path.extension().is_none_or(|extension| extension != "json")
            {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let run: Self = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            runs.push(Self {
                name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                ..run
            });
        }
        runs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(runs)
    }
}

impl Row {
    /// Whether the row has a bound.
    pub fn is_bounded(&self) -> bool {
        self.bound != "-"
    }

    /// Whether its figure is within its bound; a row that was not measured is not.
    pub fn holds(&self) -> bool {
        let Some(figure) = self.ratio.or(self.ours) else { return false };
        let limit = |sign: &str| self.bound.strip_prefix(sign)?.trim().parse::<f64>().ok();
        match (limit(">="), limit("<=")) {
            (Some(least), _) => figure >= least,
            (_, Some(most)) => figure <= most,
            _ => false,
        }
    }

    /// How many times better ours is: the ratio, turned round where less is better.
    pub fn lead(&self) -> Option<f64> {
        self.ratio.map(|ratio| if self.bound.starts_with("<=") { 1.0 / ratio } else { ratio })
    }
}

/// Two decimals, or four where two would say nothing.
pub fn figure(value: f64) -> String {
    if value < 1.0 { format!("{value:.4}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_judged_and_without_one_the_figure() {
        let row = |ours, ratio, bound: &str| Row { ours, ratio, bound: bound.to_owned(), ..Row::default() };
        assert!(row(Some(9.0), Some(1.0), ">= 1").holds());
        assert!(!row(Some(9.0), Some(0.99), ">= 1").holds());
        assert!(row(Some(9.0), Some(1.4), "<= 1.4").holds());
        assert!(row(Some(49.0), None, "<= 50").holds());
        assert!(!row(None, None, ">= 1").holds());
        assert_eq!(row(None, Some(0.5), "<= 1").lead(), Some(2.0));
        assert_eq!(row(None, Some(1.5), ">= 1").lead(), Some(1.5));
    }
}
