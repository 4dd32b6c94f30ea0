//! Layouts: where each block of each layer lies in a pool.
//!
//! Layouts own offsets. The memory, its registration and the holds on blocks belong to the pool; which bytes go from
//! one layout to another belongs to [`plan`](crate::kv::plan).

mod cache_type;
mod encode;
mod error;
mod extent;
mod group;
mod model;
pub(in crate::kv) mod nest;
mod order;
mod overlap;
mod placed;
mod shape;
mod tensor_parallel;
mod tensors;
#[cfg(test)]
pub(in crate::kv) mod tests;

use std::fmt;
use std::sync::Arc;

pub use cache_type::CacheType;
pub(in crate::kv) use encode::{put_runs, take_runs};
pub use error::{LayoutError, Side};
pub use extent::Extent;
pub use group::{Group, Place, Tensors};
pub use model::Model;
pub use order::{HeadOrder, Order};
pub(in crate::kv) use placed::Placed;
pub use shape::{Attention, Shape};
pub use tensor_parallel::TensorParallel;

/// Most tensors of a [`Layout`]: a tensor for keys and one for values of 512 layers.
pub const TENSORS_MAX: usize = 1024;
/// Most layers of a [`Layout`]. The largest models have some hundred.
pub const LAYERS_MAX: u32 = 4096;
/// Most groups of a [`Layout`]. Hybrid models have two to five.
pub const GROUPS_MAX: usize = 64;
/// Tensors begin at multiples of this, with a gap before each, so that no write joins bytes of two tensors: 4096, a
/// page, since devices map pages.
const TENSOR_ALIGN: u64 = 4096;

/// The place of every block of a pool, known to be in bounds and apart from every other, but for blocks that groups
/// [share](Group::sharing_with). A clone is another handle to the same table.
///
/// Offsets count from the start of the pool. [Tensors](Self::tensors) follow each other there, with a gap between two,
/// wherever they lie in memory.
///
/// Blocks of a layout of several [groups](Group) are numbered through: those of the second group follow those of the
/// first. [`block`](Self::block) gives the number.
///
/// ```
/// use rdma_collective::kv::layout::{Layout, Model, Order};
///
/// let layout = Layout::new(Model::LLAMA_3_1_8B.shape(16, 1024, Order::LayerPartBlock))?;
/// assert_eq!(layout.block_bytes(), 16 * 131072);
/// let [key, value] = layout.extents(0, 3)?.collect::<Vec<_>>()[..] else { unreachable!() };
/// assert_eq!(value.offset - key.offset, layout.bytes() / 32 / 2);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Layout(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    /// At least one.
    groups: Vec<Placed>,
    /// Numbers of the layers in the model, in ascending order.
    layers: Vec<u32>,
    tensors: Vec<Extent>,
    bytes: u64,
    blocks: u32,
}

impl Layout {
    /// Lays out one group of layers in one tensor.
    ///
    /// # Errors
    /// The errors of [`Layout::of`].
    pub fn new(shape: Shape) -> Result<Self, LayoutError> {
        Self::of([Group::new(shape)])
    }

    /// Lays out `groups`, whose tensors follow each other.
    ///
    /// ```
    /// use rdma_collective::kv::layout::{Attention, Group, Layout, Model, Order, Shape};
    ///
    /// // Layers 0, 2, 4, … see all tokens, and the others a window of them.
    /// let full = Shape { layers: 16, ..Model::LLAMA_3_1_8B.shape(16, 1000, Order::LayerBlockPart) };
    /// let window = Shape { blocks: 200, ..full };
    /// let layout = Layout::of([
    ///     Group::new(full).of_layers((0..32).step_by(2)),
    ///     Group::new(window).of_layers((1..32).step_by(2)),
    /// ])?;
    /// assert_eq!((layout.layers(), layout.blocks(), layout.block(1, 7)?), (32, 1200, 1007));
    /// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError`] when a dimension is 0, when there are more groups, layers, blocks or tensors than a layout may
    /// have, when heads and tensor-parallel ranks do not divide, when a latent cache asks for keys and values apart,
    /// when tensors are shorter than their layers or places overlap, when groups share memory that has not the same
    /// blocks, or when the pool has more bytes than a machine can address.
    pub fn of(groups: impl IntoIterator<Item = Group>) -> Result<Self, LayoutError> {
        let mut inner =
            Inner { groups: Vec::new(), layers: Vec::new(), tensors: Vec::new(), bytes: 0, blocks: 0 };
        let (mut numbers, mut pairs) = (Vec::new(), 0);
        for group in groups {
            if inner.groups.len() == GROUPS_MAX {
                return Err(LayoutError::TooMany { what: "groups", max: GROUPS_MAX as u64 });
            }
            let (mut placed, tensors) = Placed::new(group, inner.blocks)?;
            let blocks = inner.blocks.checked_add(placed.group.shape().blocks);
            inner.blocks = blocks.ok_or(LayoutError::TooMany { what: "blocks", max: u32::MAX.into() })?;
            match placed.group.shared_with() {
                None => {
                    placed.first_tensor = inner.tensors.len() as u32;
                    tensors
                        .into_iter()
                        .try_for_each(|bytes| inner.add_tensor(bytes, placed.group.shape()))?;
                }
                Some(with) => inner.share(&mut placed, &tensors, with)?,
            }
            placed.settle(&inner.tensors);
            inner.check_shared(&placed, &mut pairs)?;
            numbers.push(placed.group.layer_numbers()?);
            inner.groups.push(placed);
        }
        if inner.groups.is_empty() {
            return Err(LayoutError::Zero { dimension: "groups" });
        }
        inner.layers = numbers.concat();
        inner.layers.sort_unstable();
        inner.layers.dedup();
        if inner.layers.len() > LAYERS_MAX as usize {
            return Err(LayoutError::TooMany { what: "layers", max: LAYERS_MAX.into() });
        }
        for (placed, numbers) in inner.groups.iter_mut().zip(&numbers) {
            let position = |number| inner.layers.binary_search(number).unwrap_or(0) as u32;
            placed.layers = numbers.iter().map(position).collect();
        }
        Ok(Self(Arc::new(inner)))
    }

