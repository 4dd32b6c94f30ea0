//! Check of a range's mappings in `/proc/self/smaps`: only ordinary memory may be replaced.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use crate::memory::Unshared;

/// VmFlags that do not prevent a replacement. `nr`, `hg`, `nh` and `sd` say only how pages are made and
/// tracked, and nothing of the bytes depends on them.
const PLAIN: [&str; 10] = ["rd", "wr", "mr", "mw", "me", "ac", "nr", "sd", "hg", "nh"];
/// VmFlags that a replacement would lose, with the words for an error message.
const MARKS: [(&str, &str); 11] = [
    ("lo", "is locked in memory (mlock)"),
    ("dc", "is kept from children (MADV_DONTFORK)"),
    ("wf", "is wiped in children (MADV_WIPEONFORK)"),
    ("dd", "is kept out of core dumps (MADV_DONTDUMP)"),
    ("mg", "may be merged with equal pages (MADV_MERGEABLE)"),
    ("gd", "is a stack"),
    ("gu", "has guards (MADV_GUARD_INSTALL)"),
    ("um", "is watched by a userfaultfd"),
    ("uw", "is watched by a userfaultfd"),
    ("ui", "is watched by a userfaultfd"),
    ("sl", "is sealed (mseal)"),
];

/// Checks that all of `range` is private anonymous memory, readable and writable, without properties to lose.
pub(super) fn check(range: Range<usize>) -> Result<(), Unshared> {
    let denied = |error: io::Error| Unshared::Denied {
        what: "reading /proc/self/smaps",
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    let smaps = File::open("/proc/self/smaps").map_err(denied)?;
    check_text(BufReader::new(smaps), range).map_err(denied)?
}

/// Checks the text of `smaps`, which is read only up to the end of the range, because a process may have many
/// mappings.
fn check_text(mut smaps: impl BufRead, range: Range<usize>) -> io::Result<Result<(), Unshared>> {
    let (mut line, mut covered, mut within) = (Vec::new(), range.start, false);
    while smaps.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if let Some((mapped, rest)) = header(&text) {
            if covered >= range.end || mapped.start > covered {
                break;
            }
            within = mapped.end > covered;
            if within {
                covered = mapped.end;
                if let Err(unshared) = check_header(rest) {
                    return Ok(Err(unshared));
                }
            }
        } else if within && let Err(unshared) = check_mark(&text) {
            return Ok(Err(unshared));
        }
        line.clear();
    }
    Ok(if covered >= range.end { Ok(()) } else { Err(Unshared::Protected) })
}

/// Splits a line that begins a mapping into its range and the rest; `None` for other lines.
fn header(line: &str) -> Option<(Range<usize>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some((address(start)?..address(end)?, rest))
}

/// Checks the rest of a header, such as `rw-p 00000000 00:00 0    [heap]`.
fn check_header(rest: &str) -> Result<(), Unshared> {
    let mut fields = rest.split_ascii_whitespace();
    let rights = fields.next().unwrap_or_default();
    let (inode, name) = (fields.nth(2).unwrap_or_default(), fields.next().unwrap_or_default());
    if rights.ends_with('s') || name.starts_with("[anon_shmem") {
        Err(Unshared::Shared)
    } else if !rights.starts_with("rw-") {
        Err(Unshared::Protected)
    } else if name.starts_with("/anon_hugepage") {
        Err(Unshared::HugePages)
    } else if inode != "0" || !(name.is_empty() || name == "[heap]" || name.starts_with("[anon:")) {
        Err(if name == "[stack]" { Unshared::Marked { mark: "is a stack" } } else { Unshared::File })
    } else {
        Ok(())
    }
}

/// Checks the lines `VmFlags: rd wr mr mw me ac` and `ProtectionKey: 0`; accepts other lines.
fn check_mark(line: &str) -> Result<(), Unshared> {
    let Some((name, value)) = line.split_once(':') else { return Ok(()) };
    if name == "ProtectionKey" && value.trim() != "0" {
        return Err(Unshared::Marked { mark: "has a protection key (pkey_mprotect)" });
    }
    if name != "VmFlags" {
        return Ok(());
    }
    match value.split_ascii_whitespace().find(|flag| !PLAIN.contains(flag)) {
        None => Ok(()),
        Some("ht") => Err(Unshared::HugePages),
        Some(flag) => {
            let known = MARKS.iter().find(|(name, _)| *name == flag);
            let mark = known.map_or("has a mark that is not known (VmFlags of proc(5))", |(_, mark)| mark);
            Err(Unshared::Marked { mark })
        }
    }
}

#[cfg(test)]
mod tests;
