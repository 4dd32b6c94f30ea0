//! Layers that are announced in any order, of pieces that are packed at both ends: every byte, with checksums, of token
//! ranges, and resumed in another order.

use std::ops::Range;

use crate::common::{WIRES, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, source_byte};
use proptest::prelude::*;
use rdma_collective::kv::layout::{HeadOrder, Order, Shape};
use rdma_collective::kv::{BlockVerdict, Blocks, Grant, KvError, LinkOptions, Push};

const LAYERS: u32 = 5;
const BLOCKS: u32 = 12;
/// Tokens before heads at prefill.
const FROM: Shape = Shape { layers: LAYERS, blocks: BLOCKS, ..SHAPE };

const HEADS: u64 = 2;
const TOKENS: u64 = SHAPE.block_tokens as u64;
/// Bytes of a head of a token.
const ELEMENT: u64 = 16;

/// Offset in prefill's block of a byte of decode's, and the token that it belongs to.
fn place_in_source(at: u64, order: HeadOrder) -> (u64, u64) {
    let (element, byte) = (at / ELEMENT, at % ELEMENT);
    let (part, inner) = (element / (HEADS * TOKENS), element % (HEADS * TOKENS));
    let (token, head) = match order {
        HeadOrder::Nhd => (inner / HEADS, inner % HEADS),
        HeadOrder::Hnd => (inner % TOKENS, inner / TOKENS),
    };
    (((part * TOKENS + token) * HEADS + head) * ELEMENT + byte, token)
}

/// A request of blocks, of some tokens of them if it names some.
#[derive(Debug, Clone)]
struct Request {
    sources: Vec<u32>,
    destinations: Vec<u32>,
    tokens: Option<Range<u32>>,
}

impl Request {
    fn of<'a>(&self, list: &'a [u32]) -> Blocks<'a> {
        let all = Blocks::new(list);
        self.tokens.clone().map_or(all, |tokens| all.tokens(tokens))
    }

    /// Asserts that layers have the bytes of the source, or none of them.
    fn assert_layers(&self, pair: &Pair, there: impl Fn(u32) -> bool) {
        let layout = pair.destination.layout();
        let tokens = self.tokens.clone().map_or(0..u64::MAX, |range| range.start.into()..range.end.into());
        let mut bytes = vec![0; layout.layer_block_bytes() as usize];
        for (layer, block) in (0..LAYERS).flat_map(|layer| (0..BLOCKS).map(move |block| (layer, block))) {
            pair.destination.read(layer, block, 0, &mut bytes).unwrap();
            let place = self.destinations.iter().position(|to| *to == block);
            for (at, byte) in (0..).zip(&bytes) {
                let (from, token) = place_in_source(at, layout.shape().head_order);
                let moved = place.filter(|place| tokens.contains(&(*place as u64 * TOKENS + token)));
                let moved = moved.filter(|_| there(layer));
                let expected = moved.map_or(CANARY, |place| source_byte(layer, self.sources[place], from));
                assert_eq!(*byte, expected, "byte {at} of block {block} in layer {layer}");
            }
        }
    }
}

fn requests() -> impl Strategy<Value = Request> {
    let ids = || Just((0..BLOCKS).collect::<Vec<_>>()).prop_shuffle();
    let tokens = prop::option::of((0..SHAPE.block_tokens, 1..SHAPE.block_tokens));
    (ids(), ids(), 1..=BLOCKS as usize, tokens).prop_map(|(mut sources, mut destinations, count, tokens)| {
        sources.truncate(count);
        destinations.truncate(count);
        // From within the first block to within the last.
        let end = |left: u32| count as u32 * SHAPE.block_tokens - left;
        let tokens = tokens.map(|(skip, left)| skip..end(left)).filter(|range| !range.is_empty());
        Request { sources, destinations, tokens }
    })
}

fn any_order() -> impl Strategy<Value = Vec<u32>> {
    Just((0..LAYERS).collect::<Vec<_>>()).prop_shuffle()
}

/// Number of layers, from the first on, that are all among `layers`.
fn prefix(layers: &[u32]) -> u32 {
    (0..LAYERS).find(|layer| !layers.contains(layer)).unwrap_or(LAYERS)
}

