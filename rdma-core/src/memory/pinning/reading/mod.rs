//! Values read from the environment: a limit, or the statement that it is not known.
//!
//! Owns [`Limit`], [`NotKnown`] and the bounded read of a file. Which files are read, and their grammar, is
//! left to the other files of this folder.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest file that is read: 4 MiB. A `mountinfo` of ten thousand mounts has about a quarter of that.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A value read from the environment, or the reason why it is not known.
///
/// An unreadable or malformed file gives [`NotKnown`]. It never counts as "unlimited" or as 0.
pub type Reading<T> = Result<T, NotKnown>;

/// The reason why a value of the environment is not known.
///
/// [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot) has it in place of a value.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("not known ({}: {why})", .path.display())]
#[non_exhaustive]
pub struct NotKnown {
    /// The file that should have contained the value.
    pub path: PathBuf,
    /// The problem with the file.
    pub why: String,
}

impl NotKnown {
    pub(crate) fn new(path: &Path, why: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), why: why.to_string() }
    }
}

/// A bound that the kernel enforces, in the unit of the bounded thing (bytes or objects).
///
/// [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot) shows several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// At most this many.
    AtMost(u64),
    /// No bound.
    Unlimited,
}

impl Limit {
    /// Returns how much of `need` does not fit on top of `used`; 0 when all of it fits.
    #[must_use]
    pub fn shortfall(self, used: u64, need: u64) -> u64 {
        match self {
            Self::AtMost(most) => used.saturating_add(need).saturating_sub(most),
            Self::Unlimited => 0,
        }
    }
}

/// Prints the number alone, or `unlimited`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "{most}"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// Reads a whole file as text; fails when it is longer than any file that the kernel writes here.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    // The files are text. A name in them that is not UTF-8 simply matches nothing.
    let bytes = read_bytes(path, FILE_BYTES_MAX)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Reads a whole file; fails when it is longer than `max` bytes.
pub(crate) fn read_bytes(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Without the flag, a pipe in a tree that is no procfs or sysfs would wait for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let read = file.take(max + 1).read_to_end(&mut bytes)?;
    if read as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {max} bytes")));
    }
    Ok(bytes)
}

/// Reads a file and parses it; a failure of either makes the value not known.
pub(crate) fn read_as<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
    let text = read_file(path).map_err(|error| NotKnown::new(path, error))?;
    parse(&text).map_err(|why| NotKnown::new(path, why))
}

/// Parses a decimal number without anything beside it.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    // `u64::from_str` accepts a leading plus, which the kernel never writes, so a malformed file could be
    // read as valid.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{} is not a number", Quoted(text)));
    }
    text.parse().map_err(|_| format!("{} is not a number", Quoted(text)))
}

/// Text of a file for a message: escaped, and cut to 40 characters.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARACTERS_MAX: usize = 40;
        let shown: String = self.0.chars().take(CHARACTERS_MAX).collect();
        write!(f, "{shown:?}")?;
        if shown.len() < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// A number of bytes for a message: exact, then in a unit that people use.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        write!(f, "{} bytes", self.0)?;
        let Some(thousands) = (self.0.max(1).ilog2() / 10).checked_sub(1) else { return Ok(()) };
        let Some(unit) = UNITS.get(thousands as usize) else { return Ok(()) };
        let one = 1_u64 << (10 * (thousands + 1));
        if self.0.is_multiple_of(one) {
            write!(f, " ({} {unit})", self.0 / one)
        } else {
            write!(f, " ({:.1} {unit})", self.0 as f64 / one as f64)
        }
    }
}

#[cfg(test)]
mod tests;
