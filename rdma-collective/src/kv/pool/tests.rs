//! Bytes in and out of blocks against a plain copy, and blocks that are held.

#[cfg(feature = "metrics")]
#[path = "../../../../rdma-core/src/metrics/tests/sums.rs"]
mod sums;

use proptest::prelude::*;
#[cfg(feature = "metrics")]
use rdma_core::metrics::facade;
use rdma_core::{Deadline, Device, SoftOptions};

use super::*;
use crate::engine::{Engine, EngineOptions};
use crate::kv::KvError;
use crate::kv::blocks::{Blocks, List};
use crate::kv::layout::LayoutError;
use crate::kv::layout::tests::shapes;
use crate::kv::layout::{Attention, CacheType, HeadOrder, Order, Shape, Side, TensorParallel};
use crate::kv::lease::Hold;
use crate::kv::plan::PlanError;

const SHAPE: Shape = Shape {
    layers: 2,
    blocks: 5,
    block_tokens: 2,
    attention: Attention::Grouped { kv_heads: 1, head_dim: 4 },
    cache_type: CacheType::Bf16,
    order: Order::LayerPartBlock,
    head_order: HeadOrder::Nhd,
    tensor_parallel: TensorParallel::WHOLE,
};

fn pool(shape: Shape, purpose: PoolUse) -> Pool {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    let engine = Engine::new(&context, EngineOptions::default()).unwrap();
    Pool::allocate(&engine, &Layout::new(shape).unwrap(), purpose).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_block_holds_what_was_written_to_it_and_no_other_changes(
        shape in shapes(),
        pick in any::<(u32, u32, u64, u64)>(),
    ) {
        let pool = pool(shape, PoolUse::Source);
        let bytes = pool.layout().layer_block_bytes();
        let (layer, block) = (pick.0 % shape.layers, pick.1 % shape.blocks);
        let start = pick.2 % bytes;
        let len = pick.3 % (bytes - start + 1);
        let piece: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
        pool.write(layer, block, start, &piece).unwrap();
        for other_layer in 0..shape.layers {
            for other in 0..shape.blocks {
                let mut content = vec![0xff; bytes as usize];
                pool.read(other_layer, other, 0, &mut content).unwrap();
                let mut expected = vec![0; bytes as usize];
                if (other_layer, other) == (layer, block) {
                    expected[start as usize..(start + len) as usize].copy_from_slice(&piece);
                }
                prop_assert_eq!(content, expected);
            }
        }
    }
}

#[test]
fn blocks_and_bytes_that_are_not_there_are_refused() {
    let pool = pool(SHAPE, PoolUse::Source);
    let bytes = pool.layout().layer_block_bytes();
    let error = pool.write(2, 0, 0, &[1]).unwrap_err();
    assert!(matches!(error, PoolError::Layout(LayoutError::NoSuchLayer { .. })), "{error}");
    let error = pool.read(0, 5, 0, &mut [1]).unwrap_err();
    assert!(matches!(error, PoolError::Layout(LayoutError::NoSuchBlock { .. })), "{error}");
    for (offset, len) in [(bytes, 1), (bytes - 1, 2), (u64::MAX, 2), (0, bytes as usize + 1)] {
        let error = pool.write(0, 0, offset, &vec![1; len]).unwrap_err();
        assert!(matches!(error, PoolError::Range { .. }), "{error}");
    }
    pool.write(1, 4, bytes, &[]).unwrap();
}

#[test]
fn leased_blocks_are_read_by_many_and_written_by_none() {
    let pool = pool(SHAPE, PoolUse::Source);
    let first = Hold::lease(&pool, [1, 3]).unwrap();
    let second = Hold::lease(&pool, [3, 4]).unwrap();
    assert_ne!(first.number(), second.number());
    for block in [1, 3, 4] {
        let error = pool.write(0, block, 0, &[1]).unwrap_err();
        assert!(matches!(error, PoolError::Held { by: HoldKind::Leased, .. }), "{error}");
        pool.read(0, block, 0, &mut [1]).unwrap();
        let error = Hold::grant(&pool, [block]).unwrap_err();
        assert!(matches!(error, KvError::Held { by: HoldKind::Leased, .. }), "{error}");
    }
    pool.write(0, 0, 0, &[1]).unwrap();
    // A lease that is refused takes back what it had taken, and no more.
    for refused in [&[1, 3, 1][..], &[3, 9], &[0, 4, 5]] {
        let error = Hold::lease(&pool, refused).unwrap_err();
        assert!(matches!(error, KvError::Plan(_)), "{error}");
        assert_eq!([0, 1, 3, 4].map(|block| pool.held(block).is_some()), [false, true, true, true]);
    }
    drop(first);
    assert_eq!(
        [1, 3, 4].map(|block| pool.held(block)),
        [None, Some(HoldKind::Leased), Some(HoldKind::Leased)]
    );
    drop(second);
    assert!((0..5).all(|block| pool.held(block).is_none()));
}

