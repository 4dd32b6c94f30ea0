//! Pools over memory of every origin: what arrives in it, and that it comes back.

use std::time::Duration;

use crate::common::{WIRES, long};
use crate::pair::{CANARY, SHAPE, assert_moved, engine, fill, link, source_byte, transfer};
use rdma_collective::kv::LinkError;
use rdma_collective::kv::layout::LayoutError;
use rdma_collective::kv::layout::{Layout, Order, Shape};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse};
use rdma_collective::kv::{KvError, PoolError};
use rdma_core::{Access, Deadline, Memory, Wire};

fn layout() -> Layout {
    Layout::new(SHAPE).unwrap()
}

/// Every byte of a pool's memory, in the order in which it lies there.
fn image(layout: &Layout, content: impl Fn(u32, u32, u64) -> u8) -> Vec<u8> {
    let mut bytes = vec![0; layout.bytes() as usize];
    for layer in 0..layout.shape().layers {
        for block in 0..layout.shape().blocks {
            let mut at = 0;
            for extent in layout.extents(layer, block).unwrap() {
                for byte in &mut bytes[extent.offset as usize..][..extent.len as usize] {
                    *byte = content(layer, block, at);
                    at += 1;
                }
            }
        }
    }
    bytes
}

#[test]
fn blocks_move_between_vectors_of_the_callers_which_come_back() {
    for wire in WIRES {
        let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
        let cache = image(&layout(), source_byte);
        let room = vec![CANARY; layout().bytes() as usize + 100];
        let source = Pool::register(&at_prefill, cache.clone().into(), &layout(), PoolUse::Source).unwrap();
        let destination = Pool::register(&at_decode, room.into(), &layout(), PoolUse::Destination).unwrap();
        let (prefill, decode) =
            link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
        let pairs = [(0, 23), (23, 0), (7, 8)];
        transfer(&prefill, &decode, 1, &pairs);
        assert_moved(&destination, &pairs);
        drop((prefill, decode));
        let back = |pool: Pool| {
            pool.close(long()).unwrap().remove(0).deregister().unwrap().into_owner::<Vec<u8>>().unwrap()
        };
        assert_eq!(back(source), cache);
        let room = back(destination);
        let moved = |layer, block, at| {
            let source = pairs.iter().find(|(_, to)| *to == block);
            source.map_or(CANARY, |(from, _)| source_byte(layer, *from, at))
        };
        let (pool, rest) = room.split_at(layout().bytes() as usize);
        assert!(pool == image(&layout(), moved), "the memory is laid out as the layout says");
        assert_eq!(rest, [CANARY; 100], "what is longer than the layout is not used");
    }
}

#[test]
fn pools_of_one_registration_do_not_touch_each_other() {
    for wire in WIRES {
        let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
        let bytes = layout().bytes() as usize;
        let draft = Layout::new(Shape { layers: 1, order: Order::BlockLayerPart, ..SHAPE }).unwrap();
        // Neither at the start nor adjacent.
        let places = [(13, layout()), (13 + bytes + 7, draft.clone())];
        let len = 13 + bytes + 7 + draft.bytes() as usize + 5;
        let both = |engine: &_, purpose: PoolUse| {
            let memory = Memory::from(vec![CANARY; len]);
            let region = rdma_collective::engine::Engine::register(engine, memory, purpose.access()).unwrap();
            let pools = places
                .clone()
                .map(|(offset, layout)| Pool::in_region(engine, &region, offset, &layout, purpose).unwrap());
            (region, pools)
        };
        let (from, sources) = both(&at_prefill, PoolUse::Source);
        let (to, destinations) = both(&at_decode, PoolUse::Destination);
        sources.iter().for_each(|pool| fill(pool, source_byte));
        let links = [0, 1].map(|at| {
            let ends = ((&at_prefill, &sources[at]), (&at_decode, &destinations[at]));
            link(ends.0, ends.1, &LinkOptions::default())
        });
        transfer(&links[0].0, &links[0].1, 1, &[(0, 23), (1, 0)]);
        transfer(&links[1].0, &links[1].1, 1, &[(4, 5), (23, 23)]);
        assert_moved(&destinations[0], &[(0, 23), (1, 0)]);
        assert_moved(&destinations[1], &[(4, 5), (23, 23)]);
        drop(links);
        for pool in sources.into_iter().chain(destinations) {
            drop(pool.close(long()).unwrap());
        }
        drop(from.deregister().unwrap());
        let memory = to.deregister().unwrap();
        for gap in [0..13, 13 + bytes..13 + bytes + 7, len - 5..len] {
            assert!(memory[gap].iter().all(|byte| *byte == CANARY));
        }
    }
}

