//! Writes to a peer's memory.

use rdma_core::error::PostError;
use rdma_core::{Opcode, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, write};
use crate::{CaseResult, Lab, check, check_eq};

cases!("write":
    lands_and_tells_the_writer_alone,
    of_nothing_succeeds,
    leaves_the_neighbours_alone,
    unaligned_everywhere,
    of_many_sizes_land,
    overlapping_ones_land_in_order,
    #[exact] lengths_that_differ_are_refused,
    one_source_may_be_written_many_times,
    inline_takes_the_bytes_while_posting,
    #[exact] inline_beyond_the_limit_is_refused,
    to_the_last_byte_of_a_region,
    to_oneself,
);

fn lands_and_tells_the_writer_alone(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(256, OPEN)?;
    let buffer = filled(&left, &pattern(1, 256))?;
    post(&mut left, Work::write(buffer, target.remote()))?;
    let success = left.done(lab)?;
    check_eq!((success.opcode, success.bytes), (Opcode::Write, 256));
    check!(bytes_of(&target)? == pattern(1, 256));
    right.stays_silent()
}

fn of_nothing_succeeds(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    target.copy_in(0, &[9; 8])?;
    post(&mut left, Work::write(Segment::Empty, target.remote().slice(4..4)?))?;
    left.done(lab)?;
    check!(bytes_of(&target)? == [9; 8]);
    Ok(())
}

fn leaves_the_neighbours_alone(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(3 * 4096, OPEN)?;
    target.copy_in(0, &vec![0xaa; target.len()])?;
    for (at, len) in [(1, 1), (100, 7), (4095, 2), (4097, 5000)] {
        write(
            lab,
            &mut left,
            &pattern(at as u64, len),
            target.remote().slice(at as u64..(at + len) as u64)?,
        )?;
        let mut bytes = bytes_of(&target)?;
        check!(bytes[at..at + len] == pattern(at as u64, len)[..], "{len} bytes at {at} are wrong");
        bytes.drain(at..at + len);
        check!(bytes.iter().all(|byte| *byte == 0xaa), "a byte beside {at}..+{len} changed");
        target.copy_in(0, &vec![0xaa; target.len()])?;
    }
    Ok(())
}

fn unaligned_everywhere(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(512, OPEN)?;
    for from in [0, 1, 3, 7] {
        for to in [0_usize, 1, 5, 63] {
            let len = 129;
            let view = filled(&left, &pattern(7, 256))?.slice(from..from + len)?;
            post(&mut left, Work::write(view, target.remote().slice(to as u64..(to + len) as u64)?))?;
            left.done(lab)?;
            check!(
                bytes_of(&target)?[to..to + len] == pattern(7, 256)[from..from + len],
                "from {from} to {to}"
            );
        }
    }
    Ok(())
}

fn of_many_sizes_land(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(4 << 20, OPEN)?;
    for len in [1, 2, 4095, 4096, 4097, 65_536, 262_145, 1 << 20, 4 << 20] {
        write(lab, &mut left, &pattern(len as u64, len), target.remote().slice(0..len as u64)?)?;
        check!(bytes_of(&target)?[..len] == pattern(len as u64, len)[..], "{len} bytes are wrong");
    }
    Ok(())
}

fn overlapping_ones_land_in_order(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    for number in 0..64 {
        let buffer = filled(&left, &[number; 32])?;
        post(&mut left, Work::write(buffer, target.remote().slice(0..32)?))?;
    }
    for _ in 0..64 {
        left.done(lab)?;
    }
    check!(bytes_of(&target)?[..32] == [63; 32], "an older write landed last");
    Ok(())
}

fn lengths_that_differ_are_refused(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let buffer = filled(&left, &pattern(2, 32))?;
    let refused = match left.worker.post(&left.qp, Work::write(buffer, target.remote())) {
        Err(refused) => refused,
        Ok(_) => return Err("32 bytes for a target of 64 were accepted".into()),
    };
    check!(matches!(refused.error, PostError::LengthMismatch { local: 32, remote: 64 }), "{}", refused.error);
    write(lab, &mut left, &pattern(2, 64), target.remote())
}

fn one_source_may_be_written_many_times(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(32 * 16, OPEN)?;
    let source = left.pd.alloc_region(16, OPEN)?;
    source.copy_in(0, &pattern(3, 16))?;
    let source = left.worker.attach(&source);
    for number in 0..32 {
        post(
            &mut left,
            Work::write(source.range(0, 16), target.remote().slice(number * 16..number * 16 + 16)?),
        )?;
    }
    for _ in 0..32 {
        left.done(lab)?;
    }
    check!(bytes_of(&target)?.chunks(16).all(|chunk| chunk == pattern(3, 16)));
    Ok(())
}

fn inline_takes_the_bytes_while_posting(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let source = left.pd.alloc_region(64, OPEN)?;
    source.copy_in(0, &pattern(4, 64))?;
    let attached = left.worker.attach(&source);
    post(&mut left, Work::write(attached.range(0, 64), target.remote()).inline())?;
    source.copy_in(0, &[0; 64])?;
    left.done(lab)?;
    check!(bytes_of(&target)? == pattern(4, 64), "bytes changed after the post");
    Ok(())
}

fn inline_beyond_the_limit_is_refused(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(65, OPEN)?;
    let buffer = filled(&left, &pattern(5, 65))?;
    match left.worker.post(&left.qp, Work::write(buffer, target.remote()).inline()) {
        Err(refused) => {
            check!(
                matches!(refused.error, PostError::InlineTooLong { len: 65, limit: 64 }),
                "{}",
                refused.error
            );
            check!(matches!(refused.work.into_segment(), Segment::Owned(_)), "the buffer is lost");
        }
        Ok(_) => return Err("65 bytes inline were accepted, 64 asked for".into()),
    }
    write(lab, &mut left, &pattern(5, 65), target.remote())
}

fn to_the_last_byte_of_a_region(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(4096, OPEN)?;
    write(lab, &mut left, &[5], target.remote().slice(4095..4096)?)?;
    check_eq!(bytes_of(&target)?[4095], 5);
    Ok(())
}

fn to_oneself(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let options = lab.options();
    let (mut worker, qp) = lab.half(&pd, &options)?;
    let own = lab.endpoint(&worker, &qp)?;
    let qp = lab.connect(&mut worker, qp, &own, &options)?;
    let mut end = crate::End { worker, pd, qp };
    let target = end.pd.alloc_region(128, OPEN)?;
    write(lab, &mut end, &pattern(6, 128), target.remote())?;
    check!(bytes_of(&target)? == pattern(6, 128));
    Ok(())
}
