//! Reads a printed table back and recomputes what follows from its other numbers; it shares nothing with the
//! printing but the column order, so that a slip there shows here.

use crate::collectives::Collective;
use rdma_collective::collective::DataType;
use thiserror::Error;

/// A printed number and how far the true value may lie from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Printed {
    /// The printed number.
    pub value: f64,
    /// Half a unit of the last printed digit.
    pub half_unit: f64,
}

impl Printed {
    fn low(self) -> f64 {
        (self.value - self.half_unit).max(0.0)
    }

    fn high(self) -> f64 {
        self.value + self.half_unit
    }
}

/// Four columns of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParsedMeasured {
    /// Microseconds.
    pub time_us: Printed,
    /// GB/s.
    pub algbw: Printed,
    /// GB/s.
    pub busbw: Printed,
    /// `None` for `N/A`.
    pub wrong: Option<f64>,
}

/// A row as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedRow {
    /// Bytes.
    pub bytes: u64,
    /// Elements.
    pub count: u64,
    /// The element's name.
    pub dtype: String,
    /// The reduction's name.
    pub redop: String,
    /// The root rank or -1.
    pub root: i64,
    /// The left half.
    pub out_of_place: ParsedMeasured,
    /// The right half.
    pub in_place: ParsedMeasured,
}

/// A whole table as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedTable {
    /// Rows of the table, in order.
    pub rows: Vec<ParsedRow>,
    /// The count of `# Out of bounds values`.
    pub out_of_bounds: u64,
    /// True when that line says `OK`.
    pub ok: bool,
    /// `# Avg bus bandwidth`, in GB/s.
    pub average_busbw: Printed,
}

/// The reason why a printed table is wrong.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// A line that is neither a comment nor a row.
    #[error("line {line} is no row of the table: {text}")]
    Row {
        /// Number of the line, from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// A closing line is not there.
    #[error("the table has no readable `# {0}` line: was the program killed?")]
    Missing(&'static str),
    /// A number does not follow from the others.
    #[error("{what} at {bytes} bytes is printed as {printed}, but the other columns make it {low} to {high}")]
    Disagrees {
        /// Name of the number.
        what: &'static str,
        /// In which row; 0 for a closing line.
        bytes: u64,
        /// The printed number.
        printed: f64,
        /// The least it may be.
        low: f64,
        /// The most it may be.
        high: f64,
    },
    /// The verdict does not follow from the `#wrong` columns.
    #[error(
        "the closing line says {printed} out of bounds (ok: {ok}), but {counted} measurements have wrong elements"
    )]
    Verdict {
        /// The printed count.
        printed: u64,
        /// The printed verdict.
        ok: bool,
        /// Count that follows from the rows.
        counted: u64,
    },
}

impl ParsedTable {
    /// Reads everything a program printed; lines that begin with `#` are comments but for the closing two.
    ///
    /// # Errors
    ///
    /// [`TableError::Row`] or [`TableError::Missing`].
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut rows = Vec::new();
        let (mut out_of_bounds, mut average) = (None, None);
        for (index, line) in text.lines().enumerate() {
            if let Some(comment) = line.strip_prefix('#') {
                match comment.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
                    Some((OUT_OF_BOUNDS, value)) => out_of_bounds = verdict(value),
                    Some((AVERAGE, value)) => average = value.split_whitespace().next().and_then(printed),
                    _ => {}
                }
            } else if !line.trim().is_empty() {
                let bad = || TableError::Row { line: index + 1, text: line.to_owned() };
                rows.push(parse_row(line).ok_or_else(bad)?);
            }
        }
        let (out_of_bounds, ok) = out_of_bounds.ok_or(TableError::Missing(OUT_OF_BOUNDS))?;
        let average_busbw = average.ok_or(TableError::Missing(AVERAGE))?;
        Ok(Self { rows, out_of_bounds, ok, average_busbw })
    }

    /// Recomputes the size from count and type, algbw from size and time, busbw from algbw, `collective` and `ranks`,
    /// the average and the verdict, and holds each against what is printed, within what rounding allows.
    ///
    /// # Errors
    ///
    /// [`TableError::Disagrees`] or [`TableError::Verdict`] for the first that does not follow.
    pub fn verify(&self, collective: Collective, ranks: usize) -> Result<(), TableError> {
        let factor = collective.bus_factor(ranks);
        let parts = if collective.has_parts() { ranks } else { 1 };
        let (mut low, mut high, mut counted) = (0.0, 0.0, 0);
        for row in &self.rows {
            row.verify_size(parts as u64)?;
            for measured in [row.out_of_place, row.in_place] {
                measured.verify(row.bytes, factor)?;
                low += measured.busbw.low();
                high += measured.busbw.high();
                counted += u64::from(measured.wrong.is_some_and(|wrong| wrong > 0.0));
            }
        }
        let count = (self.rows.len() * 2).max(1) as f64;
        hold("the average bus bandwidth", 0, self.average_busbw, low / count, high / count)?;
        if self.out_of_bounds != counted || self.ok != (counted == 0) {
            return Err(TableError::Verdict { printed: self.out_of_bounds, ok: self.ok, counted });
        }
        Ok(())
    }
}

