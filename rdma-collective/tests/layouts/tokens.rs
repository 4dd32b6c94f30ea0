//! Token ranges in requests: chunks of a prompt, and a last block that is not full yet. Bytes of other tokens stay.

use std::ops::Range;
use std::time::Duration;

use rdma_collective::kv::layout::Shape;
use rdma_collective::kv::{Blocks, KvError, LinkOptions, PlanError, PoolUse};
use rdma_core::{Deadline, Wire};

use super::common::{WIRES, long};
use super::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};

/// Tokens a block, and bytes of a token in a part.
const EACH: u32 = SHAPE.block_tokens;
const TOKEN_BYTES: u64 = 32;

fn connect(wire: Wire, checksums: bool) -> Pair {
    let options = LinkOptions { checksums, ..LinkOptions::default() };
    Setup { wire, options, ..Setup::default() }.connect()
}

/// Asserts that the blocks of decode have these tokens of prefill's blocks, and that every other byte is as it was.
fn assert_tokens(pair: &Pair, moved: &[(u32, u32, Range<u32>)]) {
    let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
    for (layer, block) in
        (0..SHAPE.layers).flat_map(|layer| (0..SHAPE.blocks).map(move |block| (layer, block)))
    {
        pair.destination.read(layer, block, 0, &mut bytes).unwrap();
        for (at, byte) in (0..).zip(&bytes) {
            let token = (at / TOKEN_BYTES) as u32 % EACH;
            let from = moved.iter().find(|(_, to, tokens)| *to == block && tokens.contains(&token));
            let expected = from.map_or(CANARY, |(from, ..)| source_byte(layer, *from, at));
            assert_eq!(*byte, expected, "byte {at}, token {token} of block {block} in layer {layer}");
        }
    }
}

#[test]
fn chunks_of_a_prompt_fill_their_tokens_alone() {
    for (wire, checksums) in WIRES.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
        let pair = connect(wire, checksums);
        let chunk = |request: u64, from: &[u32], to: &[u32], range: Range<u32>| {
            let tokens = u64::from(range.end - range.start);
            let push = pair.prefill.push(request, Blocks::new(from).tokens(range.clone()), long()).unwrap();
            let grant = pair.decode.grant(request, Blocks::new(to).tokens(range), long()).unwrap();
            let received = grant.wait().unwrap();
            assert!(received.verdicts.all_valid(), "{:?}", received.verdicts);
            assert_eq!(push.wait().unwrap().bytes, received.bytes);
            assert_eq!(received.bytes, tokens * 2 * TOKEN_BYTES * u64::from(SHAPE.layers));
        };
        // Tokens 0 to 5 of a prompt, then 6 to 10, in blocks of four.
        chunk(1, &[3, 9], &[20, 4], 0..6);
        assert_tokens(&pair, &[(3, 20, 0..4), (9, 4, 0..2)]);
        chunk(2, &[9, 7], &[4, 11], 2..7);
        assert_tokens(&pair, &[(3, 20, 0..4), (9, 4, 0..4), (7, 11, 0..3)]);
    }
}

#[test]
fn streamed_and_pulled_tokens_are_right_too() {
    for wire in WIRES {
        let pair = connect(wire, false);
        let (from, to) = (Blocks::new(&[3, 9]).tokens(1..7), Blocks::new(&[20, 4]).tokens(1..7));
        let push = pair.prefill.push_layers(1, from, long()).unwrap();
        let grant = pair.decode.grant(1, to, long()).unwrap();
        for layer in 0..SHAPE.layers {
            push.layer_ready(layer).unwrap();
            assert_eq!(grant.wait_layer(layer, long()).unwrap().len(), 2);
        }
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        assert_tokens(&pair, &[(3, 20, 1..4), (9, 4, 0..3)]);
    }
    for wire in WIRES {
        let pair = pullable(wire, false);
        let offer = pair.prefill.offer(1, Blocks::new(&[3, 9]).tokens(1..7), long()).unwrap();
        let pull = pair.decode.pull(1, Blocks::new(&[20, 4]).tokens(1..7), long()).unwrap();
        assert!(pull.wait().unwrap().verdicts.all_valid());
        offer.wait().unwrap();
        assert_tokens(&pair, &[(3, 20, 1..4), (9, 4, 0..3)]);
    }
}