/// Announces `layers` one after the other, and waits at both ends for each of them; with checksums, for those that have
/// all layers before them.
fn announce(push: &Push, grant: &Grant, layers: &[u32], checksums: bool) {
    for (at, layer) in layers.iter().enumerate() {
        push.layer_ready(*layer).unwrap();
        let there = if checksums { 0..prefix(&layers[..=at]) } else { *layer..*layer + 1 };
        for layer in there {
            push.wait_layer_sent(layer, long()).unwrap();
            let verdicts = grant.wait_layer(layer, long()).unwrap();
            assert!(verdicts.iter().all(|verdict| *verdict == BlockVerdict::Valid));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn layers_in_any_order_arrive_whole_and_are_resumed_in_another_order(
        request in requests(),
        wire in prop::sample::select(&WIRES),
        (order, head_order) in (
            prop::sample::select(&[Order::LayerPartBlock, Order::LayerBlockPart, Order::BlockLayerPart]),
            prop::sample::select(&[HeadOrder::Nhd, HeadOrder::Hnd]),
        ),
        write_bytes_max in prop::sample::select(&[32_u32, 100, 256, 1 << 20]),
        checksums in any::<bool>(),
        (first, again, count) in (any_order(), any_order(), 0..LAYERS as usize),
    ) {
        let options = LinkOptions { write_bytes_max, checksums, ..LinkOptions::default() };
        let destination = Shape { order, head_order, ..FROM };
        let pair = Setup { wire, source: FROM, destination, options, ..Setup::default() }.connect();
        let (from, to) = (request.of(&request.sources), request.of(&request.destinations));
        let push = pair.prefill.push_layers(1, from, long()).unwrap();
        let grant = pair.decode.grant(1, to, long()).unwrap();
        let first = &first[..count];
        announce(&push, &grant, first, checksums);
        // All that was announced may have arrived, and nothing else has.
        let verdicts = grant.revoke(long()).unwrap();
        let given_up = push.wait().unwrap_err();
        let by_peer = matches!(given_up, KvError::PeerRevoked { request, .. } if request == 1.into());
        prop_assert!(by_peer, "{}", given_up);
        let valid = |layer: u32| verdicts.get(layer, 0) == Some(BlockVerdict::Valid);
        let known = if checksums { (0..prefix(first)).collect() } else { first.to_vec() };
        prop_assert!(known.iter().all(|layer| valid(*layer)), "{known:?} of {verdicts:?}");
        prop_assert!((0..LAYERS).all(|layer| first.contains(&layer) || !valid(layer)), "{first:?}: {verdicts:?}");
        if !checksums {
            request.assert_layers(&pair, |layer| first.contains(&layer));
        }

        let push = pair.prefill.push_layers(2, from, long()).unwrap();
        let grant = pair.decode.grant_missing(2, &verdicts, long()).unwrap();
        announce(&push, &grant, &again, checksums);
        prop_assert!(grant.wait().unwrap().verdicts.all_valid());
        prop_assert_eq!(push.wait().unwrap().corrupt, 0);
        request.assert_layers(&pair, |_| true);
    }

    /// All layers are announced at once, and both ends go on by themselves.
    #[test]
    fn layers_that_are_announced_at_once_in_any_order_arrive_whole(
        request in requests(),
        wire in prop::sample::select(&WIRES),
        head_order in prop::sample::select(&[HeadOrder::Nhd, HeadOrder::Hnd]),
        write_bytes_max in prop::sample::select(&[32_u32, 100, 1 << 20]),
        (max_send_wr, credits) in prop::sample::select(&[(8, 16), (64, 256)]),
        checksums in any::<bool>(),
        order in any_order(),
    ) {
        let options =
            LinkOptions { write_bytes_max, max_send_wr, credits, checksums, ..LinkOptions::default() };
        let destination = Shape { head_order, ..FROM };
        let pair = Setup { wire, source: FROM, destination, options, ..Setup::default() }.connect();
        let (from, to) = (request.of(&request.sources), request.of(&request.destinations));
        let push = pair.prefill.push_layers(1, from, long()).unwrap();
        let (early, late) = order.split_at(2);
        early.iter().for_each(|layer| push.layer_ready(*layer).unwrap());
        let grant = pair.decode.grant(1, to, long()).unwrap();
        late.iter().for_each(|layer| push.layer_ready(*layer).unwrap());
        (0..LAYERS).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
        prop_assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        request.assert_layers(&pair, |_| true);
    }
}
