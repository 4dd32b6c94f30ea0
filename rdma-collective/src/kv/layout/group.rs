//! Groups: layers of one kind, and the tensors that hold them.

use std::ops::Range;

use super::{HeadOrder, LayoutError, Order, Shape};

/// Layers of one kind in a [`Layout`](super::Layout), with block ids of their own, and the tensors that hold them.
///
/// Full attention, a sliding window, an indexer, a recurrent state and the scales of a quantised cache are a group
/// each. Nothing is checked before [`Layout::of`](super::Layout::of).
///
/// ```
/// use rdma_collective::kv::layout::{Group, Layout, Model, Order, Tensors};
///
/// let shape = Model::LLAMA_3_1_8B.shape(16, 100, Order::LayerPartBlock);
/// let layout = Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)])?;
/// assert_eq!(layout.tensors().count(), 32);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    shape: Shape,
    /// Numbers of the layers in the model; absent for all of them.
    layers: Option<Vec<u32>>,
    memory: Memory,
    /// The group whose tensors and blocks it shares.
    shared: Option<u8>,
}

/// The tensors of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Memory {
    Regular(Tensors),
    Given { bytes: Vec<u64>, places: Vec<Place> },
}

/// How many tensors hold a group whose memory follows from its [`Order`].
///
/// A part of [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Tensors {
    /// A single tensor for all layers.
    #[default]
    One,
    /// A tensor a layer, as vLLM has them.
    PerLayer,
    /// A tensor for the keys and another one for the values of each layer, as SGLang has them.
    PerPart,
}

/// The place of one part of one layer: a tensor, the offset of the first element there, and distances, all in bytes.
///
/// The elements of one head of one token are adjacent.
///
/// A part of [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tensor, by its position in the group.
    pub tensor: u32,
    /// Offset of block 0, token 0, head 0.
    pub offset: u64,
    /// From a block to the next.
    pub block: u64,
    /// From a token of a block to the next.
    pub token: u64,
    /// From a head that this rank holds to the next.
    pub head: u64,
}