#[test]
fn granted_blocks_belong_to_one_transfer() {
    let pool = pool(SHAPE, PoolUse::Destination);
    let mut grant = Hold::grant(&pool, [0, 2]).unwrap();
    let error = Hold::grant(&pool, [4, 2]).unwrap_err();
    assert!(matches!(error, KvError::Held { block: 2, by: HoldKind::Granted }), "{error}");
    assert_eq!(pool.held(4), None, "nothing of a grant that was refused is held");
    assert!(pool.write(1, 2, 0, &[1]).is_err());
    grant.release();
    drop(grant);
    let mut grant = Hold::grant(&pool, [4, 2]).unwrap();
    grant.quarantine();
    drop(grant);
    let error = Hold::grant(&pool, [2]).unwrap_err();
    assert!(matches!(error, KvError::Held { by: HoldKind::Quarantined, .. }), "{error}");
    let _grant = Hold::grant(&pool, [1]).unwrap();
    let expected = PoolStats { free: 2, granted: 1, quarantined: 2, leased: 0, shared: 0 };
    assert_eq!(pool.stats(), expected);
    assert_eq!(pool.held(0), None);
}

#[cfg(feature = "metrics")]
#[test]
fn blocks_of_a_hold_that_is_quarantined_twice_are_counted_once() {
    let pool = pool(SHAPE, PoolUse::Destination);
    let recorder = sums::Sums { seen: sums::Seen::default(), each: |_| {} };
    facade::with_local_recorder(&recorder, || {
        let mut grant = Hold::grant(&pool, [0, 2]).unwrap();
        grant.quarantine();
        grant.quarantine();
    });
    let seen = recorder.seen.lock().unwrap().clone();
    assert_eq!(seen, [("rdma_kv_quarantined_blocks_total".to_owned(), 2.0)].into());
}

