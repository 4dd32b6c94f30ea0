//! Whether a command printed what a document says, but for its numbers.

use super::block::Entry;

/// The first line in which `printed` is not what `entry` expects; `None` where there is none.
///
/// Numbers, addresses and identifiers may differ, and so may the width of columns, which follows them. A line `…` in
/// the document stands for any number of lines, `…` at the end of a line for the rest of it.
pub fn difference(entry: &Entry, printed: &str) -> Option<String> {
    let printed: Vec<String> = printed.lines().map(shape).collect();
    let expected: Vec<String> = entry.expected.iter().map(|line| shape(line)).collect();
    let mut at = 0;
    let mut skips = false;
    for (line, original) in expected.iter().zip(&entry.expected) {
        if line == "…" {
            skips = true;
            continue;
        }
        let rest = printed.get(at..).unwrap_or_default();
        let found = if skips {
            rest.iter().position(|got| is(got, line))
        } else {
            rest.first().filter(|got| is(got, line)).map(|_| 0)
        };
        match found {
            Some(ahead) => at += ahead + 1,
            None => {
                let got = rest.first().map_or("nothing", String::as_str);
                return Some(format!("`{}` prints `{got}` in place of `{original}`", entry.command));
            }
        }
        skips = false;
    }
    let rest = printed.get(at..).unwrap_or_default();
    let more = rest.iter().find(|line| !line.is_empty()).filter(|_| !skips)?;
    Some(format!("`{}` also prints `{more}`; show it, or end the transcript with `…`", entry.command))
}

fn is(got: &str, expected: &str) -> bool {
    match expected.strip_suffix('…') {
        Some(start) => got.starts_with(start.trim_end()),
        None => got == expected,
    }
}

/// The line with `#` for each number, and one blank for many.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let run: usize = rest.chars().take_while(|c| is_of_a_number(*c)).map(char::len_utf8).sum();
            let (head, tail) = rest.split_at(run.max(first.len_utf8()));
            // Behind `0x` digits may be letters alone.
            let number = head.chars().any(|c| c.is_ascii_digit()) || run > 0 && out.ends_with("#x");
            out.push_str(if number { "#" } else { head });
            rest = tail;
        }
    }
    out
}

/// Digits of any base up to 16, and the marks that stand between them in addresses, times and fractions.
fn is_of_a_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, 'a'..='f' | '.' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(expected: &str) -> Entry {
        Entry { line: 1, command: "x".to_owned(), expected: expected.lines().map(str::to_owned).collect() }
    }

    #[test]
    fn numbers_and_widths_may_differ() {
        let document = entry("# Rank  0 on soft0, GID fd73:6f66::1\n  8   100.69  0.00\n# OK");
        assert_eq!(
            difference(&document, "# Rank  1 on soft0, GID fd73:aaaa::2\n 16  9.1 12.00\n# OK\n"),
            None
        );
        assert_eq!(difference(&entry("QPN 0x719aa5 of box1"), "QPN 0xeceeeb of box2"), None);
    }

    #[test]
    fn a_planted_change_is_caught() {
        let document = entry("# Rank 0 wire mapped\n# OK");
        for printed in [
            "# Rank 0 wire tcp\n# OK",
            "# Rank 0 wire mapped\n# FAILED",
            "# Rank 0 wire mapped",
            "a\n# Rank 0 wire mapped\n# OK",
            "# Rank 0 wire mapped\n# OK\nmore",
        ] {
            assert!(difference(&document, printed).is_some(), "{printed}");
        }
    }

    #[test]
    fn an_ellipsis_skips_lines_or_the_rest_of_one() {
        let document = entry("one …\n…\nlast\n…");
        assert_eq!(difference(&document, "one two\nthree\nlast\nmore"), None);
        assert!(difference(&document, "two\nlast").is_some());
        assert!(difference(&entry("one\n…"), "two").is_some());
    }
}
