//! Routes: what two layouts have in common, worked out once for all requests between them.

use std::fmt;
use std::ops::Range;

use super::Wanted;
use super::owner::{heads_sent, sources};
use super::segments::Segment;
use crate::kv::blocks::List;
use crate::kv::layout::nest::{DIMS, Dim, Nest};
use crate::kv::layout::{Attention, Layout, LayoutError, Place, Placed, Side};

/// The layers and heads that go from one layout to another, with their places at both ends.
///
/// Both ends of a link make the same route, and so the same plans.
///
/// ```
/// use rdma_collective::kv::layout::{HeadOrder, Layout, Model, Order, Shape, TensorParallel};
/// use rdma_collective::kv::plan::Route;
///
/// // Rank 1 of 4 has tokens before heads; rank 0 of 2 has heads before tokens.
/// let whole = Model::LLAMA_3_1_8B.shape(16, 100, Order::LayerPartBlock);
/// let source = Layout::new(whole.of_rank(TensorParallel { rank: 1, size: 4 })?)?;
/// let there = Shape { head_order: HeadOrder::Hnd, blocks: 50, ..whole };
/// let destination = Layout::new(there.of_rank(TensorParallel { rank: 0, size: 2 })?)?;
/// let route = Route::new(&source, &destination)?;
/// // Two of the four heads that the destination holds.
/// assert_eq!(route.block_bytes(0), destination.block_bytes() / 2);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Route {
    pub(super) source: Layout,
    pub(super) destination: Layout,
    pub(super) groups: Vec<GroupRoute>,
    /// Bytes of the shortest piece of a whole block.
    shortest: u64,
}

/// The route of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupRoute {
    /// By layer of the source, then by part unless the loops of a block go over the parts. Empty when the two sides
    /// have no layer or no head in common.
    pub(super) entries: Vec<Entry>,
    /// Number of layers that go over.
    pub(super) layers: u64,
    /// Heads of the model that go over.
    pub(super) heads: Range<u32>,
    pub(super) element_bytes: u64,
    /// Parts of each layer.
    pub(super) parts: u32,
    /// Tokens a block, at either side.
    pub(super) tokens: [u32; 2],
    /// Bytes of a whole block in one layer, if those of all layers are adjacent at both sides.
    pub(super) adjacent: Option<u64>,
}

/// A layer, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Position among the layers of each layout.
    pub(super) layers: [u32; 2],
    pub(super) bases: [u64; 2],
    pub(super) steps: Steps,
    /// Entries of one class have the same steps.
    pub(super) class: u32,
}

/// Distances at either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) block: [u64; 2],
    pub(super) token: [u64; 2],
    pub(super) head: [u64; 2],
    pub(super) parts: Dim,
}

impl Entry {
    /// Offset of the first byte of a segment at one side.
    pub(super) fn start(&self, side: usize, segment: &Segment) -> u64 {
        let block = u64::from(segment.blocks[side]) * self.steps.block[side];
        self.bases[side] + block + u64::from(segment.first[side]) * self.steps.token[side]
    }
}

impl Route {
    /// Works out the route from a layout of one rank to a layout of another rank.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Differs`] names the first field in which the layouts must agree and do not, and both values;
    /// [`LayoutError::NotHeard`] when no head goes from the one rank to the other.
    pub fn new(source: &Layout, destination: &Layout) -> Result<Self, LayoutError> {
        let count = |layout: &Layout| layout.groups().len();
        agree("number of groups", &count(source), &count(destination))?;
        let pairs = source.placed().iter().zip(destination.placed());
        let groups = pairs.map(|(from, to)| GroupRoute::new([source, destination], [from, to]));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        if groups.iter().all(|group| group.entries.is_empty()) {
            return Err(nothing_common(source, destination));
        }
        let shortest = groups.iter().filter_map(GroupRoute::shortest).min().unwrap_or(0);
        Ok(Self { source: source.clone(), destination: destination.clone(), groups, shortest })
    }

    /// Bytes of a whole block of the destination, in group `group`, that go over this route; 0 without such a group.
    #[must_use]
    pub fn block_bytes(&self, group: usize) -> u64 {
        let bytes = |group: &GroupRoute| group.layers * group.layer_block_bytes();
        self.groups.get(group).map_or(0, bytes)
    }

    /// Bytes of a block of the destination in one layer, in the first group that goes over.
    pub(in crate::kv) fn layer_block_bytes(&self) -> u64 {
        let first = self.groups.iter().find(|group| group.layers > 0);
        first.map_or(0, GroupRoute::layer_block_bytes)
    }

