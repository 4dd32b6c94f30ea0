//! Blocks that decode has already: they are shared while requests read them, and no byte of them moves.

use std::thread;
use std::time::Duration;

use crate::common::{WIRES, block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, assert_freed, engine, link, pool, source_byte};
use rdma_collective::kv::layout::{HeadOrder, Shape};
use rdma_collective::kv::{
    BlockVerdict, Blocks, Grant, HoldKind, KvError, LinkOptions, PlanError, PoolUse, Push, Request,
};
use rdma_core::{Deadline, Wire};

/// A transfer of blocks, once in each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Push,
    PushLayers,
    Pull,
    PullLayers,
}

const WAYS: [Way; 4] = [Way::Push, Way::PushLayers, Way::Pull, Way::PullLayers];

/// A link over which blocks are pushed and pulled.
fn connect(wire: Wire, destination: Shape, options: &LinkOptions) -> Pair {
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, destination, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), options);
    Pair { prefill, decode, source, destination }
}

fn receive(pair: &Pair, way: Way, request: impl Into<Request>, blocks: Blocks<'_>) -> Result<Grant, KvError> {
    match way {
        Way::Push | Way::PushLayers => pair.decode.grant(request, blocks, long()),
        Way::Pull => pair.decode.pull(request, blocks, long()),
        Way::PullLayers => pair.decode.pull_layers(request, blocks, long()),
    }
}

fn send(pair: &Pair, way: Way, request: u64, blocks: Blocks<'_>) -> Push {
    match way {
        Way::Push => pair.prefill.push(request, blocks, long()).unwrap(),
        Way::PushLayers => {
            let push = pair.prefill.push_layers(request, blocks, long()).unwrap();
            (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
            push
        }
        Way::Pull | Way::PullLayers => pair.prefill.offer(request, blocks, long()).unwrap(),
    }
}

#[test]
fn no_byte_of_a_block_that_decode_has_moves() {
    let orders = [HeadOrder::Nhd, HeadOrder::Hnd];
    for (wire, way) in WIRES.into_iter().flat_map(|wire| WAYS.map(|way| (wire, way))) {
        // Blocks of the other order are packed; checksums of a pull need one order.
        for (head_order, checksums) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
            if checksums && head_order == HeadOrder::Hnd && matches!(way, Way::Pull | Way::PullLayers) {
                continue;
            }
            let options = LinkOptions { checksums, ..LinkOptions::default() };
            let pair = connect(wire, Shape { head_order, ..SHAPE }, &options);
            let context = format!("{wire:?} {way:?} {head_order:?} {checksums}");
            let prefix = pair.destination.share(&[5, 3]).unwrap();
            let blocks = Blocks::new(&[3, 4, 5, 6]).having(&[5, 3]);
            let grant = receive(&pair, way, 1, blocks).unwrap();
            let sent = send(&pair, way, 1, Blocks::new(&[0, 1, 2, 7])).wait().unwrap();
            let received = grant.wait().unwrap();
            assert!(received.verdicts.all_valid(), "{context}");
            let bytes = 2 * pair.destination.layout().block_bytes();
            assert_eq!([sent.bytes, received.bytes], [bytes; 2], "{context}");
            assert_eq!([pair.prefill.stats().bytes, pair.decode.stats().bytes], [bytes; 2], "{context}");
            if head_order == HeadOrder::Nhd {
                pair.assert_moved(&[(1, 4), (7, 6)]);
            }
            for of in [3, 5] {
                let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
                for layer in 0..SHAPE.layers {
                    pair.destination.read(layer, of, 0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == CANARY), "{context}");
                }
            }
            let held = [3, 4, 5, 6].map(|block| pair.destination.held(block));
            assert_eq!(held, [Some(HoldKind::Shared), None, Some(HoldKind::Shared), None], "{context}");
            drop(prefix);
        }
    }
}

