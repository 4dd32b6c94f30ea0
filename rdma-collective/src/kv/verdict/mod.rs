//! Verdicts: one for each block of a transfer in each layer, and the count of writes that they follow from.

use std::fmt;
use std::sync::Arc;

use super::blocks::List;
use super::layout::Layout;
use super::lease::{Hold, Origin};
use super::plan::{Cover, Plan, Run, Wanted, pairs};
use super::pool::Pool;
use crate::kv::KvError;

/// The verdict on one destination block in one layer: on its tokens that the request names, if it names
/// [some](super::Blocks::tokens).
///
/// A part of [`Verdicts`](crate::kv::Verdicts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockVerdict {
    /// The block holds the bytes of the source: all have arrived, and the checksum matches if the link has checksums.
    Valid,
    /// The block may hold anything: not all bytes have arrived, or the checksum was not checked.
    Missing,
    /// All bytes have arrived, and the checksum does not match.
    Corrupt,
}

impl BlockVerdict {
    /// The verdict on a block of which two parts have these verdicts.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => Self::Missing,
            (Self::Corrupt, _) | (_, Self::Corrupt) => Self::Corrupt,
            (Self::Valid, Self::Valid) => Self::Valid,
        }
    }
}

/// The verdicts on all blocks of a transfer, in every layer.
///
/// Keep them to move only the rest: [`Decode::grant_missing`](super::Decode::grant_missing) and
/// [`Decode::pull_missing`](super::Decode::pull_missing) take them.
#[derive(Clone)]
pub struct Verdicts {
    list: List,
    layers: u32,
    /// By layer, then by position in the request.
    states: Box<[BlockVerdict]>,
    /// The contents that the verdicts describe; absent when no block is valid.
    origin: Option<Origin>,
    /// After a transfer of several sources: what each of them brings, and the verdicts on that.
    by_source: Vec<(Arc<Cover>, Self)>,
    /// The part of a source, if the verdicts are about that alone.
    part: Option<Arc<Cover>>,
    /// Whether the transfer has ended well, so that prefill has let its blocks go.
    is_done: bool,
}

impl Verdicts {
    pub(crate) fn new(layers: u32, list: impl Into<List>, all: BlockVerdict) -> Self {
        let list = list.into();
        let states = vec![all; layers as usize * list.blocks().len()].into();
        Self { list, layers, states, origin: None, by_source: Vec::new(), part: None, is_done: false }
    }

    /// Binds the verdicts to the contents that one transfer left in its blocks.
    pub(super) fn of(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// The verdicts of a transfer that has ended well.
    pub(super) fn done(self) -> Self {
        Self { is_done: true, ..self }
    }

    /// The verdicts on blocks that several sources have filled: a block is valid when every source's part of it is. The
    /// parts are about the same blocks and layers.
    pub(super) fn of_sources(mut by_source: Vec<(Arc<Cover>, Self)>) -> Self {
        let Some((_, first)) = by_source.first() else { return Self::new(0, [], BlockVerdict::Missing) };
        let mut merged = first.clone();
        by_source.iter_mut().for_each(|(cover, part)| part.part = Some(Arc::clone(cover)));
        for (_, part) in by_source.iter().skip(1) {
            for (state, other) in merged.states.iter_mut().zip(&part.states) {
                *state = state.and(*other);
            }
        }
        let is_done = by_source.iter().all(|(_, part)| part.is_done);
        Self { by_source, is_done, ..merged }
    }

    /// The verdicts on what the source with this cover brings. Those on whole blocks stand in for a source that has
    /// brought nothing yet; `None` for those on the part of another source, which say nothing about it.
    fn about(&self, cover: &Cover) -> Option<&Self> {
        let of = self.by_source.iter().find(|(brought, _)| **brought == *cover);
        match (of, &self.part) {
            (Some((_, verdicts)), _) => Some(verdicts),
            (None, Some(part)) if **part != *cover => None,
            (None, _) => Some(self),
        }
    }

    /// Holds the blocks for moving what is owed. Decode has those that it had before, and those that are valid in all
    /// layers, unless they have changed since.
    pub(super) fn hold(&self, pool: &Pool) -> Result<Hold, KvError> {
        let Some(origin) = &self.origin else {
            return Hold::grant(pool, self.list.clone().having_only(|_, _| false));
        };
        let is_valid =
            |place| (0..self.layers).all(|layer| self.get(layer, place) == Some(BlockVerdict::Valid));
        // Verdicts on the part of one source say nothing about the others.
        let has = |place, block| self.list.has(block) || (self.part.is_none() && is_valid(place));
        let had = self.blocks().iter().copied().enumerate().filter(|(place, block)| has(*place, *block));
        let had: Vec<u32> = had.map(|(_, block)| block).collect();
        Hold::grant_again(pool, &self.list.clone().having(&had), origin)
    }

    /// Whether the source with this cover has ended well, so that it does not push again.
    pub(super) fn is_done_by(&self, cover: &Cover) -> bool {
        self.about(cover).is_some_and(|about| about.is_done)
    }

    /// The blocks that the source with this cover still owes to `pool`, of which `held` has the blocks; `None` when
    /// they are more than messages can name.
    pub(super) fn owed(&self, cover: &Cover, pool: &Pool, held: &List) -> Option<Wanted> {
        let none = || Self::new(self.layers, &self.list, BlockVerdict::Missing);
        let now = self.about(cover).map_or_else(none, |about| about.as_of_now(pool));
        now.having(held).only(cover, pool.layout()).wanted()
    }

    /// The verdicts with those blocks as valid that decode has.
    fn having(mut self, list: &List) -> Self {
        for (place, _) in list.blocks().iter().enumerate().filter(|(_, block)| list.has(**block)) {
            (0..self.layers).for_each(|layer| self.set(layer, place, BlockVerdict::Valid));
        }
        self
    }

    /// The blocks that are not valid; `None` when they are more than messages can name.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let blocks = self.blocks().len() as u32;
        Wanted::of(self.layers, blocks, |layer, place| {
            self.get(layer, place as usize) != Some(BlockVerdict::Valid)
        })
    }