impl Group {
    /// A group of all layers of a model, in one tensor.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        Self { shape, layers: None, memory: Memory::Regular(Tensors::One), shared: None }
    }

    /// Names the layers by their numbers in the model: those of a pipeline stage, or of one kind of attention. They
    /// ascend, and are as many as the shape has.
    ///
    /// Without them a group has all layers of the model, so that a pool of another model is refused: the other end
    /// then has as many, or names some of them.
    #[must_use]
    pub fn of_layers(self, layers: impl IntoIterator<Item = u32>) -> Self {
        Self { layers: Some(layers.into_iter().collect()), ..self }
    }

    /// Keeps the group in one tensor or in several, in the order of its shape.
    #[must_use]
    pub fn in_tensors(self, tensors: Tensors) -> Self {
        Self { memory: Memory::Regular(tensors), ..self }
    }

    /// Keeps the group in tensors of `bytes` each, with a place for each part of each layer: the parts of the first
    /// layer, then those of the second. The orders of the shape do not matter then.
    #[must_use]
    pub fn at(self, bytes: impl IntoIterator<Item = u64>, places: impl IntoIterator<Item = Place>) -> Self {
        let memory =
            Memory::Given { bytes: bytes.into_iter().collect(), places: places.into_iter().collect() };
        Self { memory, ..self }
    }

    /// Keeps the group in the tensors of an earlier group, by its position in the layout, and shares its blocks: block
    /// 7 of either is the same memory, as vLLM's hybrid manager has it. A block is granted for one of the groups at a
    /// time.
    ///
    /// Tensor 0 of this group is tensor 0 of the other, and so on; this group may have fewer. Both have equally many
    /// blocks, and the bytes of a block lie within those of the other group's block, or apart from all of its blocks.
    ///
    /// ```
    /// use rdma_collective::kv::layout::{Group, Layout, Model, Order, Shape, Tensors};
    ///
    /// let full = Shape { layers: 16, ..Model::LLAMA_3_1_8B.shape(16, 1000, Order::LayerBlockPart) };
    /// let layout = Layout::of([
    ///     Group::new(full).of_layers((0..32).step_by(2)).in_tensors(Tensors::PerLayer),
    ///     Group::new(full).of_layers((1..32).step_by(2)).in_tensors(Tensors::PerLayer).sharing_with(0),
    /// ])?;
    /// // Half the tensors of 32 layers.
    /// assert_eq!(layout.tensors().len(), 16);
    /// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
    /// ```
    #[must_use]
    pub fn sharing_with(self, group: usize) -> Self {
        // A group that is out of range stays so, and is refused with the layout.
        Self { shared: Some(u8::try_from(group).unwrap_or(u8::MAX)), ..self }
    }

    /// The group whose tensors and blocks it shares.
    pub(super) fn shared_with(&self) -> Option<usize> {
        self.shared.map(usize::from)
    }

    /// The shape of each layer.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The tensors of a group whose places follow from its order; `None` where the caller gives them.
    pub(super) const fn regular_tensors(&self) -> Option<Tensors> {
        if let Memory::Regular(tensors) = self.memory { Some(tensors) } else { None }
    }

    /// Tensors and places, where the caller gives them.
    pub(super) fn given_places(&self) -> Option<(&[u64], &[Place])> {
        if let Memory::Given { bytes, places } = &self.memory { Some((bytes, places)) } else { None }
    }

    /// Whether the group has all layers of the model.
    pub(in crate::kv) const fn has_all_layers(&self) -> bool {
        self.layers.is_none()
    }

    /// The numbers of its layers in the model, or what is wrong with them.
    pub(in crate::kv) fn layer_numbers(&self) -> Result<Vec<u32>, LayoutError> {
        let count = self.shape.layers;
        let Some(layers) = &self.layers else { return Ok((0..count).collect()) };
        if layers.len() != count as usize || !layers.is_sorted_by(|one, next| one < next) {
            return Err(LayoutError::LayerNumbers { given: layers.len(), layers: count });
        }
        Ok(layers.clone())
    }

    /// Bytes of each tensor, and the place of each part of each layer. `part_bytes` are those of one part of a block,
    /// and `bytes` those of the whole group.
    pub(super) fn places(
        &self,
        heads: &Range<u32>,
        (part_bytes, bytes): (u64, u64),
    ) -> Result<(Vec<u64>, Vec<Place>), LayoutError> {
        match &self.memory {
            Memory::Given { bytes, places } => self.given(heads, bytes, places),
            Memory::Regular(tensors) => self.regular(*tensors, heads, (part_bytes, bytes)),
        }
    }

    /// Places that follow from the orders. Nothing overflows, because every product is at most `bytes`.
    fn regular(
        &self,
        tensors: Tensors,
        heads: &Range<u32>,
        (part_bytes, bytes): (u64, u64),
    ) -> Result<(Vec<u64>, Vec<Place>), LayoutError> {
        let Shape { layers, blocks, block_tokens, order, head_order, .. } = self.shape;
        let parts = self.shape.attention.parts();
        if tensors != Tensors::One && order == Order::BlockLayerPart {
            return Err(LayoutError::TensorsOfOrder { order });
        }
        let [l, p, b] = [layers, parts, blocks].map(u64::from);
        let element = self.shape.element_bytes();
        let (token, head) = match head_order {
            HeadOrder::Nhd => (u64::from(heads.end - heads.start) * element, element),
            HeadOrder::Hnd => (element, u64::from(block_tokens) * element),
        };
        let count = match tensors {
            Tensors::One => 1,
            Tensors::PerLayer => layers,
            Tensors::PerPart => layers * parts,
        };
        let place = |layer: u32, part: u32| {
            let [layer, part] = [layer, part].map(u64::from);
            // Parts from the start of the group to this one, and from a block to the next.
            let (at, block) = match order {
                _ if tensors == Tensors::PerPart => ((layer * p + part) * b, 1),
                Order::LayerBlockPart => (layer * b * p + part, p),
                Order::LayerPartBlock => ((layer * p + part) * b, 1),
                Order::BlockLayerPart => (layer * p + part, l * p),
            };
            let each = l * p * b / u64::from(count);
            let (tensor, offset) = ((at / each) as u32, at % each * part_bytes);
            Place { tensor, offset, block: block * part_bytes, token, head }
        };
        let places = (0..layers).flat_map(|layer| (0..parts).map(move |part| place(layer, part)));
        Ok((vec![bytes / u64::from(count); count as usize], places.collect()))
    }

    /// Places of the caller, checked against the tensors.
    fn given(
        &self,
        heads: &Range<u32>,
        bytes: &[u64],
        places: &[Place],
    ) -> Result<(Vec<u64>, Vec<Place>), LayoutError> {
        let Shape { layers, blocks, block_tokens, attention, .. } = self.shape;
        let parts = layers as usize * attention.parts() as usize;
        if places.len() != parts {
            return Err(LayoutError::Places { given: places.len(), parts });
        }
        if bytes.contains(&0) {
            return Err(LayoutError::Zero { dimension: "bytes of a tensor" });
        }
        for place in places {
            let tensor = place.tensor;
            let Some(&len) = bytes.get(tensor as usize) else {
                return Err(LayoutError::NoSuchTensor { tensor, tensors: bytes.len() });
            };
            let steps =
                [(blocks, place.block), (block_tokens, place.token), (heads.end - heads.start, place.head)];
            let last = steps.iter().try_fold(place.offset, |at, (count, step)| {
                at.checked_add(u64::from(count - 1).checked_mul(*step)?)
            });
            let end = last.and_then(|last| last.checked_add(self.shape.element_bytes()));
            if end.is_none_or(|end| end > len) {
                let need = end.unwrap_or(u64::MAX);
                return Err(LayoutError::TensorTooShort { tensor, need, len });
            }
        }
        Ok((bytes.to_vec(), places.to_vec()))
    }
}
