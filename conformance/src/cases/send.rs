//! Sends into posted receives.

use rdma_core::{CompletionStatus, Opcode, QpState, Segment, Work};

use super::cases;
use super::helpers::{filled, pattern, post, post_recv};
use crate::{CaseResult, Lab, check, check_eq};

cases!("send":
    arrives_with_its_bytes,
    carries_an_immediate,
    every_immediate_arrives_as_it_was,
    of_nothing_arrives,
    into_a_larger_receive_leaves_the_rest,
    #[exact] longer_than_the_receive_fails_on_both_sides,
    #[exact] into_a_receive_of_nothing_fails,
    arrive_in_order,
    of_many_sizes_arrive,
    go_both_ways_at_once,
    views_send_just_themselves,
    attached_ranges_send_and_receive,
);

fn arrives_with_its_bytes(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 100)?;
    let id = left
        .worker
        .post(&left.qp, Work::send(filled(&left, &pattern(1, 100))?))
        .map_err(|refused| refused.error)?;
    let sent = left.wait(lab)?;
    check_eq!((sent.id, sent.qp_num), (id, left.qp.num()));
    check!(
        sent.buffer.is_some_and(|buffer| buffer[..] == pattern(1, 100)[..]),
        "the sent buffer came back changed"
    );
    check_eq!(sent.result?.opcode, Opcode::Send);
    let received = right.wait(lab)?;
    let success = received.result?;
    check_eq!((success.opcode, success.bytes, success.imm), (Opcode::Recv, 100, None));
    check!(received.buffer.is_some_and(|buffer| buffer[..] == pattern(1, 100)[..]), "wrong bytes");
    Ok(())
}

fn carries_an_immediate(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 8)?;
    let buffer = filled(&left, &pattern(2, 8))?;
    post(&mut left, Work::send(buffer).with_imm(0x0102_0304))?;
    left.done(lab)?;
    let success = right.done(lab)?;
    check_eq!((success.opcode, success.bytes, success.imm), (Opcode::Recv, 8, Some(0x0102_0304)));
    Ok(())
}

fn every_immediate_arrives_as_it_was(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for imm in [0, 1, 0x8000_0000, u32::MAX, 0x00ff_ff00] {
        post_recv(&mut right, 0)?;
        post(&mut left, Work::send(Segment::Empty).with_imm(imm))?;
        left.done(lab)?;
        check_eq!(right.done(lab)?.imm, Some(imm));
    }
    Ok(())
}

fn of_nothing_arrives(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for len in [0, 16] {
        post_recv(&mut right, len)?;
        post(&mut left, Work::send(Segment::Empty))?;
        left.done(lab)?;
        let success = right.done(lab)?;
        check_eq!((success.opcode, success.bytes), (Opcode::Recv, 0));
    }
    Ok(())
}

fn into_a_larger_receive_leaves_the_rest(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let receive = filled(&right, &[0xee; 64])?;
    right.worker.post_recv(&right.qp, receive).map_err(|refused| refused.error)?;
    let buffer = filled(&left, &pattern(3, 10))?;
    post(&mut left, Work::send(buffer))?;
    let received = right.wait(lab)?;
    check_eq!(received.result?.bytes, 10);
    let buffer = received.buffer.ok_or("no buffer")?;
    check!(
        buffer[..10] == pattern(3, 10)[..] && buffer[10..] == [0xee; 54],
        "bytes beyond the message changed"
    );
    Ok(())
}

fn longer_than_the_receive_fails_on_both_sides(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 8)?;
    let buffer = filled(&left, &pattern(4, 9))?;
    post(&mut left, Work::send(buffer))?;
    left.fails_with(lab, CompletionStatus::REM_INV_REQ_ERR)?;
    right.fails_with(lab, CompletionStatus::LOC_LEN_ERR)?;
    check_eq!(left.qp.query_state(&mut left.worker)?, QpState::ERR);
    check_eq!(right.qp.query_state(&mut right.worker)?, QpState::ERR);
    Ok(())
}

