//! A stopped writer finishes into pages that nobody reads.

use std::ops::Range;

use super::super::super::shm::rendezvous::Refusal;
use super::super::super::shm::{Chunk, PAUSED_VERSION};
use super::super::own_mailboxes::GRACE;
use super::super::revoke::RevokeStatus;
use super::*;
use crate::backend::soft::wire::shm::Writer;
use crate::memory::Irreplaceable;

const KEY: u32 = 5;
const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const BYTES: usize = 1 << 20;

impl Rig {
    /// A region whose writer has just begun to write `range`.
    fn written(access: Access, range: Range<u64>) -> (Self, Mapping, Writer) {
        let (mut rig, memory) = (Self::new(), Mapping::allocate(BYTES).unwrap());
        rig.register(KEY, &memory, access);
        rig.create_mailbox();
        let writer = rig.mailbox().writer();
        let at = rig.chunk(&memory, range);
        writer.pretend(Some(at));
        (rig, memory, writer)
    }

    fn chunk(&mut self, memory: &Mapping, Range { start, end }: Range<u64>) -> Chunk {
        let (serial, addr) = (self.entered(KEY).0, memory.as_ptr().as_ptr() as u64);
        Chunk { serial, begin: addr.wrapping_add(start), end: addr.wrapping_add(end) }
    }

    /// The serial and the version under which `key` is in the table.
    fn entered(&mut self, key: u32) -> (u64, u32) {
        let export = &self.exports().keys[&key].export;
        (export.registered.serial, export.version)
    }

    /// A second queue pair, and its writer.
    fn another(&mut self) -> (QpRef, Writer) {
        let qp = &self.state.qps[self.qp];
        let mut qp = QueuePair::new(
            QpNum(9),
            (qp.device, qp.domain),
            (qp.context, qp.cq),
            &QueuePairOptions::default(),
        );
        qp.step(crate::QpState::INIT).unwrap();
        let peer = Peer { gid: THEIRS, qp_num: QpNum(8), found: None };
        qp.receive_from(OWN_BIT, peer, 5, Carrier::Mapped, 0).unwrap();
        let id = self.state.qps.insert(qp);
        self.state.create_mailbox(id, process()).unwrap();
        (id, self.state.qps[id].mapped.incoming.as_ref().unwrap().mailbox.writer())
    }

    /// Ends the queue pair, and looks again once its writer has had its time.
    fn advance_qp_revoke(&mut self) -> RevokeStatus {
        let now = Instant::now();
        assert!(!self.state.revoke_qp(now, self.qp).is_empty());
        assert!(
            matches!(self.state.advance_qp_revoke(now, self.qp, soon()), RevokeStatus::Pending),
            "it had no time"
        );
        self.state.advance_qp_revoke(now + GRACE, self.qp, soon())
    }

    fn told(&self) -> Vec<(u32, u64, u64)> {
        let patches = self.state.commands.iter().filter_map(|command| match command {
            Command::Tell { change: Change::Patch { patches, .. }, .. } => Some(patches),
            _ => None,
        });
        patches.flatten().map(|patch| (patch.version, patch.offset, patch.bytes)).collect()
    }
}

fn version(memory: &Mapping) -> u32 {
    memory.backing().unwrap().pages.version()
}

#[test]
fn a_deregistration_replaces_the_pages_of_a_writer_whose_queue_pair_is_gone() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 5000..6000);
    rig.state.destroy(rig.qp);
    rig.exports().revoke(KEY);
    let active_writers = rig.state.active_writers(rig.device, KEY);
    assert!(!active_writers.wait(soon()), "a deregistration takes it for gone");
    assert!(matches!(
        rig.state.advance_key_revoke(Instant::now(), rig.device, KEY, soon()),
        RevokeStatus::Done
    ));
    assert_eq!((version(&memory), rig.told()), (1, vec![]));
    assert!(rig.exports().is_free(KEY));
    rig.state.settle_mailboxes(Instant::now());
    assert!(rig.state.orphans.is_empty(), "what can do no harm is kept");
    // The memory is registered again, and nothing waits for that writer.
    rig.register(KEY + 1, &memory, REMOTE);
    assert_eq!(rig.entered(KEY + 1).1, 1);
    rig.exports().revoke(KEY + 1);
    assert!(rig.state.active_writers(rig.device, KEY + 1).is_empty());
    drop(writer);
}

#[test]
fn of_too_many_that_do_not_go_on_no_more_are_let_in() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 0..8);
    for orphans in 1..4 {
        let (id, other) = rig.another();
        let at = rig.chunk(&memory, 0..8);
        other.pretend(Some(at));
        rig.state.destroy(id);
        assert_eq!(rig.state.orphans.len(), orphans);
    }
    let refused = rig.state.invite(rig.qp, process());
    assert!(refused.is_ok(), "one that is in already");
    writer.pretend(None);
    assert!(rig.state.move_responder_to_tcp(Instant::now(), rig.qp));
    assert!(matches!(rig.state.invite(rig.qp, process()), Err(Refusal::Limit(_))));
}

