//! The file of `--plot`: bus bandwidth and time against size, of this run and of those that are laid over it.

use super::args::Args;
use crate::chart::{Chart, Charts, Curve, PlotFile};
use crate::columns::{Measured, Row, saved};
use std::path::PathBuf;

/// Where a run is drawn, known to be writable before it begins.
#[derive(Debug)]
pub struct Plot {
    file: PlotFile,
    /// Each with its name.
    overlays: Vec<(String, Vec<Row>)>,
}

impl Plot {
    /// If one is asked for.
    ///
    /// # Errors
    ///
    /// A file that cannot be written, or read as a run: better now than after a long run.
    pub fn open(args: &Args) -> anyhow::Result<Option<Self>> {
        let Some(path) = args.plot.clone() else { return Ok(None) };
        let overlay = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, saved::rows(path)?))
        };
        let overlays = args.overlay.iter().map(overlay).collect::<anyhow::Result<_>>()?;
        Ok(Some(Self { file: PlotFile::open(path)?, overlays }))
    }

    /// Draws the rows of this run, which is called so.
    ///
    /// # Errors
    ///
    /// The system's error at the file.
    pub fn write(self, name: &str, rows: &[Row]) -> anyhow::Result<()> {
        let overlays = self.overlays.iter().map(|(name, rows)| (name.as_str(), rows.as_slice()));
        self.file.write(charts(std::iter::once((name, rows)).chain(overlays)))
    }
}

fn charts<'a>(runs: impl Iterator<Item = (&'a str, &'a [Row])> + Clone) -> Charts {
    let chart = |title: &str, values: &str, logarithmic, value| Chart {
        title: title.to_owned(),
        values: values.to_owned(),
        logarithmic,
        curves: curves(runs.clone(), value),
    };
    Charts(vec![
        chart("Bus bandwidth by size", "bus bandwidth (GB/s)", false, |measured| measured.busbw),
        chart("Time by size", "time (us)", true, |measured| measured.time_us),
    ])
}

/// Two for all rows of a run that differ in size alone: out of place, and broken in place.
fn curves<'a>(runs: impl Iterator<Item = (&'a str, &'a [Row])>, value: fn(&Measured) -> f64) -> Vec<Curve> {
    let groups = runs.flat_map(|(name, rows)| rows.chunk_by(are_alike).map(move |rows| (name, rows)));
    let both = groups.enumerate().flat_map(|(number, (name, rows))| {
        let curve = |place: &str, dashed, half: fn(&Row) -> &Measured| Curve {
            label: format!("{name}, {}: {place}", rows.first().map_or(String::new(), of)),
            number,
            dashed,
            points: rows.iter().map(|row| (row.bytes, value(half(row)))).collect(),
        };
        let in_place = curve("in place", true, |row| &row.in_place);
        [curve("out of place", false, |row| &row.out_of_place), in_place]
    });
    both.collect()
}

fn are_alike(one: &Row, other: &Row) -> bool {
    of(one) == of(other)
}

/// Returns the label of a row: all that it has besides its size.
fn of(Row { dtype, redop, root, .. }: &Row) -> String {
    let op = if redop == "none" { String::new() } else { format!(" {redop}") };
    let root = if *root < 0 { String::new() } else { format!(" root {root}") };
    format!("{dtype}{op}{root}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, dtype: &str, root: i64) -> Row {
        let half = |time_us: f64| Measured { time_us, algbw: 1.0, busbw: 0.5 / time_us, wrong: None };
        let redop = if root < 0 { "sum" } else { "none" };
        let (dtype, redop) = (dtype.to_owned(), redop.to_owned());
        Row { bytes, count: 1, dtype, redop, root, out_of_place: half(2.0), in_place: half(4.0) }
    }

    #[test]
    fn rows_that_differ_in_size_alone_are_one_curve() {
        let ours = [row(8, "float", -1), row(16, "float", -1), row(8, "half", -1)];
        let theirs = [row(8, "float", 1)];
        let Charts(charts) = charts([("allreduce", &ours[..]), ("before", &theirs[..])].into_iter());
        let labels: Vec<_> = charts[0].curves.iter().map(|curve| curve.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "allreduce, float sum: out of place",
                "allreduce, float sum: in place",
                "allreduce, half sum: out of place",
                "allreduce, half sum: in place",
                "before, float root 1: out of place",
                "before, float root 1: in place",
            ]
        );
        let curves = [&charts[0].curves[..2], &charts[1].curves[..2]].concat();
        let points: Vec<_> = curves.into_iter().map(|curve| curve.points).collect();
        let of = |value| vec![(8, value), (16, value)];
        assert_eq!(points, [of(0.25), of(0.125), of(2.0), of(4.0)]);
    }
}
