//! The frame of an SVG file: its head, its colours, and text as XML takes it.

use std::fmt::{self, Write};

/// Width of every file.
pub const WIDTH: f64 = 860.0;
/// Colour of text and of lines.
pub const INK: &str = "#222222";
/// Colour of the background, which hides that of the page around it.
pub const PAPER: &str = "#ffffff";

/// Writes everything before the first line that is drawn.
///
/// # Errors
///
/// The error of `f`.
pub fn begin(f: &mut fmt::Formatter<'_>, height: f64, title: &str) -> fmt::Result {
    writeln!(
        f,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="{INK}">"#,
    )?;
    writeln!(f, "<title>{}</title>", Escaped(title))?;
    writeln!(f, r#"<rect width="100%" height="100%" fill="{PAPER}"/>"#)
}

/// Text as XML takes it: names come from files and the command line.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            character if character.is_control() => f.write_char(' '),
            character => f.write_char(character),
        })
    }
}