#[test]
fn a_writer_that_goes_on_in_time_keeps_its_pages() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 0..8);
    rig.state.destroy(rig.qp);
    rig.exports().revoke(KEY);
    assert!(!rig.state.active_writers(rig.device, KEY).is_empty());
    writer.pretend(None);
    assert!(matches!(
        rig.state.advance_key_revoke(Instant::now(), rig.device, KEY, soon()),
        RevokeStatus::Done
    ));
    assert_eq!(version(&memory), 0);
}

#[test]
fn the_end_of_a_queue_pair_replaces_pages_of_a_region_that_stays() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 5000..6000);
    let before = rig.entered(KEY);
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Done));
    assert_eq!(rig.told(), [(1, 4096, 4096)]);
    let (serial, now) = rig.entered(KEY);
    assert_eq!((serial != before.0, now, version(&memory)), (true, 1, 1));
    // Nothing waits for the writer any more, neither the queue pair nor the region.
    assert!(matches!(rig.state.advance_qp_revoke(Instant::now(), rig.qp, soon()), RevokeStatus::Done));
    assert!(rig.state.revoke_qp(Instant::now(), rig.qp).is_empty());
    rig.exports().revoke(KEY);
    assert!(rig.state.active_writers(rig.device, KEY).is_empty());
    drop(writer);
}

#[test]
fn whoever_else_is_at_the_region_is_waited_for_and_nobody_comes_meanwhile() {
    let (mut rig, memory, _writer) = Rig::written(REMOTE, 0..10);
    let (_, other) = rig.another();
    let at = rig.chunk(&memory, 300_000..300_010);
    other.pretend(Some(at));
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Pending));
    assert_eq!((rig.entered(KEY).1, version(&memory)), (PAUSED_VERSION, 0));
    // The writer goes on: under the serial that it has it can do no more harm.
    other.pretend(None);
    rig.state.settle_mailboxes(Instant::now() + GRACE);
    assert_eq!((rig.entered(KEY).1, rig.told()), (1, vec![(1, 0, 4096)]));
    assert!(matches!(rig.state.advance_qp_revoke(Instant::now(), rig.qp, soon()), RevokeStatus::Done));
}

#[test]
fn whoever_came_while_pages_were_to_be_replaced_is_told_that_they_are_not() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 0..10);
    let (_, other) = rig.another();
    let at = rig.chunk(&memory, 20..30);
    other.pretend(Some(at));
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Pending));
    [writer, other].iter().for_each(|writer| writer.pretend(None));
    rig.state.settle_mailboxes(Instant::now());
    assert_eq!((rig.entered(KEY).1, version(&memory)), (0, 0));
    let id = memory.backing().unwrap().id;
    let told =
        |command: &Command| matches!(command, Command::Tell { change: Change::Resume(it), .. } if *it == id);
    assert!(rig.state.commands.iter().any(told));
}

#[test]
fn whoever_else_does_not_go_on_gets_other_pages_as_well() {
    let (mut rig, memory, _writer) = Rig::written(REMOTE, 0..10);
    let others: Vec<_> = [4090..4100, 300_000..400_000].map(|range| (rig.another(), range)).into();
    for ((_, other), range) in &others {
        let at = rig.chunk(&memory, range.clone());
        other.pretend(Some(at));
    }
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Pending));
    rig.state.settle_mailboxes(Instant::now() + 2 * GRACE);
    assert_eq!(rig.told(), [(1, 0, 8192), (2, 299_008, 102_400)]);
    assert_eq!(rig.entered(KEY).1, 2);
    for ((id, _), _) in others {
        assert!(rig.state.revoke_qp(Instant::now(), id).is_empty(), "its pages are replaced already");
    }
}

#[test]
fn a_chunk_that_cannot_be_is_quarantined_and_all_stays_as_it_was() {
    let bytes = BYTES as u64;
    for (start, end) in [(10, 10), (20, 10), (0, bytes), (bytes - 1, bytes + 1), (u64::MAX, 1)] {
        let range = Range { start, end };
        let (mut rig, memory, writer) = Rig::written(REMOTE, range.clone());
        let look = rig.advance_qp_revoke();
        assert!(matches!(look, RevokeStatus::Quarantined(Irreplaceable::Unknown)), "{range:?}: {look:?}");
        assert_eq!((rig.entered(KEY).1, version(&memory), rig.told()), (0, 0, vec![]));
        // Under the serial that the writer has, it is waited for.
        rig.exports().revoke(KEY);
        assert!(!rig.state.active_writers(rig.device, KEY).is_empty());
        writer.pretend(None);
        assert!(matches!(
            rig.state.advance_qp_revoke(Instant::now() + GRACE, rig.qp, soon()),
            RevokeStatus::Done
        ));
        assert!(matches!(
            rig.state.advance_key_revoke(Instant::now(), rig.device, KEY, soon()),
            RevokeStatus::Done
        ));
    }
}