#[test]
fn lists_that_are_not_sound_hold_nothing() {
    let pool = pool(SHAPE, PoolUse::Destination);
    let plan = |blocks: &[u32]| match Hold::grant(&pool, blocks).unwrap_err() {
        KvError::Plan(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(plan(&[]), PlanError::NoBlocks);
    assert!(matches!(plan(&[0, 5]), PlanError::BlockOutOfRange { block: 5, .. }));
    assert!(matches!(plan(&[4, 0, 4]), PlanError::BlockRepeated { block: 4, .. }));
    assert!((0..5).all(|block| pool.held(block).is_none()));
}

#[test]
fn a_pool_of_which_blocks_are_quarantined_is_closed_and_its_memory_comes_back() {
    let pool = pool(SHAPE, PoolUse::Destination);
    pool.write(1, 3, 0, &[9]).unwrap();
    let mut grant = Hold::grant(&pool, [0, 2]).unwrap();
    grant.quarantine();
    // The holder of the blocks still uses the pool.
    let soon = || Deadline::after(std::time::Duration::from_millis(5));
    let refused = pool.close(soon()).unwrap_err();
    assert!(matches!(refused.error, PoolError::InUse { users: 1 }), "{}", refused.error);
    drop(grant);
    let pool = refused.object;
    assert_eq!(pool.stats().quarantined, 2);
    // The registration ends with them: nothing can be written there any more.
    let memory = pool.close(soon()).unwrap().remove(0).deregister().unwrap();
    assert!(memory.contains(&9));
}

#[test]
fn readers_hold_a_block_together_and_a_writer_alone() {
    use HoldKind::{Granted, Leased, Shared};
    let take = |pool: &Pool, kind| match kind {
        Leased => Hold::lease(pool, [2]),
        Granted => Hold::grant(pool, [2]),
        _ => Hold::share(pool, [2]),
    };
    let pool = pool(SHAPE, PoolUse::Source);
    for (first, second, both) in [
        (Leased, Leased, Some(Leased)),
        (Leased, Shared, Some(Leased)),
        (Shared, Leased, Some(Leased)),
        (Shared, Shared, Some(Shared)),
        (Leased, Granted, None),
        (Shared, Granted, None),
        (Granted, Leased, None),
        (Granted, Shared, None),
        (Granted, Granted, None),
    ] {
        let held = take(&pool, first).unwrap();
        assert_eq!(pool.held(2), Some(first));
        let error = pool.write(0, 2, 0, &[1]).unwrap_err();
        assert!(matches!(error, PoolError::Held { block: 2, by } if by == first), "{error}");
        match (take(&pool, second), both) {
            (Ok(other), Some(both)) => {
                assert_eq!(pool.held(2), Some(both), "{first:?} {second:?}");
                drop(held);
                assert_eq!(pool.held(2), Some(second), "{first:?} {second:?}");
                drop(other);
            }
            (Err(KvError::Held { block: 2, by }), None) => {
                assert_eq!(by, first, "{second:?}");
                drop(held);
            }
            (other, _) => panic!("{first:?} {second:?}: {other:?}"),
        }
        assert_eq!(pool.held(2), None);
        pool.write(0, 2, 0, &[1]).unwrap();
    }
}

#[test]
fn a_block_is_shared_until_the_last_handle_of_the_last_share_is_dropped() {
    let pool = pool(SHAPE, PoolUse::Destination);
    let (first, second) = (pool.share(&[1, 3]).unwrap(), pool.share(&[3]).unwrap());
    let clone = first.clone();
    assert_eq!((clone.blocks(), pool.stats().shared, pool.stats().free), (&[1, 3][..], 2, 3));
    drop(first);
    let error = Hold::grant(&pool, [0, 1]).unwrap_err();
    assert!(matches!(error, KvError::Held { block: 1, by: HoldKind::Shared }), "{error}");
    assert_eq!(pool.held(0), None, "nothing of a grant that was refused is held");
    for refused in [&[][..], &[1, 1], &[2, 5]] {
        assert!(matches!(pool.share(refused), Err(KvError::Plan(_))), "{refused:?}");
    }
    drop(clone);
    assert_eq!([1, 2, 3].map(|block| pool.held(block)), [None, None, Some(HoldKind::Shared)]);
    drop(second);
    let _grant = Hold::grant(&pool, [0, 1, 3]).unwrap();
    assert!(matches!(pool.share(&[2, 3]), Err(KvError::Held { block: 3, by: HoldKind::Granted })));
    assert_eq!(pool.held(2), None);
}

#[test]
fn a_block_that_was_quarantined_under_a_share_stays_so() {
    let pool = pool(SHAPE, PoolUse::Source);
    let (share, mut lease) = (pool.share(&[2]).unwrap(), Hold::lease(&pool, [2]).unwrap());
    lease.quarantine();
    drop(lease);
    assert_eq!(pool.held(2), Some(HoldKind::Quarantined));
    drop(share);
    assert!(matches!(pool.share(&[2]), Err(KvError::Held { by: HoldKind::Quarantined, .. })));
}

#[test]
fn a_grant_shares_the_blocks_that_decode_has_and_leaves_them_as_they_are() {
    let pool = pool(SHAPE, PoolUse::Destination);
    let list = || List::from(Blocks::new(&[4, 0, 2]).having(&[2, 4]));
    let share = pool.share(&[4]).unwrap();
    let mut hold = Hold::grant(&pool, list()).unwrap();
    let expected = [Some(HoldKind::Granted), None, Some(HoldKind::Shared), None, Some(HoldKind::Shared)];
    assert_eq!([0, 1, 2, 3, 4].map(|block| pool.held(block)), expected);
    // Another request with the same prefix.
    let other = Hold::grant(&pool, List::from(Blocks::new(&[4, 1]).having(&[4]))).unwrap();
    let before = [4, 0, 2].map(|block| pool.holds().generation(block).unwrap());
    hold.begin();
    let after = [4, 0, 2].map(|block| pool.holds().generation(block).unwrap());
    assert_eq!(after, [before[0], before[1] + 1, before[2]]);
    // The device did not let go of the grant; it was never given the other blocks.
    hold.quarantine();
    hold.release();
    drop((share, other));
    assert_eq!([0, 2, 4].map(|block| pool.held(block)), [Some(HoldKind::Quarantined), None, None]);
    // Block 2 has changed since, and is not had any more.
    pool.write(1, 2, 0, &[1]).unwrap();
    let list = List::from(Blocks::new(&[4, 2]).having(&[2, 4]));
    let before = Hold::grant(&pool, list.clone()).unwrap();
    before.begin();
    let origin = before.origin();
    drop(before);
    pool.write(1, 2, 0, &[1]).unwrap();
    let again = Hold::grant_again(&pool, &list, &origin).unwrap();
    assert_eq!([2, 4].map(|block| pool.held(block)), [Some(HoldKind::Granted), Some(HoldKind::Shared)]);
    assert_eq!(again.list().had(), [4]);
}

#[test]
fn blocks_that_decode_is_said_to_have_are_in_its_list_once() {
    let room = pool(SHAPE, PoolUse::Destination);
    let plan = |held: Result<Hold, KvError>| match held.unwrap_err() {
        KvError::Plan(error) => error,
        other => panic!("{other}"),
    };
    let of = |having| List::from(Blocks::new(&[4, 0, 2]).having(having));
    assert_eq!(plan(Hold::grant(&room, of(&[2, 3]))), PlanError::HadNotListed { block: 3 });
    let twice = plan(Hold::grant(&room, of(&[2, 4, 2])));
    assert!(matches!(twice, PlanError::BlockRepeated { side: Side::Destination, block: 2 }), "{twice}");
    let source = pool(SHAPE, PoolUse::Source);
    assert_eq!(plan(Hold::lease(&source, of(&[4, 2]))), PlanError::HadAtSource { block: 2 });
    assert!((0..5).all(|block| room.held(block).is_none() && source.held(block).is_none()));
}
