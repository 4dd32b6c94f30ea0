//! Every message encodes and decodes to itself; nothing else decodes, and nothing panics.

use proptest::prelude::*;

use super::*;

fn keys() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/0-9]{0,20}", "\\PC{0,60}", Just("k".repeat(KEY_BYTES_MAX))]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..100)
}

fn hellos() -> impl Strategy<Value = Hello> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>());
    (any::<[u8; 16]>(), numbers).prop_map(|(token, (rank, world, attempt, run, pid))| Hello {
        token: JobToken::from_bytes(token),
        rank,
        world,
        attempt,
        run,
        pid,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        hellos().prop_map(Request::Hello),
        hellos().prop_map(Request::Claim),
        (keys(), values()).prop_map(|(key, value)| Request::Set { key, value }),
        (any::<u32>(), keys()).prop_map(|(wait_ms, key)| Request::Get { wait_ms, key }),
        (any::<u32>(), keys(), values()).prop_map(|(wait_ms, name, value)| Request::Gather {
            wait_ms,
            name,
            value
        }),
    ]
}

fn refusals() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(store, client)| Refusal::OtherVersion { store, client }),
        Just(Refusal::OtherToken),
        any::<(u32, u32)>().prop_map(|(store, client)| Refusal::OtherWorld { store, client }),
        any::<(u32, u32)>().prop_map(|(rank, world)| Refusal::NoSuchRank { rank, world }),
        (any::<u32>(), keys()).prop_map(|(rank, first)| Refusal::JoinedTwice { rank, first }),
        any::<(u64, u64)>().prop_map(|(bytes, bytes_max)| Refusal::TooLarge { bytes, bytes_max }),
        any::<u64>().prop_map(|bytes_max| Refusal::Full { bytes_max }),
        any::<u32>().prop_map(|owner| Refusal::KeyOwned { owner }),
        any::<u32>().prop_map(|rank| Refusal::Left { rank }),
        keys().prop_map(|store| Refusal::OtherRun { store }),
        any::<(u64, u64)>().prop_map(|(store, client)| Refusal::OtherNumber { store, client }),
        (any::<(u32, u32)>(), keys()).prop_map(|((rank, pid), host)| Refusal::TwoJobs { rank, pid, host }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    prop_oneof![
        any::<u64>().prop_map(|number| Reply::Welcome { number }),
        Just(Reply::Done),
        values().prop_map(Reply::Value),
        prop::collection::vec(values(), 0..9).prop_map(Reply::Gathered),
        prop::collection::vec(any::<u32>(), 0..40)
            .prop_map(|ranks| { Reply::TimedOut(Ranks::collect(ranks.into_iter())) }),
        refusals().prop_map(Reply::Refused),
    ]
}

proptest! {
    #[test]
    fn requests_decode_to_what_was_encoded(request in requests(), id: u32) {
        let frame = request.encode(id);
        prop_assert_eq!(frame.id, id);
        prop_assert_eq!(Request::decode(&frame), Ok(request));
        let numbered = with_number(7, &frame);
        prop_assert!(numbered.payload.len() <= REQUEST_BYTES_MAX);
        prop_assert_eq!(take_number(&numbered), Ok((7, frame)));
    }

    #[test]
    fn replies_decode_to_what_was_encoded(reply in replies(), id: u32) {
        let frame = reply.encode(id);
        prop_assert!(frame.payload.len() <= REPLY_BYTES_MAX);
        prop_assert_eq!(Reply::decode(&frame), Ok(reply));
    }

    #[test]
    fn any_payload_decodes_to_what_encodes_to_it_or_is_refused(
        kind in prop_oneof![0_u8..7, 128_u8..136, any::<u8>()],
        payload in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..80),
    ) {
        let frame = Frame { kind, id: 7, payload: payload.into() };
        if let Ok(request) = Request::decode(&frame) {
            prop_assert_eq!(request.encode(7), frame.clone());
        }
        if let Ok(reply) = Reply::decode(&frame) {
            prop_assert_eq!(reply.encode(7), frame);
        }
    }

    #[test]
    fn a_message_cut_short_or_with_bytes_added_is_never_taken_for_another_kind(
        request in requests(),
        cut in 0_usize..40,
    ) {
        let mut frame = request.encode(1);
        frame.payload = frame.payload[..frame.payload.len().saturating_sub(cut)].into();
        // Values have no length of their own: shorter ones are other messages of the same kind.
        if let Ok(other) = Request::decode(&frame) {
            prop_assert_eq!(std::mem::discriminant(&other), std::mem::discriminant(&request));
        }
    }
}

#[test]
fn the_first_frame_is_at_most_64_bytes() {
    let hello = Hello { token: JobToken::from_bytes([7; 16]), rank: 1, world: 2, attempt: 3, run: 4, pid: 5 };
    for first in [Request::Hello(hello.clone()), Request::Claim(hello)] {
        let frame = first.encode(0);
        assert_eq!(frame.payload.len(), HELLO_BYTES);
        assert!(frame.encode().len() <= 64);
    }
}

#[test]
fn keys_and_values_beyond_their_bounds_are_refused() {
    let long = Request::Set { key: "k".repeat(KEY_BYTES_MAX + 1), value: vec![] };
    assert_eq!(Request::decode(&long.encode(0)), Err(FrameError::Malformed { what: "length of a key" }));
    let long = Request::Set { key: "k".into(), value: vec![0; VALUE_BYTES_MAX + 1] };
    assert_eq!(Request::decode(&long.encode(0)), Err(FrameError::Malformed { what: "length of a value" }));
    let binary = Frame { kind: 3, id: 0, payload: [0, 0, 0, 0, 2, 0, 0xff, 0xfe].into() };
    assert_eq!(Request::decode(&binary), Err(FrameError::Malformed { what: "key that is not UTF-8" }));
}

#[test]
fn many_ranks_are_counted_and_the_first_listed() {
    let ranks = Ranks::collect(100..1100);
    assert_eq!((ranks.count, ranks.first.len(), ranks.first[15]), (1000, 16, 115));
}

#[test]
fn a_refusal_that_carries_more_than_its_reason_uses_is_refused() {
    let mut frame = Reply::Refused(Refusal::Full { bytes_max: 7 }).encode(1);
    assert!(Reply::decode(&frame).is_ok());
    let mut payload = frame.payload.to_vec();
    payload[9] = 1; // the second number
    frame.payload = payload.into();
    assert!(matches!(Reply::decode(&frame), Err(FrameError::Malformed { what: "reason" })));
}
