//! Rows: strips side by side, each cell with its place on the page.

use super::strip::{Cell, Strip};
use std::ops::Range;

/// Left and right edge of all rows. The names of the rows are left of them.
pub const EDGES: [f64; 2] = [108.0, 846.0];
/// Between two strips.
const BETWEEN: f64 = 18.0;
/// Width of the place of bytes that are left out.
pub const GAP: f64 = 11.0;
/// Widest cell.
const CELL_MAX: f64 = 26.0;

/// A strip on the page.
#[derive(Debug)]
pub struct Placed {
    /// Cells, from left to right.
    pub strip: Strip,
    /// Left edge of each cell.
    lefts: Vec<f64>,
    width: f64,
    /// Left and right edge.
    pub edges: [f64; 2],
}

/// The width of a cell with which all rows fit.
pub fn cell_width(rows: &[Vec<Strip>]) -> f64 {
    let width = |row: &Vec<Strip>| {
        let cells: usize = row.iter().map(|strip| strip.cells.len()).sum();
        (EDGES[1] - EDGES[0] - unused(row)) / cells.max(1) as f64
    };
    rows.iter().map(width).fold(CELL_MAX, f64::min)
}

/// Width of a row that its cells do not have.
fn unused(row: &[Strip]) -> f64 {
    let gaps: usize = row.iter().map(Strip::gaps).sum();
    gaps as f64 * GAP + row.len().saturating_sub(1) as f64 * BETWEEN
}

/// Places strips side by side, in the middle between the edges.
pub fn place(row: Vec<Strip>, width: f64) -> Vec<Placed> {
    let cells: usize = row.iter().map(|strip| strip.cells.len()).sum();
    let mut x = (EDGES[0] + EDGES[1] - unused(&row) - cells as f64 * width) / 2.0;
    let place = |strip: Strip| {
        let left = x;
        let mut lefts = Vec::new();
        for at in 0..=strip.cells.len() {
            x += if strip.has_gap(at) { GAP } else { 0.0 };
            if at < strip.cells.len() {
                lefts.push(x);
                x += width;
            }
        }
        let edges = [left, x];
        x += BETWEEN;
        Placed { strip, lefts, width, edges }
    };
    row.into_iter().map(place).collect()
}

impl Placed {
    /// Left and right edge of the cells' part in a range of bytes; `None` where the range has bytes of no cell.
    pub fn span(&self, range: &Range<u64>) -> Option<[f64; 2]> {
        let mut cells = self.cells_with_edges().filter_map(|(cell, [left, right])| {
            let cell = &cell.bytes;
            let both = range.start.max(cell.start)..range.end.min(cell.end);
            let part = |byte: u64| (byte - cell.start) as f64 / (cell.end - cell.start) as f64;
            let x = |byte: u64| left + part(byte) * (right - left);
            (!both.is_empty()).then(|| [x(both.start), x(both.end)])
        });
        let first = cells.next()?;
        Some([first[0], cells.last().unwrap_or(first)[1]])
    }

    /// Each cell with its left and right edge.
    pub fn cells_with_edges(&self) -> impl Iterator<Item = (&Cell, [f64; 2])> {
        self.strip.cells.iter().zip(&self.lefts).map(|(cell, left)| (cell, [*left, left + self.width]))
    }

    /// Position and left edge of each cell.
    fn cells(&self) -> impl Iterator<Item = (usize, f64)> {
        self.lefts.iter().copied().enumerate()
    }

    /// Left and right edge of each stretch of cells without a gap.
    pub fn stretches(&self) -> Vec<[f64; 2]> {
        let mut stretches: Vec<[f64; 2]> = Vec::new();
        for (at, left) in self.cells() {
            match stretches.last_mut().filter(|_| !self.strip.has_gap(at)) {
                Some(last) => last[1] = left + self.width,
                None => stretches.push([left, left + self.width]),
            }
        }
        stretches
    }

    /// Middle of each gap.
    pub fn gaps(&self) -> Vec<f64> {
        let cells = self.cells().filter(|(at, _)| self.strip.has_gap(*at)).map(|(_, left)| left - GAP / 2.0);
        let last = self.strip.has_gap(self.strip.cells.len()).then_some(self.edges[1] - GAP / 2.0);
        cells.chain(last).collect()
    }

    /// Cells with the same key that follow each other: the key, and their left and right edge.
    pub fn groups<K: PartialEq>(&self, key: impl Fn(&Cell) -> K) -> Vec<(K, [f64; 2])> {
        let mut groups: Vec<(K, [f64; 2])> = Vec::new();
        for (cell, [left, right]) in self.cells_with_edges() {
            let key = key(cell);
            match groups.last_mut().filter(|(last, _)| *last == key) {
                Some((_, edges)) => edges[1] = right,
                None => groups.push((key, [left, right])),
            }
        }
        groups
    }
}
