//! The names in a figure: of rows, ranks, parts, tokens and heads; and its legend.

use super::canvas::{Canvas, width};
use super::row::{EDGES, Placed};
use super::view::View;
use super::{HEIGHT, LEFT, LINE, Level, PLAIN, SMALL, words};
use crate::args::Args;
use crate::sides::Role;
use rdma_collective::kv::layout::{Attention, HeadOrder};
use std::collections::BTreeSet;

/// Distance from a row to the names of its cells, of its parts and of its ranks: above the row, and below it.
const ABOVE: [f64; 3] = [-5.0, -19.0, -34.0];
const BELOW: [f64; 3] = [HEIGHT + 12.0, HEIGHT + 27.0, HEIGHT + 43.0];

impl Canvas {
    /// Names the rows, and all that is in the pools.
    pub(super) fn names(&mut self, args: &Args, view: &View, levels: &[Level; 4]) {
        let rows = [["prefill", ""], ["packed", "at prefill"], ["unpacked", "at decode"], ["decode", ""]];
        for (level, [first, second]) in levels.iter().zip(rows) {
            if level.strips.is_empty() {
                continue;
            }
            let (y, bold) = (level.top + HEIGHT / 2.0, second.is_empty());
            self.text([LEFT, y + if bold { 4.5 } else { -2.0 }], PLAIN, bold, first);
            if !bold {
                self.text([LEFT, y + 12.0], PLAIN, false, second);
            }
        }
        for (role, level, places) in [(Role::Prefill, &levels[0], ABOVE), (Role::Decode, &levels[3], BELOW)] {
            let numbers = view.sides[role as usize].iter().map(|pool| pool.rank);
            let ranks: Vec<_> = numbers.zip(level.strips.iter().map(|placed| placed.edges)).collect();
            let y = level.top + places[2];
            let fit = all_fit(ranks.iter().map(|(rank, edges)| (format!("rank {rank}"), *edges)));
            if !fit {
                self.text([LEFT, y], PLAIN, false, "rank");
            }
            for (rank, edges) in ranks {
                self.centred(edges, y, PLAIN, format!("{}{rank}", if fit { "rank " } else { "" }));
            }
            for placed in &level.strips {
                self.parts(args.model.attention, placed, level.top + places[1]);
            }
            self.cells(args.head_order.of(role).0, &level.strips, level.top + places[0]);
        }
    }

    /// Names keys and values, if the names have room.
    fn parts(&mut self, attention: Attention, placed: &Placed, y: f64) {
        let choices: &[[&str; 2]] = match attention {
            Attention::Grouped { .. } => &[["keys", "values"], ["K", "V"]],
            Attention::Latent { .. } => &[["latent vectors", ""], ["latent", ""]],
            Attention::Recurrent { .. } => &[["state", ""]],
        };
        let parts = placed.groups(|cell| cell.part as usize % 2);
        let fit = |names: &&[&str; 2]| all_fit(parts.iter().map(|(part, edges)| (names[*part], *edges)));
        if let Some(names) = choices.iter().find(fit) {
            parts.iter().for_each(|(part, edges)| self.centred(*edges, y, PLAIN, names[*part]));
        }
    }

    /// Names what goes first in memory, tokens or heads, as far as the names have room.
    fn cells(&mut self, order: HeadOrder, strips: &[Placed], y: f64) {
        let mut end = f64::MIN;
        for placed in strips {
            let groups = match order {
                HeadOrder::Nhd => placed.groups(|cell| (cell.part, cell.token)),
                HeadOrder::Hnd => placed.groups(|cell| (cell.part, cell.head)),
            };
            for ((_, key), edges) in groups {
                let words = format!("{}{key}", if order == HeadOrder::Nhd { 't' } else { 'h' });
                let (middle, half) = ((edges[0] + edges[1]) / 2.0, width(&words, SMALL) / 2.0);
                if middle - half >= end + 2.0 {
                    end = middle + half;
                    self.centred(edges, y, SMALL, words);
                }
            }
        }
    }

    /// Draws the legend and the words below it; returns the height of the figure.
    pub(super) fn legend(&mut self, args: &Args, view: &View, top: f64) -> f64 {
        let cells = view.sides.iter().flatten().flat_map(|pool| &pool.strip.cells);
        let numbers: BTreeSet<u32> = cells.map(|cell| cell.colour).collect();
        let by_head = args.model.attention.heads() > 1;
        let (mut x, mut y) = (LEFT, top);
        for number in numbers {
            let words = if by_head { format!("head {number}") } else { format!("prefill rank {number}") };
            let step = 18.0 + width(&words, PLAIN) + 16.0;
            if x + step > EDGES[1] {
                (x, y) = (LEFT, y + LINE);
            }
            self.cell([x, x + 13.0], [y - 10.5, y + 2.5], number, 1.0);
            self.text([x + 18.0, y], PLAIN, false, words);
            x += step;
        }
        y += 4.0;
        for line in words::caption(args, view) {
            y += LINE;
            self.text([LEFT, y], PLAIN, false, line);
        }
        y + LINE
    }
}

/// Whether each name fits between its edges.
fn all_fit<N: AsRef<str>>(mut names: impl Iterator<Item = (N, [f64; 2])>) -> bool {
    names.all(|(name, [left, right])| width(name.as_ref(), PLAIN) <= right - left)
}
