//! Two ends over every wrap, and the sizes that are refused.

use proptest::prelude::*;
use rdma_core::{Access, Device, RemoteKey, SoftOptions};

use super::*;

/// Both ends after `before` messages.
fn ends(slots: u16, before: u64) -> (Outbox, Inbox) {
    let geometry = Geometry { slots, slot_bytes: 8 };
    let pd = Device::soft(SoftOptions::default()).open().unwrap().alloc_pd().unwrap();
    let bytes = geometry.bytes().unwrap();
    let region = pd.alloc_region(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut inbox = Inbox::new(geometry, region);
    let mut outbox = Outbox::new(geometry, pd.alloc_local(bytes).unwrap()).unwrap();
    outbox.check(inbox.region().remote()).unwrap();
    (outbox.sent, outbox.freed, inbox.given_back) = (before, before, before);
    (outbox, inbox)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_are_told_apart_over_every_wrap(
        slots in 1_u16..9,
        // Turns wrap after 65536 rounds of the slots, counts after 2^28 messages.
        before in prop_oneof![
            Just(0_u64),
            (1_u64..30).prop_map(|ahead| (1 << 28) - ahead),
            (1_u64..9, 1_u64..30).prop_map(|(slots, ahead)| (slots << 16) - ahead),
        ],
        order in any::<u64>(),
    ) {
        let (mut outbox, mut inbox) = ends(slots, before);
        for round in 0..12 {
            let first = outbox.sent();
            let window: Vec<u64> = (first..first + u64::from(slots)).collect();
            outbox.sent += u64::from(slots);
            // In any order, each once.
            let at = order.rotate_left(round) as usize % window.len();
            for number in window[at..].iter().chain(&window[..at]) {
                let (slot, turn) = (inbox.geometry.slot(*number), inbox.geometry.turn(*number));
                prop_assert!(!inbox.announce(slot, turn.wrapping_add(1), 8), "of the turn after");
                prop_assert!(!inbox.announce(slot, turn.wrapping_sub(1), 8), "of the turn before");
                prop_assert!(inbox.announce(slot, turn, 8) && !inbox.announce(slot, turn, 8));
                prop_assert_eq!(inbox.arrived(*number), Some(8));
            }
            inbox.give_back(first + u64::from(slots));
            let Imm::Freed { count } = inbox.freed() else { unreachable!() };
            prop_assert!(!outbox.freed(count.wrapping_add(1) & imm::COUNT_MASK), "more than was sent");
            prop_assert!(outbox.freed(count));
            prop_assert_eq!(outbox.freed, outbox.sent);
        }
    }
}

#[test]
fn sizes_that_are_no_mailbox_are_refused() {
    let bytes = |slots, slot_bytes| Geometry { slots, slot_bytes }.bytes();
    assert_eq!((bytes(0, 8), bytes(4097, 8)), (None, None));
    assert_eq!((bytes(1, usize::MAX), bytes(4096, usize::MAX / 4096)), (None, None));
    assert_eq!(bytes(4096, 8), Some(4096 * 72));
    let pd = Device::soft(SoftOptions::default()).open().unwrap().alloc_pd().unwrap();
    for len in [0, 71, 73, u64::MAX] {
        let slots = RemoteMemory { addr: 0, len, rkey: RemoteKey(1) };
        let geometry = Geometry { slots: 1, slot_bytes: 8 };
        let outbox = Outbox::new(geometry, pd.alloc_local(72).unwrap()).unwrap();
        let error = outbox.check(slots).unwrap_err();
        assert!(matches!(error, SetupError::Mailbox { .. }), "{error}");
    }
}
