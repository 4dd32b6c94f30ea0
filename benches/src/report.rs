//! The rows of one run: printed as they come, and saved where `--save` asks for it.
//!
//! `cargo xtask results` makes [`RESULTS.md`](../RESULTS.md) and README's rows of the saved files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::ratio::{Bound, Row, median};
use crate::soft::Outcome;

/// A saved row. Its ratio must be within the bound; without a ratio, `ours` must.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The measurement, and whom it stands beside.
    pub what: String,
    /// The unit of `ours` and `theirs`.
    pub unit: String,
    /// The median of ours; none where a peer was not there, so that nothing was measured.
    pub ours: Option<f64>,
    /// The median of the other side, where there is one.
    pub theirs: Option<f64>,
    /// The median of the pairs' ratios.
    pub ratio: Option<f64>,
    /// The least and the greatest of these ratios.
    pub range: Option<(f64, f64)>,
    /// Pairs that were measured.
    pub pairs: usize,
    /// The bound as tables print it: `>= 1`, `<= 50`, or `-` for none.
    pub bound: String,
    /// The title of its table, in the tables of collectives.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub table: String,
    /// Bytes of a rank's buffer, in the tables of collectives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Microseconds of each side, in the tables of collectives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sides: BTreeMap<String, f64>,
}

impl Line {
    /// A single figure of ours.
    #[must_use]
    pub fn single(what: String, unit: &str, ours: f64, bound: Bound) -> Self {
        Self { what, unit: unit.to_owned(), ours: Some(ours), bound: bound.to_string(), ..Self::default() }
    }

    /// A row that could not be measured, because the peer is not there.
    #[must_use]
    pub fn absent(what: &str, unit: &str, bound: Bound) -> Self {
        let (what, unit, bound) = (what.to_owned(), unit.to_owned(), bound.to_string());
        Self { what, unit, bound, ..Self::default() }
    }
}

impl From<&Row> for Line {
    fn from(row: &Row) -> Self {
        let side = |of: fn(&(f64, f64)) -> f64| Some(median(row.pairs.iter().map(of).collect()));
        Self {
            what: row.name.clone(),
            unit: row.unit.to_owned(),
            ours: side(|pair| pair.0),
            theirs: side(|pair| pair.1),
            ratio: Some(row.ratio()),
            range: Some(row.range()),
            pairs: row.pairs.len(),
            bound: row.bound.to_string(),
            ..Self::default()
        }
    }
}

/// A saved run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The command that measured it.
    pub command: String,
    /// The commit that was measured; `+` behind it says that the working tree differed.
    pub commit: String,
    /// The day, as `2026-11-25`.
    pub date: String,
    /// Processor, cores and kernel.
    pub machine: String,
    /// The rows, in the order of their tables.
    pub rows: Vec<Line>,
}

impl Saved {
    /// Reads a saved run.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds no run.
    pub fn read(path: &Path) -> Outcome<Self> {
        Ok(serde_json::from_reader(fs::File::open(path)?)?)
    }
}

/// The option by which a bench saves its rows.
#[derive(Debug, Default, clap::Args)]
pub struct SaveArgs {
    /// Saves the rows to FILE [default of a lone --save: the bench's file in benches/results].
    #[arg(long, value_name = "FILE")]
    save: Option<Option<PathBuf>>,
}

/// The rows of a run that is under way.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Line>,
}

/// The paths of a commit that change what is measured.
const MEASURED: [&str; 8] = [
    "rdma-core",
    "rdma-collective",
    "examples",
    "tools/src",
    "servers/src",
    "benches/src",
    "benches/peers",
    "Cargo.toml",
];

impl Report {
    /// Prints a row of pairs and keeps it; returns whether it holds.
    pub fn row(&mut self, row: &Row) -> bool {
        println!("{row}");
        self.rows.push(row.into());
        row.holds()
    }

    /// Prints a single figure of ours as a row of the same table, and keeps it; returns whether it holds.
    pub fn single(&mut self, what: &str, unit: &str, ours: f64, bound: Bound) -> bool {
        println!("| {what} | {ours:.3} {unit} | | | {bound} | {} |", bound.verdict(ours));
        self.rows.push(Line::single(what.to_owned(), unit, ours, bound));
        bound.holds(ours)
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Line] {
        &self.rows
    }

