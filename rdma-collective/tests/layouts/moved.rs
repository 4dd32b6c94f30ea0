//! Random pairs of layouts, over each wire, with real memory: every byte is where the oracle has it, and no other byte
//! has changed.

use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::{Memory, Wire};

use super::common::{WIRES, long};
use super::oracle::Pair;
use super::pair::{CANARY, engine, link};

/// Pairs on each wire.
const PAIRS: usize = 200;

fn source_byte(offset: u64) -> u8 {
    (offset.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Both pools, in memory of this test.
fn pools(engines: [&Engine; 2], pair: &Pair, pulled: bool) -> [Pool; 2] {
    let [source, destination] = &pair.layouts;
    let bytes = (0..source.layout.bytes()).map(source_byte).collect::<Vec<u8>>();
    let purpose = if pulled { PoolUse::SourceToPull } else { PoolUse::Source };
    let source = Pool::register(engines[0], Memory::from(bytes), &source.layout, purpose);
    let bytes = vec![CANARY; destination.layout.bytes() as usize];
    let room = Pool::register(engines[1], Memory::from(bytes), &destination.layout, PoolUse::Destination);
    [source.unwrap(), room.unwrap()]
}

/// Moves the request of a pair, and returns the bytes of the destination.
fn moved(engines: [&Engine; 2], pair: &Pair) -> Vec<u8> {
    let pulled = pair.options.pulls;
    let [source, room] = pools(engines, pair, pulled);
    let options = LinkOptions {
        write_bytes_max: pair.options.write_bytes_max,
        checksums: !pulled && pair.options.stage_bytes.is_multiple_of(2),
        ..LinkOptions::default()
    };
    let (prefill, decode) = link((engines[0], &source), (engines[1], &room), &options);
    request(&prefill, &decode, pair, pulled);
    drop((prefill, decode));
    drop(source.close(long()).unwrap());
    room.close(long()).unwrap().deregister().unwrap().into_owner::<Vec<u8>>().unwrap()
}

fn request(prefill: &Prefill, decode: &Decode, pair: &Pair, pulled: bool) {
    let [sources, destinations] = &pair.blocks;
    let bytes = pair.expected().len() as u64;
    let (sent, received) = if pulled {
        let offer = prefill.offer(1, sources, long()).unwrap();
        let received = decode.pull(1, destinations, long()).unwrap().wait().unwrap();
        (offer.wait().unwrap(), received)
    } else {
        let push = if pair.options.by_layer {
            prefill.push_layers(1, sources, long())
        } else {
            prefill.push(1, sources, long())
        };
        let push = push.unwrap();
        let grant = decode.grant(1, destinations, long()).unwrap();
        if pair.options.by_layer {
            (0..pair.layouts[0].layout.layers()).for_each(|layer| push.layer_ready(layer).unwrap());
        }
        let received = grant.wait().unwrap();
        (push.wait().unwrap(), received)
    };
    assert!(received.verdicts.all_valid(), "{:?}", received.verdicts);
    assert_eq!((sent.bytes, sent.corrupt, received.bytes), (bytes, 0, bytes));
    assert_eq!(sent.writes, received.writes);
}

fn check(wire: Wire) {
    let engines = [engine(wire, None), engine(wire, None)];
    let engines = [&engines[0], &engines[1]];
    let pairs =
        (0..).map(Pair::random).filter(|pair| pair.options.tokens.is_empty() && !pair.expected().is_empty());
    for (number, pair) in pairs.take(PAIRS).enumerate() {
        let bytes = moved(engines, &pair);
        let mut expected = vec![CANARY; bytes.len()];
        for (from, to) in pair.expected() {
            expected[to as usize] = source_byte(from);
        }
        let wrong = bytes.iter().zip(&expected).position(|(one, other)| one != other);
        assert_eq!(wrong, None, "{wire:?}, pair {number}: the first wrong byte; {pair:?}");
    }
}

#[test]
fn every_byte_is_where_the_oracle_has_it_on_each_wire() {
    WIRES.into_iter().for_each(check);
}
