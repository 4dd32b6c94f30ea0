//! The reader of tuning files. It is strict: people write them, and a line that is skipped would be a choice that is
//! not made. `row` checks that rows fit together.

use std::ops::RangeInclusive;

use super::error::TuningErrorKind;
use super::row::{self, RANKS_MAX};
use super::{Algorithm, Collective, FILE_BYTES_MAX, MAGIC, Peers, Row, VERSION};

/// Reads the rows of a file.
pub(super) fn file(bytes: &[u8], name: &str) -> Result<Vec<Row>, TuningErrorKind> {
    let no_table = |reason| TuningErrorKind::NoTable { file: name.to_owned(), reason };
    // Before anything else: text from a program or a fuzzer has not passed `read_file`'s bound.
    if bytes.len() > FILE_BYTES_MAX {
        return Err(no_table(format!(
            "has more than {FILE_BYTES_MAX} bytes, and is no tuning file; write one with `tune`"
        )));
    }
    let wrong = |line, what: String| TuningErrorKind::Line { file: name.to_owned(), line, what };
    let text = str::from_utf8(bytes).map_err(|error| {
        // Count the lines before the bad byte, so that the error names the line to mend.
        let good = &bytes[..error.valid_up_to()];
        wrong(1 + good.iter().filter(|byte| **byte == b'\n').count(), "it is no text".to_owned())
    })?;
    let mut rows = Vec::new();
    let (mut begun, mut ended, mut last) = (false, false, 0);
    for (number, line) in (1..).zip(text.lines()) {
        last = number;
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        match &words[..] {
            [] => {}
            [one, two, version] if !begun && [*one, *two] == MAGIC => {
                // Refused, not guessed: a later version may give a row another meaning.
                if *version != VERSION {
                    return Err(no_table(format!(
                        "is a tuning file of version {version}, and this release reads version 1; write it anew with `tune`"
                    )));
                }
                begun = true;
            }
            // Before any row: another program's file must fail at its first line, not somewhere in the middle.
            _ if !begun => {
                return Err(wrong(number, format!("a tuning file begins with {:?}", header())));
            }
            _ if ended => return Err(wrong(number, "nothing stands behind `end`".to_owned())),
            ["end"] => ended = true,
            words => {
                let row = row(words).map_err(|what| wrong(number, what))?;
                row::check(&row, &rows).map_err(|what| wrong(number, what))?;
                rows.push(row);
            }
        }
    }
    // A missing `end` means a file that was cut off: its rows would be a choice for some sizes only.
    match (begun, ended) {
        (false, _) => Err(wrong(1, format!("a tuning file begins with {:?}", header()))),
        (true, false) => Err(no_table(format!(
            "has no `end` behind its {last} lines, so it was cut off; copy it again, or write it anew with `tune`"
        ))),
        (true, true) => Ok(rows),
    }
}

fn header() -> String {
    format!("{} {VERSION}", MAGIC.join(" "))
}

fn row(words: &[&str]) -> Result<Row, String> {
    let [collective, ranks, peers, bytes, ways] = words else {
        return Err(format!(
            "{} words, and a row has 5: collective, ranks, peers, bytes and ways",
            words.len()
        ));
    };
    let names = Collective::ALL.map(Collective::name);
    let collective = named(collective, Collective::ALL, &names, "collective")?;
    let peers = named(peers, Peers::ALL, &Peers::ALL.map(Peers::name), "kind of peers")?;
    let names: Vec<&str> = Algorithm::ALL.iter().map(|way| way.name()).collect();
    let ways = ways.split(',').map(|way| named(way, Algorithm::ALL.iter().copied(), &names, "algorithm"));
    Ok(Row {
        collective,
        ranks: range(ranks)?,
        peers,
        bytes_max: size(bytes)?,
        ways: ways.collect::<Result<_, _>>()?,
    })
}

/// Returns the item of `all` with that name.
fn named<T>(word: &str, all: impl IntoIterator<Item = T>, names: &[&str], what: &str) -> Result<T, String> {
    let found = all.into_iter().zip(names).find(|(_, name)| **name == word);
    found.map(|(one, _)| one).ok_or_else(|| format!("{word:?} is no {what}; there are {}", names.join(", ")))
}

fn range(word: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = word.split_once('-').map_or((word, word), |(first, last)| (first, last));
    let first = number(first).and_then(|first| u32::try_from(first).ok());
    // "2-" has no end: it is all ranks from 2 on.
    let last = if last.is_empty() { Some(u64::from(RANKS_MAX)) } else { number(last) };
    match (first, last.and_then(|last| u32::try_from(last).ok())) {
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err(format!("{word:?} are no ranks; write 2, 2-16 or 2-")),
    }
}

fn size(word: &str) -> Result<u64, String> {
    if word == "any" {
        return Ok(u64::MAX);
    }
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((word.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((word, 0));
    // Checked, because a size that wraps around would silently be a small one.
    let bytes = number(digits).and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{word:?} are no bytes; write 8192, 8K, 2M, 1G or any"))
}

/// Reads digits alone, because `parse` would take a sign as well.
fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}