    /// Whether whole blocks have pieces shorter than `bytes`.
    pub(in crate::kv) fn has_pieces_below(&self, bytes: u32) -> bool {
        self.shortest < u64::from(bytes)
    }

    /// Whether a block has the same bytes in the same order at both ends.
    pub(in crate::kv) fn keeps_order(&self) -> bool {
        let layouts = [&self.source, &self.destination];
        let layers = layouts.map(Layout::layer_numbers);
        let of = |placed: &Placed| (placed.heads.clone(), placed.layers.clone());
        let [here, there] = layouts.map(|layout| layout.placed().iter().map(of));
        let whole = |group: &GroupRoute| {
            let one = |entry: &Entry| {
                let steps = Steps { parts: Dim::ONE, ..entry.steps };
                group.nest(&steps, group.tokens[0], 0).pieces() == 1
            };
            group.tokens[0] == group.tokens[1] && group.entries.iter().all(one)
        };
        layers[0] == layers[1] && here.eq(there) && self.groups.iter().all(whole)
    }

    /// Bytes of the blocks of the destination's `list` over this route, or of their token ranges, or else of the wanted
    /// blocks, which may have more tokens than their range.
    pub(in crate::kv) fn bytes_of(&self, list: &List, wanted: Option<&Wanted>) -> u64 {
        if list.has_tokens() && wanted.is_none() {
            return self.bytes_of_tokens(&list.tokens());
        }
        let bytes = |(place, block): (u32, &u32)| {
            let group = self.destination.group_of(*block).and_then(|(group, _)| self.groups.get(group));
            let of = |group: &GroupRoute| {
                let layers = group.entries.chunk_by(|one, next| one.layers == next.layers);
                let layers = layers.filter_map(|layer| layer.first()).map(|entry| entry.layers[1]);
                let wants = |layer: &u32| wanted.is_none_or(|wanted| wanted.has(*layer, place));
                let layers = match wanted {
                    None => group.layers,
                    Some(_) => layers.filter(wants).count() as u64,
                };
                layers * group.layer_block_bytes()
            };
            group.map_or(0, of)
        };
        (0..).zip(list.blocks().iter()).map(bytes).sum()
    }

    /// Bytes of blocks of the source, or of their token ranges, over this route.
    pub(in crate::kv) fn bytes_of_source(&self, list: &List) -> u64 {
        if list.has_tokens() {
            return self.bytes_of_tokens(&list.tokens());
        }
        let bytes = |block: &u32| {
            let group = self.source.group_of(*block).and_then(|(group, _)| self.groups.get(group));
            group.map_or(0, |group| group.layers * group.token_bytes() * u64::from(group.tokens[0]))
        };
        list.blocks().iter().map(bytes).sum()
    }

    fn bytes_of_tokens(&self, ranges: &[Range<u32>]) -> u64 {
        let of = |(group, range): (&GroupRoute, &Range<u32>)| {
            group.layers * group.token_bytes() * u64::from(range.end.saturating_sub(range.start))
        };
        self.groups.iter().zip(ranges).map(of).sum()
    }

    /// Most blocks of one side that a request can have: more hold more tokens than the other side has. A token range
    /// that begins within a block has a part of one more in each group.
    pub(in crate::kv) fn blocks_max(&self, side: Side) -> u32 {
        let (here, there) = if side == Side::Source { (0, 1) } else { (1, 0) };
        let layouts = [&self.source, &self.destination].map(Layout::placed);
        let blocks = self.groups.iter().enumerate().map(|(at, group)| {
            let blocks = |side: usize| layouts[side].get(at).map_or(0, |placed| placed.group.shape().blocks);
            let tokens = u64::from(blocks(there)) * u64::from(group.tokens[there]);
            (tokens.div_ceil(group.tokens[here].into()) + 1).min(blocks(here).into())
        });
        // Neither side has more blocks than 32 bits count.
        blocks.sum::<u64>() as u32
    }

    /// The layer of the source that a layer of the destination comes from.
    pub(in crate::kv) fn source_layer(&self, layer: u32) -> Option<u32> {
        let of = |group: &GroupRoute| {
            let at = group.entries.binary_search_by_key(&layer, |entry| entry.layers[1]).ok()?;
            group.entries.get(at).map(|entry| entry.layers[0])
        };
        self.groups.iter().find_map(of)
    }

