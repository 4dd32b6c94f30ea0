//! Bad layouts, tensors and requests: each is refused by name, and the memory comes back.

use std::sync::Arc;

use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::{
    Attention, Group, HeadOrder, Layout, LayoutError, Model, Order, Place, Shape, Side, TensorParallel,
    Tensors,
};
use rdma_collective::kv::plan::{Plan, PlanError, PlanOptions, Route, Tokens};
use rdma_collective::kv::{HoldKind, KvError, LinkError, LinkOptions, Pool, PoolError, PoolUse, Prefill};
use rdma_core::{Memory, Refused, Wire};

use super::common::long;
use super::pair::{TOKEN, engine, link};

const SHAPE: Shape = Shape { layers: 4, ..Model::LLAMA_3_1_8B.shape(16, 2, Order::LayerPartBlock) };

/// A tensor a layer.
fn per_layer() -> Layout {
    Layout::of([Group::new(SHAPE).in_tensors(Tensors::PerLayer)]).unwrap()
}

fn tensors(lengths: impl IntoIterator<Item = u64>) -> Vec<Memory> {
    lengths.into_iter().map(|len| Memory::from(vec![0_u8; len as usize])).collect()
}

fn register(engine: &Engine, lengths: impl IntoIterator<Item = u64>) -> Refused<Vec<Memory>, PoolError> {
    Pool::register_tensors(engine, tensors(lengths), &per_layer(), PoolUse::Destination).unwrap_err()
}

#[test]
fn tensors_that_are_shorter_than_their_layout_come_back() {
    let engine = engine(Wire::Local, None);
    let len = per_layer().tensors().next().unwrap().len;
    let refused = register(&engine, [len, len, len - 1, len]);
    let text =
        "tensor 2 has 131071 bytes, and its layers need 131072; give a longer one, or lay out fewer blocks";
    assert_eq!((refused.error.to_string().as_str(), refused.object.len()), (text, 4));
    let refused = register(&engine, [len; 3]);
    let text = "3 tensors are given for a layout of 4; give each tensor, in the order of Layout::tensors";
    assert_eq!((refused.error.to_string().as_str(), refused.object.len()), (text, 3));
}

