//! Random pools: shapes, tensors and strides.

use super::shared;
use rdma_collective::kv::layout::{
    Attention, CacheType, Group, HeadOrder, Layout, Order, Place, Shape, TensorParallel, Tensors,
};

/// A generator of numbers that needs no crate: xorshift of 64 bits.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..4).for_each(|_| _ = rng.next());
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    pub fn chance(&mut self, one_in: u32) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at as u32 + 1) as usize);
        }
    }
}

/// A layout, with what the oracle needs to find each element without the library.
#[derive(Debug, Clone)]
pub struct Described {
    pub layout: Layout,
    pub groups: Vec<DescribedGroup>,
}

impl Described {
    /// Whether its groups share their blocks.
    pub fn shares_memory(&self) -> bool {
        self.groups.iter().any(|group| group.ids.len() < group.shape.blocks as usize)
    }
}

#[derive(Debug, Clone)]
pub struct DescribedGroup {
    pub shape: Shape,
    /// First head that the rank holds, and how many.
    pub heads: (u32, u32),
    /// Numbers of the layers in the model.
    pub layers: Vec<u32>,
    /// By layer, then part: offset in the pool, and distances of blocks, tokens and heads.
    pub places: Vec<[u64; 4]>,
    /// Number of block 0 in the layout.
    pub first_block: u32,
    /// Blocks of the group that requests use: of a group that shares its memory, those that the others do not use.
    pub ids: Vec<u32>,
}

/// The properties that two ends have in common.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub attention: Attention,
    pub cache_type: CacheType,
    /// Numbers of all layers of this kind are below this.
    pub layers: u32,
}

impl Model {
    pub fn random(rng: &mut Rng) -> Self {
        let heads = rng.pick(&[1, 2, 4, 8, 16]);
        let attention = match rng.below(10) {
            0 | 1 => Attention::Latent { dim: 1 + rng.below(6) },
            2 => Attention::Recurrent { heads, elements: 1 + rng.below(4) },
            _ => Attention::Grouped { kv_heads: heads, head_dim: 1 + rng.below(4) },
        };
        Self { attention, cache_type: rng.pick(CacheType::ALL), layers: 1 + rng.below(4) }
    }
}

/// The layers that an end has.
#[derive(Debug, Clone, Copy)]
pub enum Layers {
    /// All layers, or those from any one on.
    Random,
    /// A pipeline stage, of so many.
    Stage { at: u32, of: u32 },
}

impl Layers {
    pub fn numbers(self, rng: &mut Rng, layers: u32) -> Vec<u32> {
        match self {
            Self::Random => {
                let first = rng.below(layers);
                if rng.chance(4) { (first..layers).collect() } else { (0..layers).collect() }
            }
            Self::Stage { at, of } => (layers * at / of..layers * (at + 1) / of).collect(),
        }
    }
}

/// An end: ranks, sizes and orders.
pub fn describe(
    rng: &mut Rng,
    models: &[Model],
    rank: TensorParallel,
    tokens: &[u32],
    layers: Layers,
) -> Described {
    if models.len() > 1 && rng.chance(2) {
        return shared::describe(rng, models, rank, tokens, layers);
    }
    let mut groups = Vec::new();
    let mut described = Vec::new();
    let (mut start, mut first_block) = (0, 0);
    for (model, block_tokens) in models.iter().zip(tokens) {
        let numbers = layers.numbers(rng, model.layers);
        let parts = model.attention.parts();
        let orders = [Order::LayerBlockPart, Order::LayerPartBlock, Order::BlockLayerPart];
        let order = if parts == 1 { rng.pick(&[orders[0], orders[2]]) } else { rng.pick(&orders) };
        let shape = Shape {
            layers: numbers.len() as u32,
            blocks: 1 + rng.below(8),
            block_tokens: *block_tokens,
            attention: model.attention,
            cache_type: model.cache_type,
            order,
            head_order: rng.pick(&[HeadOrder::Nhd, HeadOrder::Hnd]),
            tensor_parallel: rank,
        };
        let heads = rank.heads(shape.attention).expect("sizes that divide");
        let held = heads.end - heads.start;
        let group = Group::new(shape).of_layers(numbers.iter().copied());
        let element = u64::from(shape.attention.elements() * shape.cache_type.size());
        let (group, tensors, places) = place(rng, group, held, element);
        let mut offsets = Vec::new();
        for bytes in tensors {
            // Tensors follow each other at multiples of a page, with a gap.
            let at = if start == 0 { 0 } else { (start / 4096 + 1) * 4096 };
            offsets.push(at);
            start = at + bytes;
        }
        let places = places.into_iter().map(|(tensor, [offset, block, token, head])| {
            [offsets[tensor as usize] + offset, block, token, head]
        });
        described.push(DescribedGroup {
            shape,
            heads: (heads.start, held),
            layers: numbers,
            places: places.collect(),
            first_block,
            ids: (0..shape.blocks).collect(),
        });
        first_block += shape.blocks;
        groups.push(group);
    }
    Described { layout: Layout::of(groups).expect("a layout"), groups: described }
}