    /// The layer of the destination that a layer of the source goes to.
    pub(in crate::kv) fn destination_layer(&self, layer: u32) -> Option<u32> {
        let of = |group: &GroupRoute| {
            let at = group.entries.partition_point(|entry| entry.layers[0] < layer);
            group.entries.get(at).filter(|entry| entry.layers[0] == layer).map(|entry| entry.layers[1])
        };
        self.groups.iter().find_map(of)
    }

    /// The layout of the source.
    #[must_use]
    pub const fn source(&self) -> &Layout {
        &self.source
    }

    /// The layout of the destination.
    #[must_use]
    pub const fn destination(&self) -> &Layout {
        &self.destination
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<u64> = (0..self.groups.len()).map(|group| self.block_bytes(group)).collect();
        f.debug_struct("Route")
            .field("source", &self.source)
            .field("destination", &self.destination)
            .field("block_bytes", &bytes)
            .finish()
    }
}

impl GroupRoute {
    fn new(layouts: [&Layout; 2], placed: [&Placed; 2]) -> Result<Self, LayoutError> {
        let [from, to] = placed;
        let shapes = placed.map(|placed| placed.group.shape());
        agree("what is kept of a token", &shapes[0].attention, &shapes[1].attention)?;
        agree("cache type", &shapes[0].cache_type, &shapes[1].cache_type)?;
        agree_on_layers(placed)?;
        let tokens = shapes.map(|shape| shape.block_tokens);
        if !tokens[0].is_multiple_of(tokens[1]) && !tokens[1].is_multiple_of(tokens[0]) {
            agree("tokens a block", &tokens[0], &tokens[1])?;
        }
        let whole = shapes[0].attention;
        let heads = heads_sent(whole, shapes[0].tensor_parallel, shapes[1].tensor_parallel)?;
        let mut group = Self {
            entries: Vec::new(),
            layers: 0,
            heads: heads.clone(),
            element_bytes: from.element_bytes,
            parts: whole.parts(),
            tokens,
            adjacent: None,
        };
        if heads.is_empty() {
            return Ok(group);
        }
        let first = placed.map(|placed| u64::from(heads.start - placed.heads.start));
        let rows = common_rows(layouts, placed);
        let place = |side: usize, row: usize, part: usize| -> Option<Place> {
            let parts = placed[side].parts();
            let place = placed[side].places.get(row * parts + part)?;
            Some(Place { offset: place.offset + first[side] * place.head, ..*place })
        };
        let inside = rows.iter().all(|rows| {
            let parts = |side: usize| Some([place(side, rows[side], 0)?, place(side, rows[side], 1)?]);
            [parts(0), parts(1)].iter().all(|parts| parts.is_some_and(parts_within_a_block))
        });
        for [source, destination] in rows {
            let layers = [from.layers[source], to.layers[destination]];
            for part in 0..if inside { 1 } else { from.parts() } {
                let (Some(here), Some(there)) = (place(0, source, part), place(1, destination, part)) else {
                    continue;
                };
                let next = [place(0, source, 1), place(1, destination, 1)];
                let parts = match next {
                    [Some(next_here), Some(next_there)] if inside => Dim {
                        count: 2,
                        steps: [next_here.offset - here.offset, next_there.offset - there.offset],
                    },
                    _ => Dim::ONE,
                };
                let steps = Steps {
                    block: [here.block, there.block],
                    token: [here.token, there.token],
                    head: [here.head, there.head],
                    parts,
                };
                let last = group.entries.last();
                let class = last.map_or(0, |last: &Entry| last.class + u32::from(last.steps != steps));
                group.entries.push(Entry { layers, bases: [here.offset, there.offset], steps, class });
            }
        }
        group.layers = group.entries.chunk_by(|one, next| one.layers == next.layers).count() as u64;
        group.adjacent = group.adjacent();
        Ok(group)
    }

    /// Bytes of a block of the destination in one layer.
    pub(super) fn layer_block_bytes(&self) -> u64 {
        self.token_bytes() * u64::from(self.tokens[1])
    }

    /// Bytes of a token in one layer.
    pub(super) fn token_bytes(&self) -> u64 {
        u64::from(self.parts) * self.heads.len() as u64 * self.element_bytes
    }

