//! The figure of a plan: memory of prefill above, memory of decode below, and the plan's writes between them.
//!
//! [`view`] takes the part to draw from the plan, [`row`] gives each cell its place on the page, and this file draws.

mod canvas;
mod names;
mod row;
mod strip;
#[cfg(test)]
mod tests;
mod view;
mod words;

use crate::args::Args;
use crate::explain;
use crate::sides::Role;
use canvas::{Canvas, width};
use examples::chart::svg::begin;
use rdma_collective::kv::plan::{End, Write};
use row::Placed;
use std::fmt;
use strip::{Piece, Strip};
use view::{Sent, View};

const LEFT: f64 = 14.0;
/// Top of the first row, below the titles and the names of its cells.
const TOP: f64 = 116.0;
/// Height of a row.
const HEIGHT: f64 = 22.0;
/// Between two rows without staging memory, between a pool and staging memory, and between two staging memories.
const FAR: f64 = 150.0;
const COPY: f64 = 96.0;
const WIRE: f64 = 54.0;
const LINE: f64 = 18.0;
/// Sizes of fonts: of names of cells, and of all else.
const SMALL: f64 = 10.0;
const PLAIN: f64 = 12.0;

/// A drawn plan.
#[derive(Debug)]
pub struct Figure {
    title: String,
    height: f64,
    canvas: Canvas,
}

/// The whole SVG file.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        begin(f, self.height, &self.title)?;
        write!(f, "{}", self.canvas)?;
        writeln!(f, "</svg>")
    }
}

/// A row with the height of its top.
struct Level {
    top: f64,
    strips: Vec<Placed>,
}

/// A place that the bytes of a write pass.
struct Stop<'a> {
    top: f64,
    placed: &'a Placed,
    at: fn(&Piece) -> u64,
}

impl Figure {
    /// Draws the plan that the flags describe.
    ///
    /// # Errors
    ///
    /// The flags name layouts between which there is no plan.
    pub fn new(args: &Args) -> anyhow::Result<Self> {
        let view = View::new(args)?;
        let mut canvas = Canvas::default();
        let (request, layouts) = (explain::request(args), explain::layouts(args));
        canvas.text([LEFT, 30.0], 17.0, true, &request);
        canvas.text([LEFT, 52.0], 13.0, false, &layouts);
        let slots = slots(&view.writes);
        let levels = levels(&view, &slots);
        for (number, sent) in view.writes.iter().enumerate() {
            canvas.send(args, &view, sent, &stops(sent, number, &slots, &levels));
        }
        for level in &levels {
            level.strips.iter().for_each(|placed| canvas.strip(placed, level.top, view.tokens));
        }
        canvas.names(args, &view, &levels);
        let bottom = levels[3].top + HEIGHT + 72.0;
        let height = canvas.legend(args, &view, bottom);
        Ok(Self { title: format!("{request}, {layouts}"), height, canvas })
    }
}

/// Positions of the writes that pass staging memory of prefill, and of decode, in the order of the ranks.
fn slots(writes: &[Sent]) -> [Vec<usize>; 2] {
    let of = |end: fn(&Write) -> End, key: fn(&Sent) -> [usize; 3]| {
        let mut all: Vec<_> =
            writes.iter().enumerate().filter(|(_, sent)| end(&sent.write) == End::Staging).collect();
        all.sort_by_key(|(_, sent)| key(sent));
        all.into_iter().map(|(number, _)| number).collect()
    };
    [
        of(|write| write.source, |sent| [sent.from, sent.to, sent.number]),
        of(|write| write.destination, |sent| [sent.to, sent.from, sent.number]),
    ]
}

/// The rows from above: pools of prefill, staging memory of prefill and of decode, pools of decode.
fn levels(view: &View, slots: &[Vec<usize>; 2]) -> [Level; 4] {
    let pools = |side: usize| view.sides[side].iter().map(|pool| pool.strip.clone()).collect::<Vec<_>>();
    let staging = |slots: &[usize]| {
        let slot = |number: &usize| {
            let sent = &view.writes[*number];
            Strip::of_staging(&view.sides[0][sent.from].strip, &sent.pieces, sent.write.len)
        };
        slots.iter().map(slot).collect::<Vec<_>>()
    };
    let rows = [pools(0), staging(&slots[0]), staging(&slots[1]), pools(1)];
    let width = row::cell_width(&rows);
    let packs = [!slots[0].is_empty(), !slots[1].is_empty()];
    let first = TOP + HEIGHT + if packs[0] { COPY } else { 0.0 };
    let second = match packs {
        [true, true] => first + HEIGHT + WIRE,
        [false, true] => TOP + HEIGHT + COPY,
        _ => first,
    };
    let last = match packs {
        [_, true] => second + HEIGHT + COPY,
        [true, false] => first + HEIGHT + COPY,
        [false, false] => TOP + HEIGHT + FAR,
    };
    let mut tops = [TOP, first, second, last].into_iter();
    rows.map(|strips| Level { top: tops.next().unwrap_or(last), strips: row::place(strips, width) })
}