#[test]
fn tensors_that_overlap_or_are_given_twice_are_refused() {
    let (engine, layout) = (engine(Wire::Local, None), per_layer());
    let len = layout.tensors().next().unwrap().len as usize;
    let purpose = PoolUse::Destination;
    let region = engine.register(Memory::allocate(4 * len).unwrap(), purpose.access()).unwrap();
    let at = |starts: [usize; 4]| {
        let tensors = starts.map(|start| (region.clone(), start));
        Pool::in_regions(&engine, &tensors, &layout, purpose).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(at([3 * len, 2 * len, 0, len]), Ok(()));
    let overlap =
        "tensors 1 and 2 overlap in memory, or are one that is given twice; give each its own bytes";
    assert_eq!(at([0, len, 2 * len - 1, 3 * len]), Err(overlap.to_owned()));
    assert_eq!(at([0, len, len, 3 * len]), Err(overlap.to_owned()));
    assert!(at([0, len, 2 * len, 3 * len + 1]).unwrap_err().contains("tensor 3 has"));
}

#[test]
fn tensors_of_two_engines_are_refused() {
    let (one, other, layout) = (engine(Wire::Local, None), engine(Wire::Local, None), per_layer());
    let len = layout.tensors().next().unwrap().len as usize;
    let purpose = PoolUse::Source;
    let on =
        |engine: &Engine| (engine.register(Memory::allocate(len).unwrap(), purpose.access()).unwrap(), 0);
    let tensors = [on(&one), on(&one), on(&other), on(&one)];
    let refused = Pool::in_regions(&one, &tensors, &layout, purpose).unwrap_err();
    assert!(matches!(refused, PoolError::OtherEngine), "{refused}");
    // Rights of a source are too few for a destination.
    let tensors = [on(&one), on(&one), on(&one), on(&one)];
    let refused = Pool::in_regions(&one, &tensors, &layout, PoolUse::Destination).unwrap_err();
    assert!(matches!(refused, PoolError::Access { .. }), "{refused}");
}

#[test]
fn a_group_without_blocks_is_refused() {
    let refused = Layout::of([Group::new(SHAPE), Group::new(Shape { blocks: 0, ..SHAPE })]).unwrap_err();
    assert_eq!(refused, LayoutError::Zero { dimension: "blocks" });
    assert_eq!(Layout::of([]).unwrap_err(), LayoutError::Zero { dimension: "groups" });
}

#[test]
fn groups_that_share_memory_have_the_same_blocks() {
    let group = || Group::new(SHAPE).in_tensors(Tensors::PerLayer);
    let refused = |groups: [Group; 2]| Layout::of(groups).unwrap_err();
    let other = Group::new(Shape { blocks: 3, ..SHAPE }).in_tensors(Tensors::PerLayer);
    assert_eq!(
        refused([group(), other.sharing_with(0)]),
        LayoutError::SharedBlocks { group: 1, blocks: 3, with: 0, theirs: 2 }
    );
    for with in [1, 7, usize::MAX] {
        let error = refused([group(), group().sharing_with(with)]);
        assert!(matches!(error, LayoutError::SharedGroup { group: 1, .. }), "{error}");
    }
    let chain = Layout::of([group(), group().sharing_with(0), group().sharing_with(1)]).unwrap_err();
    assert_eq!(chain, LayoutError::SharedGroup { group: 2, with: 1 });
    let more = Group::new(Shape { layers: 5, ..SHAPE }).in_tensors(Tensors::PerLayer);
    let missing = LayoutError::NoSuchTensor { tensor: 4, tensors: 4 };
    assert_eq!(refused([group(), more.sharing_with(0)]), missing);
    let long = Group::new(Shape { block_tokens: 32, ..SHAPE }).in_tensors(Tensors::PerLayer);
    let error = refused([group(), long.sharing_with(0)]);
    assert!(
        matches!(error, LayoutError::TensorTooShort { tensor: 0, need: 262_144, len: 131_072 }),
        "{error}"
    );
    // Keys of all blocks before their values, and a block's keys before its values.
    let mixed = Group::new(Shape { order: Order::LayerBlockPart, ..SHAPE }).in_tensors(Tensors::PerLayer);
    let error = refused([group(), mixed.sharing_with(0)]);
    assert_eq!(error, LayoutError::BlocksMeet { groups: [0, 1], tensor: 0 });
    // A block of the second group would have the end of a block of the first, and the start of the next.
    let place = |part: u64, shift: u64| Place {
        tensor: 0,
        offset: shift + part * 32768,
        block: 65536,
        token: 2048,
        head: 256,
    };
    let at = |shift| {
        Group::new(Shape { layers: 1, ..SHAPE }).at([3 * 65536], [0, 1].map(|part| place(part, shift)))
    };
    assert_eq!(
        refused([at(0), at(256).sharing_with(0)]),
        LayoutError::BlocksMeet { groups: [0, 1], tensor: 0 }
    );
    Layout::of([at(256), at(256).sharing_with(0)]).unwrap();
    let layout = Layout::of([group(), group().sharing_with(0), group()]).unwrap();
    assert_eq!((layout.tensors().len(), layout.blocks(), layout.block(2, 1)), (8, 6, Ok(5)));
}

/// Block 1 of either group is the same memory, which one transfer holds, and one request names once.
#[test]
fn a_block_that_groups_share_is_held_once() {
    let engine = engine(Wire::Local, None);
    let group = || Group::new(SHAPE).in_tensors(Tensors::PerLayer);
    let layout = Layout::of([group(), group().sharing_with(0)]).unwrap();
    let [source, room] = [PoolUse::Source, PoolUse::Destination]
        .map(|purpose| Pool::allocate(&engine, &layout, purpose).unwrap());
    assert_eq!((room.stats().free, layout.blocks()), (2, 4));
    let (prefill, decode) = link((&engine, &source), (&engine, &room), &LinkOptions::default());
    let twice = decode.grant(1, &[1, 3], long()).unwrap_err();
    let KvError::Plan(PlanError::BlockRepeated { block: 3, .. }) = twice else { panic!("{twice}") };
    let grant = decode.grant(1, &[0, 3], long()).unwrap();
    assert_eq!((room.held(1), room.held(2)), (Some(HoldKind::Granted), Some(HoldKind::Granted)));
    assert_eq!((room.stats().free, room.stats().granted), (0, 2));
    let held = decode.grant(2, &[1], long()).unwrap_err();
    assert!(matches!(held, KvError::Held { block: 1, by: HoldKind::Granted }), "{held}");
    assert!(matches!(room.write(0, 1, 0, &[1]), Err(PoolError::Held { block: 1, .. })));
    let push = prefill.push(1, &[1, 2], long()).unwrap();
    let verdicts = grant.wait().unwrap().verdicts;
    push.wait().unwrap();
    assert_eq!((room.held(1), room.stats().free), (None, 2));
    let nothing = decode.grant_missing(3, &verdicts, long()).unwrap();
    assert_eq!(nothing.progress().bytes, 0);
    let verdicts = nothing.revoke(long()).unwrap();
    // The block is missing once the other group has written its memory.
    room.write(0, 1, 0, &[1]).unwrap();
    drop(decode.grant_missing(4, &verdicts, long()).unwrap());
    let route = Arc::new(Route::new(&layout, &layout).unwrap());
    let twice = Plan::new(&route, [&[0, 3], &[1, 3]], &PlanOptions::default()).unwrap_err();
    assert_eq!(twice, PlanError::BlockRepeated { side: Side::Destination, block: 3 });
}

fn of_rank(rank: u32, size: u32) -> Result<Layout, LayoutError> {
    Layout::new(Shape { tensor_parallel: TensorParallel { rank, size }, ..SHAPE })
}

#[test]
fn sizes_that_do_not_divide_are_refused() {
    assert_eq!(of_rank(0, 3).unwrap_err(), LayoutError::UnevenHeads { kv_heads: 8, size: 3 });
    let [of_16, of_24] = [16, 24].map(|block_tokens| Layout::new(Shape { block_tokens, ..SHAPE }).unwrap());
    let refused = Route::new(&of_16, &of_24).unwrap_err();
    let (ours, theirs) = ("16".to_owned(), "24".to_owned());
    assert_eq!(refused, LayoutError::Differs { field: "tokens a block", ours, theirs });
    // Rank 0 of 4 has heads 0 and 1, and rank 1 of 2 holds heads 4 to 7.
    let refused = Route::new(&of_rank(0, 4).unwrap(), &of_rank(1, 2).unwrap()).unwrap_err();
    assert!(matches!(&refused, LayoutError::NotHeard { heard, .. } if heard[..] == [2, 3]), "{refused}");
    let other = Attention::Grouped { kv_heads: 8, head_dim: 64 };
    let narrow = Layout::new(Shape { attention: other, ..SHAPE }).unwrap();
    let refused = Route::new(&narrow, &of_16).unwrap_err();
    assert!(matches!(&refused, LayoutError::Differs { .. }), "{refused}");
}

#[test]
fn a_token_range_outside_its_block_is_refused() {
    let layout = Layout::new(SHAPE).unwrap();
    let there = Layout::new(Shape { head_order: HeadOrder::Hnd, ..SHAPE }).unwrap();
    let route = Arc::new(Route::new(&layout, &there).unwrap());
    let plan = |source_skip, destination_skip, count| {
        let tokens = vec![Tokens { source_skip, destination_skip, count }];
        Plan::new(&route, [&[0], &[1]], &PlanOptions { tokens, ..PlanOptions::default() })
            .map(|plan| plan.size().bytes)
    };
    assert_eq!(plan(3, 5, 11), Ok(11 * 4 * 4096));
    for (source, destination, count) in
        [(3, 5, 12), (16, 0, 1), (0, 16, 1), (0, 0, 17), (0, 0, 0), (15, 0, 2)]
    {
        let refused = plan(source, destination, count).unwrap_err();
        assert!(matches!(refused, PlanError::TokenRange { group: 0, .. }), "{refused}");
    }
}

/// Sizes that only a peer which means harm would have: they must not take this side long.
#[test]
fn layouts_that_take_long_to_check_are_refused() {
    let refused = of_rank(7, u32::MAX - 7).unwrap_err();
    assert_eq!(refused, LayoutError::TooMany { what: "tensor-parallel ranks", max: 65536 });
    let shape = Shape { layers: 4096, ..SHAPE };
    let block = 2 * 4096 * 32768;
    let place = |part: u64| Place { tensor: 0, offset: part * 32768, block, token: 2048, head: 256 };
    let refused = Layout::of([Group::new(shape).at([2 * block], (0..2 * 4096).map(place))]).unwrap_err();
    assert_eq!(refused, LayoutError::TooMany { what: "places that lie between each other", max: 1448 });
    let refused = Layout::of([Group::new(SHAPE).at([0], (0..8).map(place))]).unwrap_err();
    assert_eq!(refused, LayoutError::Zero { dimension: "bytes of a tensor" });
    // Each group would be compared with all before it.
    let shape = Shape { layers: 512, block_tokens: 1, order: Order::BlockLayerPart, ..SHAPE };
    let shared = (0..63).map(|_| Group::new(shape).sharing_with(0));
    let refused = Layout::of(std::iter::once(Group::new(shape)).chain(shared)).unwrap_err();
    assert!(matches!(refused, LayoutError::TooMany { max: 1_048_576, .. }), "{refused}");
}

#[test]
fn pools_of_1025_tensors_are_refused_and_of_1024_have_a_blob() {
    let many = |layers| {
        let shape = Shape { layers, blocks: 1, block_tokens: 1, ..SHAPE };
        Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)])
    };
    assert_eq!(many(1025).unwrap_err(), LayoutError::TooMany { what: "tensors", max: 1024 });
    let (engine, layout) = (engine(Wire::Local, None), many(1024).unwrap());
    let memory = tensors(layout.tensors().map(|tensor| tensor.len));
    let pool = Pool::register_tensors(&engine, memory, &layout, PoolUse::SourceToPull).unwrap();
    let prefill = Prefill::prepare(&engine, &pool, &TOKEN, &LinkOptions::default()).unwrap();
    assert!(prefill.export().len() < 34 * 1024, "{} bytes", prefill.export().len());
}

