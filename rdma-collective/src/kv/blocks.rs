//! The blocks that a request names, and the tokens of them.

use std::ops::Range;
use std::sync::Arc;

use super::layout::{Layout, Side};
use super::lease::HoldKind;
use super::plan::{PlanError, Tokens, fits};

/// The blocks of one end of a request, in order, and which of their tokens move.
///
/// A list of blocks alone moves all tokens: every call that takes `Blocks` takes `&[3, 4]`, too. With a range only
/// those tokens move, for example one chunk of a prompt, or the tokens that the last block has so far:
///
/// ```
/// use rdma_collective::kv::Blocks;
/// // Blocks of 16 tokens: of three blocks the tokens from the ninth on, and one token of the last.
/// let chunk = Blocks::new(&[7, 8, 9]).tokens(8..33);
/// ```
///
/// Both ends of a request name ranges, and those have equally many tokens; or neither end does. Other tokens of the
/// blocks keep their bytes. A verdict on a block is about its tokens in the range. A block still belongs to one grant
/// at a time, so that two grants of tokens of one block follow each other.
///
/// The argument of [`Prefill::push`](super::Prefill::push), [`Decode::grant`](super::Decode::grant) and their sisters.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    blocks: &'a [u32],
    having: &'a [u32],
    tokens: Ranges<'a>,
}

/// The token ranges of a request.
#[derive(Clone, Copy, Debug)]
enum Ranges<'a> {
    /// All tokens.
    All,
    /// First and end, in a layout of one group.
    One(u32, u32),
    /// A range for each group.
    Each(&'a [Range<u32>]),
}

impl<'a> Blocks<'a> {
    /// All tokens of these blocks.
    #[must_use]
    pub const fn new(blocks: &'a [u32]) -> Self {
        Self { blocks, having: &[], tokens: Ranges::All }
    }

    /// The blocks of this list that decode has already, in any order: the cached prefix of a prompt, for example. No
    /// byte of them moves, and the transfer [shares](super::Pool::share) them until it ends, so that they keep their
    /// bytes.
    ///
    /// Blocks are named by number, because a list of several groups has the prefix of each in its midst. The list
    /// itself keeps them, so that it pairs with that of prefill, which is [told](super::Transfer::skipped) what to
    /// skip. With a token range a block is left out with all of its tokens. The verdict on such a block is
    /// [`Valid`](super::BlockVerdict::Valid).
    ///
    /// For a grant or a pull alone: prefill learns from decode what that has.
    ///
    /// ```
    /// use rdma_collective::kv::Blocks;
    /// // The first two blocks are in decode's cache, and the third is to be filled.
    /// let blocks = Blocks::new(&[7, 8, 9]).having(&[7, 8]);
    /// ```
    #[must_use]
    pub const fn having(self, blocks: &'a [u32]) -> Self {
        Self { having: blocks, ..self }
    }

    /// These tokens alone, in a layout of one group. They are counted from the first token of the first block, begin in
    /// that block and end in the last.
    #[must_use]
    pub const fn tokens(self, range: Range<u32>) -> Self {
        Self { tokens: Ranges::One(range.start, range.end), ..self }
    }

    /// These tokens alone, a range for each group of the layout: counted from the first token of the group's first
    /// block. The range of a group without blocks is `0..0`.
    #[must_use]
    pub const fn tokens_by_group(self, ranges: &'a [Range<u32>]) -> Self {
        Self { tokens: Ranges::Each(ranges), ..self }
    }
}

impl<'a> From<&'a [u32]> for Blocks<'a> {
    fn from(blocks: &'a [u32]) -> Self {
        Self::new(blocks)
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Blocks<'a> {
    fn from(blocks: &'a [u32; N]) -> Self {
        Self::new(blocks)
    }
}

impl<'a> From<&'a Vec<u32>> for Blocks<'a> {
    fn from(blocks: &'a Vec<u32>) -> Self {
        Self::new(blocks)
    }
}

/// [`Blocks`] that a transfer keeps. A clone is another handle to the same list.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// The blocks, and behind them first and end of each range: the list as it goes over the wire.
    numbers: Arc<[u32]>,
    /// Number of blocks.
    blocks: usize,
    /// The blocks that decode has, in ascending order; absent when it has none.
    had: Option<Arc<[u32]>>,
    /// Whether the request names tokens; otherwise all tokens of the blocks move.
    tokens: bool,
}

