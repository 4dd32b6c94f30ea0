//! Copies interrupted between two chunks: by a lost right, and by replaced pages.

use std::cell::Cell;

use super::super::super::key_table::PAUSED_VERSION;
use super::super::super::tests::{BASE, Rig, terms};
use super::super::super::writer_slot::AccessScope;
use super::*;

const BYTES: u32 = 3 * CHUNK;

/// Copies three chunks, and calls `meanwhile` once, in chunk number `chunk`. Returns the result, the number of
/// chunks, and whether the message was finished.
fn interrupted(rig: &mut Rig, chunk: u32, meanwhile: impl Fn(&mut Rig)) -> (CopyResult, u32, bool) {
    let (chunks, finished) = (Cell::new(0), Cell::new(false));
    // The responder reads shared words alone, so it can exist beside its owner.
    let (responder, writer) = (rig.another_responder(), rig.mailbox.writer());
    let owner = Cell::new(Some(rig));
    let found = responder.keys.find(1).unwrap();
    let serial = found.export.registered.serial;
    let moved = responder.copy_chunks(
        &found,
        (BASE, BYTES),
        CopyBudget::WHOLE,
        |_, _| {
            chunks.set(chunks.get() + 1);
            if chunks.get() == chunk
                && let Some(rig) = owner.take()
            {
                assert!(writer.touches(AccessScope::Registration(serial)));
                assert!(writer.touches(AccessScope::Anything));
                assert!(!writer.touches(AccessScope::Registration(serial + 1)));
                meanwhile(rig);
            }
        },
        || {
            assert!(writer.touches(AccessScope::Anything), "what is told comes after the slot");
            finished.set(true);
            false
        },
    );
    (moved, chunks.get(), finished.get())
}

#[test]
fn a_message_ends_with_the_chunk_in_which_its_right_did() {
    let mut rig = Rig::new(BYTES as usize, terms(1));
    rig.expose(1, 1);
    assert_eq!(interrupted(&mut rig, 2, |_| ()), (CopyResult::All { ring: false }, 3, true));
    assert_eq!(interrupted(&mut rig, 2, |rig| rig.keys.remove(1, 1)), (CopyResult::Revoked, 2, false));
    assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
    rig.expose(1, 2);
    assert_eq!(interrupted(&mut rig, 2, |rig| rig.mailbox.close()), (CopyResult::Closed, 2, false));
    assert!(rig.mailbox.is_settled());
}

#[test]
fn a_message_into_pages_that_were_replaced_is_not_told_as_done() {
    let mut rig = Rig::new(BYTES as usize, terms(1));
    rig.expose(1, 1);
    assert_eq!(interrupted(&mut rig, 3, |rig| rig.reexpose(1, 2, 1)), (CopyResult::Revoked, 3, false));
    assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
    // A message that was filled before the end of its queue pair is completed.
    rig.reexpose(1, 3, 0);
    assert!(interrupted(&mut rig, 3, |rig| rig.mailbox.close()).2);
}

#[test]
fn a_message_in_parts_goes_on_where_it_was_and_in_another_registration_begins_anew() {
    let mut rig = Rig::new(BYTES as usize, terms(1));
    rig.expose(1, 1);
    let part = |rig: &mut Rig, begun| {
        let (responder, moved) = (rig.another_responder(), Cell::new((BYTES, 0)));
        let found = responder.keys.find(1).unwrap();
        let copy = |from: u32, count| {
            moved.update(|(first, end): (u32, u32)| (first.min(from), end.max(from + count)))
        };
        let came = responder.copy_chunks(
            &found,
            (BASE, BYTES),
            CopyBudget { resume: begun, max_bytes: CHUNK + 1 },
            copy,
            || true,
        );
        assert!(!rig.mailbox.writer().touches(AccessScope::Anything), "others wait for it in between");
        (came, moved.get())
    };
    let (came, moved) = part(&mut rig, CopyProgress::default());
    let CopyResult::Partial(begun) = came else { panic!("{came:?}") };
    assert_eq!((begun, moved), (CopyProgress { serial: 1, done: 2 * CHUNK }, (0, 2 * CHUNK)));
    assert_eq!(part(&mut rig, begun), (CopyResult::All { ring: true }, (2 * CHUNK, BYTES)));
    rig.keys.remove(1, 1);
    rig.expose(1, 2);
    assert_eq!(
        part(&mut rig, begun),
        (CopyResult::Partial(CopyProgress { serial: 2, ..begun }), (0, 2 * CHUNK))
    );
}

#[test]
fn what_was_found_before_pages_are_replaced_is_not_touched() {
    let mut rig = Rig::new(1, terms(1));
    rig.expose(1, 1);
    let responder = rig.another_responder();
    let found = responder.keys.find(1).unwrap();
    let touch = || {
        responder.copy_chunks(
            &found,
            (BASE, 1),
            CopyBudget::WHOLE,
            |_, _| panic!("touched"),
            || panic!("told"),
        )
    };
    rig.reexpose(1, 2, PAUSED_VERSION);
    assert_eq!((touch(), responder.pages_were_replaced(&found)), (CopyResult::Revoked, true));
    assert!(!rig.mailbox.writer().touches(AccessScope::Anything));
    rig.keys.remove(1, 2);
    assert_eq!((touch(), responder.pages_were_replaced(&found)), (CopyResult::Revoked, false));
}

#[test]
fn what_holds_no_memory_holds_the_slot() {
    let mut rig = Rig::new(1, terms(1));
    let responder = rig.another_responder();
    let moved = responder.finish_without_memory(true, || {
        rig.mailbox.close();
        assert!(!rig.mailbox.is_settled(), "the end does not wait for a receive that is being told");
        true
    });
    assert_eq!(moved, Some(true));
    assert!(rig.mailbox.is_settled());
    assert_eq!(responder.finish_without_memory(true, || panic!("after the end")), None);
}