#[test]
fn a_prefix_is_shared_by_requests_at_once_and_is_granted_after_the_last() {
    let pair = Setup::default().connect();
    pair.transfer(1, &[(0, 0), (1, 1)]);
    let readers: Vec<_> = (0..3).map(|_| pair.destination.share(&[0, 1]).unwrap()).collect();
    let lists: [[u32; 3]; 3] = [[0, 1, 2], [0, 1, 3], [0, 1, 4]];
    let grant = |(request, list): (u64, &[u32; 3])| {
        pair.decode.grant(request, Blocks::new(list).having(&[0, 1]), long()).unwrap()
    };
    let grants: Vec<_> = (2..).zip(&lists).map(grant).collect();
    assert_eq!((pair.destination.stats().shared, pair.destination.stats().granted), (2, 3));
    let refused = |request| {
        let error = pair.decode.grant(request, &[9, 1], long()).unwrap_err();
        assert!(matches!(error, KvError::Held { block: 1, by: HoldKind::Shared }), "{error}");
        assert!(error.to_string().contains("shared by readers"), "{error}");
        assert_eq!(pair.destination.held(9), None);
        assert!(pair.destination.write(0, 1, 0, &[1]).is_err());
    };
    refused(9);
    // Each has a block of its own from prefill.
    for (request, block) in (2..).zip([10, 11, 12]) {
        pair.prefill.push(request, &[0, 1, block], long()).unwrap().wait().unwrap();
    }
    for grant in grants {
        assert!(grant.wait().unwrap().verdicts.all_valid());
    }
    pair.assert_moved(&[(0, 0), (1, 1), (10, 2), (11, 3), (12, 4)]);
    for reader in readers {
        refused(9);
        drop(reader);
    }
    assert_freed(&pair.destination, &[0, 1]);
    pair.transfer(9, &[(5, 9), (6, 1)]);
}

#[test]
fn prefill_hears_at_once_that_decode_wants_nothing() {
    for (wire, way) in WIRES.into_iter().flat_map(|wire| WAYS.map(|way| (wire, way))) {
        for [checksums, strict] in [[false, false], [true, false], [false, true]] {
            let options = LinkOptions { checksums, strict, ..LinkOptions::default() };
            let pair = connect(wire, SHAPE, &options);
            let context = format!("{wire:?} {way:?} {checksums} {strict}");
            // No layer is announced, because none was computed.
            let request = Request::new(1).note(b"token 5");
            let sending = match way {
                Way::Push => pair.prefill.push(request, &[1, 2], long()).unwrap(),
                Way::PushLayers => pair.prefill.push_layers(request, &[1, 2], long()).unwrap(),
                Way::Pull | Way::PullLayers => pair.prefill.offer(request, &[1, 2], long()).unwrap(),
            };
            let request = Request::new(1).note(b"all here");
            let grant = receive(&pair, way, request, Blocks::new(&[5, 3]).having(&[3, 5])).unwrap();
            let received = grant.wait().unwrap();
            assert_eq!((received.bytes, &received.note[..]), (0, &b"token 5"[..]), "{context}");
            assert!(received.verdicts.all_valid(), "{context}");
            if way == Way::Push || way == Way::PushLayers {
                assert_eq!(sending.wait_skipped(long()).unwrap(), [1, 2], "{context}");
            }
            let sent = sending.wait().unwrap();
            assert_eq!((sent.bytes, &sent.note[..]), (0, &b"all here"[..]), "{context}");
            let progress = [pair.prefill.stats(), pair.decode.stats()].map(|stats| stats.last_progress);
            assert_eq!(progress, [None; 2], "{context}: no byte has moved");
            assert_freed(&pair.source, &[1, 2]);
            assert_freed(&pair.destination, &[5, 3]);
            pair.transfer(2, &[(0, 5)]);
            pair.assert_moved(&[(0, 5)]);
        }
    }
}

