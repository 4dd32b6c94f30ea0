//! The tuning table: by collective, ranks, peers and bytes it names the algorithm. A program measures it and people
//! read it.
#![doc = ""]
#![doc = include_str!("../../../../../docs/tuning.md")]

mod built_in;
mod error;
mod order;
mod parse;
mod row;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

pub use crate::collective::call::Collective;
pub(crate) use order::{Class, Orders};
pub use row::{Peers, Row};

use super::{Algorithm, Spread};
pub use error::TuningError;
pub(crate) use error::TuningErrorKind;

/// Version of the format.
const VERSION: &str = "1";
const MAGIC: [&str; 2] = ["rdma-collective", "tuning"];
/// Bytes of the longest file. The bound keeps a wrong file from filling memory.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// Rows of the longest table.
const ROWS_MAX: usize = 4096;

/// Source of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    BuiltIn,
    Rows,
    File(Arc<str>),
}

/// The algorithm of each collective, as a table; see [the module](self).
///
/// ```
/// use rdma_collective::collective::tuning::Tuning;
///
/// let tuning: Tuning = "rdma-collective tuning 1\nbroadcast 2-8 links 64K tree,ring\nend\n".parse()?;
/// assert_eq!(tuning.rows().len(), 1);
/// assert_eq!(tuning.to_string().parse::<Tuning>()?.rows(), tuning.rows());
/// let error = "rdma-collective tuning 1\nbroadcast 2-8 links 64K bush\nend\n".parse::<Tuning>().unwrap_err();
/// assert!(error.to_string().contains("line 2: \"bush\" is no algorithm"));
/// # Ok::<(), rdma_collective::collective::tuning::TuningError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    rows: Arc<[Row]>,
    source: Source,
}

impl Tuning {
    /// The table of these rows.
    ///
    /// # Errors
    ///
    /// The error says which row, counted from 1, and what is wrong with it.
    pub fn new(rows: Vec<Row>) -> Result<Self, TuningError> {
        // Each row against the rows before it, as in a file, so that a program's table can always be written and read.
        for at in 0..rows.len() {
            let (before, [row, ..]) = rows.split_at(at) else { break };
            row::check(row, before).map_err(|what| TuningErrorKind::Line {
                file: "the table".to_owned(),
                line: at + 1,
                what,
            })?;
        }
        Ok(Self { rows: rows.into(), source: Source::Rows })
    }

    /// The table in a file.
    ///
    /// # Errors
    ///
    /// [`TuningError`]: the file cannot be read, is damaged, or of another version.
    pub fn read(path: &Path) -> Result<Self, TuningError> {
        let name = path.display().to_string();
        let bytes = read_file(path).map_err(|reason| TuningErrorKind::Unreadable {
            file: name.clone(),
            reason: reason.to_string(),
        })?;
        let rows = parse::file(&bytes, &name)?;
        Ok(Self { rows: rows.into(), source: Source::File(name.into()) })
    }

    /// The rows of this table, without the built-in rows that apply where it has none.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Source of the table: a file's name, or that it is built in.
    #[must_use]
    pub fn source(&self) -> &str {
        match &self.source {
            Source::BuiltIn => "built in",
            Source::Rows => "given by the program",
            Source::File(name) => name,
        }
    }

    /// The built-in table for ranks that are spread like this over hosts.
    fn built_in(spread: Spread) -> Self {
        Self { rows: built_in::rows(spread), source: Source::BuiltIn }
    }

    /// Digest by which ranks check that their tables are equal, the built-in rows of other releases included.
    pub(super) fn digest(&self) -> u64 {
        let text: String = Spread::ALL.map(|spread| format!("{self}{}", Self::built_in(spread))).concat();
        // The length beside the checksum, because 32 bits alone collide more easily. The rows count, not the file's
        // name.
        (text.len() as u64) << 32 | u64::from(crc32c::crc32c(text.as_bytes()))
    }
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    // Open regular files only: opening a pipe that nobody writes to would block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    // Read one byte more than allowed, so that `parse` sees that the file is too long.
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The built-in table for ranks that all are on one host, or each on a host of its own.
impl Default for Tuning {
    fn default() -> Self {
        Self::built_in(Spread::OneLevel)
    }
}

impl FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, TuningError> {
        let rows = parse::file(text.as_bytes(), "the text")?;
        Ok(Self { rows: rows.into(), source: Source::Rows })
    }
}

/// Writes the form of a file.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {VERSION}", MAGIC.join(" "))?;
        writeln!(f, "# collective  ranks   peers    bytes  ways")?;
        for row in &*self.rows {
            writeln!(f, "{row}")?;
        }
        writeln!(f, "end")
    }
}

/// Entry of the fuzzer; [`crate::fuzzing::tuning`] says what it checks.
#[cfg(any(fuzzing, test))]
pub(crate) fn fuzz(data: &[u8]) {
    match parse::file(data, "fuzzed") {
        Ok(rows) => {
            let tuning = Tuning::new(rows).expect("what a file may have");
            assert_eq!(tuning.to_string().parse::<Tuning>().expect("what it writes").rows(), tuning.rows());
            for peers in [Peers::Mapped, Peers::Links] {
                let of = (2, peers, Spread::Hosts);
                let orders = Orders::new(&tuning, super::Algorithms::default(), of, false);
                let links = |class: Class| class.ways().any(|way: Algorithm| !way.needs_mapped());
                assert!(Collective::ALL.iter().all(|of| links(orders.find(*of, data.len() as u64))));
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzzed")),
    }
}
