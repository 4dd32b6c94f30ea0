//! mistral.rs: its paged scheduler and `KVCacheManager`, with the state that a sequence has while its prompt is
//! computed elsewhere, and the blocks that are not free yet.

use std::collections::{BTreeMap, VecDeque};
use std::task::Poll;

use rdma_collective::kv::layout::{Group, HeadOrder, Layout, Shape, Tensors};
use rdma_collective::kv::{Blocks, KvNode, Pool, PoolUse, Receiving, Request, Sending};
use rdma_core::{Memory, Wire};

use super::{Job, Server, step_until};
use crate::common::long;
use crate::job::options;
use crate::pair::{SHAPE, TOKEN, engine};

/// `KVCacheManager` and its `BlockPool`, for whole blocks. The hash of a block is its text.
struct KvCacheManager {
    pool: Pool,
    free: VecDeque<u32>,
    /// Blocks of ended sequences that a transfer still has: not free before no write can reach them.
    leaving: Vec<u32>,
    cached: BTreeMap<u32, u32>,
    /// Sequences that have each block.
    count: BTreeMap<u32, usize>,
    of_sequence: BTreeMap<usize, Vec<u32>>,
}

impl KvCacheManager {
    /// A manager of so many blocks.
    fn new(pool: &Pool, blocks: u32) -> Self {
        let (cached, count, of_sequence) = Default::default();
        let free = (0..blocks).collect();
        Self { pool: pool.clone(), free, leaving: vec![], cached, count, of_sequence }
    }

    fn get_computed_blocks(&self, texts: &[u32]) -> Vec<u32> {
        texts.iter().map_while(|text| self.cached.get(text).copied()).collect()
    }

    /// The blocks of a sequence, those that are computed first; `None` while there are too few.
    fn allocate_slots(&mut self, sequence: usize, blocks: usize, computed: &[u32]) -> Option<Vec<u32>> {
        let (free, leaving): (Vec<u32>, _) =
            self.leaving.drain(..).partition(|block| self.pool.held(*block).is_none());
        self.free.extend(free);
        self.leaving = leaving;
        let new = blocks - computed.len();
        let available = self.free.iter().filter(|block| !computed.contains(block)).count();
        if available < new {
            return None;
        }
        self.free.retain(|block| !computed.contains(block));
        let mut list = computed.to_vec();
        list.extend(self.free.drain(..new));
        self.cached.retain(|_, block| !list[computed.len()..].contains(block));
        list.iter().for_each(|block| *self.count.entry(*block).or_default() += 1);
        self.of_sequence.insert(sequence, list.clone());
        Some(list)
    }

    fn cache_blocks(&mut self, sequence: usize, texts: &[u32]) {
        self.cached.extend(texts.iter().copied().zip(self.of_sequence[&sequence].iter().copied()));
    }

    fn free(&mut self, sequence: usize) {
        for block in self.of_sequence.remove(&sequence).unwrap_or_default().into_iter().rev() {
            let count = self.count.get_mut(&block).unwrap();
            *count -= 1;
            if *count == 0 {
                self.leaving.push(block);
            }
        }
    }
}

/// `SequenceState`, with the one that a prompt computed elsewhere adds.
enum State {
    Waiting,
    /// A prefill computes the prompt. The step goes on with other sequences.
    RemoteKv(Job<Receiving>),
    RunningCompletion {
        first_token: Vec<u8>,
        bytes: u64,
    },
}

struct Sequence {
    id: usize,
    texts: Vec<u32>,
    state: State,
}

/// `PagedAttentionScheduler` of a decode.
struct Scheduler<'a> {
    node: &'a KvNode,
    cache: KvCacheManager,
    sequences: Vec<Sequence>,
    /// Prompts that did not come, and are asked for again.
    lost: usize,
}

impl<'a> Scheduler<'a> {
    fn new(node: &'a KvNode, pool: &Pool, blocks: u32) -> Self {
        Self { node, cache: KvCacheManager::new(pool, blocks), sequences: vec![], lost: 0 }
    }

    fn add_seq(&mut self, id: usize, texts: &[u32]) {
        self.sequences.push(Sequence { id, texts: texts.to_vec(), state: State::Waiting });
    }

