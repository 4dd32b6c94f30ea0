//! Blocks of texts: taken, shared, kept and given away.

use proptest::prelude::*;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::PoolUse;
use rdma_collective::kv::layout::Layout;
use rdma_core::{Device, SoftOptions};

use super::*;

fn blocks(count: u32) -> Blocks {
    let device = Device::soft(SoftOptions::default()).open().unwrap();
    let engine = Engine::new(&device, EngineOptions::default()).unwrap();
    let layout = Layout::new(Config::default().pool(count)).unwrap();
    Blocks::of(&Pool::allocate(&engine, &layout, PoolUse::Destination).unwrap(), 8)
}

fn text(blocks: &[Token]) -> Vec<Token> {
    blocks.iter().flat_map(|token| [*token; BLOCK_TOKENS]).collect()
}

#[test]
fn texts_that_begin_alike_share_blocks_and_the_last_token_is_always_computed() {
    let blocks = blocks(6);
    let mut one = blocks.try_take(&text(&[1, 2]), 3).unwrap();
    assert_eq!((one.ready(), one.list().len()), (0, 3));
    one.publish(&text(&[1, 2]));
    let other = blocks.try_take(&text(&[1, 2, 3]), 4).unwrap();
    assert_eq!((other.ready(), other.kept()), (2 * BLOCK_TOKENS, &one.list()[..2]));
    let same = blocks.try_take(&text(&[1, 2]), 2);
    // 3 blocks of the first, 2 of its own for the second: one is left.
    assert_eq!(same.as_ref().unwrap().ready(), BLOCK_TOKENS);
    drop((one, other, same));
    assert_eq!(blocks.counts().idle, 6);
}

#[tokio::test]
async fn texts_beyond_the_queue_and_beyond_the_pool_are_refused_at_once() {
    let blocks = blocks(2);
    let larger = blocks.take(&[1], 3 * BLOCK_TOKENS).await.err();
    assert_eq!(larger, Some(NoBlocks::Larger { wanted: 3, all: 2 }));
    let taken = blocks.take(&[1], 2 * BLOCK_TOKENS).await.ok().unwrap();
    let waiting: Vec<_> = (0..7)
        .map(|_| {
            let blocks = blocks.clone();
            tokio::spawn(async move { blocks.take(&[1], 1).await.is_ok() })
        })
        .collect();
    while blocks.counts().texts < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(blocks.take(&[1], 1).await.err(), Some(NoBlocks::Full { texts: 8 }));
    // A text that does not wait any more leaves its place.
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(taken);
    for waiting in waiting {
        _ = waiting.await;
    }
    assert_eq!((blocks.counts().texts, blocks.counts().idle), (0, 2));
}

#[test]
fn a_text_that_gets_too_few_blocks_costs_others_none_that_are_kept() {
    let blocks = blocks(4);
    blocks.try_take(&text(&[1, 2]), 2).unwrap().publish(&text(&[1, 2]));
    let _one = blocks.try_take(&text(&[9]), 1).unwrap();
    assert!(blocks.try_take(&text(&[5]), 4).is_none());
    assert_eq!((blocks.counts().free, blocks.counts().kept), (1, 2));
    assert!(blocks.try_take(&text(&[5]), 3).is_some());
}

#[tokio::test]
async fn a_long_text_is_not_passed_by_a_short_one_that_came_later() {
    let blocks = blocks(2);
    let running = blocks.take(&[1], 1).await.ok().unwrap();
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
    for (room, waiting) in [(2, 2), (1, 3)] {
        let (blocks, ends) = (blocks.clone(), ends.clone());
        let of = blocks.clone();
        tokio::spawn(async move { ends.send((room, blocks.take(&[1], room * BLOCK_TOKENS).await.is_ok())) });
        while of.counts().texts < waiting {
            tokio::task::yield_now().await;
        }
    }
    // Time in which the short one would have its block, which is free.
    tokio::time::sleep(10 * PAUSE).await;
    drop(running);
    assert_eq!([ended.recv().await, ended.recv().await], [Some((2, true)), Some((1, true))]);
}

#[test]
fn kept_blocks_are_given_away_the_last_and_the_oldest_first() {
    let blocks = blocks(4);
    for first in [1, 7] {
        let mut taken = blocks.try_take(&text(&[first, 2]), 2).unwrap();
        taken.publish(&text(&[first, 2]));
    }
    let _one = blocks.try_take(&text(&[9]), 1).unwrap();
    let kept = |first| blocks.try_take(&text(&[first, 2, 3]), 0).unwrap().ready() / BLOCK_TOKENS;
    assert_eq!([kept(1), kept(7)], [1, 2]);
    assert!(blocks.try_take(&[], 4).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn no_block_is_lost_or_had_by_two_texts_of_other_tokens(
        steps in proptest::collection::vec((proptest::collection::vec(0_u32..3, 1..5), any::<bool>(), 0_usize..4), 1..60),
    ) {
        let blocks = blocks(12);
        let mut running: Vec<(Vec<Token>, Taken)> = Vec::new();
        for (tokens, publishes, ends) in steps {
            let text = text(&tokens);
            if let Some(mut taken) = blocks.try_take(&text, tokens.len()) {
                for (place, block) in taken.list().iter().enumerate() {
                    for (other, with) in &running {
                        let shared = with.list().iter().position(|of| of == block);
                        let end = (place + 1) * BLOCK_TOKENS;
                        let alike = shared == Some(place) && other.get(..end) == text.get(..end);
                        prop_assert!(shared.is_none() || alike);
                    }
                }
                if publishes {
                    taken.publish(&text);
                }
                running.push((text, taken));
            }
            if ends < running.len() {
                running.swap_remove(ends);
            }
        }
        running.clear();
        prop_assert_eq!(blocks.counts().idle, 12);
    }
}