impl List {
    fn new(blocks: &[u32], ranges: Option<&[Range<u32>]>) -> Self {
        let ends = ranges.unwrap_or_default().iter().flat_map(|range| [range.start, range.end]);
        let numbers = blocks.iter().copied().chain(ends).collect();
        Self { numbers, blocks: blocks.len(), had: None, tokens: ranges.is_some() }
    }

    /// This list, of which decode has some blocks.
    pub(super) fn having(self, blocks: &[u32]) -> Self {
        let mut had = blocks.to_vec();
        had.sort_unstable();
        Self { had: Some(had).filter(|had| !had.is_empty()).map(Into::into), ..self }
    }

    /// This list, but decode has only those of its blocks that `still` has, by position and block.
    pub(super) fn having_only(self, still: impl Fn(usize, u32) -> bool) -> Self {
        if self.had.is_none() {
            return self;
        }
        let places = self.blocks().iter().copied().enumerate();
        let had = places.filter(|(place, block)| self.has(*block) && still(*place, *block));
        let had: Vec<_> = had.map(|(_, block)| block).collect();
        self.having(&had)
    }

    /// Whether decode has a block.
    pub(super) fn has(&self, block: u32) -> bool {
        self.had().binary_search(&block).is_ok()
    }

    /// The blocks that decode has, in ascending order.
    pub(super) fn had(&self) -> &[u32] {
        self.had.as_deref().unwrap_or_default()
    }

    /// The blocks that decode does not have.
    pub(super) fn not_had(&self) -> Vec<u32> {
        self.blocks().iter().copied().filter(|block| !self.has(*block)).collect()
    }

    /// The hold on each block of a transfer that holds those `kind` which decode does not have.
    pub(super) fn holds(&self, kind: HoldKind) -> impl Iterator<Item = (u32, HoldKind)> {
        let of = move |block| if self.has(block) { HoldKind::Shared } else { kind };
        self.blocks().iter().map(move |block| (*block, of(*block)))
    }

    pub(super) fn blocks(&self) -> &[u32] {
        self.numbers.get(..self.blocks).unwrap_or_default()
    }

    pub(super) fn has_tokens(&self) -> bool {
        self.tokens
    }

    /// The token ranges; none when all tokens move.
    pub(super) fn tokens(&self) -> Vec<Range<u32>> {
        ranges(self.numbers.get(self.blocks..).unwrap_or_default())
    }

    /// The blocks, and behind them first and end of each range.
    pub(super) fn numbers(&self) -> &Arc<[u32]> {
        &self.numbers
    }

    /// Fails unless there is a range for each group, or none, and each fits the blocks of its group; and unless the
    /// blocks that decode has are in the list, each once.
    pub(super) fn check(&self, layout: &Layout, side: Side) -> Result<(), PlanError> {
        self.check_had(side)?;
        if !self.tokens {
            return Ok(());
        }
        let (ranges, groups) = (self.tokens(), layout.groups().len());
        if ranges.len() != groups {
            return Err(PlanError::TokenRanges { ranges: ranges.len(), groups });
        }
        for (group, (range, of)) in ranges.iter().zip(layout.groups()).enumerate() {
            let is_of = |block: &&u32| layout.group_of(**block).is_some_and(|(at, _)| at == group);
            let (each, blocks) = (of.shape().block_tokens, self.blocks().iter().filter(is_of).count());
            let tokens = blocks as u64 * u64::from(each);
            let (first, end) = (u64::from(range.start), u64::from(range.end));
            if !fits(first..end, tokens, each) {
                return Err(PlanError::TokenRange { side, group, first, end, tokens, each });
            }
        }
        Ok(())
    }

    fn check_had(&self, side: Side) -> Result<(), PlanError> {
        let Some(&first) = self.had().first() else { return Ok(()) };
        if side == Side::Source {
            return Err(PlanError::HadAtSource { block: first });
        }
        if let Some((&block, _)) =
            self.had().iter().zip(self.had().iter().skip(1)).find(|(one, next)| one == next)
        {
            return Err(PlanError::BlockRepeated { side, block });
        }
        let mut listed = self.blocks().to_vec();
        listed.sort_unstable();
        match self.had().iter().find(|block| listed.binary_search(block).is_err()) {
            Some(&block) => Err(PlanError::HadNotListed { block }),
            None => Ok(()),
        }
    }
}

