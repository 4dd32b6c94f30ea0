//! Plans: from the blocks of a request to the writes that carry them.
//!
//! Plans own which bytes go where, and in how few writes. They are data: no device, no memory, no thread. A [`Route`]
//! is what two layouts have in common; a [`Plan`] is the request of some blocks over it. Posting writes and counting
//! their arrival belong to `push` and `receive`.
//!
//! ```
//! use rdma_collective::kv::layout::{HeadOrder, Layout, Model, Order, Shape};
//! use rdma_collective::kv::plan::{Plan, PlanOptions, Route};
//!
//! // Tokens before heads at the source, heads before tokens at the destination.
//! let shape = Model::LLAMA_3_1_8B.shape(16, 100, Order::LayerPartBlock);
//! let source = Layout::new(shape)?;
//! let destination = Layout::new(Shape { head_order: HeadOrder::Hnd, ..shape })?;
//! let route = Route::new(&source, &destination)?.into();
//! let plan = Plan::new(&route, [&[3, 4], &[90, 17]], &PlanOptions::default())?;
//! let size = plan.size();
//! // 32 layers, keys and values, two blocks of 32 KiB: one write each, packed at the source.
//! assert_eq!((size.writes, size.bytes, size.packed_bytes), (128, 128 << 15, 128 << 15));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cover;
mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod owner;
mod parts;
mod route;
mod runs;
mod segments;
#[cfg(test)]
mod tests;
mod writes;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::kv::layout::{Layout, Side};
use route::Entry;
use segments::Segment;

pub(in crate::kv) use cover::{Cover, Gap, gap};
pub use error::PlanError;
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub use owner::{heads_sent, sources};
pub(in crate::kv) use parts::{Wanted, pairs, parts_of, words_of};
pub use route::Route;
pub use runs::Run;
pub use segments::Tokens;
pub(in crate::kv) use segments::fits;
pub(in crate::kv) use writes::Writes;
pub use writes::{End, Write};

/// The blocks of one request over a [`Route`], in the order of the source pool's memory.
///
/// A plan keeps the blocks alone: writes are made as they are taken. Both sides of a transfer make the same ones from
/// the same layouts, blocks and options, and so agree on how many there are.
#[derive(Clone, Debug)]
pub struct Plan {
    route: Arc<Route>,
    /// By group.
    segments: Vec<Vec<Segment>>,
    write_bytes_max: u32,
    /// Runs with shorter pieces are packed.
    pack_bytes: u32,
    stage_bytes: u32,
    /// Whether no write has bytes of two layers, and writes come layer by layer.
    by_layer: bool,
    /// Whether the destination reads, so that nothing can be packed at the source.
    pulls: bool,
    /// Whether the destination has staging memory.
    unpacks: bool,
    wanted: Option<Wanted>,
    /// Whether all layers of a block go in one piece, by group.
    joined: Vec<bool>,
    /// By group, the segments in the order of the destination's list, once checksums need them.
    by_place: OnceLock<Vec<Vec<Segment>>>,
}

/// How a request becomes writes. Both ends of a link use the same.
///
/// The argument of [`Plan::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Longest write in bytes (1 MiB).
    pub write_bytes_max: u32,
    /// Pieces shorter than this are packed into staging memory (4 KiB; 0 packs none): a write of that length takes as
    /// long on the wire as its request takes to make. Layouts whose whole blocks have no such piece pack none, because
    /// their links have no staging memory.
    pub pack_bytes: u32,
    /// Most bytes that are packed into one write (64 KiB), which stay in a processor's cache.
    pub stage_bytes: u32,
    /// Whether writes go layer by layer (no), so that none has bytes of two.
    pub by_layer: bool,
    /// Whether the destination reads (no), instead of the source writing.
    pub pulls: bool,
    /// Whether the destination has staging memory (yes). Without it only pieces that are adjacent there are packed.
    pub unpacks: bool,
    /// Tokens to move, for each group of the layouts; all when empty.
    pub tokens: Vec<Tokens>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            write_bytes_max: 1 << 20,
            pack_bytes: 4096,
            stage_bytes: 64 * 1024,
            by_layer: false,
            pulls: false,
            unpacks: true,
            tokens: Vec::new(),
        }
    }
}

