//! Writes with an immediate.

use rdma_core::{CompletionStatus, Opcode, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, post_recv};
use crate::{CaseResult, Lab, check, check_eq};

cases!("write_imm":
    lands_and_tells_the_peer,
    takes_one_receive_and_leaves_its_buffer,
    of_nothing_carries_the_immediate,
    arrive_in_order_with_their_bytes,
    interleave_with_sends_in_order,
    #[exact] to_a_wrong_key_takes_no_receive,
);

fn lands_and_tells_the_peer(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(1000, OPEN)?;
    post_recv(&mut right, 0)?;
    let buffer = filled(&left, &pattern(1, 1000))?;
    post(&mut left, Work::write(buffer, target.remote()).with_imm(0xdead_beef))?;
    check_eq!(left.done(lab)?.opcode, Opcode::Write);
    let success = right.done(lab)?;
    check_eq!((success.opcode, success.bytes, success.imm), (Opcode::RecvWriteImm, 1000, Some(0xdead_beef)));
    check!(bytes_of(&target)? == pattern(1, 1000));
    Ok(())
}

fn takes_one_receive_and_leaves_its_buffer(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(16, OPEN)?;
    let receive = filled(&right, &[0x77; 32])?;
    right.worker.post_recv(&right.qp, receive).map_err(|refused| refused.error)?;
    let buffer = filled(&left, &pattern(2, 16))?;
    post(&mut left, Work::write(buffer, target.remote()).with_imm(1))?;
    let received = right.wait(lab)?;
    check_eq!(received.result?.opcode, Opcode::RecvWriteImm);
    check!(
        received.buffer.is_some_and(|buffer| buffer[..] == [0x77; 32]),
        "the receive's buffer was touched"
    );
    Ok(())
}

fn of_nothing_carries_the_immediate(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(16, OPEN)?;
    for imm in [0, u32::MAX, 0x0a0b_0c0d] {
        post_recv(&mut right, 0)?;
        post(&mut left, Work::write(Segment::Empty, target.remote().slice(0..0)?).with_imm(imm))?;
        left.done(lab)?;
        let success = right.done(lab)?;
        check_eq!((success.opcode, success.bytes, success.imm), (Opcode::RecvWriteImm, 0, Some(imm)));
    }
    Ok(())
}

fn arrive_in_order_with_their_bytes(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(64 * 8, OPEN)?;
    for _ in 0..64 {
        post_recv(&mut right, 0)?;
    }
    for number in 0..64_u32 {
        let (at, buffer) = (u64::from(number) * 8, filled(&left, &pattern(number.into(), 8))?);
        post(&mut left, Work::write(buffer, target.remote().slice(at..at + 8)?).with_imm(number))?;
    }
    for number in 0..64 {
        check_eq!(right.done(lab)?.imm, Some(number));
        let at = number as usize * 8;
        check!(
            bytes_of(&target)?[at..at + 8] == pattern(number.into(), 8)[..],
            "immediate {number} came before its bytes"
        );
    }
    Ok(())
}

fn interleave_with_sends_in_order(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    for _ in 0..20 {
        post_recv(&mut right, 8)?;
    }
    for number in 0..10 {
        let (first, second) = (filled(&left, &pattern(1, 8))?, filled(&left, &pattern(2, 8))?);
        post(&mut left, Work::write(first, target.remote()).with_imm(2 * number))?;
        post(&mut left, Work::send(second).with_imm(2 * number + 1))?;
    }
    for number in 0..20 {
        let success = right.done(lab)?;
        let opcode = if number % 2 == 0 { Opcode::RecvWriteImm } else { Opcode::Recv };
        check_eq!((success.opcode, success.imm), (opcode, Some(number)));
    }
    Ok(())
}

fn to_a_wrong_key_takes_no_receive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    post_recv(&mut right, 8)?;
    let buffer = filled(&left, &pattern(3, 8))?;
    let wrong = super::helpers::with_key(target.remote(), target.rkey().0 ^ 0x5555);
    post(&mut left, Work::write(buffer, wrong).with_imm(1))?;
    left.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    // The write must not consume the receive, so the receive is flushed with the queue pair.
    right.fails_with(lab, CompletionStatus::WR_FLUSH_ERR)?;
    right.stays_silent()
}
