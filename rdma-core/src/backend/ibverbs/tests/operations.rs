//! Every operation, and the failures that only a device can produce.

use super::pair::{LEFT, Pair, RIGHT};
use crate::backend::interface::{RawOpcode, RawSend, RawWorker};
use crate::memory::OwnProcess;
use crate::{Access, CompletionStatus, QpState, QueuePairOptions};

const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

#[test]
#[ignore = "needs a device"]
fn sends_carry_bytes_and_immediates() {
    let mut pair = Pair::new();
    let (from, to) = (pair.memory(8192, Access::LOCAL_WRITE), pair.memory(8192, Access::LOCAL_WRITE));
    let bytes: Vec<u8> = (0..8192_u32).map(|index| (index % 251) as u8).collect();
    from.fill(&bytes);
    pair.recv(RIGHT, &[to.receive(1, 8192), to.receive(2, 8192)]).unwrap();
    pair.send(LEFT, &[from.request(3, RawOpcode::Send, 8192, None)]).unwrap();
    let received = pair.completion_of(1, 2);
    assert_eq!((received.status, received.byte_len, received.imm), (0, 8192, None));
    assert!(!received.write_imm);
    assert_eq!(to.bytes(8192), bytes);
    pair.send(LEFT, &[from.request(4, RawOpcode::SendImm, 16, None)]).unwrap();
    let received = pair.completion_of(2, 2);
    assert_eq!((received.status, received.byte_len, received.imm), (0, 16, Some(0x0102_0304)));
    assert!(!received.write_imm);
}

#[test]
#[ignore = "needs a device"]
fn writes_and_reads_reach_the_peers_memory() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    here.fill(b"written by the device");
    pair.send(LEFT, &[here.request(1, RawOpcode::Write, 21, Some(&there))]).unwrap();
    assert_eq!(pair.completion_of(1, 1).status, 0);
    assert_eq!(there.bytes(21), b"written by the device");
    there.fill(b"read by the device");
    pair.send(LEFT, &[here.request(2, RawOpcode::Read, 18, Some(&there))]).unwrap();
    assert_eq!(pair.completion_of(2, 1).status, 0);
    assert_eq!(here.bytes(18), b"read by the device");
    // The immediate of a write takes a receive without memory, and says how long the write was.
    pair.recv(RIGHT, &[crate::backend::interface::RawRecv { len: 0, ..here.receive(3, 0) }]).unwrap();
    pair.send(LEFT, &[here.request(4, RawOpcode::WriteImm, 18, Some(&there))]).unwrap();
    let received = pair.completion_of(3, 2);
    assert_eq!((received.status, received.byte_len, received.imm), (0, 18, Some(0x0102_0304)));
    assert!(received.write_imm);
}

#[test]
#[ignore = "needs a device"]
fn inline_bytes_are_taken_while_posting_and_empty_messages_need_no_memory() {
    let mut pair = Pair::new();
    let (from, to) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, Access::LOCAL_WRITE));
    pair.recv(RIGHT, &[to.receive(1, 64), to.receive(2, 64)]).unwrap();
    let mut taken = *b"taken while posting";
    let inline = RawSend {
        inline: true,
        addr: taken.as_ptr() as u64,
        lkey: 0,
        ..from.request(3, RawOpcode::Send, taken.len() as u32, None)
    };
    let empty = RawSend { addr: 0, lkey: 0, ..from.request(4, RawOpcode::SendImm, 0, None) };
    pair.send(LEFT, &[inline, empty]).unwrap();
    taken.fill(0);
    let all = pair.completions(4);
    assert!(all.iter().all(|one| one.status == 0), "{all:?}");
    assert_eq!(to.bytes(19), b"taken while posting");
    assert_eq!(all.iter().find(|one| one.wr_id == 2).unwrap().byte_len, 0);
}

#[test]
#[ignore = "needs a device"]
fn unsignalled_requests_have_no_completion_and_chains_keep_their_order() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(4096, Access::LOCAL_WRITE), pair.memory(4096, REMOTE));
    let depth = u64::from(QueuePairOptions::default().max_send_wr);
    for round in 0..20 {
        let chain: Vec<_> = (0..depth)
            .map(|index| RawSend {
                signalled: index % 32 == 31,
                ..here.request(round * depth + index, RawOpcode::Write, 64, Some(&there))
            })
            .collect();
        pair.send(LEFT, &chain).unwrap();
        let ids: Vec<_> = pair.completions(4).iter().map(|one| one.wr_id - round * depth).collect();
        assert_eq!(ids, [31, 63, 95, 127]);
    }
}