    /// The loops over `tokens` tokens of one block in an entry.
    pub(super) fn nest(&self, steps: &Steps, tokens: u32, by: usize) -> Nest {
        let token = Dim { count: tokens, steps: steps.token };
        let head = Dim { count: self.heads.len() as u32, steps: steps.head };
        Nest::new(self.element_bytes, [steps.parts, token, head], by)
    }

    /// Bytes of the shortest piece of a whole block; `None` when nothing goes over.
    fn shortest(&self) -> Option<u64> {
        let tokens = self.tokens[0].min(self.tokens[1]);
        self.entries.iter().map(|entry| self.nest(&entry.steps, tokens, 1).len).min()
    }

    /// Bytes of a block in one layer, if a block is one piece in every layer and the pieces of all layers follow each
    /// other at both sides.
    fn adjacent(&self) -> Option<u64> {
        let first = self.entries.first()?;
        let nest = self.nest(&first.steps, self.tokens[0], 1);
        let whole = self.tokens[0] == self.tokens[1] && nest.dims == [Dim::ONE; DIMS];
        let follows = |pair: &[Entry]| {
            let [one, next] = pair else { return false };
            let bases = one.bases.map(|base| base + nest.len);
            next.class == one.class && next.bases == bases && next.layers[1] == one.layers[1] + 1
        };
        let all = self.parts == first.steps.parts.count && self.entries.windows(2).all(follows);
        (whole && all).then_some(nest.len)
    }
}

/// Whether two parts have the same distances, and the second follows the first before the next block does.
fn parts_within_a_block([key, value]: [Place; 2]) -> bool {
    let steps = |place: Place| (place.block, place.token, place.head);
    steps(key) == steps(value) && (1..key.block).contains(&value.offset.wrapping_sub(key.offset))
}

/// Fails unless two groups that have all layers of a model have equally many, and a group of some layers only has such
/// as the other has.
fn agree_on_layers(placed: [&Placed; 2]) -> Result<(), LayoutError> {
    let all = placed.map(|placed| placed.group.has_all_layers());
    let counts = placed.map(|placed| placed.group.shape().layers);
    let last =
        placed.map(|placed| placed.group.layer_numbers().ok().and_then(|layers| layers.last().copied()));
    let beyond = |some: usize, whole: usize| {
        let out = last[some].filter(|last| *last >= counts[whole]);
        out.map_or(Ok(()), |last| {
            let name =
                |side| if side == whole { format!("0 to {}", counts[whole] - 1) } else { format!("{last}") };
            Err(LayoutError::Differs { field: "layers", ours: name(0), theirs: name(1) })
        })
    };
    match all {
        [true, true] => agree("layers", &counts[0], &counts[1]),
        [true, false] => beyond(1, 0),
        [false, true] => beyond(0, 1),
        [false, false] => Ok(()),
    }
}

/// The positions, in both groups, of the layers of the model that both have.
fn common_rows(layouts: [&Layout; 2], placed: [&Placed; 2]) -> Vec<[usize; 2]> {
    let number = |side: usize, layer: &u32| layouts[side].layer_numbers().get(*layer as usize).copied();
    let there: Vec<_> = placed[1].layers.iter().map(|layer| number(1, layer)).collect();
    let rows = placed[0].layers.iter().enumerate();
    let common = rows.filter_map(|(row, layer)| Some([row, there.binary_search(&number(0, layer)).ok()?]));
    common.collect()
}

/// The error of two layouts between which nothing goes: their layers differ, or the ranks have no head in common.
fn nothing_common(source: &Layout, destination: &Layout) -> LayoutError {
    let ranks = [source, destination].map(|layout| layout.shape().tensor_parallel);
    let whole: Attention = source.shape().attention;
    let heard = sources(whole, ranks[0].size, ranks[1]).unwrap_or_default();
    if !heard.contains(&ranks[0].rank) {
        let (source_rank, destination) = (ranks[0], ranks[1]);
        return LayoutError::NotHeard { source_rank, destination, heard };
    }
    let name = |layout: &Layout| match layout.layer_numbers() {
        [first, .., last] => format!("{first} to {last}"),
        numbers => format!("{numbers:?}"),
    };
    LayoutError::Differs { field: "layers of the model", ours: name(source), theirs: name(destination) }
}

/// Fails unless both values are equal.
fn agree<T: PartialEq + fmt::Display>(field: &'static str, ours: &T, theirs: &T) -> Result<(), LayoutError> {
    if ours == theirs {
        return Ok(());
    }
    Err(LayoutError::Differs { field, ours: ours.to_string(), theirs: theirs.to_string() })
}
