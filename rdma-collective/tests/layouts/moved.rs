//! Random families of layouts, over each wire, with real memory: every byte is where the oracle has it, and no other
//! byte has changed.

use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill, Sources};
use rdma_core::{Memory, Wire};

use super::common::{WIRES, long};
use super::family::Family;
use super::pair::{CANARY, engine, link};

/// Families on each wire.
const FAMILIES: usize = 200;

/// The byte of a source at an offset of its pool.
fn source_byte(source: usize, offset: u64) -> u8 {
    let place = offset.wrapping_add(1).wrapping_add((source as u64) << 40);
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The pool of each source, and that of decode, in memory of this test.
fn pools(engines: [&Engine; 2], family: &Family) -> (Vec<Pool>, Pool) {
    let purpose = if family.options().pulls { PoolUse::SourceToPull } else { PoolUse::Source };
    let source = |(at, layout): (usize, &rdma_collective::kv::layout::Layout)| {
        let bytes = (0..layout.bytes()).map(|offset| source_byte(at, offset)).collect::<Vec<u8>>();
        Pool::register(engines[0], Memory::from(bytes), layout, purpose).unwrap()
    };
    let layouts = family.sources.iter().map(|pair| &pair.layouts[0].layout);
    let sources = layouts.enumerate().map(source).collect();
    let layout = &family.sources[0].layouts[1].layout;
    let bytes = vec![CANARY; layout.bytes() as usize];
    (sources, Pool::register(engines[1], Memory::from(bytes), layout, PoolUse::Destination).unwrap())
}

/// Moves the request of a family, and returns the bytes of the destination.
fn moved(engines: [&Engine; 2], family: &Family) -> Vec<u8> {
    let (sources, room) = pools(engines, family);
    let options = family.options();
    let link_options = LinkOptions {
        // Short queues, so that many links fit into the completion queue of one engine.
        max_send_wr: 16,
        credits: 40,
        write_bytes_max: options.write_bytes_max,
        checksums: !options.pulls && options.stage_bytes.is_multiple_of(2),
        ..LinkOptions::default()
    };
    let links = sources.iter().map(|source| link((engines[0], source), (engines[1], &room), &link_options));
    let (prefills, decodes): (Vec<_>, Vec<_>) = links.unzip();
    request(&prefills, decodes, family);
    drop(prefills);
    for source in sources {
        drop(source.close(long()).unwrap());
    }
    room.close(long()).unwrap().deregister().unwrap().into_owner::<Vec<u8>>().unwrap()
}

fn request(prefills: &[Prefill], decodes: Vec<Decode>, family: &Family) {
    let options = family.options();
    let bytes: Vec<u64> = family.sources.iter().map(|pair| pair.expected().len() as u64).collect();
    let sending = prefills.iter().zip(&family.sources).map(|(prefill, pair)| {
        let blocks = &pair.blocks[0];
        let sending = match (options.pulls, options.by_layer) {
            (true, _) => prefill.offer(1, blocks, long()).unwrap(),
            (false, false) => prefill.push(1, blocks, long()).unwrap(),
            (false, true) => prefill.push_layers(1, blocks, long()).unwrap(),
        };
        if options.by_layer && !options.pulls {
            (0..pair.layouts[0].layout.layers()).for_each(|layer| sending.layer_ready(layer).unwrap());
        }
        sending
    });
    let sending: Vec<_> = sending.collect();
    let blocks = &family.sources[0].blocks[1];
    // A link that brings whole blocks needs no others.
    let (received, _links) = if family.is_single() {
        let decode = &decodes[0];
        let transfer =
            if options.pulls { decode.pull(1, blocks, long()) } else { decode.grant(1, blocks, long()) };
        (transfer.unwrap().wait().unwrap(), Sources::new(decodes).unwrap())
    } else {
        let refused = decodes[0].grant(1, blocks, long()).unwrap_err().to_string();
        assert!(refused.contains("only a part of each block"), "{refused}");
        let sources = Sources::new(decodes).unwrap();
        let transfer =
            if options.pulls { sources.pull(1, blocks, long()) } else { sources.grant(1, blocks, long()) };
        (transfer.unwrap().wait().unwrap(), sources)
    };
    assert!(received.verdicts.all_valid(), "{:?}", received.verdicts);
    let sent: Vec<_> = sending.into_iter().map(|sending| sending.wait().unwrap()).collect();
    assert!(sent.iter().all(|sent| sent.corrupt == 0));
    assert_eq!(sent.iter().map(|sent| sent.bytes).collect::<Vec<_>>(), bytes);
    assert_eq!(received.bytes, bytes.iter().sum::<u64>());
    assert_eq!(received.writes, sent.iter().map(|sent| sent.writes).sum::<u32>());
}

fn check(wire: Wire) {
    let engines = [engine(wire, None), engine(wire, None)];
    let engines = [&engines[0], &engines[1]];
    let (mut several, mut number) = (0, 0);
    for family in (0..).filter_map(Family::random).take(FAMILIES) {
        let bytes = moved(engines, &family);
        let mut expected = vec![CANARY; bytes.len()];
        for (source, pair) in family.sources.iter().enumerate() {
            for (from, to) in pair.expected() {
                expected[to as usize] = source_byte(source, from);
            }
        }
        let wrong = bytes.iter().zip(&expected).position(|(one, other)| one != other);
        assert_eq!(wrong, None, "{wire:?}, family {number}: the first wrong byte; {family:?}");
        several += usize::from(!family.is_single());
        number += 1;
    }
    println!("{wire:?}: {several} of {FAMILIES} requests had several sources");
    assert!(several >= FAMILIES / 4, "{several} had several sources");
}

#[test]
fn every_byte_is_where_the_oracle_has_it_on_each_wire() {
    WIRES.into_iter().for_each(check);
}