impl From<Blocks<'_>> for List {
    fn from(Blocks { blocks, having, tokens }: Blocks<'_>) -> Self {
        let list = match tokens {
            Ranges::All => Self::new(blocks, None),
            Ranges::One(start, end) => Self::new(blocks, Some(std::slice::from_ref(&(start..end)))),
            Ranges::Each(ranges) => Self::new(blocks, Some(ranges)),
        };
        list.having(having)
    }
}

impl<const N: usize> From<[u32; N]> for List {
    fn from(blocks: [u32; N]) -> Self {
        Self::new(&blocks, None)
    }
}

impl From<&[u32]> for List {
    fn from(blocks: &[u32]) -> Self {
        Self::new(blocks, None)
    }
}

impl From<&Self> for List {
    fn from(list: &Self) -> Self {
        list.clone()
    }
}

/// Numbers that token ranges take behind the blocks of a list: first and end for each group of its end's layout, if the
/// request names tokens.
pub(super) fn numbers_of_ranges(tokens: bool, layout: &Layout) -> u32 {
    if tokens { 2 * layout.groups().len() as u32 } else { 0 }
}

/// The ranges of a peer, which are pairs of numbers behind its blocks.
pub(super) fn ranges(numbers: &[u32]) -> Vec<Range<u32>> {
    numbers.as_chunks().0.iter().map(|[start, end]| *start..*end).collect()
}

/// The tokens of a plan from the ranges of both ends; `None` when those have not equally many tokens, or one end has no
/// ranges.
pub(super) fn tokens_of(source: &[Range<u32>], destination: &[Range<u32>]) -> Option<Vec<Tokens>> {
    if source.len() != destination.len() {
        return None;
    }
    let both = source.iter().zip(destination);
    both.map(|(from, to)| {
        let count = from.end.checked_sub(from.start)?;
        (to.end.checked_sub(to.start) == Some(count)).then_some(Tokens {
            source_skip: from.start,
            destination_skip: to.start,
            count,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::layout::{Group, Model, Order};

    #[test]
    fn ranges_of_both_ends_have_equally_many_tokens() {
        let tokens = tokens_of(&[3..20, 0..4], &[1..18, 2..6]).unwrap();
        assert_eq!((tokens[0].source_skip, tokens[0].destination_skip, tokens[0].count), (3, 1, 17));
        assert_eq!(tokens_of(&[], &[]), Some(vec![]));
        let of = |source: Range<u32>, destination: Range<u32>| tokens_of(&[source], &[destination]);
        assert_eq!(of(0..4, 0..5), None);
        assert_eq!((tokens_of(&[0..4, 0..4], &[]), tokens_of(&[], &[0..4, 0..4])), (None, None));
        let wrapped = Range { start: 5, end: 3 };
        assert_eq!(of(wrapped.clone(), wrapped), None);
    }

    #[test]
    fn a_range_begins_in_the_first_block_and_ends_in_the_last() {
        let shape = Model::LLAMA_3_1_8B.shape(16, 9, Order::LayerBlockPart);
        let layout = Layout::of([Group::new(shape)]).unwrap();
        let check = |range: Range<u32>| {
            List::from(Blocks::new(&[7, 8, 2]).tokens(range)).check(&layout, Side::Source).is_ok()
        };
        assert!(check(0..48) && check(15..33) && check(3..48));
        assert!(!check(16..48) && !check(0..32) && !check(0..49) && !check(5..5));
        let two = List::from(Blocks::new(&[7]).tokens_by_group(&[0..16, 0..16]));
        assert!(matches!(
            two.check(&layout, Side::Source),
            Err(PlanError::TokenRanges { ranges: 2, groups: 1 })
        ));
        let list = List::from(Blocks::new(&[7, 8]).tokens(1..20));
        assert_eq!(&**list.numbers(), [7, 8, 1, 20]);
    }
}
