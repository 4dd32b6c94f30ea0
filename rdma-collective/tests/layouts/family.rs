//! Random families of sources: all ranks and pipeline stages of prefill that fill one rank of decode.

use rdma_collective::kv::layout::TensorParallel;
use rdma_collective::kv::plan::{PlanOptions, Tokens};

use super::oracle::{Pair, block_tokens, options};
use super::pools::{Layers, Model, Rng, describe};

/// A request from each source to one destination, all with the same destination blocks.
#[derive(Debug)]
pub struct Family {
    pub sources: Vec<Pair>,
}

impl Family {
    /// `None` for pools that are too small for a block of the other side.
    pub fn random(seed: u64) -> Option<Self> {
        let rng = &mut Rng::new(seed + 1);
        let groups = if rng.chance(4) { 2 + rng.below(2) } else { 1 };
        let models: Vec<Model> = (0..groups).map(|_| Model::random(rng)).collect();
        let sizes = [rng.pick(&[1, 2, 4, 8, 16]), rng.pick(&[1, 2, 4, 8, 16])];
        let stages = if models.iter().all(|model| model.layers > 1) { 1 + rng.below(2) } else { 1 };
        let to = TensorParallel { rank: rng.below(sizes[1]), size: sizes[1] };
        let tokens = block_tokens(rng, models.len());
        let room = describe(rng, &models, to, &tokens[1], Layers::Stage { at: 0, of: 1 });
        let options = options(rng, Vec::new());
        let mut sources = Vec::new();
        for (at, rank) in (0..stages).flat_map(|at| (0..sizes[0]).map(move |rank| (at, rank))) {
            let from = TensorParallel { rank, size: sizes[0] };
            let source = describe(rng, &models, from, &tokens[0], Layers::Stage { at, of: stages });
            let (layouts, blocks) = ([source, room.clone()], [Vec::new(), Vec::new()]);
            sources.push(Pair { layouts, blocks, options: options.clone(), ranks: [from, to] });
        }
        for (group, (from, to)) in tokens[0].iter().zip(&tokens[1]).enumerate() {
            let each = [*from, *to];
            let unit = each[0].max(each[1]);
            let capacity = |pair: &Pair, side: usize| pair.layouts[side].groups[group].room();
            let most = sources.iter().map(|pair| capacity(pair, 0).min(capacity(pair, 1))).min()?;
            if most < unit {
                return None;
            }
            let count = unit * (1 + rng.below(most / unit));
            let room = some_blocks(rng, &sources[0], (1, group), count / each[1]);
            for pair in &mut sources {
                let own = some_blocks(rng, pair, (0, group), count / each[0]);
                pair.blocks[0].extend(own);
                pair.blocks[1].extend(&room);
            }
        }
        if rng.chance(3) {
            let each = |group: usize| [tokens[0][group], tokens[1][group]];
            let ranges: Vec<Tokens> =
                (0..models.len()).map(|group| range(rng, &sources[0], group, each(group))).collect();
            sources.iter_mut().for_each(|pair| pair.options.tokens = ranges.clone());
        }
        sources.retain(|pair| !pair.expected().is_empty());
        Some(Self { sources })
    }

    pub fn options(&self) -> &PlanOptions {
        &self.sources[0].options
    }

    /// Whether one source brings whole blocks.
    pub fn is_single(&self) -> bool {
        self.sources.len() == 1
    }
}

/// Tokens that begin in the first block of either list and end in the last.
fn range(rng: &mut Rng, pair: &Pair, group: usize, each: [u32; 2]) -> Tokens {
    let described = &pair.layouts[1].groups[group];
    let blocks = described.first_block..described.first_block + described.shape.blocks;
    let total = pair.blocks[1].iter().filter(|block| blocks.contains(block)).count() as u32 * each[1];
    let least = each[0].min(each[1]);
    let skip = [rng.below(least), rng.below(least)];
    let below = [0, 1].map(|side| total.saturating_sub(each[side] + skip[side]));
    let (below, most) = (below[0].max(below[1]), total - skip[0].max(skip[1]));
    Tokens { source_skip: skip[0], destination_skip: skip[1], count: below + 1 + rng.below(most - below) }
}

/// Blocks of a group, by their numbers in the layout.
fn some_blocks(rng: &mut Rng, pair: &Pair, (side, group): (usize, usize), count: u32) -> Vec<u32> {
    let group = &pair.layouts[side].groups[group];
    let mut ids = group.ids.clone();
    rng.shuffle(&mut ids);
    ids.iter().take(count as usize).map(|id| group.first_block + id).collect()
}
