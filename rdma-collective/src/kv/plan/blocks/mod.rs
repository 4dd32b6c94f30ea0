//! The plan of a request: pairs of blocks, checked once, expanded layer by layer without being stored.

use std::ops::Range;
use std::sync::Arc;

use super::coalesce::Merge;
use super::{Wanted, WriteDescriptor};
use crate::kv::layout::Side;
use crate::kv::layout::{Layout, Order};
use crate::kv::plan::PlanError;

/// A block of the source pool and the block of the destination pool that it is written to, in all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPair {
    /// The block that is read.
    pub source: u32,
    /// The block that is written.
    pub destination: u32,
}

/// The blocks of one request, in the order of the source pool's memory.
///
/// A plan keeps the pairs alone, 8 bytes each: descriptors are made as they are taken. Both sides of a transfer
/// make the same ones from the same layouts, pairs and bound, and so agree on how many there are.
#[derive(Clone, Debug)]
pub struct BlockPlan {
    source: Layout,
    destination: Layout,
    pairs: Vec<BlockPair>,
    write_bytes_max: u32,
    /// Whether no write has bytes of two layers, and writes come layer by layer.
    by_layer: bool,
    /// Wanted pairs, by layer and then in the order of `pairs`; absent when all are wanted.
    wanted: Option<Box<[bool]>>,
}

/// Options of a plan: its order, and a subset of the blocks.
#[derive(Clone, Copy, Debug)]
pub(in crate::kv) struct PlanOptions<'a> {
    pub(in crate::kv) by_layer: bool,
    /// The wanted blocks, by position in the request; all when absent.
    pub(in crate::kv) wanted: Option<&'a Wanted>,
}

impl BlockPlan {
    /// Checks the request and sorts it. No write is longer than `write_bytes_max`.
    ///
    /// # Errors
    /// [`PlanError`] when there are no pairs, a block is out of range or given twice, the layouts do not match or the
    /// bound is 0.
    pub fn new(
        source: Layout,
        destination: Layout,
        pairs: &[BlockPair],
        write_bytes_max: u32,
    ) -> Result<Self, PlanError> {
        source.shape().check_same(destination.shape())?;
        if write_bytes_max == 0 {
            return Err(PlanError::BoundZero);
        }
        if pairs.is_empty() {
            return Err(PlanError::NoBlocks);
        }
        let mut pairs = pairs.to_vec();
        pairs.sort_unstable_by_key(|pair| pair.destination);
        check_blocks(Side::Destination, pairs.iter().map(|pair| pair.destination), &destination)?;
        pairs.sort_unstable_by_key(|pair| pair.source);
        check_blocks(Side::Source, pairs.iter().map(|pair| pair.source), &source)?;
        Ok(Self { source, destination, pairs, write_bytes_max, by_layer: false, wanted: None })
    }

    /// Plans like [`new`](Self::new), but layer by layer, or for some blocks alone.
    pub(in crate::kv) fn of_parts(
        layouts: (Layout, Layout),
        pairs: &[BlockPair],
        write_bytes_max: u32,
        parts: PlanOptions<'_>,
    ) -> Result<Self, PlanError> {
        let mut plan = Self::new(layouts.0, layouts.1, pairs, write_bytes_max)?;
        plan.by_layer = parts.by_layer;
        if let Some(wanted) = parts.wanted {
            let mut places: Vec<_> = (0_u32..).zip(pairs).map(|(at, pair)| (pair.source, at)).collect();
            // The order of the plan's pairs, since no source block is given twice.
            places.sort_unstable();
            let layers = 0..plan.source.shape().layers;
            let wanted = layers.flat_map(|layer| places.iter().map(move |(_, at)| wanted.has(layer, *at)));
            plan.wanted = Some(wanted.collect());
        }
        Ok(plan)
    }

    /// The writes of all layers, with the plan, for whoever takes them over time.
    pub(crate) fn into_descriptors(self: Arc<Self>) -> Descriptors {
        let layers = self.source.shape().layers;
        let first = if self.by_layer { 1.min(layers) } else { layers };
        let writes = Ranges::of(&self, 0..first).merged();
        Descriptors { plan: self, writes, layers: first..layers }
    }

