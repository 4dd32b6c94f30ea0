//! Strips: memory as cells, in the order in which it has them. No coordinates.

use rdma_collective::kv::layout::{HeadOrder, Layout};
use std::ops::Range;

/// A head of a token in a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Place in bytes from the start of the pool or of the staging memory.
    pub bytes: Range<u64>,
    /// Key or value, from 0.
    pub part: u32,
    /// Token of the block, from 0.
    pub token: u32,
    /// Head of the model, from 0.
    pub head: u32,
    /// Number of its colour: the head, or the rank of prefill that has it where the model has one head.
    pub colour: u32,
}

/// A piece of a plan: adjacent at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the source pool.
    pub source: u64,
    /// Offset in the destination pool.
    pub destination: u64,
    /// Offset in the write, and so in staging memory.
    pub staged: u64,
    /// Bytes.
    pub len: u64,
}

/// Some memory, and the cells in it that are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strip {
    /// The memory.
    pub bytes: Range<u64>,
    /// The cells, in the order of the memory.
    pub cells: Vec<Cell>,
}

impl Strip {
    /// The first block in the first layer of a pool, with the cells of its first tokens.
    ///
    /// # Errors
    ///
    /// A layout without a block.
    pub fn of_pool(layout: &Layout, tokens: u32) -> anyhow::Result<Self> {
        let shape = layout.shape();
        let heads = shape.tensor_parallel.heads(shape.attention)?;
        let len = u64::from(shape.attention.elements()) * u64::from(shape.cache_type.size());
        let (all, held) = (u64::from(shape.block_tokens), u64::from(heads.end - heads.start));
        let extents: Vec<_> = layout.extents(0, 0)?.collect();
        // The place in the pool of a byte of the block, which may lie in several tensors.
        let place = |mut byte: u64| {
            let extent = extents.iter().find(|extent| {
                let here = byte < extent.len;
                byte -= if here { 0 } else { extent.len };
                here
            });
            extent.map_or(0, |extent| extent.offset + byte)
        };
        let cell = |part: u32, token: u32, head: u32| {
            let own = u64::from(head - heads.start);
            let within = match shape.head_order {
                HeadOrder::Nhd => u64::from(token) * held + own,
                HeadOrder::Hnd => own * all + u64::from(token),
            };
            let start = place((u64::from(part) * all * held + within) * len);
            Cell { bytes: start..start + len, part, token, head, colour: head }
        };
        let each = (0..shape.attention.parts()).flat_map(|part| {
            let heads = heads.clone();
            (0..tokens.min(shape.block_tokens))
                .flat_map(move |token| heads.clone().map(move |head| (part, token, head)))
        });
        let mut cells: Vec<Cell> = each.map(|(part, token, head)| cell(part, token, head)).collect();
        cells.sort_by_key(|cell| cell.bytes.start);
        let start = extents.iter().map(|extent| extent.offset).min().unwrap_or(0);
        let end = extents.iter().map(|extent| extent.offset + extent.len).max().unwrap_or(0);
        Ok(Self { bytes: start..end, cells })
    }

    /// Staging memory of a write of `len` bytes, with the cells of `pool` that the pieces bring.
    pub fn of_staging(pool: &Self, pieces: &[Piece], len: u64) -> Self {
        let staged = |piece: &Piece| {
            let (from, to) = (piece.source, piece.staged);
            let moved = |(cell, bytes): (&Cell, Range<u64>)| {
                let bytes = bytes.start - from + to..bytes.end - from + to;
                Cell { bytes, ..cell.clone() }
            };
            pool.within(from..from + piece.len).map(moved).collect::<Vec<_>>()
        };
        Self { bytes: 0..len, cells: pieces.iter().flat_map(staged).collect() }
    }

    /// The cells that have bytes of a range, each with these bytes.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (&Cell, Range<u64>)> {
        let both = move |cell: &Cell| cell.bytes.start.max(range.start)..cell.bytes.end.min(range.end);
        self.cells.iter().map(move |cell| (cell, both(cell))).filter(|(_, bytes)| !bytes.is_empty())
    }

    /// Whether bytes before the cell at this position are left out; behind the last cell, whether bytes follow it.
    pub fn has_gap(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|at| self.cells.get(at));
        let before = before.map_or(self.bytes.start, |cell| cell.bytes.end);
        before != self.cells.get(at).map_or(self.bytes.end, |cell| cell.bytes.start)
    }

    /// Number of its gaps.
    pub fn gaps(&self) -> usize {
        (0..=self.cells.len()).filter(|at| self.has_gap(*at)).count()
    }
}
