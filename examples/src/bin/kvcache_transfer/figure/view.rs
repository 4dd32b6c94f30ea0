//! The part of a plan that a figure shows: the first block in the first layer, as far as a reader can tell its cells
//! apart. No coordinates.

use super::strip::{Cell, Piece, Strip};
use crate::args::Args;
use crate::explain::plan;
use crate::presets::{blocks_of, layout};
use crate::sides::{Rank, Role};
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::plan::{Run, Write};
use std::ops::Range;

/// Cells of a row: 11 pixels remain for each.
const CELLS_MAX: u32 = 64;
/// Ranks of a row.
const RANKS_MAX: usize = 16;

/// A rank's pool.
#[derive(Debug)]
pub struct Pool {
    /// Tensor-parallel rank.
    pub rank: u32,
    /// The block.
    pub strip: Strip,
}

/// A write that has bytes of the drawn cells.
#[derive(Debug)]
pub struct Sent {
    /// Position of the source among the drawn ranks of prefill.
    pub from: usize,
    /// Position of the destination among the drawn ranks of decode.
    pub to: usize,
    /// Number among the writes between these two ranks, from 1.
    pub number: usize,
    /// The write.
    pub write: Write,
    /// Pieces that have bytes of the drawn cells.
    pub pieces: Vec<Piece>,
}

/// The part of a plan that is drawn.
#[derive(Debug)]
pub struct View {
    /// Pools of prefill and of decode.
    pub sides: [Vec<Pool>; 2],
    /// Writes between them.
    pub writes: Vec<Sent>,
    /// Tokens of the block that are drawn, from the first.
    pub tokens: u32,
    /// Pieces of the block between the drawn ranks, with those that are left out.
    pub pieces: usize,
}

impl View {
    /// Makes the plan that the flags describe, and takes the part to draw from it.
    ///
    /// # Errors
    ///
    /// The flags name layouts between which there is no plan.
    pub fn new(args: &Args) -> anyhow::Result<Self> {
        let [prefill, decode] = ranks(args)?;
        let blocks = blocks_of(args.prompt, args.block);
        let per_token = cells(args, &prefill)?.max(cells(args, &decode)?);
        let tokens = (CELLS_MAX / per_token.max(1)).clamp(1, args.block.max(1));
        let layouts = |ranks: &[Rank]| -> anyhow::Result<Vec<Layout>> {
            ranks.iter().map(|rank| layout(args, *rank, blocks)).collect()
        };
        let layouts = [layouts(&prefill)?, layouts(&decode)?];
        let pools = |ranks: &[Rank], layouts: &[Layout]| -> anyhow::Result<Vec<Pool>> {
            let pool = |(rank, layout): (&Rank, &Layout)| {
                Ok(Pool { rank: rank.number, strip: Strip::of_pool(layout, tokens)? })
            };
            ranks.iter().zip(layouts).map(pool).collect()
        };
        let sides = [pools(&prefill, &layouts[0])?, pools(&decode, &layouts[1])?];
        let mut view = Self { sides, writes: Vec::new(), tokens, pieces: 0 };
        for (to, rank) in decode.iter().enumerate() {
            let heard = rank.peers(args)?;
            for (from, source) in layouts[0].iter().enumerate() {
                if prefill.get(from).is_some_and(|rank| heard.contains(&rank.number)) {
                    let block = block(&layouts[1][to])?;
                    let plan = plan(args, source, &layouts[1][to], blocks)?;
                    view.take([from, to], &block, plan.writes());
                }
            }
        }
        if args.model.attention.heads() == 1 {
            view.colour_by_rank();
        }
        Ok(view)
    }

    /// Gives cells the colour of the rank of prefill that they come from.
    fn colour_by_rank(&mut self) {
        let [prefill, decode] = &mut self.sides;
        for pool in prefill.iter_mut() {
            pool.strip.cells.iter_mut().for_each(|cell| cell.colour = pool.rank);
        }
        for Sent { from, to, pieces, .. } in &self.writes {
            let brought = |cell: &Cell| {
                pieces.iter().any(|piece| {
                    (piece.destination..piece.destination + piece.len).contains(&cell.bytes.start)
                })
            };
            for cell in decode[*to].strip.cells.iter_mut().filter(|cell| brought(cell)) {
                cell.colour = prefill[*from].rank;
            }
        }
    }

    /// Takes the writes that have bytes of the block from a plan between two ranks.
    fn take(
        &mut self,
        [from, to]: [usize; 2],
        block: &[Range<u64>],
        writes: impl Iterator<Item = (Write, Vec<Run>)>,
    ) {
        let overlaps = |start: u64, end: u64| block.iter().any(|part| start < part.end && part.start < end);
        for (number, (write, runs)) in (1..).zip(writes) {
            let mut pieces = Vec::new();
            let mut staged = 0;
            for run in runs {
                let end = run.destination + u64::from(run.count - 1) * run.destination_step + run.len;
                if overlaps(run.destination, end) {
                    for (at, (source, destination, len)) in (0..).zip(run.pieces()) {
                        pieces.push(Piece { source, destination, staged: staged + at * run.len, len });
                    }
                }
                staged += run.bytes();
            }
            pieces.retain(|piece| overlaps(piece.destination, piece.destination + piece.len));
            self.pieces += pieces.len();
            let pool = &self.sides[1][to].strip;
            pieces.retain(|piece| {
                pool.within(piece.destination..piece.destination + piece.len).next().is_some()
            });
            if !pieces.is_empty() {
                self.writes.push(Sent { from, to, number, write, pieces });
            }
        }
    }
}

/// The ranges of the first block in the first layer.
fn block(layout: &Layout) -> anyhow::Result<Vec<Range<u64>>> {
    Ok(layout.extents(0, 0)?.map(|extent| extent.offset..extent.offset + extent.len).collect())
}

/// Cells of a token at all these ranks together.
fn cells(args: &Args, ranks: &[Rank]) -> anyhow::Result<u32> {
    ranks.iter().try_fold(0, |cells, rank| {
        let heads = rank.of(args).heads(args.model.attention)?;
        Ok(cells + args.model.attention.parts() * (heads.end - heads.start))
    })
}

/// The first ranks of decode that have room, and the ranks of prefill that they hear. If all have room, those of
/// prefill that nobody hears, too.
fn ranks(args: &Args) -> anyhow::Result<[Vec<Rank>; 2]> {
    let has_room = |ranks: &[Rank]| -> anyhow::Result<bool> {
        Ok(ranks.len() <= RANKS_MAX && cells(args, ranks)? <= CELLS_MAX)
    };
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for rank in args.ranks(Role::Decode) {
        let (mut sources, mut destinations) = (prefill.clone(), decode.clone());
        destinations.push(rank);
        for number in rank.peers(args)? {
            let source = Rank { role: Role::Prefill, number };
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        let fits = has_room(&sources)? && has_room(&destinations)?;
        if !fits && !decode.is_empty() {
            prefill.sort_by_key(|rank: &Rank| rank.number);
            return Ok([prefill, decode]);
        }
        (prefill, decode) = (sources, destinations);
    }
    prefill.sort_by_key(|rank| rank.number);
    let all: Vec<Rank> = args.ranks(Role::Prefill).collect();
    Ok([if has_room(&all)? { all } else { prefill }, decode])
}