    /// Takes a step: sequences that wait have a prefill asked, and those whose blocks are there run.
    fn schedule(&mut self) {
        for Sequence { id, texts, state } in &mut self.sequences {
            match state {
                State::Waiting => {
                    let computed = self.cache.get_computed_blocks(texts);
                    let Some(list) = self.cache.allocate_slots(*id, texts.len(), &computed) else { continue };
                    let list = Blocks::new(&list).having(&computed);
                    *state = State::RemoteKv(Job::Begins(self.node.grant("p", *id, list, long())));
                }
                State::RemoteKv(job) => match job.poll() {
                    Poll::Ready(Ok(Ok(received))) => {
                        assert!(received.verdicts.all_valid());
                        self.cache.cache_blocks(*id, texts);
                        *state =
                            State::RunningCompletion { first_token: received.note, bytes: received.bytes };
                    }
                    Poll::Ready(_) => {
                        self.lost += 1;
                        self.cache.free(*id);
                        *state = State::Waiting;
                    }
                    Poll::Pending => {}
                },
                State::RunningCompletion { .. } => {}
            }
        }
    }

    /// Preempts a sequence: its transfer is given up, and then its blocks are.
    fn preempt(&mut self, id: usize) {
        let of = self.sequences.iter_mut().find(|sequence| sequence.id == id);
        of.into_iter().for_each(|sequence| sequence.state = State::Waiting);
        self.cache.free(id);
    }

    fn free_finished(&mut self, id: usize) {
        self.sequences.retain(|sequence| sequence.id != id);
        self.cache.free(id);
    }

    /// Bytes of a sequence's prompt that are there.
    fn bytes_arrived(&mut self, id: usize) -> u64 {
        let of = self.sequences.iter_mut().find(|sequence| sequence.id == id);
        let Some(Sequence { state: State::RemoteKv(job), .. }) = of else { return 0 };
        job.transfer().unwrap().map_or(0, |grant| grant.progress().bytes_arrived)
    }

    fn blocks(&self, id: usize) -> &[u32] {
        &self.cache.of_sequence[&id]
    }

    /// First token and bytes of a sequence that runs.
    fn running(&self, id: usize) -> Option<(&[u8], u64)> {
        let sequence = self.sequences.iter().find(|sequence| sequence.id == id)?;
        let State::RunningCompletion { first_token, bytes } = &sequence.state else { return None };
        Some((first_token, *bytes))
    }
}

/// A prefill and a decode that have met.
fn servers() -> [Server; 2] {
    let (p, d) = (Server::new("p", PoolUse::Source), Server::new("d", PoolUse::Destination));
    d.node.connect(&p.node.export(), long()).wait().unwrap();
    [p, d]
}

/// Prefill of a sequence: its texts are computed into the blocks, and pushed with the first token.
fn prefill(p: &Server, id: usize, blocks: &[u32], texts: &[u32]) -> Job<Sending> {
    p.compute_all(blocks, texts);
    let request = Request::new(id).note(b"first");
    Job::Begins(p.node.push("d", request, blocks, long()))
}

#[test]
fn a_sequence_runs_when_its_blocks_are_there_and_others_run_meanwhile() {
    let [p, d] = servers();
    let mut scheduler = Scheduler::new(&d.node, &d.pool, 8);
    scheduler.add_seq(1, &[10, 11, 12]);
    scheduler.add_seq(2, &[20, 21]);
    scheduler.schedule();
    assert!(scheduler.running(1).is_none() && scheduler.running(2).is_none());
    // The prefill of the second is the faster one.
    let (mut push, mut is_sent) = (prefill(&p, 2, &[6, 7], &[20, 21]), false);
    step_until("the second runs", || {
        scheduler.schedule();
        is_sent |= matches!(push.poll(), Poll::Ready(Ok(Ok(_))));
        is_sent && scheduler.running(2).is_some()
    });
    assert!(scheduler.running(1).is_none());
    let (mut push, mut is_sent) = (prefill(&p, 1, &[3, 2, 1], &[10, 11, 12]), false);
    step_until("the first runs", || {
        scheduler.schedule();
        is_sent |= matches!(push.poll(), Poll::Ready(Ok(Ok(_))));
        is_sent && scheduler.running(1).is_some()
    });
    assert_eq!(scheduler.running(1).unwrap().0, b"first");
    d.assert_has_all(scheduler.blocks(1), &[10, 11, 12]);
    d.assert_has_all(scheduler.blocks(2), &[20, 21]);
}