    /// Sets the verdict on all that `cover` does not bring to valid, because nothing of that is owed.
    pub(super) fn only(mut self, cover: &Cover, layout: &Layout) -> Self {
        for (layer, place) in pairs(self.layers, self.blocks().len() as u32) {
            let group = self.blocks().get(place as usize).and_then(|block| layout.group_of(*block));
            if !group.is_some_and(|(group, _)| cover.has(layer, group)) {
                self.set(layer, place as usize, BlockVerdict::Valid);
            }
        }
        self
    }

    /// The verdicts as they hold now for `pool`: a block of another pool, or one granted or written since, counts as
    /// missing, because its bytes are not those the verdict was made for.
    pub(super) fn as_of_now(&self, pool: &Pool) -> Self {
        let mut now = self.clone();
        let changed = match &self.origin {
            Some(origin) => origin.changed(pool, self.blocks()),
            None => (0..self.blocks().len()).collect(),
        };
        for place in changed {
            (0..self.layers).for_each(|layer| now.set(layer, place, BlockVerdict::Missing));
        }
        now
    }

    /// Derives verdicts from the writes of `plan` that have `arrived`: a block is missing when a write that covers a
    /// byte of it has not arrived. Blocks that the plan does not move are valid.
    pub(super) fn arrived(list: impl Into<List>, plan: &Arc<Plan>, arrived: &Arrived) -> Self {
        let mut verdicts = Self::new(plan.route().destination().layers(), list, BlockVerdict::Valid);
        if arrived.count() == arrived.expected() {
            return verdicts;
        }
        let mut writes = plan.stream();
        let mut index = 0;
        while writes.next().is_some() {
            if !arrived.has(index) {
                for (layers, place) in writes.parts().iter().map(Run::touches) {
                    layers.for_each(|layer| verdicts.set(layer, place as usize, BlockVerdict::Missing));
                }
            }
            index += 1;
        }
        verdicts
    }

    /// Sets one verdict; a position out of range is ignored.
    pub(super) fn set(&mut self, layer: u32, place: usize, verdict: BlockVerdict) {
        if let Some(state) = self.states.get_mut(layer as usize * self.blocks().len() + place) {
            *state = verdict;
        }
    }

    /// The verdict on the block at position `place` of the request, in `layer`; `None` when either is out of range.
    #[must_use]
    pub fn get(&self, layer: u32, place: usize) -> Option<BlockVerdict> {
        let inside = layer < self.layers && place < self.blocks().len();
        inside.then(|| self.states.get(layer as usize * self.blocks().len() + place).copied())?
    }

