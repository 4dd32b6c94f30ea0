//! Bounded reading of a tree of sysfs and procfs: listings, texts and numbers.
//!
//! Every function returns a [`Reading`]: the tree may be damaged, foreign, or change while it is read.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::memory::pinning::{NotKnown, Quoted, Reading, parse_number, read_as};

/// The most entries of a folder: a node of a cluster has hundreds of interfaces, a GID table at most 1024 entries.
const NAMES_MAX: usize = 4096;
/// The most entries that are counted: the kernel's own bound of descriptors (`fs.nr_open`) is half of that.
const COUNT_MAX: usize = 1 << 21;

/// Returns the names in a folder; `mlx5_2` stands before `mlx5_10`.
///
/// A name with bytes that are not UTF-8 is returned with replacement characters, so the files below it are then not
/// known.
pub(super) fn names(folder: &Path) -> Reading<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(|error| NotKnown::new(folder, error))?;
    let mut names: Vec<String> = Vec::new();
    // An entry that fails was removed meanwhile.
    for entry in entries.take(NAMES_MAX + 1).flatten() {
        names.push(lossy(entry.file_name()));
    }
    if names.len() > NAMES_MAX {
        return Err(NotKnown::new(folder, format!("more than {NAMES_MAX} entries")));
    }
    names.sort_by_cached_key(|name| natural(name));
    Ok(names)
}

/// Returns the number of entries of a folder, such as the descriptors of a process.
pub(super) fn count(folder: &Path) -> Reading<u64> {
    let entries = std::fs::read_dir(folder).map_err(|error| NotKnown::new(folder, error))?;
    match entries.take(COUNT_MAX + 1).count() {
        count if count > COUNT_MAX => Err(NotKnown::new(folder, format!("more than {COUNT_MAX} entries"))),
        count => Ok(count as u64),
    }
}

/// Returns the names in a folder, and none where its parent exists without it.
pub(super) fn names_if_there(folder: &Path) -> Reading<Vec<String>> {
    if is_absent_from_folder(folder) { Ok(Vec::new()) } else { names(folder) }
}

/// Returns a text without blanks around it.
pub(super) fn text(file: &Path) -> Reading<String> {
    read_as(file, |text| Ok(text.trim().to_owned()))
}

/// Returns a text that says something: an empty file makes the value not known.
pub(super) fn word(file: &Path) -> Reading<String> {
    read_as(file, |text| match text.trim() {
        "" => Err("empty".to_owned()),
        text => Ok(text.to_owned()),
    })
}

/// Returns a text that says something; `None` where its folder is there without the file.
pub(super) fn word_if_there(file: &Path) -> Reading<Option<String>> {
    if is_absent_from_folder(file) { Ok(None) } else { word(file).map(Some) }
}

/// Returns a decimal number that fits the type.
pub(super) fn number<T: TryFrom<u64>>(file: &Path) -> Reading<T> {
    read_as(file, |text| fitting(parse_number(text)?, text))
}

/// Returns a hexadecimal number that begins with `0x`.
pub(super) fn hex<T: TryFrom<u64>>(file: &Path) -> Reading<T> {
    read_as(file, |text| {
        let digits = text.trim().strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        fitting(number.ok_or_else(|| format!("{} is not 0x and a number", Quoted(text.trim())))?, text)
    })
}

fn fitting<T: TryFrom<u64>>(number: u64, text: &str) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{} is too large", Quoted(text.trim())))
}

/// Returns the last name of the path that a link holds; `None` where there is no link.
pub(super) fn link_name(link: &Path) -> Reading<Option<String>> {
    match std::fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|name| lossy(name.to_owned()))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(NotKnown::new(link, error)),
    }
}

/// Returns the path that a link leads to, if it is within `root`; `None` where there is no link.
pub(super) fn followed(root: &Path, link: &Path) -> Reading<Option<PathBuf>> {
    match std::fs::canonicalize(link) {
        Ok(path) if std::fs::canonicalize(root).is_ok_and(|root| path.starts_with(root)) => Ok(Some(path)),
        Ok(_) => Err(NotKnown::new(link, "the link leads out of the tree")),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(NotKnown::new(link, error)),
    }
}

/// Whether a file or folder is there; an error other than its absence makes this not known.
pub(super) fn exists(path: &Path) -> Reading<bool> {
    path.try_exists().map_err(|error| NotKnown::new(path, error))
}

/// Whether the folder of the path is there without it.
fn is_absent_from_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| is_absent(&error))
        && path.parent().is_some_and(Path::exists)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn lossy(name: OsString) -> String {
    name.into_string().unwrap_or_else(|name| name.to_string_lossy().into_owned())
}

/// Returns a key that sorts numbers at the end of names by their value.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = name.strip_prefix(stem).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}
