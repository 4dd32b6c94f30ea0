//! Lengths around a chunk, rings that wrap, the doorbell, missing memory, and segments that are no mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::ProtFlags;

use super::super::key_table::PAUSED_VERSION;
use super::super::remote_responder::SegmentsRefused;
use super::{ALL, BASE, DOMAIN, MEMORY, Rig, execute, mapped, terms};
use crate::CompletionStatus;
use crate::backend::interface::RawRecv;
use crate::backend::soft::engine::keys::Registered;
use crate::backend::soft::engine::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::responder::LentResponder;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::HOLD_BYTES_MAX;
use crate::backend::soft::wire::shm::segment::READ_WRITE;
use crate::backend::soft::wire::shm::{Chunk, Export, Mailbox, Outcome, RemoteResponder, Segment};

const CHUNK: usize = HOLD_BYTES_MAX;

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16).wrapping_add(salt) as u8).collect()
}

fn kind(outcome: Outcome) -> ReplyKind {
    match outcome {
        Outcome::Reply(Reply { kind, .. }) => kind,
        other => panic!("{other:?} instead of a reply"),
    }
}

#[test]
fn every_length_around_a_chunk_arrives_whole() {
    let mut rig = Rig::new(4 * CHUNK, terms(4));
    rig.expose(1, 1);
    for (salt, len) in [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7].into_iter().enumerate() {
        for op in [RequestOp::Write, RequestOp::Send] {
            let at = 3 + salt;
            rig.post(7, BASE + at as u64, len as u32, 1);
            let mut before = rig.bytes();
            let mut local = pattern(len, salt);
            let mut request = rig.next(op, 1, BASE + at as u64, len as u32);
            request.imm = Some(5);
            let executed = execute(&mut rig.responder, &request, &mut local, Injected::Deliver);
            assert_eq!(kind(executed.outcome), ReplyKind::Ack);
            before[at..at + len].copy_from_slice(&local);
            assert!(rig.bytes() == before, "{op:?} of {len} bytes");
            let done = rig.mailbox.take().unwrap();
            assert_eq!((done.wr_id, done.byte_len, done.imm), (7, len as u32, Some(5)));
            local.fill(0);
            let request = rig.next(RequestOp::Read, 1, BASE + at as u64, len as u32);
            let executed = execute(&mut rig.responder, &request, &mut local, Injected::Deliver);
            assert_eq!(kind(executed.outcome), ReplyKind::ReadData);
            assert!(local == pattern(len, salt), "read of {len} bytes");
        }
    }
}

#[test]
fn rings_go_round_and_are_as_deep_as_agreed() {
    let mut rig = Rig::new(1, terms(3));
    rig.expose(1, 1);
    for round in 0..50u64 {
        for place in 0..3 {
            rig.post(10 * round + place, BASE, 8, 1);
        }
        let recv = RawRecv { wr_id: 0, addr: BASE, len: 8, lkey: 1 };
        assert!(rig.mailbox.post_recv(recv).is_err(), "more than were agreed");
        for place in 0..3 {
            let request = rig.next(RequestOp::Send, 0, 0, 1 + place);
            execute(&mut rig.responder, &request, &mut [0; 8], Injected::Deliver);
        }
        let request = Request { psn: rig.psn, ..rig.next(RequestOp::Send, 0, 0, 1) };
        let executed = execute(&mut rig.responder, &request, &mut [0; 8], Injected::Deliver);
        assert_eq!(kind(executed.outcome), ReplyKind::Rnr { timer: 9 });
        rig.psn = request.psn;
        for place in 0..3 {
            let done = rig.mailbox.take().unwrap();
            assert_eq!((done.wr_id, done.byte_len), (10 * round + place, 1 + place as u32));
        }
        assert!(rig.mailbox.take().is_none());
    }
}

#[test]
fn receives_that_were_there_before_come_first() {
    let mut rig = Rig::new(1, terms(2));
    rig.expose(1, 1);
    let recv = |wr_id| RawRecv { wr_id, addr: BASE, len: 8, lkey: 1 };
    rig.mailbox = Mailbox::create(&LentResponder { receives: [recv(1)].into(), ..terms(2) }, DOMAIN).unwrap();
    rig.mailbox.post_recv(recv(2)).unwrap();
    assert!(rig.mailbox.post_recv(recv(3)).is_err());
    let mut responder = rig.another_responder();
    for (wr_id, len) in [(1, 5), (2, 6)] {
        let request = rig.next(RequestOp::Send, 0, 0, len);
        execute(&mut responder, &request, &mut [0; 8], Injected::Deliver);
        let done = rig.mailbox.take().unwrap();
        assert_eq!((done.wr_id, done.byte_len), (wr_id, len));
    }
}

