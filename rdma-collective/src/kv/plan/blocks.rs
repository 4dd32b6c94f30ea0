//! The plan of a request: pairs of blocks, checked once, expanded layer by layer without being stored.

use std::ops::Range;
use std::sync::Arc;

use super::WriteDescriptor;
use super::coalesce::Merge;
use crate::error::{LayoutError, PlanError, Side};
use crate::kv::layout::{Layout, Order};

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
/// It keeps the pairs alone, 8 bytes each: descriptors are made as they are taken. Both sides of a transfer
/// make the same ones from the same layouts, pairs and bound, and so agree on how many there are.
///
/// ```
/// use rdma_collective::kv::layout::{Layout, Model, Order};
/// use rdma_collective::kv::plan::{BlockPair, BlockPlan};
///
/// let layout = Layout::new(Model::DEEPSEEK_V3.shape(64, 100, Order::LayerBlockPart))?;
/// let pairs = [(7, 50), (8, 51), (30, 2)].map(|(source, destination)| BlockPair { source, destination });
/// let plan = BlockPlan::new(layout, layout, &pairs, 1 << 20)?;
/// // In each of 61 layers, blocks 7 and 8 are adjacent on both sides.
/// assert_eq!(plan.descriptors().count(), 61 * 2);
/// assert_eq!(plan.bytes(), 3 * 64 * 70272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockPlan {
    source: Layout,
    destination: Layout,
    pairs: Vec<BlockPair>,
    write_bytes_max: u32,
}

impl BlockPlan {
    /// Checks the request and sorts it. No write is longer than `write_bytes_max`.
    ///
    /// # Errors
    /// [`PlanError`] when there are no pairs, a block is out of range or given twice, the layouts do not match or
    /// the bound is 0. Nothing of what is asked for is left out in silence.
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
        Ok(Self { source, destination, pairs, write_bytes_max })
    }

    /// The writes of all layers, adjacent ones merged.
    pub fn descriptors(&self) -> impl Iterator<Item = WriteDescriptor> + '_ {
        self.merged(0..self.source.shape().layers)
    }

    /// The writes of all layers, with the plan, for whoever takes them over time.
    pub(in crate::kv) fn into_descriptors(self: Arc<Self>) -> Descriptors {
        let pieces = u64::from(self.source.shape().layers) * u64::from(self.source.pieces());
        let end = pieces * self.pairs.len() as u64;
        let bound = self.write_bytes_max;
        Descriptors(Merge::new(Ranges { plan: self, next: 0, end }, bound))
    }

    /// The writes of one layer, for a model that announces layers as it computes them.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchLayer`] when there is no such layer.
    pub fn layer(&self, layer: u32) -> Result<impl Iterator<Item = WriteDescriptor> + '_, LayoutError> {
        let layers = self.source.shape().layers;
        if layer >= layers {
            return Err(LayoutError::NoSuchLayer { layer, layers });
        }
        Ok(self.merged(layer..layer + 1))
    }

    /// The pairs, in the order of the source.
    #[must_use]
    pub fn pairs(&self) -> &[BlockPair] {
        &self.pairs
    }

    /// Bytes of the whole request.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // Distinct blocks of one pool, so no more than its bytes.
        self.pairs.len() as u64 * self.source.block_bytes()
    }

    fn merged(&self, layers: Range<u32>) -> impl Iterator<Item = WriteDescriptor> + '_ {
        Merge::new(self.ranges(layers), self.write_bytes_max)
    }

    /// One range for each layer, piece and pair, in the order of the source's memory.
    fn ranges(&self, layers: Range<u32>) -> impl Iterator<Item = WriteDescriptor> + '_ {
        let pieces = self.source.pieces();
        let pairs = self.pairs.iter();
        let order = self.source.shape().order;
        let by_block = (order == Order::BlockLayerPart).then(|| {
            let layers = layers.clone();
            pairs.clone().flat_map(move |pair| layers.clone().map(move |layer| (layer, 0, pair)))
        });
        let by_layer = (order != Order::BlockLayerPart).then(|| {
            layers
                .flat_map(move |layer| (0..pieces).map(move |piece| (layer, piece)))
                .flat_map(move |(layer, piece)| pairs.clone().map(move |pair| (layer, piece, pair)))
        });
        let places = by_block.into_iter().flatten().chain(by_layer.into_iter().flatten());
        places.map(|(layer, piece, pair)| {
            let from = self.source.extent(layer, piece, pair.source);
            let to = self.destination.extent(layer, piece, pair.destination);
            WriteDescriptor { offset_local: from.offset, offset_remote: to.offset, len: from.len }
        })
    }
}

/// The descriptors of a plan that they keep.
#[derive(Debug)]
pub(in crate::kv) struct Descriptors(Merge<Ranges>);

impl Iterator for Descriptors {
    type Item = WriteDescriptor;

    fn next(&mut self) -> Option<WriteDescriptor> {
        self.0.next()
    }
}

/// What [`BlockPlan::ranges`] gives, by number.
#[derive(Debug)]
struct Ranges {
    plan: Arc<BlockPlan>,
    next: u64,
    end: u64,
}

impl Iterator for Ranges {
    type Item = WriteDescriptor;

    fn next(&mut self) -> Option<WriteDescriptor> {
        let plan = &*self.plan;
        if self.next >= self.end {
            return None;
        }
        let (layers, pieces) = (u64::from(plan.source.shape().layers), u64::from(plan.source.pieces()));
        let (pairs, number) = (plan.pairs.len() as u64, self.next);
        let (layer, piece, pair) = match plan.source.shape().order {
            Order::BlockLayerPart => (number % layers, 0, number / layers),
            Order::LayerBlockPart | Order::LayerPartBlock => {
                (number / (pairs * pieces), number / pairs % pieces, number % pairs)
            }
        };
        self.next += 1;
        // Each is below a dimension of the layout, which has 32 bits.
        let (layer, piece, pair) = (layer as u32, piece as u32, plan.pairs.get(pair as usize)?);
        let from = plan.source.extent(layer, piece, pair.source);
        let to = plan.destination.extent(layer, piece, pair.destination);
        Some(WriteDescriptor { offset_local: from.offset, offset_remote: to.offset, len: from.len })
    }
}

/// That sorted `blocks` are all there and none is given twice.
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