impl ParsedRow {
    fn verify_size(&self, parts: u64) -> Result<(), TableError> {
        let element = self.dtype.parse().map_or(0, DataType::size) as u64;
        let bytes = self.count.saturating_mul(parts).saturating_mul(element) as f64;
        hold("size", self.bytes, Printed { value: self.bytes as f64, half_unit: 0.0 }, bytes, bytes)
    }
}

impl ParsedMeasured {
    fn verify(&self, bytes: u64, factor: f64) -> Result<(), TableError> {
        let gigabytes_us = bytes as f64 / 1e3; // bytes / 1e9, over microseconds / 1e6
        let (slowest, fastest) = (self.time_us.high(), self.time_us.low());
        let high = if fastest > 0.0 { gigabytes_us / fastest } else { f64::INFINITY };
        let low = if slowest > 0.0 { gigabytes_us / slowest } else { 0.0 };
        hold("algbw", bytes, self.algbw, low, high)?;
        // The bus bandwidth was computed from the exact algorithm bandwidth, which both columns bound.
        let low = low.max(self.algbw.low()) * factor;
        let high = if factor > 0.0 { high.min(self.algbw.high()) * factor } else { 0.0 };
        hold("busbw", bytes, self.busbw, low, high)
    }
}

const OUT_OF_BOUNDS: &str = "Out of bounds values";
const AVERAGE: &str = "Avg bus bandwidth";

fn hold(what: &'static str, bytes: u64, printed: Printed, low: f64, high: f64) -> Result<(), TableError> {
    let slack = 1.0 + 1e-9; // binary fractions: half of 0.01 is not exact
    if printed.high() * slack >= low && printed.low() <= high * slack {
        return Ok(());
    }
    Err(TableError::Disagrees { what, bytes, printed: printed.value, low, high })
}

fn parse_row(line: &str) -> Option<ParsedRow> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [bytes, count, dtype, redop, root, left @ .., t, a, b, w] = columns.as_slice() else { return None };
    let [lt, la, lb, lw] = left else { return None };
    Some(ParsedRow {
        bytes: bytes.parse().ok()?,
        count: count.parse().ok()?,
        dtype: (*dtype).to_owned(),
        redop: (*redop).to_owned(),
        root: root.parse().ok()?,
        out_of_place: parse_measured([lt, la, lb, lw])?,
        in_place: parse_measured([t, a, b, w])?,
    })
}

fn parse_measured([time, algbw, busbw, wrong]: [&str; 4]) -> Option<ParsedMeasured> {
    let wrong = if wrong == "N/A" { None } else { Some(printed(wrong)?.value) };
    Some(ParsedMeasured { time_us: printed(time)?, algbw: printed(algbw)?, busbw: printed(busbw)?, wrong })
}

fn printed(text: &str) -> Option<Printed> {
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let power: i32 = power.parse().ok()?;
    Some(Printed { value, half_unit: 0.5 * 10f64.powi(power.checked_sub(decimals)?) })
}

fn verdict(text: &str) -> Option<(u64, bool)> {
    let (count, verdict) = text.split_once(' ')?;
    let ok = match verdict.trim() {
        "OK" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some((count.parse().ok()?, ok))
}

#[cfg(test)]
mod tests;
