//! Random pairs of layouts, and what a request between them must move: found element by element.

use std::fmt;

use rdma_collective::kv::layout::{Attention, HeadOrder, TensorParallel};
use rdma_collective::kv::plan::{PlanOptions, Tokens};

use super::pools::{Described, DescribedGroup, Layers, Model, Rng, describe};

/// Two layouts and a request.
#[derive(Debug)]
pub struct Pair {
    pub layouts: [Described; 2],
    pub blocks: [Vec<u32>; 2],
    pub options: PlanOptions,
    pub ranks: [TensorParallel; 2],
}

impl Pair {
    pub fn random(seed: u64) -> Self {
        let rng = &mut Rng::new(seed + 1);
        let groups = if rng.chance(4) { 2 + rng.below(3) } else { 1 };
        let models: Vec<Model> = (0..groups).map(|_| Model::random(rng)).collect();
        let sizes = [rng.pick(&[1, 2, 4, 8, 16]), rng.pick(&[1, 2, 4, 8, 16])];
        // Ranks that have something for each other, mostly.
        let destination = rng.below(sizes[1]);
        let near = destination * sizes[0] / sizes[1] + rng.below((sizes[0] / sizes[1]).max(1));
        let source = if rng.chance(10) { rng.below(sizes[0]) } else { near };
        let ranks =
            [(source, sizes[0]), (destination, sizes[1])].map(|(rank, size)| TensorParallel { rank, size });
        let tokens = block_tokens(rng, models.len());
        let layouts = [0, 1].map(|side| describe(rng, &models, ranks[side], &tokens[side], Layers::Random));
        let mut blocks = [Vec::new(), Vec::new()];
        let mut ranges = Vec::new();
        // Pools of less than one whole block at either side have room for a range alone.
        let small = |group: usize| {
            let groups = [0, 1].map(|side| &layouts[side].groups[group]);
            let room = groups.iter().map(|group| group.room()).min();
            room < groups.iter().map(|group| group.shape.block_tokens).max()
        };
        let with_range = rng.chance(3) || (0..models.len()).any(small);
        for group in 0..models.len() {
            ranges.push(request(
                rng,
                [0, 1].map(|side| &layouts[side].groups[group]),
                with_range,
                &mut blocks,
            ));
        }
        let options = options(rng, if with_range { ranges } else { Vec::new() });
        Self { layouts, blocks, options, ranks }
    }

    /// Each byte that must move: its offset in the source and in the destination.
    pub fn expected(&self) -> Vec<(u64, u64)> {
        let mut bytes = Vec::new();
        for group in 0..self.layouts[0].groups.len() {
            let [from, to] = [0, 1].map(|side| &self.layouts[side].groups[group]);
            let lists = [self.list(0, from), self.list(1, to)];
            let whole = Tokens {
                source_skip: 0,
                destination_skip: 0,
                count: lists[0].len() as u32 * from.shape.block_tokens,
            };
            let range = self.options.tokens.get(group).copied().unwrap_or(whole);
            for (row, number) in from.layers.iter().enumerate() {
                let Some(there) = to.layers.iter().position(|layer| layer == number) else { continue };
                for head in 0..from.shape.attention.heads() {
                    if !self.sends(from.shape.attention, head) {
                        continue;
                    }
                    for token in 0..range.count {
                        for part in 0..from.shape.attention.parts() {
                            let here = from.element(row, part, &lists[0], range.source_skip + token, head);
                            let there =
                                to.element(there, part, &lists[1], range.destination_skip + token, head);
                            let len =
                                u64::from(from.shape.attention.elements() * from.shape.cache_type.size());
                            bytes.extend((0..len).map(|at| (here + at, there + at)));
                        }
                    }
                }
            }
        }
        bytes
    }

    /// The blocks of one side that belong to a group, numbered in the group.
    fn list(&self, side: usize, group: &DescribedGroup) -> Vec<u32> {
        let blocks = group.first_block..group.first_block + group.shape.blocks;
        self.blocks[side]
            .iter()
            .filter(|block| blocks.contains(block))
            .map(|block| block - blocks.start)
            .collect()
    }

    /// Whether the source rank of this pair is the one that sends a head to the destination rank.
    fn sends(&self, whole: Attention, head: u32) -> bool {
        let [source, destination] = self.ranks;
        if let Attention::Latent { .. } = whole {
            return destination.rank % source.size == source.rank;
        }
        let holds = |of: TensorParallel, rank: u32| {
            let rank = TensorParallel { rank, size: of.size };
            rank.heads(whole).is_ok_and(|heads| heads.contains(&head))
        };
        if !holds(destination, destination.rank) {
            return false;
        }
        let all = |of: TensorParallel| -> Vec<u32> { (0..of.size).filter(|rank| holds(of, *rank)).collect() };
        let (senders, receivers) = (all(source), all(destination));
        let place = receivers.iter().position(|rank| *rank == destination.rank).unwrap_or(0);
        senders[place % senders.len()] == source.rank
    }

    /// Lets the oracle take every head for its neighbour, where there is one. Returns whether anything has changed.
    pub fn shift_heads(&mut self) -> bool {
        let before = self.expected();
        for group in &mut self.layouts[1].groups {
            let (_, held) = group.heads;
            if held > 1 {
                for place in &mut group.places {
                    place[0] += place[3];
                }
            }
        }
        self.expected() != before
    }
}