/// The places that the bytes of a write pass, from above.
fn stops<'a>(
    sent: &Sent,
    number: usize,
    slots: &[Vec<usize>; 2],
    levels: &'a [Level; 4],
) -> Vec<(Role, Stop<'a>)> {
    let slot = |side: usize| slots[side].iter().position(|slot| *slot == number);
    let stop = |role: Role, level: usize, at: Option<usize>, of: fn(&Piece) -> u64| {
        let Level { top, strips } = &levels[level];
        at.and_then(|at| strips.get(at)).map(|placed| (role, Stop { top: *top, placed, at: of }))
    };
    let all = [
        stop(Role::Prefill, 0, Some(sent.from), |piece| piece.source),
        stop(Role::Prefill, 1, slot(0), |piece| piece.staged),
        stop(Role::Decode, 2, slot(1), |piece| piece.staged),
        stop(Role::Decode, 3, Some(sent.to), |piece| piece.destination),
    ];
    all.into_iter().flatten().collect()
}

impl Canvas {
    /// Draws a write: its pieces between all places that they pass, and its outline where it is on the wire.
    fn send(&mut self, args: &Args, view: &View, sent: &Sent, stops: &[(Role, Stop<'_>)]) {
        let pool = &view.sides[0][sent.from].strip;
        for pair in stops.windows(2) {
            let [(one, above), (next, below)] = pair else { continue };
            let heights = [above.top + HEIGHT, below.top];
            let edges = |start: [u64; 2], len: u64| {
                let [above, below] = [(above, start[0]), (below, start[1])]
                    .map(|(stop, start)| stop.placed.span(&(start..start + len)));
                Some([above?, below?])
            };
            for piece in &sent.pieces {
                for (colour, from, len) in by_colour(pool, piece) {
                    let start = [(above.at)(piece) + from, (below.at)(piece) + from];
                    if let Some(edges) = edges(start, len) {
                        self.band(edges, heights, colour);
                    }
                }
            }
            if one == next {
                continue;
            }
            // The pieces of a write follow each other at both ends of the wire.
            let reach = |stop: &Stop<'_>| {
                let starts = sent.pieces.iter().map(|piece| (stop.at)(piece));
                let ends = sent.pieces.iter().map(|piece| (stop.at)(piece) + piece.len);
                stop.placed.span(&(starts.min()?..ends.max()?))
            };
            if let (Some(from), Some(to)) = (reach(above), reach(below)) {
                let long = format!("{}: {}", name(args, sent), words::size(sent.write.len));
                self.frame([from, to], heights, &long);
                if stops.len() > 2 {
                    let middle = [(from[0] + to[0]) / 2.0, (from[1] + to[1]) / 2.0];
                    self.fitting(
                        middle,
                        (heights[0] + heights[1]) / 2.0 + 4.0,
                        &[&long[..], &words::size(sent.write.len)],
                    );
                }
            }
        }
    }

    /// Writes the first of some texts that fits between two edges.
    fn fitting(&mut self, [left, right]: [f64; 2], y: f64, choices: &[&str]) {
        let choice = choices.iter().find(|words| width(words, PLAIN) <= right - left);
        if let Some(words) = choice {
            self.centred([left, right], y, PLAIN, *words);
        }
    }

    /// Draws memory: its cells, and dots for bytes that are left out.
    fn strip(&mut self, placed: &Placed, top: f64, tokens: u32) {
        let heights = [top, top + HEIGHT];
        for (cell, edges) in placed.cells_with_edges() {
            let strength = 1.0 - 0.6 * f64::from(cell.token) / f64::from(tokens.max(2) - 1);
            self.cell(edges, heights, cell.colour, strength);
        }
        placed.stretches().into_iter().for_each(|edges| self.outline(edges, heights));
        placed.gaps().into_iter().for_each(|x| self.dots(x, top + HEIGHT / 2.0));
    }
}

/// The parts of a piece that are drawn, by colour: the colour, the first byte within the piece, and the bytes.
fn by_colour(pool: &Strip, piece: &Piece) -> Vec<(u32, u64, u64)> {
    let mut parts: Vec<(u32, u64, u64)> = Vec::new();
    for (cell, bytes) in pool.within(piece.source..piece.source + piece.len) {
        let (from, len) = (bytes.start - piece.source, bytes.end - bytes.start);
        match parts.last_mut().filter(|(colour, start, len)| *colour == cell.colour && start + len == from) {
            Some((_, _, all)) => *all += len,
            None => parts.push((cell.colour, from, len)),
        }
    }
    parts
}

/// The name of a write among those between its two ranks.
fn name(args: &Args, sent: &Sent) -> String {
    format!("{} {}", if args.pull { "read" } else { "write" }, sent.number)
}