/// How much a plan has to do.
///
/// Returned by [`Plan::size`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSize {
    /// Bytes of all writes.
    pub bytes: u64,
    /// Writes, or reads of a pull.
    pub writes: u64,
    /// Pieces that are adjacent at both sides.
    pub pieces: u64,
    /// Bytes that are packed at the source, unpacked at the destination, or both.
    pub packed_bytes: u64,
}

/// The writes of a plan, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kv) struct Count {
    pub(in crate::kv) writes: u32,
    /// Writes to staging memory of the destination.
    pub(in crate::kv) unpacked: u32,
    /// For each layer of the source the writes up to its end, if the plan goes layer by layer.
    pub(in crate::kv) ends: Vec<u32>,
}

/// The indices of the writes of a layer, by the [`ends`](Count::ends) of a plan; none of a layer that has no end there.
pub(in crate::kv) fn writes_of(ends: &[u32], layer: usize) -> Range<u32> {
    let end = |layer: Option<usize>| layer.and_then(|layer| ends.get(layer)).copied();
    let start = end(layer.checked_sub(1)).unwrap_or(0);
    start..end(Some(layer)).unwrap_or(start)
}

#[cfg(test)]
impl PlanOptions {
    /// Options of a plan in which every piece goes by itself.
    pub(in crate::kv) fn unpacked() -> Self {
        Self { pack_bytes: 0, ..Self::default() }
    }
}

impl Plan {
    /// Plans a request: the blocks of the source, and those of the destination that they go to, in this order.
    ///
    /// The lists pair up by tokens, group by group: a block of 32 tokens takes two of 16.
    ///
    /// # Errors
    /// [`PlanError`] when there are no blocks, a block is out of range or given twice, the lists have different
    /// numbers of tokens, a token range does not fit the lists, or the longest write has 0 bytes.
    pub fn new(
        route: &Arc<Route>,
        blocks: [&[u32]; 2],
        options: &PlanOptions,
    ) -> Result<Arc<Self>, PlanError> {
        Self::of_parts(route, blocks, options, None)
    }

    /// Plans like [`new`](Self::new), but for the wanted blocks alone.
    pub(in crate::kv) fn of_parts(
        route: &Arc<Route>,
        blocks: [&[u32]; 2],
        options: &PlanOptions,
        wanted: Option<Wanted>,
    ) -> Result<Arc<Self>, PlanError> {
        if options.write_bytes_max == 0 {
            return Err(PlanError::BoundZero);
        }
        let (ranges, groups) = (options.tokens.len(), route.groups.len());
        if ![0, groups].contains(&ranges) {
            return Err(PlanError::TokenRanges { ranges, groups });
        }
        let [source, destination] = blocks;
        if source.is_empty() || destination.is_empty() {
            return Err(PlanError::NoBlocks);
        }
        check_blocks(Side::Source, source, route.source())?;
        check_blocks(Side::Destination, destination, route.destination())?;
        let mut segments = Vec::with_capacity(route.groups.len());
        for (number, group) in route.groups.iter().enumerate() {
            let lists = [(route.source(), source), (route.destination(), destination)]
                .map(|(layout, list)| segments::of_group(layout, number, list));
            let lists = [&lists[0][..], &lists[1][..]];
            segments.push(segments::cut(number, lists, group.tokens, options.tokens.get(number))?);
        }
        let whole = |number: usize| {
            let of = segments.get(number).map_or(&[][..], Vec::as_slice);
            route
                .groups
                .get(number)
                .is_some_and(|group| of.iter().all(|segment| segment.tokens == group.tokens[0]))
        };
        let joins = |number: usize| !options.by_layer && wanted.is_none() && whole(number);
        let joined = (0..route.groups.len()).map(joins).collect();
        let PlanOptions { write_bytes_max, pack_bytes, stage_bytes, by_layer, pulls, unpacks, .. } = *options;
        let pack_bytes = if route.has_pieces_below(pack_bytes) { pack_bytes } else { 0 };
        Ok(Arc::new(Self {
            route: Arc::clone(route),
            segments,
            write_bytes_max,
            pack_bytes,
            stage_bytes,
            by_layer,
            pulls,
            unpacks,
            wanted,
            joined,
            by_place: OnceLock::new(),
        }))
    }

