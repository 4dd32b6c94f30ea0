//! Random pools whose groups share memory: a page of each tensor has a block of one group or of another.

use rdma_collective::kv::layout::{Group, HeadOrder, Layout, Order, Place, Shape, TensorParallel};

use super::pools::{Described, DescribedGroup, Layers, Model, Rng};

/// A group that is not placed yet.
struct Draft {
    shape: Shape,
    layers: Vec<u32>,
    /// First head that the rank holds, and how many.
    heads: (u32, u32),
    element: u64,
}

impl Draft {
    fn part_bytes(&self) -> u64 {
        u64::from(self.shape.block_tokens) * u64::from(self.heads.1) * self.element
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.shape.attention.parts()) * self.part_bytes()
    }
}

/// An end whose groups share the tensors of the first. Group `at` of `n` uses every `n`th page from page `at` on.
pub fn describe(
    rng: &mut Rng,
    models: &[Model],
    rank: TensorParallel,
    tokens: &[u32],
    layers: Layers,
) -> Described {
    let count = models.len() as u32;
    let blocks = count + rng.below(8 * count);
    let draft = |(model, block_tokens): (&Model, &u32)| {
        let numbers = layers.numbers(rng, model.layers);
        let shape = Shape {
            layers: numbers.len() as u32,
            blocks,
            block_tokens: *block_tokens,
            attention: model.attention,
            cache_type: model.cache_type,
            order: Order::LayerBlockPart,
            head_order: rng.pick(&[HeadOrder::Nhd, HeadOrder::Hnd]),
            tensor_parallel: rank,
        };
        let heads = rank.heads(shape.attention).expect("sizes that divide");
        let element = u64::from(shape.attention.elements() * shape.cache_type.size());
        Draft { shape, layers: numbers, heads: (heads.start, heads.end - heads.start), element }
    };
    let drafts: Vec<Draft> = models.iter().zip(tokens).map(draft).collect();
    let most = drafts.iter().map(Draft::page_bytes).max().expect("a group");
    let page = most + u64::from(rng.below(3));
    let tensors = drafts.iter().map(|draft| draft.layers.len()).max().expect("a group");
    let bytes = page * u64::from(blocks);
    let mut groups = Vec::new();
    let mut described = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let shape = draft.shape;
        let (token, head) = match shape.head_order {
            HeadOrder::Nhd => (u64::from(draft.heads.1) * draft.element, draft.element),
            HeadOrder::Hnd => (draft.element, u64::from(shape.block_tokens) * draft.element),
        };
        // Somewhere in the page.
        let front = u64::from(rng.below((page - draft.page_bytes()) as u32 + 1));
        let parts = u64::from(shape.attention.parts());
        let rows = (0..shape.layers).flat_map(|layer| (0..parts).map(move |part| (layer, part)));
        let places: Vec<Place> = rows
            .map(|(layer, part)| Place {
                tensor: layer,
                offset: front + part * draft.part_bytes(),
                block: page,
                token,
                head,
            })
            .collect();
        let own = if at == 0 { tensors } else { draft.layers.len() };
        let group = Group::new(shape).of_layers(draft.layers.iter().copied());
        let group = group.at(vec![bytes; own], places.clone());
        groups.push(if at == 0 { group } else { group.sharing_with(0) });
        // Tensors follow each other at multiples of a page of memory, with a gap.
        let start = |tensor: u32| u64::from(tensor) * (bytes / 4096 + 1) * 4096;
        let in_pool =
            |place: &Place| [start(place.tensor) + place.offset, place.block, place.token, place.head];
        described.push(DescribedGroup {
            shape,
            heads: draft.heads,
            layers: draft.layers.clone(),
            places: places.iter().map(in_pool).collect(),
            first_block: at as u32 * blocks,
            ids: (at as u32..blocks).step_by(models.len()).collect(),
        });
    }
    Described { layout: Layout::of(groups).expect("a layout"), groups: described }
}
