//! The cases that need a peer process.

use rdma_core::{CompletionStatus, Opcode, QpState, RemoteMemory, RnrRetry, Segment, Work};

use super::client::{A_MOMENT, Remote};
use super::protocol::{Answer, Request};
use crate::cases::cases;
use crate::cases::helpers::{filled, pattern, post, post_recv, with_key};
use crate::{CaseResult, Lab, check, check_eq};

cases!("across":
    a_write_lands_in_the_other_process,
    writes_of_many_sizes_land,
    an_immediate_tells_the_other_process,
    a_read_brings_the_other_processes_bytes,
    sends_go_both_ways,
    #[exact] a_wrong_key_is_refused,
    #[exact] a_range_beyond_the_end_is_refused,
    #[exact] a_send_without_a_receive_fails,
    #[exact] a_fenced_peer_does_not_answer,
    no_write_lands_after_the_peer_revoked,
);

fn a_write_lands_in_the_other_process(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 4096)?;
    let buffer = filled(&remote.end, &pattern(1, 1000))?;
    post(&mut remote.end, Work::write(buffer, remote.region.slice(100..1100)?))?;
    remote.end.done(lab)?;
    remote.expect(Request::Holds { seed: 1, at: 100, len: 1000 }, &Answer::Is(true))
}

fn writes_of_many_sizes_land(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 1 << 20)?;
    for len in [1, 4095, 4096, 4097, 65_536, 300_001, 1 << 20] {
        let buffer = filled(&remote.end, &pattern(7, len))?;
        post(&mut remote.end, Work::write(buffer, remote.region.slice(0..len as u64)?))?;
        remote.end.done(lab)?;
        remote.expect(Request::Holds { seed: 7, at: 0, len }, &Answer::Is(true))?;
    }
    Ok(())
}

fn an_immediate_tells_the_other_process(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 4096)?;
    remote.expect(Request::PostRecv(0), &Answer::Done)?;
    let buffer = filled(&remote.end, &pattern(2, 512))?;
    post(&mut remote.end, Work::write(buffer, remote.region.slice(0..512)?).with_imm(0x1234_5678))?;
    remote.end.done(lab)?;
    let expected = Answer::Completed { bytes: 512, imm: Some(0x1234_5678), data: Vec::new() };
    remote.expect(Request::Wait, &expected)?;
    remote.expect(Request::Holds { seed: 2, at: 0, len: 512 }, &Answer::Is(true))
}

fn a_read_brings_the_other_processes_bytes(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 100_000)?;
    remote.expect(Request::Fill(3), &Answer::Done)?;
    let buffer = remote.end.pd.alloc_local(100_000)?;
    post(&mut remote.end, Work::read(buffer, remote.region))?;
    let completion = remote.end.wait(lab)?;
    check_eq!(completion.result?.opcode, Opcode::Read);
    check!(completion.buffer.is_some_and(|buffer| buffer[..] == pattern(3, 100_000)[..]), "wrong bytes");
    Ok(())
}

fn sends_go_both_ways(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 64)?;
    remote.expect(Request::PostRecv(128), &Answer::Done)?;
    let buffer = filled(&remote.end, &pattern(4, 100))?;
    post(&mut remote.end, Work::send(buffer))?;
    remote.end.done(lab)?;
    remote.expect(Request::Wait, &Answer::Completed { bytes: 100, imm: None, data: pattern(4, 100) })?;
    post_recv(&mut remote.end, 64)?;
    remote.tell(Request::Send { seed: 5, len: 64 })?;
    let completion = remote.end.wait(lab)?;
    check_eq!(completion.result?.bytes, 64);
    check!(completion.buffer.is_some_and(|buffer| buffer[..] == pattern(5, 64)[..]), "wrong bytes");
    check_eq!(remote.answer()?, Answer::Done);
    Ok(())
}

fn a_wrong_key_is_refused(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 64)?;
    remote.expect(Request::PostRecv(8), &Answer::Done)?;
    let buffer = filled(&remote.end, &pattern(6, 64))?;
    post(&mut remote.end, Work::write(buffer, with_key(remote.region, remote.region.rkey.0 ^ 0x5555)))?;
    remote.end.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    check_eq!(remote.end.qp.query_state(&mut remote.end.worker)?, QpState::ERR);
    remote.expect(Request::Wait, &Answer::Failed(CompletionStatus::WR_FLUSH_ERR.0))?;
    remote.expect(Request::Holds { seed: 0, at: 0, len: 0 }, &Answer::Is(true))
}

fn a_range_beyond_the_end_is_refused(lab: &Lab) -> CaseResult {
    let mut remote = Remote::connect(lab, &lab.options(), 8192)?;
    let beyond = RemoteMemory { len: 3 * 8192, ..remote.region };
    let buffer = filled(&remote.end, &pattern(7, 3 * 8192))?;
    post(&mut remote.end, Work::write(buffer, beyond))?;
    remote.end.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    remote.expect(Request::Holds { seed: 0, at: 0, len: 0 }, &Answer::Is(true))
}

fn a_send_without_a_receive_fails(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.retry.rnr_retry = RnrRetry::Times(1);
    let mut remote = Remote::connect(lab, &options, 64)?;
    post(&mut remote.end, Work::send(Segment::Empty))?;
    remote.end.fails_with(lab, CompletionStatus::RNR_RETRY_EXC_ERR)
}

fn a_fenced_peer_does_not_answer(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.retry.retry_cnt = 1;
    options.retry.ack_timeout = rdma_core::AckTimeout::new(16);
    let mut remote = Remote::connect(lab, &options, 64)?;
    remote.expect(Request::Fence, &Answer::Done)?;
    let buffer = filled(&remote.end, &pattern(8, 64))?;
    post(&mut remote.end, Work::write(buffer, remote.region))?;
    remote.end.fails_with(lab, CompletionStatus::RETRY_EXC_ERR)?;
    remote.expect(Request::Holds { seed: 0, at: 0, len: 0 }, &Answer::Is(true))
}

fn no_write_lands_after_the_peer_revoked(lab: &Lab) -> CaseResult {
    for _ in 0..5 {
        let mut remote = Remote::connect(lab, &lab.options(), 64 << 10)?;
        let source = remote.end.pd.alloc_region(64 << 10, crate::cases::helpers::OPEN)?;
        source.copy_in(0, &vec![0x55; 64 << 10])?;
        let attached = remote.end.worker.attach(&source);
        for _ in 0..32 {
            post(&mut remote.end, Work::write(attached.range(0, 64 << 10), remote.region))?;
        }
        remote.end.done(lab)?;
        remote.tell(Request::Revoke)?;
        // Writing goes on until the peer refuses it.
        while remote.end.wait(lab)?.result.is_ok() {
            let again = Work::write(attached.range(0, 64 << 10), remote.region);
            if remote.end.worker.post(&remote.end.qp, again).is_err() {
                std::thread::sleep(A_MOMENT);
            }
        }
        check_eq!(remote.answer()?, Answer::Is(true));
    }
    Ok(())
}
