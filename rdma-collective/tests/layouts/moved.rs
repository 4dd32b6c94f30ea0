//! Random families of layouts, over each wire, with real memory: every byte is where the oracle has it, and no other
//! byte has changed.

use std::fmt::Debug;
use std::ops::Range;

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Extent, Layout};
use rdma_collective::kv::plan::{Plan, PlanOptions, PlanSize, Route, Tokens};
use rdma_collective::kv::{Blocks, Decode, LinkOptions, Pool, PoolUse, Prefill, Sources};
use rdma_core::{DeviceList, Memory};

use super::common::{WIRES, long};
use super::family::Family;
use super::oracle::Pair;
use super::pair::{CANARY, engine, link};
use super::pools::Described;

/// Families on each wire, and on a device.
const FAMILIES: usize = 200;
const FAMILIES_ON_A_DEVICE: usize = 20;

/// The byte of a source at an offset of its pool.
fn source_byte(source: usize, offset: u64) -> u8 {
    let place = offset.wrapping_add(1).wrapping_add((source as u64) << 40);
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Bytes of canaries around every tensor.
const GUARD: usize = 64;

/// The memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// All tensors one behind the other.
    Whole,
    /// Each in memory of its own, with canaries behind.
    Each,
    /// All in one region, the last one first, with canaries around.
    Shuffled,
}

/// A pool whose bytes at each offset are those of `byte`.
fn pool(engine: &Engine, layout: &Layout, purpose: PoolUse, place: Place, byte: impl Fn(u64) -> u8) -> Pool {
    let bytes = |tensor: Extent| (tensor.offset..tensor.offset + tensor.len).map(&byte);
    match place {
        Place::Whole => {
            let bytes = (0..layout.bytes()).map(&byte).collect::<Vec<u8>>();
            Pool::register(engine, Memory::from(bytes), layout, purpose).unwrap()
        }
        Place::Each => {
            let tensor = |tensor| Memory::from(bytes(tensor).chain([CANARY; GUARD]).collect::<Vec<u8>>());
            let tensors = layout.tensors().map(tensor).collect();
            Pool::register_tensors(engine, tensors, layout, purpose).unwrap()
        }
        Place::Shuffled => {
            let (mut all, mut starts) = (vec![CANARY; GUARD], Vec::new());
            for tensor in layout.tensors().collect::<Vec<_>>().into_iter().rev() {
                starts.push(all.len());
                all.extend(bytes(tensor).chain([CANARY; GUARD]));
            }
            let region = engine.register(Memory::from(all), purpose.access()).unwrap();
            let tensors: Vec<_> = starts.into_iter().rev().map(|start| (region.clone(), start)).collect();
            Pool::in_regions(engine, &tensors, layout, purpose).unwrap()
        }
    }
}

/// The bytes of a pool by their offset; those between tensors are canaries.
fn bytes_of(pool: Pool, place: Place) -> Vec<u8> {
    let layout = pool.layout().clone();
    let regions = pool.close(long()).unwrap();
    let memory =
        regions.into_iter().map(|region| region.deregister().unwrap().into_owner::<Vec<u8>>().unwrap());
    let mut memory: Vec<Vec<u8>> = memory.collect();
    if place == Place::Whole {
        return memory.remove(0);
    }
    let mut all = vec![CANARY; layout.bytes() as usize];
    let tensors: Vec<_> =
        layout.tensors().map(|tensor| (tensor.offset as usize, tensor.len as usize)).collect();
    let is_guard = |bytes: &[u8]| bytes.len() == GUARD && bytes.iter().all(|byte| *byte == CANARY);
    if place == Place::Each {
        for ((offset, len), bytes) in tensors.into_iter().zip(memory) {
            all[offset..offset + len].copy_from_slice(&bytes[..len]);
            assert!(is_guard(&bytes[len..]));
        }
        return all;
    }
    let mut at = GUARD;
    assert!(is_guard(&memory[0][..GUARD]));
    for (offset, len) in tensors.into_iter().rev() {
        all[offset..offset + len].copy_from_slice(&memory[0][at..at + len]);
        at += len;
        assert!(is_guard(&memory[0][at..at + GUARD]));
        at += GUARD;
    }
    all
}

