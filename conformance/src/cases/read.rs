//! Reads of a peer's memory.

use rdma_core::error::PostError;
use rdma_core::{Access, Opcode, Region, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, write};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("read":
    brings_the_bytes,
    of_nothing_succeeds,
    of_many_sizes,
    sees_the_write_before_it,
    more_than_may_be_outstanding,
    leaves_the_neighbours_alone,
    into_an_attached_range,
    #[exact] into_memory_without_local_write_is_refused,
    tells_the_peer_nothing,
);

fn source(right: &End, seed: u64, len: usize) -> super::helpers::Result<Region> {
    let region = right.pd.alloc_region(len, OPEN)?;
    region.copy_in(0, &pattern(seed, len))?;
    Ok(region)
}

fn brings_the_bytes(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 1, 300)?;
    let buffer = left.pd.alloc_local(300)?;
    post(&mut left, Work::read(buffer, from.remote()))?;
    let completion = left.wait(lab)?;
    let success = completion.result?;
    check_eq!((success.opcode, success.bytes), (Opcode::Read, 300));
    check!(completion.buffer.is_some_and(|buffer| buffer[..] == pattern(1, 300)[..]));
    Ok(())
}

fn of_nothing_succeeds(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 1, 8)?;
    post(&mut left, Work::read(Segment::Empty, from.remote().slice(3..3)?))?;
    check_eq!(left.done(lab)?.opcode, Opcode::Read);
    Ok(())
}

fn of_many_sizes(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 2, 1 << 20)?;
    for len in [1, 4095, 4096, 4097, 65_536, 262_145, 1 << 20] {
        let buffer = left.pd.alloc_local(len)?;
        post(&mut left, Work::read(buffer, from.remote().slice(0..len as u64)?))?;
        let completion = left.wait(lab)?;
        completion.result?;
        check!(
            completion.buffer.is_some_and(|buffer| buffer[..] == pattern(2, 1 << 20)[..len]),
            "{len} bytes are wrong"
        );
    }
    Ok(())
}

fn sees_the_write_before_it(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    for number in 0..16 {
        let (out, back) = (filled(&left, &[number; 64])?, left.pd.alloc_local(64)?);
        post(&mut left, Work::write(out, target.remote()))?;
        post(&mut left, Work::read(back, target.remote()))?;
        left.done(lab)?;
        let completion = left.wait(lab)?;
        completion.result?;
        check!(
            completion.buffer.is_some_and(|buffer| buffer[..] == [number; 64]),
            "the read overtook the write"
        );
    }
    Ok(())
}

fn more_than_may_be_outstanding(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 3, 100 * 64)?;
    for number in 0..100 {
        let buffer = left.pd.alloc_local(64)?;
        post(&mut left, Work::read(buffer, from.remote().slice(number * 64..number * 64 + 64)?))?;
    }
    for number in 0..100 {
        let completion = left.wait(lab)?;
        completion.result?;
        let expected = &pattern(3, 100 * 64)[number * 64..number * 64 + 64];
        check!(completion.buffer.is_some_and(|buffer| buffer[..] == *expected), "read {number} is wrong");
    }
    Ok(())
}

fn leaves_the_neighbours_alone(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 4, 100)?;
    let view = filled(&left, &[0xbb; 200])?.slice(50..150)?;
    post(&mut left, Work::read(view, from.remote()))?;
    let completion = left.wait(lab)?;
    completion.result?;
    let whole = completion.buffer.ok_or("no buffer")?.whole();
    check!(whole[50..150] == pattern(4, 100)[..]);
    check!(whole[..50] == [0xbb; 50] && whole[150..] == [0xbb; 50], "bytes beside the view changed");
    Ok(())
}

fn into_an_attached_range(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 5, 16)?;
    let into = left.pd.alloc_region(64, OPEN)?;
    let attached = left.worker.attach(&into);
    post(&mut left, Work::read(attached.range(40, 16), from.remote()))?;
    left.done(lab)?;
    let mut expected = vec![0; 64];
    expected[40..56].copy_from_slice(&pattern(5, 16));
    check!(bytes_of(&into)? == expected);
    Ok(())
}

fn into_memory_without_local_write_is_refused(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let from = source(&right, 6, 16)?;
    let into = left.pd.alloc_region(16, Access::REMOTE_READ)?;
    let attached = left.worker.attach(&into);
    match left.worker.post(&left.qp, Work::read(attached.range(0, 16), from.remote())) {
        Err(refused) => check!(matches!(refused.error, PostError::AccessDenied), "{}", refused.error),
        Ok(_) => return Err("a read into memory without LOCAL_WRITE was accepted".into()),
    }
    write(lab, &mut left, &pattern(7, 16), from.remote())
}

fn tells_the_peer_nothing(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let from = source(&right, 8, 16)?;
    super::helpers::post_recv(&mut right, 16)?;
    let buffer = left.pd.alloc_local(16)?;
    post(&mut left, Work::read(buffer, from.remote()))?;
    left.done(lab)?;
    right.stays_silent()
}
