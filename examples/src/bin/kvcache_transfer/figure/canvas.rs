//! Shapes and texts of a figure, with their coordinates.

use examples::chart::svg::{Escaped, INK, PAPER};
use std::fmt;

/// Colours of heads, or of ranks, which people who see fewer colours tell apart, too.
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8A7F00", "#6B6B6B"];
/// Average width of a character, as a part of the font's size. Fonts differ, so this one is wide.
const CHARACTER: f64 = 0.56;

/// A text and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Where it begins; its middle if it is centred.
    pub x: f64,
    /// Where its letters stand.
    pub y: f64,
    /// Size of the font.
    pub size: f64,
    /// Whether `x` is its middle.
    pub centred: bool,
    /// Whether it is bold.
    pub bold: bool,
    /// Words.
    pub words: String,
}

/// The shapes in the order in which they are drawn, then the texts.
#[derive(Debug, Default)]
pub struct Canvas {
    /// A line of the file for each shape.
    pub shapes: Vec<String>,
    /// All texts.
    pub texts: Vec<Text>,
}

/// The colour of a number.
fn colour(number: u32) -> &'static str {
    COLOURS[number as usize % COLOURS.len()]
}

/// The width that a text is expected to have.
pub fn width(words: &str, size: f64) -> f64 {
    words.chars().count() as f64 * size * CHARACTER
}

impl Canvas {
    /// Writes from this place on.
    pub fn text(&mut self, [x, y]: [f64; 2], size: f64, bold: bool, words: impl Into<String>) {
        self.texts.push(Text { x, y, size, centred: false, bold, words: words.into() });
    }

    /// Writes in the middle between two edges, at `y`.
    pub fn centred(&mut self, [left, right]: [f64; 2], y: f64, size: f64, words: impl Into<String>) {
        let x = (left + right) / 2.0;
        self.texts.push(Text { x, y, size, centred: true, bold: false, words: words.into() });
    }

    /// Draws a cell; the strength of its colour is 0 to 1.
    pub fn cell(&mut self, [left, right]: [f64; 2], [top, bottom]: [f64; 2], number: u32, strength: f64) {
        self.shapes.push(format!(
            r#"<rect x="{left:.1}" y="{top}" width="{:.1}" height="{}" fill="{}" fill-opacity="{strength:.2}" stroke="{PAPER}" stroke-width="0.6"/>"#,
            right - left,
            bottom - top,
            colour(number)
        ));
    }

    /// Draws a box without a filling.
    pub fn outline(&mut self, [left, right]: [f64; 2], [top, bottom]: [f64; 2]) {
        self.shapes.push(format!(
            r#"<rect x="{left:.1}" y="{top}" width="{:.1}" height="{}" fill="none" stroke="{INK}"/>"#,
            right - left,
            bottom - top
        ));
    }

    /// Draws three dots around this place.
    pub fn dots(&mut self, x: f64, y: f64) {
        self.shapes.push(format!(
            r#"<path d="M{:.1} {y}h.01m3 0h.01m3 0h.01" stroke="{INK}" stroke-width="1.6" stroke-linecap="round"/>"#,
            x - 3.0
        ));
    }

    /// Draws a band of a number's colour, from edges at `top` to edges at `bottom`.
    pub fn band(&mut self, edges: [[f64; 2]; 2], heights: [f64; 2], number: u32) {
        let path = path(edges, heights);
        self.shapes.push(format!(r#"<path d="{path}" fill="{}" fill-opacity="0.42"/>"#, colour(number)));
    }

    /// Draws the outline of a band, with words for whoever points at it.
    pub fn frame(&mut self, edges: [[f64; 2]; 2], heights: [f64; 2], words: &str) {
        let path = path(edges, heights);
        self.shapes.push(format!(
            r#"<path d="{path}" fill="none" pointer-events="all" stroke="{INK}" stroke-width="0.9"><title>{}</title></path>"#,
            Escaped(words)
        ));
    }
}

/// The outline of a band, whose sides leave both rows at right angles.
fn path([[a, b], [c, d]]: [[f64; 2]; 2], [top, bottom]: [f64; 2]) -> String {
    let middle = (top + bottom) / 2.0;
    format!(
        "M{a:.1} {top}C{a:.1} {middle} {c:.1} {middle} {c:.1} {bottom}H{d:.1}C{d:.1} {middle} {b:.1} {middle} {b:.1} {top}Z"
    )
}

impl fmt::Display for Canvas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shapes.iter().try_for_each(|shape| writeln!(f, "{shape}"))?;
        self.texts.iter().try_for_each(|text| {
            let anchor = if text.centred { r#" text-anchor="middle""# } else { "" };
            let weight = if text.bold { r#" font-weight="600""# } else { "" };
            let Text { x, y, size, words, .. } = text;
            // The halo keeps words legible where a line runs behind them.
            writeln!(
                f,
                r#"<text x="{x:.1}" y="{y}" font-size="{size}"{anchor}{weight} stroke="{PAPER}" stroke-width="3" paint-order="stroke">{}</text>"#,
                Escaped(words)
            )
        })
    }
}