    /// The route of the plan.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Every write, with its runs. Staging memory has the pieces of the runs in this order.
    pub fn writes(self: &Arc<Self>) -> impl Iterator<Item = (Write, Vec<Run>)> + use<> {
        let mut stream = self.stream();
        std::iter::from_fn(move || stream.next().map(|write| (write, stream.parts().to_vec())))
    }

    /// Counts what the plan has to do, by going through it.
    #[must_use]
    pub fn size(self: &Arc<Self>) -> PlanSize {
        let mut size = PlanSize::default();
        let mut stream = self.stream();
        while let Some(write) = stream.next() {
            size.bytes += write.len;
            size.writes += 1;
            size.pieces += stream.parts().iter().map(|run| u64::from(run.count)).sum::<u64>();
            let packed = [write.source, write.destination].contains(&End::Staging);
            size.packed_bytes += if packed { write.len } else { 0 };
        }
        size
    }

    /// Bytes of all writes.
    pub(in crate::kv) fn bytes(&self) -> u64 {
        let groups = self.route.groups.iter().zip(&self.segments);
        let bytes = groups.map(|(group, segments)| {
            let tokens = |entry: &Entry| -> u64 {
                let wanted = segments.iter().filter(|segment| self.wants(entry, segment));
                wanted.map(|segment| u64::from(segment.tokens)).sum()
            };
            let layers = group.entries.chunk_by(|one, next| one.layers == next.layers);
            let tokens: u64 = match &self.wanted {
                None => group.layers * segments.iter().map(|segment| u64::from(segment.tokens)).sum::<u64>(),
                Some(_) => layers.filter_map(|layer| layer.first()).map(tokens).sum(),
            };
            tokens * group.token_bytes()
        });
        bytes.sum()
    }

    /// The pieces of the destination block at `place` in `layer`: source offset, destination offset and length, in an
    /// order that is the same for both ends.
    pub(in crate::kv) fn pieces(&self, layer: u32, place: u32) -> impl Iterator<Item = (u64, u64, u64)> {
        let by_place =
            self.by_place.get_or_init(|| self.segments.iter().map(|list| by_place(list)).collect());
        let groups = self.route.groups.iter().zip(by_place);
        groups.flat_map(move |(group, segments)| {
            let first = group.entries.partition_point(|entry| entry.layers[1] < layer);
            let entries = group.entries.iter().skip(first).take_while(move |entry| entry.layers[1] == layer);
            let start = segments.partition_point(|segment| segment.places[1] < place);
            let segments = segments.iter().skip(start).take_while(move |segment| segment.places[1] == place);
            entries.flat_map(move |entry| {
                segments.clone().flat_map(move |segment| {
                    let nest = group.nest(&entry.steps, segment.tokens, self.by());
                    let start = [0, 1].map(|side| entry.start(side, segment));
                    nest.offsets().map(move |at| (start[0] + at[0], start[1] + at[1], nest.len))
                })
            })
        })
    }

    /// The writes of all layers, for whoever takes them over time.
    pub(in crate::kv) fn stream(self: &Arc<Self>) -> Stream {
        let layers = self.route.source().layers();
        let first = if self.by_layer { 1.min(layers) } else { layers };
        self.stream_of(0..first, first..layers)
    }

    /// The writes of one layer of the source, of a plan that goes layer by layer.
    pub(in crate::kv) fn stream_layer(self: &Arc<Self>, layer: u32) -> Stream {
        self.stream_of(layer..layer.saturating_add(1), 0..0)
    }

    /// The writes of the layers of `first` together, and then those of each layer of `rest`.
    fn stream_of(self: &Arc<Self>, first: Range<u32>, rest: Range<u32>) -> Stream {
        let writes = Writes::new(runs::Runs::new(self, first));
        Stream { plan: Arc::clone(self), writes, layers: rest, ahead: None }
    }