#[test]
fn pages_that_were_replaced_too_often_are_quarantined() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 0..8);
    for _ in 0..64 {
        let at = rig.chunk(&memory, 0..8);
        writer.pretend(Some(at));
        assert!(matches!(
            rig.state.replace_stopped_pages(Instant::now(), rig.device, memory.backing().unwrap().id, soon()),
            RevokeStatus::Done
        ));
    }
    let at = rig.chunk(&memory, 0..8);
    writer.pretend(Some(at));
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Quarantined(Irreplaceable::TooOften)));
}

#[test]
fn only_a_receive_that_was_not_told_has_its_pages_replaced() {
    for posted in [true, false] {
        let (mut rig, memory, _writer) = Rig::written(Access::LOCAL_WRITE, 8..16);
        let addr = memory.as_ptr().as_ptr() as u64;
        if posted {
            rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr, len: 64, lkey: KEY }).unwrap();
        }
        assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Done));
        assert_eq!(version(&memory), u32::from(posted), "a slice of it may be out");
    }
}

#[test]
fn memory_in_several_hands_is_quarantined_until_they_are_gone() {
    let (mut rig, memory, _writer) = Rig::written(Access::LOCAL_WRITE, 8..16);
    let addr = memory.as_ptr().as_ptr() as u64;
    rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr, len: 64, lkey: KEY }).unwrap();
    memory.backing().unwrap().pages.lend_part();
    assert!(matches!(rig.advance_qp_revoke(), RevokeStatus::Quarantined(Irreplaceable::Shared)));
    rig.exports().revoke(KEY);
    assert!(matches!(
        rig.state.advance_key_revoke(Instant::now(), rig.device, KEY, soon()),
        RevokeStatus::Done
    ));
    assert_eq!(version(&memory), 1);
}

#[test]
fn receives_behind_a_writer_that_does_not_go_on_are_flushed_by_themselves() {
    let (mut rig, _memory, _writer) = Rig::written(REMOTE, 0..8);
    rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr: 0, len: 0, lkey: 0 }).unwrap();
    let now = Instant::now();
    rig.state.enter_error(now, rig.qp);
    assert!(rig.state.next_flushed(now, rig.qp).is_none(), "while it may be told of");
    assert!(rig.state.next_flushed(now + GRACE, rig.qp).is_some());
}

/// Two looks of one revocation must agree, because only a look that finds a writer is followed by another.
#[test]
fn receives_are_flushed_though_a_writer_announces_its_next_chunk_between_two_looks() {
    let (mut rig, memory, writer) = Rig::written(REMOTE, 0..8);
    rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr: 0, len: 0, lkey: 0 }).unwrap();
    let (now, chunk) = (Instant::now(), rig.chunk(&memory, 0..8));
    rig.state.enter_error(now, rig.qp);
    writer.pretend(None);
    assert!(matches!(rig.state.advance_qp_revoke(now, rig.qp, soon()), RevokeStatus::Done));
    writer.pretend(Some(chunk));
    assert!(rig.state.next_flushed(now, rig.qp).is_some());
}

#[test]
fn after_the_deadline_nobody_is_given_time_and_none_of_several_writers_harms() {
    let (mut rig, memory, _writer) = Rig::written(REMOTE, 0..10);
    let (_, other) = rig.another();
    let at = rig.chunk(&memory, 300_000..300_010);
    other.pretend(Some(at));
    let begun = Instant::now();
    let (progress, active_writers) = (Deadline::at(begun), rig.state.revoke_qp(begun, rig.qp));
    assert!(!active_writers.wait(progress) && begun.elapsed() < GRACE, "{:?}", begun.elapsed());
    assert!(matches!(rig.state.advance_qp_revoke(begun, rig.qp, soon()), RevokeStatus::Pending));
    assert!(matches!(rig.state.advance_qp_revoke(begun, rig.qp, progress), RevokeStatus::Done));
    assert_eq!((rig.entered(KEY).1, version(&memory)), (2, 2));
}

#[test]
fn no_pages_of_a_window_are_replaced_whatever_a_neighbour_says_that_it_is_at() {
    for posted in [false, true] {
        let (mut rig, memory, _writer) = Rig::written(REMOTE | Access::WINDOW, 8..16);
        let addr = memory.as_ptr().as_ptr() as u64;
        if posted {
            rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr, len: 64, lkey: KEY }).unwrap();
        }
        rig.advance_qp_revoke();
        assert_eq!((rig.entered(KEY).1, version(&memory), rig.told()), (0, 0, vec![]), "{posted}");
    }
}