#[test]
fn a_sleeping_owner_is_rung_once_and_only_for_completions() {
    let mut rig = Rig::new(1, terms(4));
    rig.expose(1, 1);
    let watch = rig.mailbox.watch();
    let send = |rig: &mut Rig, op| {
        let request = rig.next(op, 1, BASE, 8);
        execute(&mut rig.responder, &request, &mut [0; 8], Injected::Deliver).ring
    };
    for wr_id in 0..4 {
        rig.post(wr_id, BASE, 8, 1);
    }
    assert!(!send(&mut rig, RequestOp::Send), "an owner that is awake was rung");
    assert!(watch.pending());
    assert_eq!(rig.mailbox.take().unwrap().wr_id, 0);
    assert!(!watch.pending());
    rig.mailbox.arm();
    assert!(!watch.pending());
    assert!(!send(&mut rig, RequestOp::Write));
    assert!(send(&mut rig, RequestOp::Send));
    assert!(!send(&mut rig, RequestOp::Send));
    assert_eq!(rig.mailbox.take().unwrap().wr_id, 1);
    assert!(watch.pending());
}

#[test]
fn a_registration_of_other_pages_waits_for_them_and_is_not_refused() {
    let mut rig = Rig::new(1, terms(4));
    rig.expose(1, 1);
    for (round, op) in [RequestOp::Write, RequestOp::Send, RequestOp::Read].into_iter().enumerate() {
        rig.post(7, BASE, 8, 1);
        let request = rig.next(op, 1, BASE, 8);
        rig.reexpose(1, 10 * round as u64 + 2, PAUSED_VERSION);
        let executed = execute(&mut rig.responder, &request, &mut [1; 8], Injected::Deliver);
        assert_eq!((executed.outcome, executed.nudge), (Outcome::Unmapped(MEMORY), false));
        rig.reexpose(1, 10 * round as u64 + 3, 0);
        let executed = execute(&mut rig.responder, &request, &mut [1; 8], Injected::Deliver);
        assert!(matches!(kind(executed.outcome), ReplyKind::Ack | ReplyKind::ReadData));
    }
    assert!(rig.mailbox.refusal().is_none());
}

#[test]
fn what_is_not_mapped_is_not_carried_out_until_it_is() {
    let mut rig = Rig::new(1, terms(4));
    let registered = Registered { domain: DOMAIN, addr: BASE, len: 8, access: ALL, serial: 1 };
    let late = Export { key: 1, registered, memory: MEMORY + 1, version: 1, offset: 16 };
    assert!(rig.keys.insert(&late));
    let request = rig.next(RequestOp::Write, 1, BASE + 1, 3);
    let write = |rig: &mut Rig| execute(&mut rig.responder, &request, &mut [1, 2, 3], Injected::Deliver);
    assert_eq!(write(&mut rig).outcome, Outcome::Unmapped(MEMORY + 1));
    let segment = mapped(&rig.memory, READ_WRITE);
    rig.responder.memories.add(MEMORY + 1, Arc::clone(&segment));
    assert_eq!(write(&mut rig).outcome, Outcome::Unmapped(MEMORY + 1), "pages that were replaced");
    let len = segment.len() as u64;
    segment.patch(rig.memory.memfd().unwrap(), 1, (0, len)).unwrap();
    let executed = write(&mut rig);
    assert_eq!((kind(executed.outcome), executed.nudge), (ReplyKind::Ack, false));
    assert_eq!(rig.bytes()[16..21], [0, 1, 2, 3, 0]);
    assert!(rig.mailbox.refusal().is_none());
    assert!([MEMORY, MEMORY + 1].iter().all(|id| rig.responder.memories.get(*id).is_some()));
    rig.responder.memories.remove(MEMORY + 1);
    let request = rig.next(RequestOp::Write, 1, BASE, 1);
    let executed = execute(&mut rig.responder, &request, &mut [0], Injected::Deliver);
    assert_eq!(executed.outcome, Outcome::Unmapped(MEMORY + 1));
}