    /// The destination blocks, in the order of the request.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        self.list.blocks()
    }

    /// The verdicts on what one of several [`Sources`](super::Sources) brings, by its position among the links; `None`
    /// without such a source, and after a transfer over a single link. Blocks of which it brings nothing are valid.
    #[must_use]
    pub fn of_source(&self, at: usize) -> Option<&Self> {
        self.by_source.get(at).map(|(_, verdicts)| verdicts)
    }

    /// The blocks and token ranges of the request.
    pub(super) fn list(&self) -> &List {
        &self.list
    }

    /// The number of layers.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Counts the blocks, summed over all layers, that have `verdict`.
    #[must_use]
    pub fn count(&self, verdict: BlockVerdict) -> usize {
        self.states.iter().filter(|state| **state == verdict).count()
    }

    /// Counts the blocks by their verdicts, which come as values of labels.
    pub(super) fn counts(&self) -> [(&'static str, usize); 3] {
        use BlockVerdict::{Corrupt, Missing, Valid};
        [("valid", Valid), ("missing", Missing), ("corrupt", Corrupt)]
            .map(|(label, verdict)| (label, self.count(verdict)))
    }

    /// Whether every block in every layer is valid.
    #[must_use]
    pub fn all_valid(&self) -> bool {
        self.states.iter().all(|state| *state == BlockVerdict::Valid)
    }

    /// Yields layer, destination block and verdict of each block that is not valid.
    pub fn invalid(&self) -> impl Iterator<Item = (u32, u32, BlockVerdict)> + '_ {
        let layers =
            (0..self.layers).flat_map(|layer| self.blocks().iter().map(move |block| (layer, *block)));
        layers
            .zip(&self.states)
            .filter(|(_, state)| **state != BlockVerdict::Valid)
            .map(|((layer, block), state)| (layer, block, *state))
    }
}

impl PartialEq for Verdicts {
    /// Compares blocks and verdicts; the pool that they are about does not matter.
    fn eq(&self, other: &Self) -> bool {
        (self.blocks(), self.layers, &self.states) == (other.blocks(), other.layers, &other.states)
    }
}

impl Eq for Verdicts {}

impl fmt::Debug for Verdicts {
    /// Prints counts alone, on one line, however many blocks there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use BlockVerdict::{Corrupt, Missing, Valid};
        let [valid, missing, corrupt] = [Valid, Missing, Corrupt].map(|verdict| self.count(verdict));
        f.debug_struct("Verdicts")
            .field("layers", &self.layers)
            .field("blocks", &self.blocks().len())
            .field("valid", &valid)
            .field("missing", &missing)
            .field("corrupt", &corrupt)
            .finish()
    }
}

/// The set of writes of a transfer that have arrived, each counted once.
///
/// Completion is decided by this count alone: no write is inferred from another's arrival, because adaptive routing may
/// reorder writes.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    bits: Vec<u64>,
    count: u32,
    /// Index after the highest that has arrived.
    highest: u32,
    /// Number of writes that the peer has announced.
    expected: Option<u32>,
}

impl Arrived {
    /// Records the arrival of write `index`. Returns `false` for a breach of the protocol: the write has arrived
    /// before, or is beyond the announced number.
    pub(super) fn note(&mut self, index: u32) -> bool {
        if self.expected.is_some_and(|expected| index >= expected) || self.has(index) {
            return false;
        }
        let word = index as usize / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (index % 64);
        self.count += 1;
        self.highest = self.highest.max(index + 1);
        true
    }

    /// Records the announced number of writes. Returns `false` when a write beyond that number has arrived already,
    /// as writes may overtake their announcement.
    pub(super) fn announce(&mut self, expected: u32) -> bool {
        self.expected = Some(expected);
        self.bits.resize(self.bits.len().max(expected.div_ceil(64) as usize), 0);
        self.highest <= expected
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.bits.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Writes that were announced; 0 before the announcement.
    pub(super) fn expected(&self) -> u32 {
        self.expected.unwrap_or(0)
    }

    /// Whether the count has reached what was announced.
    pub(super) fn is_complete(&self) -> bool {
        self.expected == Some(self.count)
    }
}

#[cfg(test)]
mod tests;