/// A blob that is cut, or of which a byte has changed, is none; the version of a layout is refused by name beside the
/// encoding.
#[test]
fn a_blob_that_is_not_as_it_was_made_is_refused() {
    let engine = engine(Wire::Local, None);
    let pool = |purpose| Pool::allocate(&engine, &per_layer(), purpose).unwrap();
    let (source, room) = (pool(PoolUse::SourceToPull), pool(PoolUse::Destination));
    let prefill = Prefill::prepare(&engine, &source, &TOKEN, &LinkOptions::default()).unwrap();
    let mut decode =
        rdma_collective::kv::Decode::prepare(&engine, &room, &TOKEN, &LinkOptions::default()).unwrap();
    let blob = prefill.export().to_vec();
    for at in 0..blob.len() {
        let mut other = blob.clone();
        other[at] ^= 0x41;
        let refused = decode.connect(&other, long()).unwrap_err();
        assert!(matches!(refused, LinkError::Setup(_)), "byte {at}: {refused}");
        assert!(decode.connect(&blob[..at], long()).is_err());
    }
}

/// A pool of another model, or a stage that the model does not have.
#[test]
fn layers_of_another_model_are_refused() {
    let all = |layers| Layout::new(Shape { layers, ..SHAPE }).unwrap();
    let some = |layers: std::ops::Range<u32>| {
        let shape = Shape { layers: layers.end - layers.start, ..SHAPE };
        Layout::of([Group::new(shape).of_layers(layers)]).unwrap()
    };
    let refused =
        |source: &Layout, destination: &Layout| Route::new(source, destination).unwrap_err().to_string();
    assert!(refused(&all(80), &all(32)).contains("layers: here 80, there 32"));
    assert!(refused(&some(30..34), &all(32)).contains("layers: here 33, there 0 to 31"));
    assert!(refused(&all(32), &some(30..34)).contains("layers: here 0 to 31, there 33"));
    assert!(refused(&some(0..4), &some(4..8)).contains("layers of the model"));
    Route::new(&some(30..32), &all(32)).unwrap();
    Route::new(&some(30..34), &some(0..31)).unwrap();
}