#[test]
fn a_corrupted_payload_differs_in_one_byte() {
    let mut rig = Rig::new(1, terms(1));
    rig.expose(1, 1);
    let request = rig.next(RequestOp::Write, 1, BASE, 8);
    let executed = execute(&mut rig.responder, &request, &mut [0; 8], Injected::Corrupt(8 + 3));
    assert_eq!(kind(executed.outcome), ReplyKind::Ack);
    assert_eq!(rig.bytes()[..8], [0, 0, 0, 0xff, 0, 0, 0, 0]);
}

/// A writer between two chunks announces the second, and only then finds the mailbox closed.
#[test]
fn a_mailbox_that_was_settled_stays_so_whoever_announces_a_chunk() {
    let mut rig = Rig::new(1, terms(1));
    rig.post(1, BASE, 8, 1);
    rig.mailbox.close();
    assert!(rig.mailbox.is_settled());
    rig.mailbox.writer().pretend(Some(Chunk { serial: 1, begin: BASE, end: BASE + 8 }));
    assert!(rig.mailbox.is_settled());
    assert_eq!(rig.mailbox.next_flushed().map(|flushed| flushed.wr_id), Some(1));
}

#[test]
fn nothing_is_answered_after_a_refusal_or_the_end() {
    let mut rig = Rig::new(1, terms(2));
    rig.expose(1, 1);
    rig.post(1, BASE, 4, 1);
    rig.post(2, BASE, 8, 1);
    let send = |rig: &mut Rig| {
        let request = rig.next(RequestOp::Send, 0, 0, 8);
        execute(&mut rig.responder, &request, &mut [9; 8], Injected::Deliver)
    };
    let executed = send(&mut rig);
    assert_eq!(kind(executed.outcome), ReplyKind::Nak(Nak::InvalidRequest));
    assert!(executed.nudge);
    assert_eq!(send(&mut rig).outcome, Outcome::Silence);
    assert_eq!(rig.mailbox.refusal(), Some(None));
    assert!(rig.mailbox.refusal().is_none(), "a refusal is told once");
    assert!(!rig.mailbox.is_settled() && rig.mailbox.next_flushed().is_none());
    rig.mailbox.close();
    assert!(rig.mailbox.is_settled());
    assert!(rig.mailbox.next_flushed().is_none(), "a completion comes before it");
    let told = rig.mailbox.take().unwrap();
    assert_eq!((told.wr_id, told.status), (1, CompletionStatus::LOC_LEN_ERR.0));
    assert_eq!(rig.mailbox.next_flushed().unwrap().wr_id, 2);
    assert!(rig.mailbox.next_flushed().is_none() && rig.mailbox.receives.is_empty());

    let mut rig = Rig::new(1, terms(2));
    rig.expose(1, 1);
    rig.post(1, BASE, 8, 1);
    rig.mailbox.close();
    assert_eq!(send(&mut rig), super::Executed { outcome: Outcome::Silence, ring: false, nudge: false });
    assert_eq!(rig.bytes()[..8], [0; 8]);
}

#[test]
fn only_a_mailbox_with_its_rings_makes_a_responder() {
    let rig = Rig::new(1, terms(4));
    let (mailbox, keys) = (rig.mailbox.segment(), rig.keys.segment());
    let (writable, readable) = (mapped(mailbox, READ_WRITE), mapped(mailbox, ProtFlags::READ));
    let refused = |mailbox, keys| RemoteResponder::new(mailbox, keys).unwrap_err();
    assert!(matches!(refused(&readable, keys), SegmentsRefused::NotMailbox));
    assert!(matches!(refused(keys, keys), SegmentsRefused::NotMailbox));
    let odd = Arc::new(Segment::create("test", 3 * rustix::param::page_size()).unwrap());
    assert!(matches!(refused(&writable, &odd), SegmentsRefused::NotKeys));
    let entries = std::mem::offset_of!(super::super::layout::OwnerLine, entries);
    // The owner's line is at the beginning of the mailbox.
    let words: super::super::shared_slice::SharedSlice<Word> =
        super::super::shared_slice::SharedSlice::new(mailbox, entries, 1).unwrap();
    for lie in [0, 3, 1 << 19, 1 << 21, u32::MAX] {
        words[0].0.store(lie, Ordering::Relaxed);
        assert!(matches!(refused(&writable, keys), SegmentsRefused::Rings { entries } if entries == lie));
    }
}

/// A word at any offset.
#[repr(C)]
pub(super) struct Word(pub(super) AtomicU32);

// SAFETY: the only field is an integer atomic, so any bytes are a valid value.
unsafe impl super::super::shared_slice::Shared for Word {}