#[test]
#[ignore = "needs a device"]
fn a_partial_post_tells_exactly_what_was_posted() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(4096, Access::LOCAL_WRITE), pair.memory(4096, REMOTE));
    here.fill(b"first");
    let good = here.request(1, RawOpcode::Write, 5, Some(&there));
    // More bytes inline than the queue pair takes: every driver refuses it while it walks the chain.
    let bad = RawSend { inline: true, ..here.request(3, RawOpcode::Write, 4096, Some(&there)) };
    let refused = pair.send(LEFT, &[good, RawSend { wr_id: 2, ..good }, bad, good]).unwrap_err();
    assert_eq!(refused.posted, 2, "{refused:?}");
    assert!(matches!(refused.source.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM)), "{refused:?}");
    let ids: Vec<_> = pair.completions(2).iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(ids, [(1, 0), (2, 0)]);
    assert_eq!(there.bytes(5), b"first");
    // The rest was not posted, and the queue pair goes on.
    here.fill(b"after");
    pair.send(LEFT, &[RawSend { wr_id: 9, ..good }]).unwrap();
    assert_eq!(pair.completions(1)[0].wr_id, 9);
    assert_eq!(there.bytes(5), b"after");
}

#[test]
#[ignore = "needs a device"]
fn a_wrong_key_fails_the_request_and_moves_both_queue_pairs_to_err() {
    let mut pair = Pair::new();
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    pair.recv(RIGHT, &[here.receive(1, 64)]).unwrap();
    let wrong = RawSend { rkey: there.rkey() ^ 0x5500, ..here.request(2, RawOpcode::Write, 8, Some(&there)) };
    pair.send(LEFT, &[wrong, RawSend { wr_id: 3, ..wrong }]).unwrap();
    let all = pair.completions(3);
    let told: Vec<_> = all.iter().map(|one| (one.wr_id, CompletionStatus(one.status))).collect();
    assert!(told.contains(&(2, CompletionStatus::REM_ACCESS_ERR)), "{told:?}");
    assert!(told.contains(&(3, CompletionStatus::WR_FLUSH_ERR)), "{told:?}");
    assert!(told.contains(&(1, CompletionStatus::WR_FLUSH_ERR)), "{told:?}");
    assert!(all.iter().all(|one| one.imm.is_none() && one.byte_len == 0 && !one.write_imm), "{all:?}");
    assert_eq!(pair.worker.query_state(LEFT).unwrap(), QpState::ERR);
    assert_eq!(pair.worker.query_state(RIGHT).unwrap(), QpState::ERR);
}

#[test]
#[ignore = "needs a device"]
fn after_deregistration_no_write_lands() {
    let mut pair = Pair::new();
    let (here, mut there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    let request = here.request(1, RawOpcode::Write, 8, Some(&there));
    there.deregister();
    pair.send(LEFT, &[request]).unwrap();
    assert_eq!(CompletionStatus(pair.completions(1)[0].status), CompletionStatus::REM_ACCESS_ERR);
}

#[test]
#[ignore = "needs a device"]
fn receives_posted_before_err_are_flushed_and_destroyed_queue_pairs_are_gone() {
    let mut pair = Pair::new();
    let memory = pair.memory(64, Access::LOCAL_WRITE);
    pair.recv(RIGHT, &[memory.receive(1, 64), memory.receive(2, 64)]).unwrap();
    pair.worker.modify_to_err(RIGHT).unwrap();
    pair.worker.modify_to_err(RIGHT).unwrap();
    let told: Vec<_> =
        pair.completions(2).iter().map(|one| (one.wr_id, CompletionStatus(one.status))).collect();
    assert_eq!(told, [(1, CompletionStatus::WR_FLUSH_ERR), (2, CompletionStatus::WR_FLUSH_ERR)]);
    pair.worker.destroy_qp(RIGHT, crate::Deadline::in_drop()).unwrap();
    assert!(pair.worker.destroy_qp(RIGHT, crate::Deadline::in_drop()).is_err());
    assert!(pair.worker.query_state(RIGHT).is_err());
    assert_eq!(pair.recv(RIGHT, &[memory.receive(3, 64)]).unwrap_err().posted, 0);
    assert_eq!(pair.worker.query_state(LEFT).unwrap(), QpState::RTS);
}

#[test]
#[ignore = "needs a device"]
fn a_forked_child_that_drops_everything_takes_nothing_from_its_parent() {
    let pair = Pair::new();
    let (here, there) = (pair.memory(64, Access::LOCAL_WRITE), pair.memory(64, REMOTE));
    let mut kept = OwnProcess::new((pair, here, there));
    // SAFETY: the child only drops values and calls `_exit`; the drops do nothing in a forked child, so no lock is
    // taken.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        drop(kept);
        // SAFETY: `_exit` must end the child, because exit handlers and destructors belong to the parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process that only this call waits for, and `status` is a variable of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child did not end as it should");
    let (pair, here, there) = kept.get_mut().unwrap();
    here.fill(b"still registered and connected");
    pair.send(LEFT, &[here.request(1, RawOpcode::Write, 30, Some(there))]).unwrap();
    assert_eq!(pair.completion_of(1, 1).status, 0);
    assert_eq!(there.bytes(30), b"still registered and connected");
}