#[test]
fn the_tokens_of_a_block_that_decode_has_are_left_out_of_the_range() {
    for way in WAYS {
        let pair = connect(Wire::Local, SHAPE, &LinkOptions::default());
        // Tokens 2 to 11 of three blocks of four: 2 of the first, 4 of the second, 3 of the third.
        let blocks = Blocks::new(&[3, 4, 5]).tokens(2..11).having(&[4]);
        let grant = receive(&pair, way, 1, blocks).unwrap();
        let sent = send(&pair, way, 1, Blocks::new(&[0, 1, 2]).tokens(2..11)).wait().unwrap();
        let received = grant.wait().unwrap();
        assert!(received.verdicts.all_valid());
        let bytes = 5 * pair.destination.layout().block_bytes() / u64::from(SHAPE.block_tokens);
        assert_eq!([sent.bytes, received.bytes], [bytes; 2], "{way:?}");
        let token = pair.destination.layout().layer_block_bytes() / 2 / u64::from(SHAPE.block_tokens);
        for (place, block, tokens) in [(0, 3, 2..4), (1, 4, 0..0), (2, 5, 0..3)] {
            for layer in 0..SHAPE.layers {
                let mut all = vec![0; pair.destination.layout().layer_block_bytes() as usize];
                pair.destination.read(layer, block, 0, &mut all).unwrap();
                for (at, byte) in (0..).zip(all) {
                    // Keys of all tokens come before their values.
                    let moved = tokens.contains(&(at / token % u64::from(SHAPE.block_tokens)));
                    let expected = if moved { source_byte(layer, place, at) } else { CANARY };
                    assert_eq!(byte, expected, "{way:?}: byte {at} of block {block} in layer {layer}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_had_is_refused_and_nothing_is_held() {
    for way in WAYS {
        let pair = connect(Wire::Local, SHAPE, &LinkOptions::default());
        let refused = |having: &[u32]| {
            let error = receive(&pair, way, 1, Blocks::new(&[3, 4]).having(having)).unwrap_err();
            assert!([3, 4, 5].iter().all(|block| pair.destination.held(*block).is_none()), "{error}");
            error
        };
        assert!(matches!(refused(&[5]), KvError::Plan(PlanError::HadNotListed { block: 5 })));
        assert!(matches!(refused(&[4, 4]), KvError::Plan(PlanError::BlockRepeated { block: 4, .. })));
        // A block that another transfer still fills.
        let other = pair.decode.grant(9, &[4], long()).unwrap();
        let error = receive(&pair, way, 1, Blocks::new(&[3, 4]).having(&[4])).unwrap_err();
        assert!(matches!(error, KvError::Held { block: 4, by: HoldKind::Granted }), "{error}");
        assert_eq!(pair.destination.held(3), None);
        drop(other);
    }
    let pair = connect(Wire::Local, SHAPE, &LinkOptions::default());
    let blocks = Blocks::new(&[3, 4]).having(&[4]);
    for sent in [
        pair.prefill.push(1, blocks, long()),
        pair.prefill.push_layers(1, blocks, long()),
        pair.prefill.offer(1, blocks, long()),
    ] {
        let error = sent.unwrap_err();
        assert!(matches!(error, KvError::Plan(PlanError::HadAtSource { block: 4 })), "{error}");
        assert_eq!(pair.source.held(3), None);
    }
}

#[test]
fn a_transfer_that_is_resumed_has_the_blocks_that_it_had_unless_they_have_changed() {
    for (way, change) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let pair = connect(Wire::Local, SHAPE, &LinkOptions::default());
        let grant = receive(&pair, Way::Push, 1, Blocks::new(&[3, 4, 5]).having(&[4])).unwrap();
        let push = pair.prefill.push_layers(1, &[0, 1, 2], long()).unwrap();
        push.layer_ready(1).unwrap();
        grant.wait_layer(1, long()).unwrap();
        let verdicts = grant.revoke(long()).unwrap();
        drop(push);
        for layer in 0..SHAPE.layers {
            let other = if layer == 1 { BlockVerdict::Valid } else { BlockVerdict::Missing };
            let expected = [other, BlockVerdict::Valid, other];
            assert_eq!([0, 1, 2].map(|place| verdicts.get(layer, place).unwrap()), expected, "layer {layer}");
        }
        assert_freed(&pair.source, &[0, 1, 2]);
        if change {
            pair.destination.write(0, 4, 0, &[CANARY]).unwrap();
        }
        let grant = match way {
            Way::Push | Way::PushLayers => pair.decode.grant_missing(2, &verdicts, long()).unwrap(),
            Way::Pull | Way::PullLayers => pair.decode.pull_missing(2, &verdicts, long()).unwrap(),
        };
        let held = if change { HoldKind::Granted } else { HoldKind::Shared };
        assert_eq!(pair.destination.held(4), Some(held));
        send(&pair, way, 2, Blocks::new(&[0, 1, 2])).wait().unwrap();
        let received = grant.wait().unwrap();
        assert!(received.verdicts.all_valid());
        // Two layers of two blocks, and all three of the one that has changed.
        let parts = if change { 7 } else { 4 };
        assert_eq!(received.bytes, parts * pair.destination.layout().layer_block_bytes(), "{way:?}");
        let moved = [(0, 3), (2, 5), (1, 4)];
        pair.assert_moved(if change { &moved } else { &moved[..2] });
        let none = pair.decode.grant_missing(3, &received.verdicts, long()).unwrap();
        assert_eq!(none.progress().bytes, 0);
    }
}

#[test]
fn a_transfer_that_lacks_its_note_alone_is_resumed_while_readers_have_its_blocks() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        let soon = Deadline::after(Duration::from_millis(300));
        let grant = pair.decode.grant(1, &[3, 4], soon).unwrap();
        let push = pair.prefill.push(Request::new(1).note_later(), &[0, 1], long()).unwrap();
        let verdicts = grant.wait().unwrap_err().verdicts;
        push.wait().unwrap_err();
        assert!(verdicts.all_valid());
        let readers = pair.destination.share(&[3, 4]).unwrap();
        // A grant that is given up leaves the contents of the blocks, and the verdicts on them, as they were.
        pair.decode.grant_missing(2, &verdicts, long()).unwrap().revoke(long()).unwrap();
        let grant = pair.decode.grant_missing(3, &verdicts, long()).unwrap();
        let push = pair.prefill.push(Request::new(3).note(b"token 7"), &[0, 1], long()).unwrap();
        let received = grant.wait().unwrap();
        assert_eq!((received.bytes, &received.note[..]), (0, &b"token 7"[..]));
        assert_eq!(push.wait().unwrap().bytes, 0);
        pair.assert_moved(&[(0, 3), (1, 4)]);
        drop(readers);
    }
}

#[test]
fn a_transfer_of_nothing_is_given_up_like_any_other() {
    let pair = Setup::default().connect();
    let blocks = Blocks::new(&[3, 4]).having(&[3, 4]);
    let grant = pair.decode.grant(1, blocks, long()).unwrap();
    let push = pair.prefill.push(Request::new(1).note_later(), &[0, 1], long()).unwrap();
    push.wait_skipped(long()).unwrap();
    assert!(grant.revoke(long()).unwrap().all_valid());
    let error = push.wait().unwrap_err();
    assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
    let late = Deadline::after(Duration::from_millis(200));
    let grant = pair.decode.grant(2, blocks, late).unwrap();
    let push = pair.prefill.push(Request::new(2).note_later(), &[0, 1], long()).unwrap();
    assert!(grant.wait().unwrap_err().verdicts.all_valid());
    push.wait().unwrap_err();
    assert_freed(&pair.source, &[0, 1]);
    pair.transfer(3, &[(2, 3)]);
}

#[test]
fn prefill_is_told_what_to_skip_once_its_push_meets_the_grant() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        let mut push = pair.prefill.push_layers(1, &[9, 1, 2, 7], long()).unwrap();
        assert!(push.poll_skipped().is_pending());
        let error = push.wait_skipped(Deadline::after(Duration::from_millis(30))).unwrap_err();
        assert!(matches!(error, KvError::GrantLate { request } if request == 1.into()), "{error}");
        let grant = thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(push.skipped()).unwrap());
            let grant = pair.decode.grant(1, Blocks::new(&[3, 4, 5, 6]).having(&[5, 3]), long()).unwrap();
            assert_eq!(waits.join().unwrap(), [9, 2]);
            grant
        });
        (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
        (0..SHAPE.layers).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
        assert!(grant.wait().unwrap().verdicts.all_valid());
        assert_eq!(push.wait_skipped(long()).unwrap(), [9, 2]);
        block_on(&mut push).unwrap();
        assert!(matches!(push.wait_skipped(long()), Err(KvError::OutcomeTaken { .. })));
        pair.assert_moved(&[(1, 4), (7, 6)]);
        // Nothing is skipped when decode has nothing.
        let push = pair.prefill.push(2, &[0], long()).unwrap();
        let grant = pair.decode.grant(2, &[8], long()).unwrap();
        assert_eq!(push.wait_skipped(long()).unwrap(), [0; 0]);
        grant.wait().unwrap();
        push.wait().unwrap();
    }
}

