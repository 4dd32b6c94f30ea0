//! nccl-tests' output: the values of a row, its printing, its reading back, and the same as JSON.
//!
//! Nothing here measures: the programs fill [`Row`]s, [`mod@print`] lays them out, [`parse`] reads what was printed
//! and recomputes it, [`json`] writes the file of `-J`, [`saved`] reads it.

pub mod header;
pub mod json;
pub mod number;
pub mod parse;
pub mod print;
pub mod saved;

/// A line of the table: one size, out of place and in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bytes of the whole: `count` times the size of one element, and times the ranks where each has a part.
    pub bytes: u64,
    /// Elements of the buffer, or of one rank's part.
    pub count: u64,
    /// The element's name (`float`, `half`).
    pub dtype: String,
    /// The reduction's name (`sum`), or `none`.
    pub redop: String,
    /// The root rank, -1 where there is none.
    pub root: i64,
    /// From one buffer to another.
    pub out_of_place: Measured,
    /// From a buffer to itself.
    pub in_place: Measured,
}

/// Figures of one way of running one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Mean time of one operation, in microseconds.
    pub time_us: f64,
    /// Bytes of the whole over the time, in GB/s (1e9).
    pub algbw: f64,
    /// [`Self::algbw`] times the collective's factor: what each link must have carried.
    pub busbw: f64,
    /// Elements that differ from the exact answer, over all ranks; `None` when nothing was checked.
    pub wrong: Option<u64>,
}

impl Measured {
    /// The bandwidths of an operation on `bytes` that took `seconds`, of a collective with this
    /// [`bus_factor`](crate::collectives::Collective::bus_factor).
    ///
    /// A time of zero gives bandwidths of zero: nothing was measured.
    pub fn new(bytes: u64, bus_factor: f64, seconds: f64, wrong: Option<u64>) -> Self {
        let algbw = if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 };
        Self { time_us: seconds * 1e6, algbw, busbw: algbw * bus_factor, wrong }
    }

    /// True when elements were checked and some were wrong.
    pub fn failed(&self) -> bool {
        self.wrong.is_some_and(|wrong| wrong > 0)
    }
}

/// Figures of the closing lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Closing {
    /// How many measurements (a row has two) had a wrong element.
    pub out_of_bounds: u64,
    /// Mean of the bus bandwidths of all measurements, in GB/s.
    pub average_busbw: f64,
}

impl Closing {
    /// Adds up the rows; of none, the average is 0.
    pub fn of(rows: &[Row]) -> Self {
        let measured = || rows.iter().flat_map(|row| [row.out_of_place, row.in_place]);
        let count = measured().count().max(1);
        Self {
            out_of_bounds: measured().filter(Measured::failed).count() as u64,
            average_busbw: measured().map(|m| m.busbw).sum::<f64>() / count as f64,
        }
    }

    /// True when every element that was checked was right.
    pub fn ok(&self) -> bool {
        self.out_of_bounds == 0
    }
}
