//! Token ranges of a peer that cannot be: each ends the link, or is refused, and the blocks are free again.

use std::ops::Range;

use super::*;
use crate::kv::message::{OFFER, Offer};
use crate::kv::{BlockVerdict, Blocks};

const BEGIN_OF_TOKENS: Begin = Begin { tokens: true, ..BEGIN_OF_TWO };
const GRANT_OF_TOKENS: message::Grant = message::Grant { tokens: true, ..TOLD };

/// Sends a piece of a beginning: `room` numbers of the list from `first` on.
fn send_begin(prefill: &Prefill, begin: Begin, list: &[u32], [first, room]: [usize; 2]) {
    prefill.shared().engine.lock_with(|core| {
        let state = prefill.shared().lock();
        assert!(state.link.send(core, BEGIN, |body| begin.write(body, list, first, room)));
    });
}

#[test]
fn beginnings_with_ranges_that_cannot_be_end_the_link() {
    const ALL: [usize; 2] = [0, 50];
    let (ranged, whole) = (BEGIN_OF_TOKENS, BEGIN_OF_TWO);
    type Case<'a> = (Option<Range<u32>>, &'a [u32], &'a [(Begin, [usize; 2])]);
    let cases: [Case<'_>; 10] = [
        (None, &[0, 1, 0, 4], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1], &[(whole, ALL)]),
        (Some(1..3), &[0, 1], &[(ranged, ALL)]),
        (Some(1..3), &[0], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, 3, 1], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, u32::MAX - 2, u32::MAX], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, u32::MAX, 1], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, 0, 4], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, 2, 4], &[(ranged, ALL)]),
        (Some(1..3), &[0, 1, 1, 3], &[(ranged, [0, 2]), (whole, [2, 2])]),
    ];
    for (range, list, pieces) in cases {
        let (prefill, decode) = pair();
        let blocks = Blocks::new(&[1, 2]);
        let blocks = range.map_or(blocks, |range| blocks.tokens(range));
        let grant = decode.grant(5, blocks, soon()).unwrap();
        pieces.iter().for_each(|(begin, piece)| send_begin(&prefill, *begin, list, *piece));
        let error = grant.wait().unwrap_err();
        let violation = matches!(*error.cause, KvError::PeerFailed { cause: LaneFailure::Violation(_), .. });
        assert!(violation, "{list:?}: {error}");
        assert_eq!(error.verdicts.count(BlockVerdict::Missing), 4);
        assert!(decode.pool().held(1).is_none());
    }
}

/// The end of a beginning that is complete would give the writes that have arrived another plan.
#[test]
fn a_beginning_does_not_end_twice() {
    let (prefill, decode) = pair_of(Shape { block_tokens: 4, ..SHAPE }, LinkOptions::default());
    let grant = decode.grant(5, Blocks::new(&[1]).tokens(1..3), soon()).unwrap();
    let begin = Begin { writes: 4, ..BEGIN_OF_TOKENS };
    let drive = || {
        for end in [&decode.shared().engine, &prefill.shared().engine].repeat(200) {
            end.drive(Instant::now(), 16).unwrap();
        }
    };
    (0..3).for_each(|first| send_begin(&prefill, begin, &[0, 1, 3], [first, 1]));
    drive();
    assert!(decode.shared().lock().link.ended.is_none());
    send_begin(&prefill, begin, &[0, 0, 2], [1, 2]);
    drive();
    let error = grant.wait().unwrap_err().to_string();
    assert!(error.contains("a beginning that has come before"), "{error}");
}

#[test]
fn grants_with_ranges_that_cannot_be_are_refused_or_end_the_link() {
    let (ranged, partial) = (GRANT_OF_TOKENS, message::Grant { partial: true, ..GRANT_OF_TOKENS });
    let most = message::Grant { blocks: u32::MAX, ..partial };
    let cases: [(bool, message::Grant, &[u32], &str); 10] = [
        (true, ranged, &[0, 1], "another length"),
        (true, ranged, &[0, 1, 1], "another length"),
        (true, ranged, &[0, 1, 1, 3, 1, 3], "another length"),
        (true, ranged, &[0, 1, 3, 1], "different numbers of tokens"),
        (true, ranged, &[0, 1, 0, 4], "different numbers of tokens"),
        (true, ranged, &[0, 1, u32::MAX - 2, u32::MAX], "tokens 4294967293 to 4294967295"),
        (true, ranged, &[0, 1, 2, 4], "tokens 2 to 4"),
        (false, ranged, &[0, 1, 0, 4], "different numbers of tokens"),
        (true, TOLD, &[0, 1], "different numbers of tokens"),
        (true, most, &[0, 1, 1, 1, 3], "more than there are"),
    ];
    for (names_tokens, grant, list, part) in cases {
        let (prefill, decode) = pair();
        let blocks = Blocks::new(&[1, 2]);
        let push = prefill.push(5, if names_tokens { blocks.tokens(1..3) } else { blocks }, soon()).unwrap();
        decode.shared().engine.lock_with(|core| {
            let state = decode.shared().lock();
            assert!(state.link.send(core, GRANT, |body| grant.write(body, list, 0, 50)));
        });
        let error = push.wait().unwrap_err().to_string();
        assert!(error.contains(part), "{list:?}: {error}");
        assert!(prefill.shared().lock().held(1).is_none());
    }
}

#[test]
fn pieces_of_one_offer_agree_on_its_ranges() {
    let (prefill, decode) = pair_of(SHAPE, LinkOptions::default());
    let pull = decode.pull(9, &[0, 1, 2, 3], soon()).unwrap();
    let offer = Offer { lease: 1, request: 9.into(), time_to_live_ms: 9000, tokens: true, note: false };
    for (offer, first) in [(offer, 0), (Offer { tokens: false, ..offer }, 4)] {
        prefill.shared().engine.lock_with(|core| {
            let state = prefill.shared().lock();
            let list = [0, 1, 2, 3, 1, 8];
            assert!(state.link.send(core, OFFER, |body| offer.write(body, &list, first, 4)));
        });
    }
    let error = pull.wait().unwrap_err().to_string();
    assert!(error.contains("an offer"), "{error}");
}