    /// The groups, in the order in which they were given.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.0.groups.iter().map(|placed| &placed.group)
    }

    /// The shape of the first group, which is the only one of a layout that [`Layout::new`] made.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.first().group.shape()
    }

    /// Number of layers, of all groups together: a layer that two groups have counts once.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.0.layers.len() as u32
    }

    /// The numbers in the model of the layers, in ascending order.
    #[must_use]
    pub fn layer_numbers(&self) -> &[u32] {
        &self.0.layers
    }

    /// Number of blocks, of all groups together.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.0.blocks
    }

    /// The number in this layout of block `block` of a group.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchGroup`] and [`LayoutError::NoSuchBlock`].
    pub fn block(&self, group: usize, block: u32) -> Result<u32, LayoutError> {
        let groups = self.0.groups.len();
        let placed = self.0.groups.get(group).ok_or(LayoutError::NoSuchGroup { group, groups })?;
        let blocks = placed.group.shape().blocks;
        if block >= blocks {
            return Err(LayoutError::NoSuchBlock { block, blocks });
        }
        Ok(placed.first_block + block)
    }

    /// Where the tensors lie in the pool.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Extent> + '_ {
        self.0.tensors.iter().copied()
    }

    /// Bytes from the start of the first tensor to the end of the last, with the gaps between them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes of one block over all layers, in the first group.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.layer_block_bytes() * u64::from(self.shape().layers)
    }

    /// Bytes of one block in one layer, in the first group.
    #[must_use]
    pub fn layer_block_bytes(&self) -> u64 {
        self.first().layer_block_bytes
    }

    /// Bytes of one token over all layers, in the first group.
    #[must_use]
    pub fn token_bytes(&self) -> u64 {
        self.block_bytes() / u64::from(self.shape().block_tokens)
    }

    /// The ranges of `block` in `layer`, part by part; adjacent ones are one. A layer that the block's group does not
    /// have has none.
    ///
    /// # Errors
    /// [`LayoutError`] when there is no such layer or no such block.
    pub fn extents(
        &self,
        layer: u32,
        block: u32,
    ) -> Result<impl Iterator<Item = Extent> + use<>, LayoutError> {
        let (layers, blocks) = (self.layers(), self.blocks());
        if layer >= layers {
            return Err(LayoutError::NoSuchLayer { layer, layers });
        }
        let (_, placed) = self.group_of(block).ok_or(LayoutError::NoSuchBlock { block, blocks })?;
        let row = placed.row(layer);
        Ok(row
            .map_or_else(Vec::new, |row| extent::of_block(placed, row, block - placed.first_block))
            .into_iter())
    }

    /// Fails unless a pool of this layout fits memory of `len` bytes.
    ///
    /// # Errors
    /// [`LayoutError::MemoryTooSmall`] when it does not.
    pub(crate) fn check_memory(&self, len: u64) -> Result<(), LayoutError> {
        if len < self.bytes() {
            return Err(LayoutError::MemoryTooSmall { need: self.bytes(), len });
        }
        Ok(())
    }

    /// The group of a block.
    pub(in crate::kv) fn group_of(&self, block: u32) -> Option<(usize, &Placed)> {
        let at = self.0.groups.partition_point(|placed| placed.first_block <= block).checked_sub(1)?;
        let placed = self.0.groups.get(at).filter(|_| block < self.0.blocks)?;
        Some((at, placed))
    }

    /// The block that stands for the memory of a block: itself, unless its group shares the memory of an earlier one.
    pub(in crate::kv) fn base_block(&self, block: u32) -> u32 {
        if self.0.groups.len() == 1 {
            return block;
        }
        self.group_of(block).map_or(block, |(_, placed)| placed.first_base + (block - placed.first_block))
    }

    pub(in crate::kv) fn placed(&self) -> &[Placed] {
        &self.0.groups
    }

    /// Bytes of a block in a layer; 0 when there is no such block, or its group lacks the layer.
    pub(in crate::kv) fn bytes_in(&self, layer: u32, block: u32) -> u64 {
        let has = |placed: &Placed| placed.row(layer).map(|_| placed.layer_block_bytes);
        self.group_of(block).and_then(|(_, placed)| has(placed)).unwrap_or(0)
    }

    /// Bytes of these blocks over all layers. Blocks that there are not have none.
    pub(in crate::kv) fn bytes_of_blocks(&self, blocks: &[u32]) -> u64 {
        let bytes = |placed: &Placed| placed.layer_block_bytes * placed.layers.len() as u64;
        let each = blocks.iter().filter_map(|block| self.group_of(*block)).map(|(_, placed)| bytes(placed));
        each.fold(0, u64::saturating_add)
    }

    fn first(&self) -> &Placed {
        // A layout has at least one group, so the fallback is never made.
        self.0.groups.first().unwrap_or_else(|| unreachable!("a layout without groups"))
    }
}

impl fmt::Debug for Layout {
    /// Prints shapes and counts, on one line, however many layers and tensors there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("groups", &self.groups().map(Group::shape).collect::<Vec<_>>())
            .field("layers", &self.layers())
            .field("tensors", &self.tensors().len())
            .field("bytes", &self.bytes())
            .finish()
    }
}
