//! Short pieces that are packed at prefill, and unpacked at decode where they are scattered: slots are used again, also
//! after transfers that were given up, and nothing lands late.

use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::HeadOrder;
use rdma_collective::kv::{Decode, LinkOptions, Pool, Prefill, Progress, Sources};
use rdma_core::Wire;

use super::common::{WIRES, long};
use super::pair::{engine, link};
use super::ranks::{WHOLE, assert_moved, assert_true, layout, room_in, source};

/// Nearly all blocks, in another order.
fn pairs() -> Vec<(u32, u32)> {
    (0..60).map(|at| (at, 63 - at)).collect()
}

fn lists(pairs: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
    pairs.iter().copied().unzip()
}

/// Two engines of one wire.
fn engines(wire: Wire) -> [Engine; 2] {
    [engine(wire, None), engine(wire, None)]
}

/// Two ranks of prefill, tokens before heads, that fill a pool with tokens before heads: each has half of the heads of
/// every token, so that pieces are scattered at decode.
fn halves([at_prefill, at_decode]: &[Engine; 2], options: &LinkOptions) -> (Vec<Prefill>, Sources, Pool) {
    let room = room_in(at_decode, HeadOrder::Nhd);
    let links = (0..2).map(|rank| {
        let source = source(at_prefill, rank, 2);
        link((at_prefill, &source), (at_decode, &room), options)
    });
    let (prefills, decodes): (Vec<Prefill>, Vec<Decode>) = links.unzip();
    (prefills, Sources::new(decodes).unwrap(), room)
}

#[test]
fn slots_of_decode_are_used_again() {
    for wire in WIRES {
        let engines = engines(wire);
        let (prefills, sources, room) = halves(&engines, &LinkOptions::default());
        let (from, to) = lists(&pairs());
        for request in 0..3 {
            let grant = sources.grant(request, &to, long()).unwrap();
            let pushes = prefills.iter().map(|prefill| prefill.push(request, &from, long()).unwrap());
            let sent: Vec<_> =
                pushes.collect::<Vec<_>>().into_iter().map(|push| push.wait().unwrap()).collect();
            let received = grant.wait().unwrap();
            // A slot has 64 KiB, and a link has fewer slots than a push has packed writes.
            let half = received.bytes / 2;
            let slots = half.div_ceil(64 << 10);
            assert!(slots > 32, "{slots}");
            assert!(sent.iter().all(|sent| (slots..2 * slots).contains(&u64::from(sent.writes))), "{sent:?}");
            assert_moved(&room, &pairs(), &received.verdicts);
        }
    }
}

#[test]
fn without_packing_each_piece_goes_by_itself() {
    let engines = engines(Wire::Local);
    let options = LinkOptions { pack_bytes: 0, ..LinkOptions::default() };
    let (prefills, sources, room) = halves(&engines, &options);
    let grant = sources.grant(1, &[9], long()).unwrap();
    for prefill in &prefills {
        // A piece of half a token, in each of two parts of each layer.
        let sent = prefill.push(1, &[4], long()).unwrap().wait().unwrap();
        assert_eq!(sent.writes, 16 * 2 * WHOLE.layers);
    }
    assert_moved(&room, &[(4, 9)], &grant.wait().unwrap().verdicts);
}

/// An end that packs nothing decides: the other one does as it does.
#[test]
fn one_end_that_does_not_pack_is_enough() {
    let [at_prefill, at_decode] = &engines(Wire::Local);
    let none = LinkOptions { pack_bytes: 0, ..LinkOptions::default() };
    for packs_at_decode in [true, false] {
        let room = room_in(at_decode, HeadOrder::Nhd);
        let links = (0..2).map(|rank| {
            let source = source(at_prefill, rank, 2);
            let (with, without) = (LinkOptions::default(), none.clone());
            let options = if packs_at_decode { [without, with] } else { [with, without] };
            let token = &super::pair::TOKEN;
            let mut prefill = Prefill::prepare(at_prefill, &source, token, &options[0]).unwrap();
            let mut decode = Decode::prepare(at_decode, &room, token, &options[1]).unwrap();
            let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
            std::thread::scope(|scope| {
                let prefill = scope.spawn(move || prefill.connect(&to_prefill, long()).unwrap());
                let decode = decode.connect(&to_decode, long()).unwrap();
                (prefill.join().unwrap(), decode)
            })
        });
        let (prefills, decodes): (Vec<_>, Vec<_>) = links.unzip();
        let sources = Sources::new(decodes).unwrap();
        let grant = sources.grant(1, &[9, 3], long()).unwrap();
        for prefill in &prefills {
            prefill.push(1, &[4, 7], long()).unwrap().wait().unwrap();
        }
        assert_moved(&room, &[(4, 9), (7, 3)], &grant.wait().unwrap().verdicts);
    }
}