impl DescribedGroup {
    /// Tokens of the blocks that requests use.
    pub fn room(&self) -> u32 {
        self.ids.len() as u32 * self.shape.block_tokens
    }

    /// Offset of an element in the pool.
    fn element(&self, row: usize, part: u32, list: &[u32], token: u32, head: u32) -> u64 {
        let parts = self.shape.attention.parts() as usize;
        let [offset, block, token_step, head_step] = self.places[row * parts + part as usize];
        let (at, token) = (token / self.shape.block_tokens, token % self.shape.block_tokens);
        let head = u64::from(head - self.heads.0);
        offset + u64::from(list[at as usize]) * block + u64::from(token) * token_step + head * head_step
    }
}

/// Tokens a block of each group at either side, of which one divides the other.
pub fn block_tokens(rng: &mut Rng, groups: usize) -> [Vec<u32>; 2] {
    let mut tokens = [Vec::new(), Vec::new()];
    for _ in 0..groups {
        let small = 1 + rng.below(4);
        let times = rng.pick(&[1, 1, 2, 3, 4]);
        let (one, other) = if rng.chance(2) { (small, small * times) } else { (small * times, small) };
        tokens[0].push(one);
        tokens[1].push(other);
    }
    tokens
}

pub fn options(rng: &mut Rng, tokens: Vec<Tokens>) -> PlanOptions {
    PlanOptions {
        write_bytes_max: 1 + rng.below(300),
        pack_bytes: if rng.chance(3) { 0 } else { rng.below(60) },
        stage_bytes: 1 + rng.below(200),
        by_layer: rng.chance(3),
        pulls: rng.chance(3),
        unpacks: !rng.chance(3),
        tokens,
    }
}

/// Blocks of a group at both ends, which are added to the lists, and the tokens that go over.
fn request(
    rng: &mut Rng,
    groups: [&DescribedGroup; 2],
    with_range: bool,
    lists: &mut [Vec<u32>; 2],
) -> Tokens {
    let each = groups.map(|group| group.shape.block_tokens);
    let most = groups.map(DescribedGroup::room);
    let unit = each[0].max(each[1]);
    let (skip, count) = if with_range {
        let skip = each.map(|each| rng.below(each));
        let room = [0, 1].map(|side| most[side] - skip[side]);
        (skip, 1 + rng.below(room[0].min(room[1])))
    } else {
        ([0; 2], unit * (1 + rng.below(most[0].min(most[1]) / unit)))
    };
    for side in 0..2 {
        let group = groups[side];
        let mut ids = group.ids.clone();
        if rng.chance(2) {
            rng.shuffle(&mut ids);
        }
        let used = (skip[side] + count).div_ceil(each[side]) as usize;
        lists[side].extend(ids.iter().take(used).map(|id| group.first_block + id));
    }
    Tokens { source_skip: skip[0], destination_skip: skip[1], count }
}

/// How many pairs there were of each kind.
#[derive(Debug, Default)]
pub struct Kinds([(&'static str, u32); 10]);

impl Kinds {
    pub fn count(&mut self, pair: &Pair) {
        let [source, destination] = &pair.layouts;
        let [from, to] = pair.ranks.map(|rank| rank.size);
        let moves = !pair.expected().is_empty();
        let orders = |one, other| {
            let groups = source.groups.iter().zip(&destination.groups);
            let tokens = |group: &DescribedGroup| group.shape.block_tokens > 1 && group.heads.1 > 1;
            groups.clone().any(|(here, there)| {
                (here.shape.head_order, there.shape.head_order) == (one, other)
                    && tokens(here)
                    && tokens(there)
            })
        };
        let sharded =
            source.groups.iter().any(|group| !matches!(group.shape.attention, Attention::Latent { .. }));
        let sizes = source.groups.iter().zip(&destination.groups);
        let kinds = [
            ("split", moves && sharded && from < to),
            ("merge", moves && sharded && from > to),
            ("NHD to HND", moves && orders(HeadOrder::Nhd, HeadOrder::Hnd)),
            ("HND to NHD", moves && orders(HeadOrder::Hnd, HeadOrder::Nhd)),
            ("groups", moves && source.groups.len() > 1),
            (
                "groups that share memory",
                moves && [source, destination].iter().any(|side| side.shares_memory()),
            ),
            ("token ranges", moves && !pair.options.tokens.is_empty()),
            (
                "block sizes",
                moves && sizes.into_iter().any(|(a, b)| a.shape.block_tokens != b.shape.block_tokens),
            ),
            (
                "several tensors",
                moves && source.layout.tensors().len() > 1 && destination.layout.tensors().len() > 1,
            ),
            ("nothing in common", !moves),
        ];
        for (kind, (name, is)) in self.0.iter_mut().zip(kinds) {
            *kind = (name, kind.1 + u32::from(is));
        }
    }

    pub fn assert_each_at_least(&self, least: u32) {
        for (name, count) in self.0.iter().filter(|(name, _)| *name != "nothing in common") {
            assert!(*count >= least, "{name}: {count} pairs");
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, count)| writeln!(f, "{count:6} pairs: {name}"))
    }
}