/// The pool of each source, and that of decode, in memory of this test.
fn pools(engines: [&Engine; 2], family: &Family, places: [Place; 2]) -> (Vec<Pool>, Pool) {
    let purpose = if family.options().pulls { PoolUse::SourceToPull } else { PoolUse::Source };
    let sources = family.sources.iter().enumerate().map(|(at, pair)| {
        pool(engines[0], &pair.layouts[0].layout, purpose, places[0], |offset| source_byte(at, offset))
    });
    let layout = &family.sources[0].layouts[1].layout;
    (sources.collect(), pool(engines[1], layout, PoolUse::Destination, places[1], |_| CANARY))
}

/// Moves the request of a family, and returns the bytes of the destination.
fn moved(engines: [&Engine; 2], family: &Family, places: [Place; 2]) -> Vec<u8> {
    let (sources, room) = pools(engines, family, places);
    let options = family.options();
    let link_options = LinkOptions {
        // Short queues, so that many links fit into the completion queue of one engine.
        max_send_wr: 16,
        credits: 40,
        write_bytes_max: options.write_bytes_max,
        pack_bytes: options.pack_bytes,
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
    bytes_of(room, places[1])
}

fn request(prefills: &[Prefill], decodes: Vec<Decode>, family: &Family) {
    let options = family.options();
    let bytes: Vec<u64> = family.sources.iter().map(|pair| pair.expected().len() as u64).collect();
    let sending = prefills.iter().zip(&family.sources).map(|(prefill, pair)| {
        let ranges = ranges(&options.tokens, |tokens| tokens.source_skip);
        let blocks = some_tokens(&pair.blocks[0], &ranges);
        let sending = match (options.pulls, options.by_layer) {
            (true, _) => prefill.offer(1, blocks, long()).unwrap(),
            (false, false) => prefill.push(1, blocks, long()).unwrap(),
            (false, true) => prefill.push_layers(1, blocks, long()).unwrap(),
        };
        if options.by_layer && !options.pulls {
            let layers = pair.layouts[0].layout.layers();
            // In an order that differs from family to family.
            let first = pair.blocks[0][0] % layers;
            (first..layers).chain((0..first).rev()).for_each(|layer| sending.layer_ready(layer).unwrap());
        }
        sending
    });
    let sending: Vec<_> = sending.collect();
    let ranges = ranges(&options.tokens, |tokens| tokens.destination_skip);
    let blocks = some_tokens(&family.sources[0].blocks[1], &ranges);
    // A link that brings whole blocks needs no others.
    let (received, _links) = if family.is_single() {
        let decode = &decodes[0];
        let transfer = match (options.pulls, options.by_layer) {
            (true, true) => decode.pull_layers(1, blocks, long()),
            (true, false) => decode.pull(1, blocks, long()),
            (false, _) => decode.grant(1, blocks, long()),
        };
        (transfer.unwrap().wait().unwrap(), Sources::new(decodes).unwrap())
    } else {
        let refused = decodes[0].grant(1, blocks, long()).unwrap_err().to_string();
        assert!(refused.contains("only a part of each block"), "{refused}");
        let sources = Sources::new(decodes).unwrap();
        let transfer = match (options.pulls, options.by_layer) {
            (true, true) => sources.pull_layers(1, blocks, long()),
            (true, false) => sources.pull(1, blocks, long()),
            (false, _) => sources.grant(1, blocks, long()),
        };
        (transfer.unwrap().wait().unwrap(), sources)
    };
    assert!(received.verdicts.all_valid(), "{:?}", received.verdicts);
    let sent: Vec<_> = sending.into_iter().map(|sending| sending.wait().unwrap()).collect();
    assert!(sent.iter().all(|sent| sent.corrupt == 0));
    assert_eq!(sent.iter().map(|sent| sent.bytes).collect::<Vec<_>>(), bytes);
    assert_eq!(received.bytes, bytes.iter().sum::<u64>());
    assert_eq!(received.writes, sent.iter().map(|sent| sent.writes).sum::<u32>());
    // A link packs as the plan does.
    let planned: Vec<_> = family.sources.iter().map(planned).collect();
    assert_eq!(u64::from(received.writes), planned.iter().map(|size| size.writes).sum::<u64>());
}

/// The ranges of one side.
fn ranges(tokens: &[Tokens], skip: impl Fn(&Tokens) -> u32) -> Vec<Range<u32>> {
    tokens.iter().map(|tokens| skip(tokens)..skip(tokens) + tokens.count).collect()
}

/// All tokens of the blocks where there are no ranges.
fn some_tokens<'a>(blocks: &'a [u32], ranges: &'a [Range<u32>]) -> Blocks<'a> {
    let all = Blocks::new(blocks);
    if ranges.is_empty() { all } else { all.tokens_by_group(ranges) }
}

/// The size of the plan that a link makes.
fn planned(pair: &Pair) -> PlanSize {
    let [source, destination] = &pair.layouts;
    let route = Route::new(&source.layout, &destination.layout).unwrap().into();
    let PlanOptions { write_bytes_max, pack_bytes, by_layer, pulls, ref tokens, .. } = pair.options;
    let options = PlanOptions {
        write_bytes_max,
        pack_bytes,
        by_layer,
        pulls,
        tokens: tokens.clone(),
        ..PlanOptions::default()
    };
    Plan::new(&route, [&pair.blocks[0], &pair.blocks[1]], &options).unwrap().size()
}

fn check(way: impl Debug, engines: [&Engine; 2], families: usize) {
    let (mut several, mut packed, mut ranged, mut shared, mut number) = (0, 0, 0, 0, 0);
    for family in (0..).filter_map(Family::random).take(families) {
        let kinds = [Place::Whole, Place::Each, Place::Shuffled];
        let bytes = moved(engines, &family, [kinds[number % 3], kinds[number / 3 % 3]]);
        let mut expected = vec![CANARY; bytes.len()];
        for (source, pair) in family.sources.iter().enumerate() {
            for (from, to) in pair.expected() {
                expected[to as usize] = source_byte(source, from);
            }
        }
        let wrong = bytes.iter().zip(&expected).position(|(one, other)| one != other);
        assert_eq!(wrong, None, "{way:?}, family {number}: the first wrong byte; {family:?}");
        several += usize::from(!family.is_single());
        packed += usize::from(family.sources.iter().any(|pair| planned(pair).packed_bytes > 0));
        ranged += usize::from(!family.options().tokens.is_empty());
        let sides = family.sources.iter().flat_map(|pair| &pair.layouts);
        shared += usize::from(sides.into_iter().any(Described::shares_memory));
        number += 1;
    }
    println!(
        "{way:?}: {several} of {families} requests had several sources, {packed} had packed writes, {ranged} token ranges, {shared} \
         groups that share memory"
    );
    assert!(shared >= families / 10, "{shared} had groups that share memory");
    assert!(ranged >= families / 5, "{ranged} had token ranges");
    assert!(packed >= families / 5, "{packed} had packed writes");
    assert!(several >= families / 4, "{several} had several sources");
}

#[test]
fn every_byte_is_where_the_oracle_has_it_on_each_wire() {
    for wire in WIRES {
        check(wire, [&engine(wire, None), &engine(wire, None)], FAMILIES);
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn every_byte_is_where_the_oracle_has_it_on_a_device() {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device");
    let context = DeviceList::probe().find(&name).unwrap().open().unwrap();
    println!("device: {}", context.name());
    let engine = || Engine::new(&context, EngineOptions::default()).unwrap();
    check(name, [&engine(), &engine()], FAMILIES_ON_A_DEVICE);
}
