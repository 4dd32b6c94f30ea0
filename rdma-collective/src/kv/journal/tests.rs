//! Counters and events without a link.

use super::*;

fn somebody() -> PeerName {
    PeerName::Address(([127, 0, 0, 1], 1).into())
}

fn journal() -> Journal {
    Journal::new(somebody(), 10, true)
}

#[test]
fn events_beyond_the_bound_push_the_oldest_out_and_are_counted() {
    let journal = journal();
    let now = Instant::now();
    let room = journal.lock().events.capacity();
    let most = EVENTS_MAX as u64;
    (0..most + 5).for_each(|request| drop(journal.begin(TransferKind::Push, request.into(), 1, now)));
    assert_eq!((journal.stats().begun, journal.stats().events_dropped), (most + 5, 5));
    assert_eq!(journal.lock().events.capacity(), room, "it does not grow");
    for expected in 5..most + 5 {
        let Some(LinkEvent::Begun { request, .. }) = journal.next_event() else { panic!("event {expected}") };
        assert_eq!(request, expected.into());
    }
    assert!(journal.next_event().is_none());
}

#[test]
fn a_transfer_is_counted_once_by_how_it_ended() {
    let journal = journal();
    let now = Instant::now();
    let revoked = KvError::PeerRevoked { request: 1.into(), peer: somebody() };
    let expired = KvError::LeaseExpired { request: 1.into(), peer: somebody() };
    let failed = KvError::GrantRefused { request: 1.into(), peer: somebody() };
    let outcomes = [
        TransferOutcome::arrived(0),
        TransferOutcome::arrived(2),
        (&revoked).into(),
        (&expired).into(),
        (&failed).into(),
    ];
    for outcome in outcomes {
        let mut entry = journal.begin(TransferKind::Grant, 1.into(), 1, now);
        entry.end(outcome, 30);
        entry.end(TransferOutcome::Done, 30);
    }
    let LinkStats { begun, done, corrupt, revoked, expired, failed, blocks, .. } = journal.stats();
    assert_eq!([begun, done, corrupt, revoked, expired, failed, blocks], [5, 1, 1, 1, 1, 1, 3]);
}