    /// Counts the writes, and for each layer the writes up to its end. Counting stops at `max` + 1, because a
    /// transfer with more is refused anyway.
    pub(in crate::kv) fn count(self: &Arc<Self>, max: u32) -> (u32, Vec<u32>) {
        let most = max as usize + 1;
        if !self.by_layer {
            return (Arc::clone(self).into_descriptors().take(most).count() as u32, Vec::new());
        }
        let mut total = 0;
        let layers = 0..self.source.shape().layers;
        let ends = layers.map(|layer| {
            let left = most - total as usize;
            total += Ranges::of(self, layer..layer + 1).merged().take(left).count() as u32;
            total
        });
        let ends = ends.collect();
        (total, ends)
    }
}

/// An iterator over the descriptors of a plan, which it keeps alive.
#[derive(Debug)]
pub(crate) struct Descriptors {
    plan: Arc<BlockPlan>,
    writes: Merge<Ranges>,
    /// Layers after the one that `writes` yields.
    layers: Range<u32>,
}

impl Iterator for Descriptors {
    type Item = WriteDescriptor;

    fn next(&mut self) -> Option<WriteDescriptor> {
        loop {
            if let Some(write) = self.writes.next() {
                return Some(write);
            }
            let layer = self.layers.next()?;
            self.writes = Ranges::of(&self.plan, layer..layer + 1).merged();
        }
    }
}

/// Ranges of a plan, by number: one range for each layer, piece and pair, in the order of the source's memory.
#[derive(Debug)]
struct Ranges {
    plan: Arc<BlockPlan>,
    next: u64,
    end: u64,
}

impl Ranges {
    /// The ranges of some layers. Pass all layers when the plan does not go layer by layer, because their numbers are
    /// not contiguous then.
    fn of(plan: &Arc<BlockPlan>, layers: Range<u32>) -> Self {
        let each = u64::from(plan.source.pieces()) * plan.pairs.len() as u64;
        Self {
            plan: Arc::clone(plan),
            next: u64::from(layers.start) * each,
            end: u64::from(layers.end) * each,
        }
    }

    fn merged(self) -> Merge<Self> {
        let bound = self.plan.write_bytes_max;
        Merge::new(self, bound)
    }
}

impl Iterator for Ranges {
    type Item = WriteDescriptor;

    fn next(&mut self) -> Option<WriteDescriptor> {
        let plan = &*self.plan;
        let (layers, pieces) = (u64::from(plan.source.shape().layers), u64::from(plan.source.pieces()));
        let pairs = plan.pairs.len() as u64;
        while self.next < self.end {
            let number = self.next;
            self.next += 1;
            let (layer, piece, pair) = match plan.source.shape().order {
                Order::BlockLayerPart if !plan.by_layer => (number % layers, 0, number / layers),
                _ => (number / (pairs * pieces), number / pairs % pieces, number % pairs),
            };
            if let Some(wanted) = &plan.wanted
                && !wanted.get((layer * pairs + pair) as usize).is_some_and(|wanted| *wanted)
            {
                continue;
            }
            // Each index is below a dimension of the layout, which has 32 bits.
            let (layer, piece, pair) = (layer as u32, piece as u32, plan.pairs.get(pair as usize)?);
            let from = plan.source.extent(layer, piece, pair.source);
            let to = plan.destination.extent(layer, piece, pair.destination);
            return Some(WriteDescriptor {
                offset_local: from.offset,
                offset_remote: to.offset,
                len: from.len,
            });
        }
        None
    }
}

/// Fails if one of the sorted `blocks` is out of range or repeated.
fn check_blocks(
    side: Side,
    blocks: impl Iterator<Item = u32> + Clone,
    layout: &Layout,
) -> Result<(), PlanError> {
    let count = layout.shape().blocks;
    if let Some(block) = blocks.clone().find(|block| *block >= count) {
        return Err(PlanError::BlockOutOfRange { side, block, blocks: count });
    }
    if let Some((block, _)) = blocks.clone().zip(blocks.skip(1)).find(|(block, next)| block == next) {
        return Err(PlanError::BlockRepeated { side, block });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
