//! Notes that each end leaves the other, and ids of requests that are text.

use crate::common::{WIRES, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use rdma_collective::kv::{KvError, LinkOptions, PoolUse, Request, RequestId};
use rdma_core::Wire;

/// The longest note there is.
const LONGEST: usize = 64 << 10;

/// A link whose messages are short, so that notes take many, and whose source can be read.
fn connect(wire: Wire) -> Pair {
    let options = LinkOptions { control_bytes_max: 128, ..LinkOptions::default() };
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
    Pair { prefill, decode, source, destination }
}

/// The note of one end: bytes by position and end.
fn note(len: usize, end: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ end).collect()
}

#[test]
fn each_end_of_a_push_gets_the_note_of_the_other_with_the_outcome() {
    for wire in WIRES {
        let pair = connect(wire);
        for (at, len) in [0, 1, 100, 101, 5000, LONGEST].into_iter().enumerate() {
            let (ours, theirs) = (note(len, 1), note(LONGEST - len, 2));
            let request = Request::new(at);
            let grant = pair.decode.grant(request.clone().note(&ours), &[3, 4], long()).unwrap();
            let push = pair.prefill.push(request.note(&theirs), &[0, 1], long()).unwrap();
            assert_eq!(grant.wait().unwrap().note, theirs);
            assert_eq!(push.wait().unwrap().note, ours);
            pair.assert_moved(&[(0, 3), (1, 4)]);
        }
    }
}

#[test]
fn each_end_of_a_pull_gets_the_note_of_the_other_with_the_outcome() {
    for wire in WIRES {
        let pair = connect(wire);
        for (at, len) in [0, 1, 100, 101, 5000, LONGEST].into_iter().enumerate() {
            let (ours, theirs) = (note(len, 1), note(LONGEST - len, 2));
            let request = Request::new(at);
            let pull = pair.decode.pull(request.clone().note(&ours), &[3, 4], long()).unwrap();
            let offer = pair.prefill.offer(request.note(&theirs), &[0, 1], long()).unwrap();
            assert_eq!(pull.wait().unwrap().note, theirs);
            assert_eq!(offer.wait().unwrap().note, ours);
            pair.assert_moved(&[(0, 3), (1, 4)]);
        }
    }
}

#[test]
fn the_note_of_a_push_by_layers_is_set_before_the_last_layer() {
    let pair = connect(Wire::Local);
    for (at, last) in [None, Some(note(0, 1)), Some(note(4, 1)), Some(note(LONGEST, 1))].iter().enumerate() {
        let grant = pair.decode.grant(at, &[3, 4], long()).unwrap();
        let push = pair.prefill.push_layers(Request::new(at).note(b"first"), &[0, 1], long()).unwrap();
        for layer in 0..SHAPE.layers {
            if layer + 1 == SHAPE.layers {
                assert!(matches!(push.set_note(&note(LONGEST + 1, 1)), Err(KvError::NoteLength { .. })));
                last.iter().for_each(|last| push.set_note(last).unwrap());
            }
            push.layer_ready(layer).unwrap();
        }
        assert_eq!(grant.wait().unwrap().note, last.clone().unwrap_or(b"first".to_vec()));
        // Decode has confirmed: all of the push was on its way.
        assert!(matches!(push.set_note(b"late"), Err(KvError::NoteLate { .. })));
        push.wait().unwrap();
    }
    let push = pair.prefill.push(9, &[0], long()).unwrap();
    assert!(matches!(push.set_note(b"not by layers"), Err(KvError::NoteLate { .. })));
}

#[test]
fn a_note_that_is_too_long_is_refused_and_holds_no_block() {
    let pair = Setup::default().connect();
    let request = Request::new("chatcmpl-1").note(&note(LONGEST + 1, 0));
    let refused = [
        pair.prefill.push(request.clone(), &[0], long()).unwrap_err(),
        pair.decode.grant(request.clone(), &[3], long()).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.to_string().contains("65537 bytes")), "{refused:?}");
    assert_eq!((pair.source.held(0), pair.destination.held(3)), (None, None));
}

#[test]
fn requests_are_named_by_text_and_match_byte_by_byte() {
    let pair = Setup::default().connect();
    let ids: [&str; 4] = ["chatcmpl-3f2a", "chatcmpl-3f2A", "7", &"x".repeat(64)];
    let grants: Vec<_> =
        (0..).zip(ids).map(|(block, id)| pair.decode.grant(id, &[block], long()).unwrap()).collect();
    // The last one first, so that nothing goes by order.
    for (block, id) in (0..4).zip(ids).rev() {
        pair.prefill.push(id, &[block], long()).unwrap().wait().unwrap();
    }
    for (id, grant) in ids.into_iter().zip(grants) {
        assert_eq!(grant.request(), RequestId::new(id).unwrap());
        grant.wait().unwrap();
    }
    pair.assert_moved(&[0, 1, 2, 3].map(|block| (block, block)));
    for wrong in ["", &"x".repeat(65)] {
        let error = pair.prefill.push(wrong, &[0], long()).unwrap_err();
        assert!(matches!(error, KvError::RequestIdLength { bytes } if bytes == wrong.len()), "{error}");
    }
}
