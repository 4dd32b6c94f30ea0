//! Many links in one process: prefills and decodes that share engines, devices and pools.

use std::thread;

use crate::common::{WIRES, long};
use crate::pair::{CANARY, SHAPE, TOKEN, engine, pool, source_byte, transfer};
use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::Wire;

const PREFILLS: u32 = 3;
const DECODES: u32 = 2;
/// On each link, at the same time.
const REQUESTS: u32 = 4;
/// Blocks of a request. All blocks of a decode's pool are granted once.
const BLOCKS: u32 = SHAPE.blocks / (PREFILLS * REQUESTS);

/// The bytes in the pool of a prefill; each prefill has others.
fn content(prefill: u32) -> impl Fn(u32, u32, u64) -> u8 {
    move |layer, block, at| source_byte(layer, block + 1000 * prefill, at)
}

fn link((at_prefill, source): (&Engine, &Pool), (at_decode, room): (&Engine, &Pool)) -> (Prefill, Decode) {
    let options = LinkOptions { max_send_wr: 16, credits: 40, ..LinkOptions::default() };
    let mut prefill = Prefill::prepare(at_prefill, source, &TOKEN, &options).unwrap();
    let mut decode = Decode::prepare(at_decode, room, &TOKEN, &options).unwrap();
    let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
    thread::scope(|scope| {
        let prefill = scope.spawn(move || prefill.connect(&to_prefill, long()).unwrap());
        let decode = decode.connect(&to_decode, long()).unwrap();
        (prefill.join().unwrap(), decode)
    })
}

/// The blocks of a request: any of the source, and those of the destination that belong to it alone.
fn pairs(prefill: u32, decode: u32, request: u32) -> Vec<(u32, u32)> {
    let first = (prefill * REQUESTS + request) * BLOCKS;
    // Requests of one pool have source blocks in common, as prompts have beginnings.
    (first..first + BLOCKS).map(|block| ((block * 7 + decode) % SHAPE.blocks, block)).collect()
}

/// Every prefill to every decode, all requests at once, and every byte of what arrives.
fn mesh(at_prefills: [Engine; PREFILLS as usize], at_decodes: [Engine; DECODES as usize]) {
    let sources: Vec<_> = (0..)
        .zip(at_prefills)
        .map(|(prefill, engine)| (pool(&engine, SHAPE, PoolUse::Source, content(prefill)), engine))
        .collect();
    let rooms =
        at_decodes.map(|engine| (pool(&engine, SHAPE, PoolUse::Destination, |_, _, _| CANARY), engine));
    let mut links = Vec::new();
    for (prefill, (source, at_prefill)) in (0..).zip(&sources) {
        for (decode, (room, at_decode)) in (0..).zip(&rooms) {
            links.push((prefill, decode, link((at_prefill, source), (at_decode, room))));
        }
    }
    thread::scope(|scope| {
        for (prefill, decode, (from, to)) in &links {
            for request in 0..REQUESTS {
                let pairs = pairs(*prefill, *decode, request);
                scope.spawn(move || transfer(from, to, request.into(), &pairs));
            }
        }
    });
    for (decode, (room, _)) in (0..).zip(&rooms) {
        let mut bytes = vec![0; room.layout().layer_block_bytes() as usize];
        for prefill in 0..PREFILLS {
            for (from, to) in (0..REQUESTS).flat_map(|request| pairs(prefill, decode, request)) {
                for layer in 0..SHAPE.layers {
                    room.read(layer, to, 0, &mut bytes).unwrap();
                    let right =
                        (0..).zip(&bytes).all(|(at, byte)| *byte == content(prefill)(layer, from, at));
                    assert!(right, "block {to} of decode {decode}, from block {from} of prefill {prefill}");
                }
            }
        }
    }
    drop(links);
    for (pool, _engine) in sources.into_iter().chain(rooms) {
        pool.close(long()).unwrap().remove(0).deregister().unwrap();
    }
}

#[test]
fn three_prefills_and_two_decodes_share_one_engine() {
    for wire in WIRES {
        let engine = engine(wire, None);
        mesh([(); 3].map(|()| engine.clone()), [(); 2].map(|()| engine.clone()));
    }
}

#[test]
fn three_prefills_and_two_decodes_have_engines_and_devices_of_their_own() {
    for wire in WIRES {
        mesh([(); 3].map(|()| engine(wire, None)), [(); 2].map(|()| engine(wire, None)));
    }
}

#[test]
fn links_share_the_pools_of_both_sides() {
    let (at_prefill, at_decode) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::Source, source_byte);
    let room = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let mut links: Vec<_> = (0..5).map(|_| link((&at_prefill, &source), (&at_decode, &room))).collect();
    for (block, (prefill, decode)) in (0..).zip(&links) {
        transfer(prefill, decode, 1, &[(block, block)]);
    }
    // The remaining links go on when others leave.
    links.truncate(2);
    for (block, (prefill, decode)) in (10..).zip(&links) {
        transfer(prefill, decode, 2, &[(block, block)]);
    }
    crate::pair::assert_moved(&room, &[0, 1, 2, 3, 4, 10, 11].map(|block| (block, block)));
    drop(links);
    source.close(long()).unwrap().remove(0).deregister().unwrap();
}