    /// Counts the writes. Counting stops at `max` + 1, because a transfer with more is refused anyway.
    pub(in crate::kv) fn count(self: &Arc<Self>, max: u32) -> Count {
        let most = max.saturating_add(1);
        let mut count = Count::default();
        let add = |writes: Writes, count: &mut Count| {
            for write in writes.take((most - count.writes) as usize) {
                count.writes += 1;
                count.unpacked += u32::from(write.destination == End::Staging);
            }
        };
        let layers = self.route.source().layers();
        if !self.by_layer {
            add(Writes::new(runs::Runs::new(self, 0..layers)), &mut count);
            return count;
        }
        for layer in 0..layers {
            add(Writes::new(runs::Runs::new(self, layer..layer + 1)), &mut count);
            count.ends.push(count.writes);
        }
        count
    }

    /// The blocks of the source's list of which nothing moves, because the destination wants none of their bytes.
    pub(in crate::kv) fn skipped(&self, source: &[u32]) -> Vec<u32> {
        if self.wanted.is_none() {
            return Vec::new();
        }
        let mut moves = vec![false; source.len()];
        for (group, segments) in self.route.groups.iter().zip(&self.segments) {
            for segment in segments {
                let wanted = group.entries.iter().any(|entry| self.wants(entry, segment));
                if let Some(moves) = moves.get_mut(segment.places[0] as usize) {
                    *moves |= wanted;
                }
            }
        }
        source.iter().zip(moves).filter(|(_, moves)| !moves).map(|(block, _)| *block).collect()
    }

    /// Whether a segment is wanted in the layer of an entry.
    fn wants(&self, entry: &Entry, segment: &Segment) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.has(entry.layers[1], segment.places[1]))
    }

    /// Bytes of a block over all layers, if they go in one piece.
    fn joins_layers(&self, group: usize) -> Option<u64> {
        let joined = self.joined.get(group).is_some_and(|joined| *joined);
        let route = self.route.groups.get(group).filter(|_| joined)?;
        route.adjacent.map(|bytes| bytes * route.layers)
    }

    /// The memory in whose order the pieces of a block go.
    fn by(&self) -> usize {
        usize::from(!self.pulls)
    }

    /// Pieces shorter than this are packed. Staging memory holds at least one.
    fn pack_bytes(&self) -> u64 {
        u64::from(self.pack_bytes.min(self.stage_bytes).min(self.write_bytes_max))
    }
}

/// The writes of a plan, layer by layer if the plan goes so.
#[derive(Debug)]
pub(in crate::kv) struct Stream {
    plan: Arc<Plan>,
    writes: Writes,
    /// Layers after those of `writes`.
    layers: Range<u32>,
    /// A write that was looked at and not taken.
    ahead: Option<Write>,
}

impl Stream {
    /// The next write, which stays.
    pub(in crate::kv) fn peek(&mut self) -> Option<Write> {
        self.ahead = self.next();
        self.ahead
    }

    /// The runs of the write that was returned last, taken or not.
    pub(in crate::kv) fn parts(&self) -> &[Run] {
        self.writes.parts()
    }
}

impl Iterator for Stream {
    type Item = Write;

    fn next(&mut self) -> Option<Write> {
        if let Some(ahead) = self.ahead.take() {
            return Some(ahead);
        }
        loop {
            if let Some(write) = self.writes.next() {
                return Some(write);
            }
            let layer = self.layers.next()?;
            self.writes = Writes::new(runs::Runs::new(&self.plan, layer..layer + 1));
        }
    }
}

fn by_place(segments: &[Segment]) -> Vec<Segment> {
    let mut segments = segments.to_vec();
    segments.sort_unstable_by_key(|segment| (segment.places[1], segment.first[1]));
    segments
}

/// Fails if a block is out of range or given twice.
fn check_blocks(side: Side, list: &[u32], layout: &Layout) -> Result<(), PlanError> {
    let count = layout.blocks();
    if let Some(&block) = list.iter().find(|block| **block >= count) {
        return Err(PlanError::BlockOutOfRange { side, block, blocks: count });
    }
    let mut sorted: Vec<_> = list.iter().map(|block| (layout.base_block(*block), *block)).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(PlanError::BlockRepeated { side, block: pair[1].1 }),
        None => Ok(()),
    }
}
