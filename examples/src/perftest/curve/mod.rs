//! A run's figures against message size: saved as JSON, and drawn, other saved runs with it, as SVG.

use super::args::Files;
use super::test::{Measure, Test};
use super::{bandwidth, latency};
use crate::chart::{Chart, Curve};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The longest saved run that is read: each has a line for at most as many sizes as there are powers of two.
const SAVED_BYTES_MAX: u64 = 1 << 20;
/// Bytes that a message can have.
const SIZES: RangeInclusive<u64> = 1..=1 << 31;

/// A run, as it is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The twin that ran.
    pub test: Test,
    /// The device's name.
    pub device: String,
    /// How bytes travelled.
    pub wire: String,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Measured figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A line of the table for each size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figures {
    /// Figures of a bandwidth test.
    Bandwidth(Vec<bandwidth::Report>),
    /// Figures of a latency test.
    Latency(Vec<latency::Report>),
}

/// Why a run cannot be saved or drawn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CurveError {
    /// A file cannot be written.
    #[error("cannot write {}: {source}; choose another place with {flag}", path.display())]
    Write {
        /// The flag that names it.
        flag: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A saved run cannot be read.
    #[error("cannot read {}: {source}; --overlay takes what --json has saved", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file holds no run.
    #[error("{} holds no run ({why}); --overlay takes what --json has saved", path.display())]
    NotARun {
        /// Path of the file.
        path: PathBuf,
        /// The reason why the file is refused.
        why: String,
    },
    /// Bandwidth and latency do not go on one axis.
    #[error("{} holds a run of {test}, and a curve of {theirs} does not go with one of {ours}", path.display())]
    OtherMeasure {
        /// Path of the file.
        path: PathBuf,
        /// The twin that measured the file.
        test: Test,
        /// Measure of the file.
        theirs: Measure,
        /// Measure of this run.
        ours: Measure,
    },
}

/// Where a run's figures go, known to be writable before it begins.
#[derive(Debug)]
pub struct Outputs {
    json: Option<PathBuf>,
    plot: Option<PathBuf>,
    overlays: Vec<(String, Run)>,
}

impl Outputs {
    /// Reads the runs to lay over, and holds that the files can be written.
    ///
    /// # Errors
    ///
    /// [`CurveError`]: better now than after a long run.
    pub fn open(files: &Files, test: Test) -> Result<Self, CurveError> {
        let overlay = |path: &PathBuf| {
            let run = Run::load(path)?;
            let (theirs, ours) = (run.figures.measure(), test.measure());
            if theirs != ours {
                return Err(CurveError::OtherMeasure { path: path.clone(), test: run.test, theirs, ours });
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, run))
        };
        let overlays = files.overlay.iter().map(overlay).collect::<Result<_, _>>()?;
        for (flag, path) in files.named() {
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            opened.map_err(|source| CurveError::Write { flag, path: path.to_owned(), source })?;
        }
        Ok(Self { json: files.json.clone(), plot: files.plot.clone(), overlays })
    }

    /// Saves and draws the run.
    ///
    /// # Errors
    ///
    /// [`CurveError::Write`].
    pub fn write(self, run: Run) -> Result<(), CurveError> {
        let write = |flag, path: PathBuf, text: String| {
            replace(&path, &text).map_err(|source| CurveError::Write { flag, path, source })
        };
        if let Some(path) = self.json {
            let text = serde_json::to_string_pretty(&run).map_err(|error| CurveError::Write {
                flag: "--json",
                path: path.clone(),
                source: error.into(),
            })?;
            write("--json", path, text + "\n")?;
        }
        let Some(path) = self.plot else { return Ok(()) };
        let named = self.overlays.iter().map(|(name, run)| (run, format!("{} ({name})", run.label())));
        let runs: Vec<_> = std::iter::once((&run, run.label())).chain(named).collect();
        write("--plot", path, draw(&runs).to_string())
    }
}

/// Writes a file in one step: both sides of a test on one host may have been given the same name.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if !path.is_file() {
        return fs::write(path, text); // a pipe or a terminal
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    fs::write(&beside, text)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The chart of runs that measured alike, each with its label.
fn draw(runs: &[(&Run, String)]) -> Chart {
    let curves = runs.iter().enumerate().flat_map(|(number, (run, label))| run.figures.curves(number, label));
    let latency = runs.iter().any(|(run, _)| run.figures.measure() == Measure::Latency);
    let (title, values) = if latency {
        ("Latency by message size", "latency (us)")
    } else {
        ("Bandwidth by message size", "average bandwidth (MiB/s)")
    };
    Chart {
        title: title.to_owned(),
        values: values.to_owned(),
        logarithmic: latency,
        curves: curves.collect(),
    }
}

impl Run {
    /// Reads a saved run.
    ///
    /// # Errors
    ///
    /// [`CurveError::Read`] or [`CurveError::NotARun`].
    pub fn load(path: &Path) -> Result<Self, CurveError> {
        let read = |source| CurveError::Read { path: path.to_owned(), source };
        let not_a_run = |why: String| CurveError::NotARun { path: path.to_owned(), why };
        let mut text = Vec::new();
        File::open(path)
            .and_then(|file| file.take(SAVED_BYTES_MAX + 1).read_to_end(&mut text))
            .map_err(read)?;
        if text.len() as u64 > SAVED_BYTES_MAX {
            return Err(not_a_run(format!("it is longer than {SAVED_BYTES_MAX} bytes")));
        }
        let run: Self = serde_json::from_slice(&text).map_err(|error| not_a_run(error.to_string()))?;
        match run.figures.points() {
            points if run.figures.measure() != run.test.measure() || points.is_empty() => {
                Err(not_a_run(format!("it has no figures of {}", run.test)))
            }
            points if points.iter().any(|(size, value)| !SIZES.contains(size) || *value < 0.0) => {
                Err(not_a_run("it has a size that no message has, or a figure below 0".to_owned()))
            }
            _ => Ok(run),
        }
    }

    /// Returns the run's text in a legend.
    fn label(&self) -> String {
        let Self { test, device, wire, queue_pairs, .. } = self;
        let many = if *queue_pairs > 1 { format!(", {queue_pairs} queue pairs") } else { String::new() };
        format!("{test}, {device}, {wire}{many}")
    }
}

impl Figures {
    fn measure(&self) -> Measure {
        match self {
            Self::Bandwidth(_) => Measure::Bandwidth,
            Self::Latency(_) => Measure::Latency,
        }
    }

    /// Size and value of every point that is drawn.
    fn points(&self) -> Vec<(u64, f64)> {
        self.curves(0, "").into_iter().flat_map(|curve| curve.points).collect()
    }

    fn curves(&self, number: usize, label: &str) -> Vec<Curve> {
        let curve = |label: String, dashed, points| Curve { label, number, dashed, points };
        match self {
            Self::Bandwidth(lines) => {
                let points = lines.iter().map(|line| (line.size, line.average)).collect();
                vec![curve(label.to_owned(), false, points)]
            }
            Self::Latency(lines) => {
                let typical = lines.iter().map(|line| (line.size, line.typical)).collect();
                let tail = lines.iter().map(|line| (line.size, line.percentile_99)).collect();
                vec![
                    curve(format!("{label}: typical"), false, typical),
                    curve(format!("{label}: 99th percentile"), true, tail),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests;