/// A pair whose prefill may be read.
fn pullable(wire: Wire, checksums: bool) -> Pair {
    let engines = [engine(wire, None), engine(wire, None)];
    let source = pool(&engines[0], SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&engines[1], SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions { checksums, ..LinkOptions::default() };
    let (prefill, decode) = link((&engines[0], &source), (&engines[1], &destination), &options);
    Pair { prefill, decode, source, destination }
}

/// Each end names its range; with different ones nothing is moved, both ends say so, and the blocks are free again.
#[test]
fn ends_that_name_different_numbers_of_tokens_are_both_told() {
    let pair = pullable(Wire::Local, false);
    let different = [(Some(0..6), Some(0..7)), (Some(0..6), None), (None, Some(0..8))];
    for (request, (ours, theirs)) in (1..).zip(different) {
        let (from, to) = (Blocks::new(&[3, 9]), Blocks::new(&[20, 4]));
        let from = ours.map_or(from, |range| from.tokens(range));
        let to = theirs.map_or(to, |range| to.tokens(range));
        let push = pair.prefill.push(request, from, long()).unwrap();
        let grant = pair.decode.grant(request, to, long()).unwrap();
        let told = grant.wait().unwrap_err();
        assert!(
            matches!(*told.cause, KvError::TokenRanges { request: of, .. } if of == request.into()),
            "{told}"
        );
        let told = push.wait().unwrap_err();
        assert!(matches!(told, KvError::TokenRanges { .. }), "{told}");
        let offer = pair.prefill.offer(request + 10, from, long()).unwrap();
        let told = pair.decode.pull(request + 10, to, long()).unwrap().wait().unwrap_err();
        assert!(matches!(*told.cause, KvError::TokenRanges { .. }), "{told}");
        assert!(offer.wait().is_err());
        assert!(pair.source.held(3).is_none() && pair.destination.held(20).is_none());
    }
    assert_tokens(&pair, &[]);
}

#[test]
fn ranges_that_do_not_fit_the_blocks_are_refused_and_nothing_is_held() {
    let pair = connect(Wire::Local, false);
    let refused = |ranges: &[Range<u32>]| {
        let blocks = Blocks::new(&[3, 9]).tokens_by_group(ranges);
        let errors = [
            pair.prefill.push(1, blocks, long()).unwrap_err(),
            pair.decode.grant(1, blocks, long()).unwrap_err(),
        ];
        assert!(pair.source.held(3).is_none() && pair.destination.held(3).is_none());
        errors.map(|error| match error {
            KvError::Plan(error) => error,
            other => panic!("{other}"),
        })
    };
    for range in [4..8, 0..4, 0..9, 3..3, Range { start: 3, end: 2 }] {
        for error in refused(std::slice::from_ref(&range)) {
            assert!(matches!(error, PlanError::TokenRange { .. }), "{range:?}: {error}");
        }
    }
    for error in refused(&[0..8, 0..8]) {
        assert!(matches!(error, PlanError::TokenRanges { ranges: 2, groups: 1 }), "{error}");
    }
    // Whole blocks are not meant.
    for error in refused(&[]) {
        assert!(matches!(error, PlanError::TokenRanges { ranges: 0, groups: 1 }), "{error}");
    }
}

/// Blocks that are missing are moved again within their range.
#[test]
fn the_rest_of_a_range_is_moved_within_the_range() {
    for wire in WIRES {
        let pair = connect(wire, false);
        let grant = pair.decode.grant(1, Blocks::new(&[20, 4]).tokens(1..7), long()).unwrap();
        let verdicts = grant.revoke(long()).unwrap();
        assert!(!verdicts.all_valid());
        let again = pair.decode.grant_missing(2, &verdicts, long()).unwrap();
        let push = pair.prefill.push(2, Blocks::new(&[3, 9]).tokens(1..7), long()).unwrap();
        assert!(again.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        assert_tokens(&pair, &[(3, 20, 1..4), (9, 4, 0..3)]);
    }
}

/// Tokens that begin within a block take a part of one block more than the other end has.
#[test]
fn ranges_fill_a_whole_pool_from_within_a_block() {
    let small = Shape { blocks: 2, ..SHAPE };
    let pair = Setup { destination: small, ..Setup::default() }.connect();
    let push = pair.prefill.push(1, Blocks::new(&[3, 9, 7]).tokens(2..10), long()).unwrap();
    let grant = pair.decode.grant(1, Blocks::new(&[0, 1]).tokens(0..8), long()).unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    let pair = Setup { source: small, ..Setup::default() }.connect();
    let push = pair.prefill.push(1, Blocks::new(&[0, 1]).tokens(0..8), long()).unwrap();
    let grant = pair.decode.grant(1, Blocks::new(&[3, 9, 7]).tokens(2..10), long()).unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    let engines = [engine(Wire::Local, None), engine(Wire::Local, None)];
    let source = pool(&engines[0], SHAPE, PoolUse::SourceToPull, source_byte);
    let room = pool(&engines[1], small, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&engines[0], &source), (&engines[1], &room), &LinkOptions::default());
    let offer = prefill.offer(1, Blocks::new(&[3, 9, 7]).tokens(2..10), long()).unwrap();
    let pull = decode.pull(1, Blocks::new(&[0, 1]).tokens(0..8), long()).unwrap();
    assert!(pull.wait().unwrap().verdicts.all_valid());
    offer.wait().unwrap();
}

/// The second error of a transfer whose outcome was taken, too, knows the tokens that are missing.
#[test]
fn verdicts_keep_the_range_though_the_outcome_was_taken() {
    let pair = connect(Wire::Local, false);
    let deadline = Deadline::after(Duration::from_millis(50));
    let mut grant = pair.decode.grant(1, Blocks::new(&[20, 4]).tokens(1..7), deadline).unwrap();
    while grant.poll().is_pending() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let taken = grant.wait().unwrap_err();
    assert!(matches!(*taken.cause, KvError::OutcomeTaken { request } if request == 1.into()), "{taken}");
    let again = pair.decode.grant_missing(2, &taken.verdicts, long()).unwrap();
    let push = pair.prefill.push(2, Blocks::new(&[3, 9]).tokens(1..7), long()).unwrap();
    assert!(again.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    assert_tokens(&pair, &[(3, 20, 1..4), (9, 4, 0..3)]);
}

#[test]
fn a_range_of_a_pull_cannot_be_checked() {
    let pair = pullable(Wire::Local, true);
    let refused = pair.decode.pull(1, Blocks::new(&[3, 9]).tokens(0..6), long()).unwrap_err();
    assert!(matches!(refused, KvError::ChecksumsOfPull), "{refused}");
    assert!(pair.destination.held(3).is_none());
}