type Places = Vec<(u32, [u64; 4])>;

/// Tensors of a group, by its order or with strides of their own; and where its parts lie, found by nested loops.
fn place(rng: &mut Rng, group: Group, held: u32, element: u64) -> (Group, Vec<u64>, Places) {
    let shape = *group.shape();
    let [layers, blocks, tokens, held] =
        [shape.layers, shape.blocks, shape.block_tokens, held].map(u64::from);
    let parts = u64::from(shape.attention.parts());
    let part_bytes = held * tokens * element;
    if rng.chance(3) {
        return strided(rng, group, (held, element));
    }
    let (token, head) = match shape.head_order {
        HeadOrder::Nhd => (held * element, element),
        HeadOrder::Hnd => (element, tokens * element),
    };
    let choices = [Tensors::One, Tensors::PerLayer, Tensors::PerPart];
    let tensors = if shape.order == Order::BlockLayerPart { Tensors::One } else { rng.pick(&choices) };
    let mut places = Places::new();
    for (layer, part) in (0..layers).flat_map(|layer| (0..parts).map(move |part| (layer, part))) {
        let place = match (tensors, shape.order) {
            (Tensors::PerPart, _) => ((layer * parts + part) as u32, [0, part_bytes]),
            (_, Order::BlockLayerPart) => {
                (0, [(layer * parts + part) * part_bytes, layers * parts * part_bytes])
            }
            (tensors, order) => {
                let (within, block) = match order {
                    Order::LayerBlockPart => (part * part_bytes, parts * part_bytes),
                    _ => (part * blocks * part_bytes, part_bytes),
                };
                let each = parts * blocks * part_bytes;
                match tensors {
                    Tensors::One => (0, [layer * each + within, block]),
                    _ => (layer as u32, [within, block]),
                }
            }
        };
        let (tensor, [offset, block]) = place;
        places.push((tensor, [offset, block, token, head]));
    }
    let count = match tensors {
        Tensors::One => 1,
        Tensors::PerLayer => layers,
        Tensors::PerPart => layers * parts,
    };
    let bytes = layers * parts * blocks * part_bytes / count;
    (group.in_tensors(tensors), vec![bytes; count as usize], places)
}

/// A tensor a layer, with gaps: after each head, token, part and block, and in front.
fn strided(rng: &mut Rng, group: Group, (held, element): (u64, u64)) -> (Group, Vec<u64>, Places) {
    let shape = *group.shape();
    let gap = |rng: &mut Rng| u64::from(if rng.chance(2) { 0 } else { rng.below(5) });
    let (tokens, blocks) = (u64::from(shape.block_tokens), u64::from(shape.blocks));
    let parts = u64::from(shape.attention.parts());
    let (token, head, part_bytes) = match shape.head_order {
        HeadOrder::Nhd => {
            let head = element + gap(rng);
            let token = held * head + gap(rng);
            (token, head, tokens * token)
        }
        HeadOrder::Hnd => {
            let token = element + gap(rng);
            let head = tokens * token + gap(rng);
            (token, head, held * head)
        }
    };
    let part = part_bytes + gap(rng);
    let (block, next_part) = if rng.chance(2) { (parts * part, part) } else { (part, blocks * part) };
    let front = gap(rng);
    let bytes = front + parts * blocks * part;
    let mut places = Places::new();
    for layer in 0..shape.layers {
        for at in 0..parts {
            places.push((layer, [front + at * next_part, block, token, head]));
        }
    }
    let of = |&(tensor, [offset, block, token, head]): &(u32, [u64; 4])| Place {
        tensor,
        offset,
        block,
        token,
        head,
    };
    let tensors = vec![bytes; shape.layers as usize];
    (group.at(tensors.clone(), places.iter().map(of)), tensors, places)
}