fn into_a_receive_of_nothing_fails(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 0)?;
    let buffer = filled(&left, &[1])?;
    post(&mut left, Work::send(buffer))?;
    left.fails_with(lab, CompletionStatus::REM_INV_REQ_ERR)?;
    right.fails_with(lab, CompletionStatus::LOC_LEN_ERR)
}

fn arrive_in_order(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for round in 0..4_u32 {
        for _ in 0..64 {
            post_recv(&mut right, 4)?;
        }
        for number in 0..64 {
            let buffer = filled(&left, &(round * 64 + number).to_le_bytes())?;
            post(&mut left, Work::send(buffer))?;
        }
        for number in 0..64 {
            left.done(lab)?;
            let received = right.wait(lab)?;
            received.result?;
            let buffer = received.buffer.ok_or("no buffer")?;
            check_eq!(buffer[..], (round * 64 + number).to_le_bytes()[..]);
        }
    }
    Ok(())
}

fn of_many_sizes_arrive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for len in [1, 255, 256, 257, 4095, 4096, 4097, 65_536, 1 << 20, (1 << 20) + 1] {
        post_recv(&mut right, len)?;
        let buffer = filled(&left, &pattern(len as u64, len))?;
        post(&mut left, Work::send(buffer))?;
        left.done(lab)?;
        let received = right.wait(lab)?;
        check_eq!(received.result?.bytes as usize, len);
        check!(
            received.buffer.is_some_and(|buffer| buffer[..] == pattern(len as u64, len)[..]),
            "{len} bytes are wrong"
        );
    }
    Ok(())
}

fn go_both_ways_at_once(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    for end in [&mut left, &mut right] {
        for _ in 0..32 {
            post_recv(end, 512)?;
        }
    }
    for number in 0..32 {
        for end in [&mut left, &mut right] {
            let buffer = filled(end, &pattern(number, 512))?;
            post(end, Work::send(buffer))?;
        }
    }
    for end in [&mut left, &mut right] {
        let (mut sent, mut received) = (0, 0);
        while sent + received < 64 {
            let completion = end.wait(lab)?;
            if completion.result?.opcode == Opcode::Send {
                sent += 1;
            } else {
                let right_bytes =
                    completion.buffer.is_some_and(|buffer| buffer[..] == pattern(received, 512)[..]);
                check!(right_bytes, "message {received} is wrong");
                received += 1;
            }
        }
        check_eq!((sent, received), (32, 32));
    }
    Ok(())
}

fn views_send_just_themselves(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 64)?;
    let view = filled(&left, &pattern(5, 64))?.slice(10..30)?;
    post(&mut left, Work::send(view))?;
    let sent = left.wait(lab)?;
    check!(
        sent.buffer.is_some_and(|buffer| buffer.len() == 20 && buffer.whole().len() == 64),
        "the view is lost"
    );
    let received = right.wait(lab)?;
    check_eq!(received.result?.bytes, 20);
    check!(received.buffer.is_some_and(|buffer| buffer[..20] == pattern(5, 64)[10..30]));
    Ok(())
}

fn attached_ranges_send_and_receive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let (from, to) =
        (left.pd.alloc_region(64, super::helpers::OPEN)?, right.pd.alloc_region(64, super::helpers::OPEN)?);
    from.copy_in(0, &pattern(6, 64))?;
    let (source, target) = (left.worker.attach(&from), right.worker.attach(&to));
    right.worker.post_recv(&right.qp, target.range(8, 16)).map_err(|refused| refused.error)?;
    post(&mut left, Work::send(source.range(32, 16)))?;
    left.done(lab)?;
    check_eq!(right.done(lab)?.bytes, 16);
    let mut expected = vec![0; 64];
    expected[8..24].copy_from_slice(&pattern(6, 64)[32..48]);
    check!(super::helpers::bytes_of(&to)? == expected, "wrong bytes, or bytes beside the range changed");
    Ok(())
}