#[test]
fn more_pushes_at_once_than_there_are_slots_all_arrive() {
    for wire in WIRES {
        let engines = engines(wire);
        let (prefills, sources, room) = halves(&engines, &LinkOptions::default());
        let pairs: Vec<_> = (0..40).map(|at| (at, 63 - at)).collect();
        let grants: Vec<_> =
            pairs.iter().map(|(from, to)| sources.grant(u64::from(*from), &[*to], long()).unwrap()).collect();
        let pushes = pairs.iter().flat_map(|(from, _)| {
            prefills.iter().map(|prefill| prefill.push(u64::from(*from), &[*from], long()).unwrap())
        });
        pushes.collect::<Vec<_>>().into_iter().for_each(|push| _ = push.wait().unwrap());
        let verdicts: Vec<_> = grants.into_iter().map(|grant| grant.wait().unwrap().verdicts).collect();
        for (pair, verdicts) in pairs.iter().zip(&verdicts) {
            assert!(verdicts.all_valid());
            assert_true(&room, &[*pair], (0, 1), verdicts);
        }
    }
}

/// Transfers are given up at either end while slots are full. Valid blocks are right, nothing lands afterwards, and
/// the slots come back.
#[test]
fn slots_of_transfers_that_are_given_up_come_back_and_nothing_lands_late() {
    for wire in WIRES {
        let engines = engines(wire);
        let (prefills, sources, room) = halves(&engines, &LinkOptions::default());
        let (from, to) = lists(&pairs());
        for round in 0..24_u64 {
            let grant = sources.grant(round, &to, long()).unwrap();
            let mut pushes: Vec<_> =
                prefills.iter().map(|prefill| prefill.push(round, &from, long()).unwrap()).collect();
            let is_early = |progress: Progress| progress.bytes_arrived * 8 < progress.bytes * (round % 8);
            while is_early(grant.progress()) {
                std::thread::yield_now();
            }
            if round % 2 == 0 {
                pushes.pop().unwrap().revoke(long()).unwrap();
            }
            let verdicts = grant.revoke(long()).unwrap();
            for rank in 0..2 {
                assert_true(&room, &pairs(), (rank, 2), verdicts.of_source(rank as usize).unwrap());
            }
            super::pair::fill(&room, |_, _, _| super::pair::CANARY);
            // Given up, and not waited for: prefill never hears of a grant that was revoked before it was sent.
            pushes.into_iter().for_each(|push| _ = push.revoke(long()));
        }
        super::ranks::assert_untouched(&room);
        let grant = sources.grant(99, &to, long()).unwrap();
        for prefill in &prefills {
            prefill.push(99, &from, long()).unwrap().wait().unwrap();
        }
        assert_moved(&room, &pairs(), &grant.wait().unwrap().verdicts);
    }
}

/// A pull unpacks, too: decode reads rows of heads and puts them where they belong.
#[test]
fn pulled_pieces_are_unpacked() {
    for wire in WIRES {
        let [at_prefill, at_decode] = &engines(wire);
        // Heads before tokens at prefill: pieces are adjacent there and scattered at decode.
        let layout = layout(0, 1);
        let source = source(at_prefill, 0, 1);
        assert_eq!(source.layout(), &layout);
        let room = room_in(at_decode, HeadOrder::Hnd);
        let (prefill, decode) = link((at_prefill, &source), (at_decode, &room), &LinkOptions::default());
        let (from, to) = lists(&pairs());
        let offer = prefill.offer(1, &from, long()).unwrap();
        let received = decode.pull(1, &to, long()).unwrap().wait().unwrap();
        assert_eq!(offer.wait().unwrap().writes, received.writes);
        assert!(u64::from(received.writes) < 2 * received.bytes.div_ceil(64 << 10), "{received:?}");
        assert_moved(&room, &pairs(), &received.verdicts);
    }
}