    /// Keeps a row that the bench has printed itself.
    pub fn line(&mut self, line: Line) {
        self.rows.push(line);
    }

    /// Writes the rows where `--save` says: to `benches/results/NAME.json`, in place of what an earlier run left there,
    /// unless the option names a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or git cannot say which commit this is.
    pub fn save(self, args: &SaveArgs, name: &str) -> Outcome<()> {
        let Some(path) = &args.save else { return Ok(()) };
        let path = path.clone().unwrap_or_else(|| self::path(name));
        let infinite = |value: &f64| !value.is_finite();
        let figures = |row: &Line| {
            row.range
                .map(|(low, high)| [low, high])
                .into_iter()
                .flatten()
                .chain(row.ratio)
                .collect::<Vec<_>>()
        };
        if let Some(row) = self.rows.iter().find(|row| figures(row).iter().any(infinite)) {
            return Err(
                format!("`{}` has a ratio that is no number: a side measured nothing", row.what).into()
            );
        }
        // The option itself names a file of one machine.
        let arguments = std::env::args().skip(1).take_while(|argument| argument != "--save");
        let arguments = arguments.chain(["--save".to_owned()]).collect::<Vec<_>>().join(" ");
        let program = std::env::args().next().unwrap_or_default();
        let bench = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let saved = Saved {
            command: format!("cargo run --release -p benches --bin {bench} -- {arguments}"),
            commit: commit()?,
            date: said_by(Command::new("date").arg("+%F"))?,
            machine: machine()?,
            rows: self.rows,
        };
        let text = serde_json::to_string_pretty(&saved)? + "\n";
        fs::write(&path, text).map_err(|error| format!("--save {}: {error}", path.display()))?;
        eprintln!("saved {}", path.display());
        Ok(())
    }
}

/// The file of a run.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/results")).join(format!("{name}.json"))
}

fn commit() -> Outcome<String> {
    let git = |arguments: &[&str]| {
        said_by(Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments))
    };
    let paths = MEASURED.map(|path| format!(":/{path}"));
    let status = ["status", "--porcelain", "--"].into_iter().chain(paths.iter().map(String::as_str));
    let changed = git(&status.collect::<Vec<_>>())?;
    Ok(git(&["rev-parse", "--short=10", "HEAD"])? + if changed.is_empty() { "" } else { "+" })
}

fn machine() -> Outcome<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a processor without a name", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel = kernel.split('.').take(2).collect::<Vec<_>>().join(".");
    Ok(format!("{cores} cores of {model}, Linux {kernel}"))
}

fn said_by(command: &mut Command) -> Outcome<String> {
    let output = crate::programs::output(command)?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_medians_and_its_range() {
        let pairs = vec![(1.0, 2.0), (3.0, 3.0), (9.0, 3.0)];
        let row = Row { name: "put".to_owned(), unit: "GB/s", bound: Bound::AtLeast(0.9), pairs };
        let line = Line::from(&row);
        assert_eq!((line.ours, line.theirs, line.ratio), (Some(3.0), Some(3.0), Some(1.0)));
        assert_eq!((line.range, line.pairs, line.bound.as_str()), (Some((0.5, 3.0)), 3, ">= 0.9"));
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        assert_eq!(Line::absent("put", "GB/s", Bound::Told).ours, None);
    }

    #[test]
    fn a_ratio_that_is_no_number_is_not_saved() {
        let row = Row { name: "put".to_owned(), unit: "GB/s", bound: Bound::Told, pairs: vec![(1.0, 0.0)] };
        let args = SaveArgs { save: Some(Some(std::env::temp_dir().join("no-number.json"))) };
        let error = Report { rows: vec![(&row).into()] }.save(&args, "x").unwrap_err().to_string();
        assert!(error.contains("`put`"), "{error}");
    }

    #[test]
    fn a_saved_run_names_its_machine_and_commit() {
        assert!(machine().unwrap().contains("Linux"));
        assert!(commit().unwrap().len() >= 10);
    }
}