#[test]
fn a_pool_in_use_is_not_closed_and_comes_back() {
    let (at_prefill, at_decode) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let source = Pool::allocate(&at_prefill, &layout(), PoolUse::Source).unwrap();
    let destination = Pool::allocate(&at_decode, &layout(), PoolUse::Destination).unwrap();
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
    let soon = || Deadline::after(Duration::from_millis(20));
    let close = |pool: Pool| {
        let refused = pool.close(soon()).unwrap_err();
        assert!(matches!(refused.error, PoolError::InUse { users: 1.. }), "{}", refused.error);
        refused.object
    };
    let (source, destination) = (close(source), close(destination));
    transfer(&prefill, &decode, 1, &[(0, 0)]);
    drop((prefill, decode));
    source.close(long()).unwrap().remove(0).deregister().unwrap();
    destination.close(long()).unwrap().remove(0).deregister().unwrap();
}

#[test]
fn memory_that_does_not_fit_its_pool_comes_back() {
    let (engine, other) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let short = vec![5; layout().bytes() as usize - 1];
    let refused = Pool::register(&engine, short.into(), &layout(), PoolUse::Source).unwrap_err();
    assert!(
        matches!(refused.error, PoolError::Layout(LayoutError::MemoryTooSmall { .. })),
        "{}",
        refused.error
    );
    let short: Vec<u8> = refused.object.into_owner().unwrap();
    assert_eq!(short.len() as u64, layout().bytes() - 1);
    let region = engine.register(vec![5; 1 << 20].into(), Access::LOCAL_WRITE).unwrap();
    let fits = region.len() - layout().bytes() as usize;
    let pool = |engine, offset, purpose| Pool::in_region(engine, &region, offset, &layout(), purpose);
    for offset in [fits + 1, 1 << 20, usize::MAX] {
        let error = pool(&engine, offset, PoolUse::Source).unwrap_err();
        assert!(matches!(error, PoolError::Layout(LayoutError::MemoryTooSmall { .. })), "{error}");
    }
    let error = pool(&engine, fits, PoolUse::Destination).unwrap_err();
    assert!(matches!(error, PoolError::Access { .. }), "{error}");
    assert!(error.to_string().contains("REMOTE_WRITE"), "{error}");
    assert!(matches!(pool(&other, fits, PoolUse::Source), Err(PoolError::OtherEngine)));
    pool(&engine, fits, PoolUse::Source).unwrap();
}

#[test]
fn a_pool_of_another_engine_is_refused_by_a_link() {
    let (engine, other) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let pool = Pool::allocate(&other, &layout(), PoolUse::Destination).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let meet = rdma_collective::link::Meet::Accept(&listener);
    let made = Decode::new(&engine, &pool, &meet, &crate::pair::TOKEN, &LinkOptions::default(), long());
    assert!(matches!(made.unwrap_err(), LinkError::OtherEngine));
}

#[test]
fn memory_of_the_callers_is_held_as_the_librarys_is() {
    let engine = engine(Wire::Local, None);
    let memory = Memory::from(vec![0; layout().bytes() as usize].into_boxed_slice());
    let pool = Pool::register(&engine, memory, &layout(), PoolUse::Destination).unwrap();
    let peer = self::engine(Wire::Local, None);
    let source = Pool::allocate(&peer, &layout(), PoolUse::Source).unwrap();
    let (prefill, decode) = link((&peer, &source), (&engine, &pool), &LinkOptions::default());
    let grant = decode.grant(1, &[3], long()).unwrap();
    assert!(matches!(pool.write(0, 3, 0, &[1]), Err(PoolError::Held { block: 3, .. })));
    assert!(matches!(decode.grant(2, &[3], long()), Err(KvError::Held { block: 3, .. })));
    let push = prefill.push(1, &[9], long()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| push.wait().unwrap());
        assert!(grant.wait().unwrap().verdicts.all_valid());
    });
    pool.write(0, 3, 0, &[1]).unwrap();
}