/// Layers are announced in any order, while slots of decode are full: each rank in an order of its own.
#[test]
fn layers_in_any_order_are_unpacked() {
    for (wire, checksums) in WIRES.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
        let engines = engines(wire);
        let (prefills, sources, room) =
            halves(&engines, &LinkOptions { checksums, ..LinkOptions::default() });
        let (from, to) = lists(&pairs());
        for (request, orders) in (0..).zip([[[7, 3, 0, 6, 1, 5, 2, 4], [2, 5, 4, 7, 6, 0, 3, 1]]; 2]) {
            let grant = sources.grant(request, &to, long()).unwrap();
            let begin = |prefill: &Prefill| prefill.push_layers(request, &from, long()).unwrap();
            let pushes: Vec<_> = prefills.iter().map(begin).collect();
            // A layer has more packed writes than the push has slots.
            for at in 0..WHOLE.layers as usize {
                for (push, order) in pushes.iter().zip(&orders) {
                    push.layer_ready(order[at]).unwrap();
                    assert!(checksums || push.wait_layer_sent(order[at], long()).is_ok());
                }
            }
            for push in pushes {
                (0..WHOLE.layers).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
                push.wait().unwrap();
            }
            assert_moved(&room, &pairs(), &grant.wait().unwrap().verdicts);
        }
    }
}

/// A pull that goes layer by layer unpacks each of them as it is read.
#[test]
fn pulled_layers_are_unpacked() {
    for wire in WIRES {
        let [at_prefill, at_decode] = &engines(wire);
        let source = source(at_prefill, 0, 1);
        let room = room_in(at_decode, HeadOrder::Hnd);
        let (prefill, decode) = link((at_prefill, &source), (at_decode, &room), &LinkOptions::default());
        let (from, to) = lists(&pairs());
        let offer = prefill.offer(1, &from, long()).unwrap();
        let pull = decode.pull_layers(1, &to, long()).unwrap();
        for layer in 0..WHOLE.layers {
            assert_eq!(pull.wait_layer(layer, long()).unwrap().len(), to.len());
        }
        let received = pull.wait().unwrap();
        assert_eq!(offer.wait().unwrap().writes, received.writes);
        assert_moved(&room, &pairs(), &received.verdicts);
    }
}

/// Streams hold their slots until they are given up; the others have these slots then, and the links live on.
#[test]
fn slots_of_streams_that_are_given_up_go_to_those_that_wait() {
    for wire in WIRES {
        let engines = engines(wire);
        let (prefills, sources, room) = halves(&engines, &LinkOptions::default());
        let requests: Vec<u32> = (0..24).collect();
        let granted = |at: &u32| sources.grant(u64::from(*at), &[63 - at], long()).unwrap();
        let mut grants: Vec<_> = requests.iter().map(granted).collect();
        let streams = |at: &u32| {
            let stream = |prefill: &Prefill| prefill.push_layers(u64::from(*at), &[*at], long()).unwrap();
            prefills.iter().map(stream).collect::<Vec<_>>()
        };
        let mut pushes: Vec<_> = requests.iter().map(streams).collect();
        // More than have slots at a time have begun, or wait for a slot.
        let others = (grants.split_off(20), pushes.split_off(20));
        for stream in pushes.into_iter().flatten() {
            stream.revoke(long()).unwrap();
        }
        grants.into_iter().for_each(|grant| _ = grant.revoke(long()).unwrap());
        for (at, (grant, streams)) in (20..).zip(others.0.into_iter().zip(others.1)) {
            for stream in &streams {
                (0..WHOLE.layers).for_each(|layer| stream.layer_ready(layer).unwrap());
            }
            let verdicts = grant.wait().unwrap().verdicts;
            assert!(verdicts.all_valid());
            assert_true(&room, &[(at, 63 - at)], (0, 1), &verdicts);
            streams.into_iter().for_each(|stream| _ = stream.wait().unwrap());
        }
    }
}

/// Prefill gives a push up while decode checks or confirms it. Its slots come back all the same.
#[test]
fn slots_of_pushes_that_are_given_up_as_they_are_confirmed_come_back() {
    for wire in WIRES {
        let engines = engines(wire);
        let (prefills, sources, room) =
            halves(&engines, &LinkOptions { checksums: true, ..LinkOptions::default() });
        for round in 0..40 {
            let grant = sources.grant(round, &[7], long()).unwrap();
            let push = |prefill: &Prefill| prefill.push(round, &[5], long()).unwrap();
            for push in prefills.iter().map(push).collect::<Vec<_>>() {
                while push.progress().bytes_arrived == 0 {
                    std::thread::yield_now();
                }
                push.revoke(long()).unwrap();
            }
            // Either all had arrived, or it is given up.
            let _ = grant.wait();
        }
        let grant = sources.grant(99, &[9], long()).unwrap();
        for prefill in &prefills {
            prefill.push(99, &[4], long()).unwrap().wait().unwrap();
        }
        let verdicts = grant.wait().unwrap().verdicts;
        assert!(verdicts.all_valid());
        assert_true(&room, &[(4, 9)], (0, 1), &verdicts);
    }
}
