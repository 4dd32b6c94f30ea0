//! Reads the rows of a file back that `-J` wrote, ours or nccl-tests' own.

use super::{Measured, Row};
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest file that is read: tens of thousands of rows.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Deserialize)]
struct Document {
    results: Vec<Saved>,
}

#[derive(Deserialize)]
struct Saved {
    size: u64,
    count: u64,
    #[serde(rename = "type")]
    dtype: String,
    redop: String,
    root: String,
    out_of_place: Half,
    in_place: Half,
}

/// Half of a saved row. The count of wrong elements is not taken, because a chart does not show it.
#[derive(Deserialize)]
struct Half {
    time: f64,
    alg_bw: f64,
    bus_bw: f64,
}

impl From<Half> for Measured {
    fn from(Half { time, alg_bw, bus_bw }: Half) -> Self {
        Self { time_us: time, algbw: alg_bw, busbw: bus_bw, wrong: None }
    }
}

/// The rows of a saved run, of which there is at least one.
///
/// # Errors
///
/// The system's error, or the reason why the file holds no run.
pub fn rows(path: &Path) -> anyhow::Result<Vec<Row>> {
    let mut text = Vec::new();
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    file.take(BYTES_MAX + 1).read_to_end(&mut text).with_context(|| path.display().to_string())?;
    ensure!(text.len() as u64 <= BYTES_MAX, "{} is longer than {BYTES_MAX} bytes", path.display());
    parse(&text).with_context(|| format!("{} holds no run that -J has saved", path.display()))
}

fn parse(text: &[u8]) -> anyhow::Result<Vec<Row>> {
    let Document { results } = serde_json::from_slice(text)?;
    ensure!(!results.is_empty(), "it has no results");
    let row = |saved: Saved| {
        let Saved { size, count, dtype, redop, root, out_of_place, in_place } = saved;
        let (out_of_place, in_place) = (Measured::from(out_of_place), Measured::from(in_place));
        let figures = [out_of_place, in_place].map(|Measured { time_us, busbw, .. }| time_us.min(busbw));
        ensure!(figures.iter().all(|least| *least >= 0.0), "{size} bytes have a figure below 0");
        let root = root.parse().with_context(|| format!("`{root}` is no root"))?;
        Ok(Row { bytes: size, count, dtype, redop, root, out_of_place, in_place })
    };
    results.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::json::tests::report;

    #[test]
    fn what_is_written_reads_back() {
        let (mut report, mut text) = (report(), Vec::new());
        report.write(&mut text).unwrap();
        report.rows[0].out_of_place.wrong = None;
        assert_eq!(parse(&text).unwrap(), report.rows);
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let mut text = Vec::new();
        report().write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let error = |from: &str, to: &str| {
            assert!(text.contains(from), "{from} in {text}");
            format!("{:#}", parse(text.replacen(from, to, 1).as_bytes()).unwrap_err())
        };
        assert!(error("\"time\": 1000.0", "\"time\": -1.0").contains("below 0"));
        assert!(error("\"root\": \"-1\"", "\"root\": \"none\"").contains("no root"));
        assert!(error("\"results\"", "\"outcomes\"").contains("results"));
        assert!(parse(b"{\"results\": []}").unwrap_err().to_string().contains("no results"));
        assert!(rows(Path::new("/nonexistent/run.json")).unwrap_err().to_string().contains("/nonexistent"));
    }
}