#[test]
fn a_layer_of_which_decode_has_everything_is_sent_when_the_push_meets_its_grant() {
    for checksums in [false, true] {
        let pair = connect(Wire::Local, SHAPE, &LinkOptions { checksums, ..LinkOptions::default() });
        let grant = pair.decode.grant(1, Blocks::new(&[3, 4, 5]).having(&[4]), long()).unwrap();
        let push = pair.prefill.push_layers(1, &[0, 1, 2], long()).unwrap();
        push.layer_ready(0).unwrap();
        grant.wait_layer(0, long()).unwrap();
        let verdicts = grant.revoke(long()).unwrap();
        push.wait().unwrap_err();
        let grant = pair.decode.grant_missing(2, &verdicts, long()).unwrap();
        let push = pair.prefill.push_layers(2, &[0, 1, 2], long()).unwrap();
        assert_eq!(push.wait_skipped(long()).unwrap(), [1]);
        if !checksums {
            push.wait_layer_sent(0, long()).unwrap();
        }
        (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
        push.wait_layer_sent(0, long()).unwrap();
        let received = grant.wait().unwrap();
        assert!(received.verdicts.all_valid());
        assert_eq!(received.bytes, 4 * pair.destination.layout().layer_block_bytes());
        push.wait().unwrap();
        pair.assert_moved(&[(0, 3), (2, 5)]);
    }
}

#[test]
fn a_block_of_prefill_is_skipped_when_decode_has_all_blocks_that_it_goes_to() {
    let pair = connect(Wire::Local, Shape { block_tokens: 2, ..SHAPE }, &LinkOptions::default());
    let push = pair.prefill.push(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, Blocks::new(&[3, 4, 5, 6]).having(&[3, 4, 5]), long()).unwrap();
    assert_eq!(push.wait_skipped(long()).unwrap(), [0]);
    assert_eq!(grant.wait().unwrap().bytes, pair.destination.layout().block_bytes());
    push.wait().unwrap();
}

#[test]
fn whoever_waits_for_what_to_skip_hears_of_the_end_of_the_push() {
    let Pair { prefill, decode, .. } = connect(Wire::Local, SHAPE, &LinkOptions::default());
    let late = prefill.push(1, &[0], Deadline::after(Duration::from_millis(30))).unwrap();
    let error = block_on(late.skipped()).unwrap_err();
    assert!(matches!(error, KvError::GrantExpired { .. } | KvError::DeadlineExceeded { .. }), "{error}");
    // An offer is not told.
    assert_eq!(prefill.offer(2, &[1], long()).unwrap().wait_skipped(long()).unwrap(), [0; 0]);
    let push = prefill.push(3, &[0], long()).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(push.skipped()));
        drop(decode);
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, KvError::PeerFailed { .. }), "{error}");
    });
}
