//! Notes that each end leaves the other, and ids of requests that are text.

use crate::common::{WIRES, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use std::time::Duration;

use rdma_collective::kv::{BlockVerdict, KvError, LinkOptions, PoolUse, Push, Request, RequestId};
use rdma_core::{Deadline, Wire};

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

/// Announces the layers of a push that waits for its note, and waits until they are sent.
fn send_layers(push: &Push) {
    (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
    (0..SHAPE.layers).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
}

#[test]
fn a_promised_note_is_set_at_any_time_and_the_push_is_done_only_then() {
    for wire in WIRES {
        let pair = connect(wire);
        let notes = [note(0, 1), note(4, 1), note(LONGEST, 1)];
        for (at, (note_at, ours)) in
            (0..=SHAPE.layers).flat_map(|at| notes.iter().map(move |n| (at, n))).enumerate()
        {
            let request = Request::new(at);
            let mut grant = pair.decode.grant(request.clone(), &[3, 4], long()).unwrap();
            let mut push = pair.prefill.push_layers(request.note_later(), &[0, 1], long()).unwrap();
            for layer in 0..SHAPE.layers {
                if layer == note_at {
                    push.set_note(ours).unwrap();
                }
                push.layer_ready(layer).unwrap();
            }
            (0..SHAPE.layers).for_each(|layer| push.wait_layer_sent(layer, long()).unwrap());
            if note_at == SHAPE.layers {
                assert!(grant.poll().is_pending() && push.poll().is_pending(), "the note is due");
                assert!(matches!(push.set_note(&note(LONGEST + 1, 1)), Err(KvError::NoteLength { .. })));
                push.set_note(ours).unwrap();
            }
            assert!(matches!(push.set_note(b"again"), Err(KvError::NoteNotDue { .. })));
            assert_eq!(&grant.wait().unwrap().note, ours);
            assert!(matches!(push.set_note(b"late"), Err(KvError::NoteNotDue { .. })));
            push.wait().unwrap();
            pair.assert_moved(&[(0, 3), (1, 4)]);
        }
    }
}

#[test]
fn a_push_of_all_layers_promises_a_note_too_and_lets_others_pass_while_it_waits() {
    let pair = connect(Wire::Local);
    let grants = [1, 2].map(|request| pair.decode.grant(request, &[request], long()).unwrap());
    let waits = pair.prefill.push(Request::new(1).note_later(), &[1], long()).unwrap();
    let passes = pair.prefill.push(Request::new(2).note(b"second"), &[2], long()).unwrap();
    let [first, second] = grants;
    assert_eq!(second.wait().unwrap().note, b"second");
    passes.wait().unwrap();
    waits.set_note(b"first").unwrap();
    assert_eq!(first.wait().unwrap().note, b"first");
    waits.wait().unwrap();
}

#[test]
fn a_promised_note_arrives_where_decode_wants_nothing_of_the_last_layers() {
    let pair = connect(Wire::Local);
    let layers = SHAPE.layers;
    // A transfer that broke off after its first layer left these verdicts.
    let broken = pair.decode.grant(1, &[3, 4], long()).unwrap();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    (1..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
    (1..SHAPE.layers).for_each(|layer| broken.wait_layer(layer, long()).map(drop).unwrap());
    let verdicts = broken.revoke(long()).unwrap();
    let others = (1..layers).all(|layer| verdicts.get(layer, 0) == Some(BlockVerdict::Valid));
    assert!(others && !verdicts.all_valid(), "the first of {layers} layers is missing");
    drop(push);

    let grant = pair.decode.grant_missing(2, &verdicts, long()).unwrap();
    let push = pair.prefill.push_layers(Request::new(2).note_later(), &[0, 1], long()).unwrap();
    push.layer_ready(0).unwrap();
    push.wait_layer_sent(0, long()).unwrap();
    push.wait_layer_sent(SHAPE.layers - 1, long()).unwrap();
    push.set_note(b"token").unwrap();
    assert_eq!(grant.wait().unwrap().note, b"token");
    push.wait().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn a_promised_note_that_is_never_set_ends_the_push_at_its_deadline_by_name() {
    let pair = connect(Wire::Local);
    let grant = pair.decode.grant(1, &[3], long()).unwrap();
    let soon = Deadline::after(Duration::from_secs(1));
    let push = pair.prefill.push_layers(Request::new(1).note_later(), &[0], soon).unwrap();
    send_layers(&push);
    let error = push.wait().unwrap_err();
    assert!(
        matches!(error, KvError::NoteMissing { .. }) && error.to_string().contains("Push::set_note"),
        "{error}"
    );
    let error = grant.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerRevoked { .. }), "{error}");
    assert!(error.verdicts.all_valid(), "all blocks have arrived");
}

#[test]
fn a_push_that_waits_for_its_note_is_given_up_by_either_end() {
    let pair = connect(Wire::Local);
    for (request, by_decode) in [(1, true), (2, false)] {
        let grant = pair.decode.grant(request, &[3], long()).unwrap();
        let push = pair.prefill.push_layers(Request::new(request).note_later(), &[0], long()).unwrap();
        send_layers(&push);
        if by_decode {
            grant.revoke(long()).unwrap();
            // The word of decode may still be on its way, and the push takes the note until then.
            let _ = push.set_note(b"in vain");
            assert!(matches!(push.wait(), Err(KvError::PeerRevoked { .. })));
        } else {
            push.revoke(long()).unwrap();
            assert!(matches!(*grant.wait().unwrap_err().cause, KvError::PeerRevoked { .. }));
        }
        assert_eq!((pair.source.held(0), pair.destination.held(3)), (None, None));
    }
}

#[test]
fn only_a_push_promises_a_note_and_no_other_push_has_one_set() {
    let pair = connect(Wire::Local);
    let promised = Request::new("chatcmpl-1").note_later();
    let refused = [
        pair.prefill.offer(promised.clone(), &[0], long()).unwrap_err(),
        pair.decode.grant(promised.clone(), &[3], long()).unwrap_err(),
        pair.decode.pull(promised, &[3], long()).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, KvError::NotePromised { .. })), "{refused:?}");
    assert_eq!((pair.source.held(0), pair.destination.held(3)), (None, None));
    let given = Request::new(1).note(b"given");
    let others = [
        pair.prefill.push_layers(given, &[0], long()).unwrap(),
        pair.prefill.push(2, &[1], long()).unwrap(),
        pair.prefill.offer(3, &[2], long()).unwrap(),
    ];
    assert!(others.iter().all(|push| matches!(push.set_note(b"more"), Err(KvError::NoteNotDue { .. }))));
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