#[test]
fn blocks_of_the_prefix_cache_are_in_many_sequences_and_do_not_move() {
    let [p, d] = servers();
    let mut scheduler = Scheduler::new(&d.node, &d.pool, 8);
    for (id, texts, moved) in [(1, [10, 11, 12], 3), (2, [10, 11, 13], 1), (3, [10, 14, 15], 2)] {
        scheduler.add_seq(id, &texts);
        let (mut push, mut is_sent) = (prefill(&p, id, &[3, 2, 1], &texts), false);
        step_until("it runs", || {
            scheduler.schedule();
            is_sent |= matches!(push.poll(), Poll::Ready(Ok(Ok(_))));
            is_sent && scheduler.running(id).is_some()
        });
        assert_eq!(scheduler.running(id).unwrap().1, moved * d.pool.layout().block_bytes());
        d.assert_has_all(scheduler.blocks(id), &texts);
    }
    // The last sequence of a block frees it, and its text stays cached.
    (1..4).for_each(|id| scheduler.free_finished(id));
    assert_eq!(scheduler.cache.leaving.len(), 6);
    let list = scheduler.cache.allocate_slots(4, 2, &scheduler.cache.get_computed_blocks(&[10, 11])).unwrap();
    d.assert_has_all(&list, &[10, 11]);
}

#[test]
fn blocks_of_a_preempted_sequence_are_given_out_only_when_no_write_can_reach_them() {
    let [p, d] = servers();
    // There is room for one of the two sequences.
    let mut scheduler = Scheduler::new(&d.node, &d.pool, 3);
    for round in 0..20 {
        let (first, second) = (2 * round + 1, 2 * round + 2);
        scheduler.add_seq(first, &[10, 11, 12]);
        scheduler.schedule();
        // The first layer arrives, and prefill writes the others when it likes.
        let mut push = Job::Begins(p.node.push_layers("d", first, &[3, 2, 1], long()));
        let mut is_ready = false;
        step_until("the first layer is there", || {
            if let (false, Ok(Some(push))) = (is_ready, push.transfer()) {
                push.layer_ready(0).unwrap();
                is_ready = true;
            }
            scheduler.schedule();
            scheduler.bytes_arrived(first) > 0
        });
        scheduler.preempt(first);
        scheduler.free_finished(first);
        scheduler.add_seq(second, &[20 + round as u32, 21, 22]);
        step_until("the second has blocks", || {
            scheduler.schedule();
            scheduler.cache.of_sequence.contains_key(&second)
        });
        // Prefill hears by the server's own channel that nobody wants the first one any more.
        drop(push);
        step_until("prefill's blocks are free", || p.are_free(&[3, 2, 1]));
        let texts = [20 + round as u32, 21, 22];
        let (mut push, mut is_sent) = (prefill(&p, second, &[6, 7, 8], &texts), false);
        step_until("the second runs", || {
            scheduler.schedule();
            is_sent |= matches!(push.poll(), Poll::Ready(Ok(Ok(_))));
            is_sent && scheduler.running(second).is_some()
        });
        d.assert_has_all(scheduler.blocks(second), &texts);
        assert_eq!(scheduler.lost, 0, "no block is granted while another transfer has it");
        scheduler.free_finished(second);
        scheduler.cache.cached.clear();
    }
}

/// `CacheEngine` allocates a tensor for keys and one for values of each layer, heads before tokens.
#[test]
fn tensors_for_keys_and_values_of_each_layer_are_registered_as_they_are() {
    let shape = Shape { head_order: HeadOrder::Hnd, ..SHAPE };
    let layout = Layout::of([Group::new(shape).in_tensors(Tensors::PerPart)]).unwrap();
    let cache = |name, purpose| {
        let engine = engine(Wire::Local, None);
        let allocated = layout.tensors().map(|tensor| Memory::from(vec![0; tensor.len as usize]));
        let allocated: Vec<Memory> = allocated.collect();
        assert_eq!(allocated.len(), 2 * SHAPE.layers as usize);
        let pool = Pool::register_tensors(&engine, allocated, &layout, purpose).unwrap();
        let node = KvNode::new(&engine, &[&pool], &TOKEN, &options(name)).unwrap();
        (node, pool)
    };
    let ((p, source), (d, destination)) = (cache("p", PoolUse::Source), cache("d", PoolUse::Destination));
    (0..SHAPE.layers).for_each(|layer| source.write(layer, 5, 0, &[layer as u8 + 1; 8]).unwrap());
    drop(d.connect(&p.export(), long()));
    let mut scheduler = Scheduler::new(&d, &destination, 4);
    scheduler.add_seq(1, &[10]);
    scheduler.schedule();
    step_until("they have met", || p.peers().len() == 1);
    let (mut push, mut is_sent) = (Job::Begins(p.push("d", 1, &[5], long())), false);
    step_until("it runs", || {
        scheduler.schedule();
        is_sent |= matches!(push.poll(), Poll::Ready(Ok(Ok(_))));
        is_sent && scheduler.running(1).is_some()
    });
    for layer in 0..SHAPE.layers {
        let mut bytes = [0; 8];
        destination.read(layer, scheduler.blocks(1)[0], 0, &mut bytes).unwrap();
        assert_eq!(bytes, [layer as u8 + 1; 8]);
    }
}
