//! Texts of other people in errors: values of variables, names of hosts.

use std::fmt::{self, Write};

/// Characters of a text that an error repeats.
const SHOWN: usize = 120;

/// A text as errors repeat it: without control characters, because a terminal or a log would obey them, and cut.
///
/// `Display` shows the text alone, `Debug` puts it in quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars().take(SHOWN) {
            if character.is_control() {
                write!(f, "{}", character.escape_debug())?
            } else {
                f.write_char(character)?
            }
        }
        if self.0.chars().nth(SHOWN).is_some() {
            write!(f, "… ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_neither_obeyed_nor_repeated_at_length() {
        assert_eq!(format!("{} {:?}", Quoted("eth0"), Quoted("eth0")), "eth0 \"eth0\"");
        assert_eq!(Quoted("a\u{1b}[31mb\r\n\0").to_string(), "a\\u{1b}[31mb\\r\\n\\0");
        let long = "ä".repeat(60_000);
        let told = Quoted(&long).to_string();
        assert!(
            told.ends_with("ä… (120000 bytes)")
                && told.chars().count() == SHOWN + "… (120000 bytes)".chars().count()
        );
    }
}
