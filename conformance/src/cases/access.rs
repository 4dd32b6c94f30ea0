//! Requests that the peer must refuse because of a wrong key, range or right.

use rdma_core::{Access, CompletionStatus, QpState, RemoteMemory, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, post_recv, with_key, write};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("access":
    #[exact] a_write_with_a_wrong_key,
    #[exact] a_write_beyond_the_end,
    #[exact] a_write_that_begins_before_the_region,
    #[exact] a_range_whose_end_wraps,
    #[exact] a_write_after_deregistration,
    #[exact] a_key_of_another_domain,
    #[exact] a_write_to_a_region_for_reading,
    #[exact] a_read_of_a_region_for_writing,
    #[exact] a_read_beyond_the_end,
    #[exact] a_read_with_a_wrong_key,
    #[exact] a_write_through_a_queue_pair_for_reading,
    #[exact] a_read_through_a_queue_pair_for_writing,
    #[exact] both_queue_pairs_end_in_err,
    #[exact] later_requests_are_flushed,
    #[exact] receives_of_the_peer_are_flushed,
    a_refused_write_changes_nothing,
    other_connections_go_on,
    refusals_are_counted_at_the_target,
);

/// Writes `len` bytes from `left` to `to`, which the peer must refuse.
pub(crate) fn refused_write(lab: &Lab, left: &mut End, to: RemoteMemory) -> CaseResult {
    let buffer = filled(left, &pattern(9, to.len as usize))?;
    post(left, Work::write(buffer, to))?;
    left.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)
}

pub(crate) fn refused_read(
    lab: &Lab,
    left: &mut End,
    from: RemoteMemory,
    status: CompletionStatus,
) -> CaseResult {
    let buffer = filled(left, &vec![0x11; from.len as usize])?;
    post(left, Work::read(buffer, from))?;
    let completion = left.wait(lab)?;
    check_eq!(completion.result.err().map(|failure| failure.status), Some(status));
    check!(
        completion.buffer.is_some_and(|buffer| buffer.iter().all(|byte| *byte == 0x11)),
        "the buffer of a refused read changed"
    );
    Ok(())
}

fn a_write_with_a_wrong_key(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_write(lab, &mut left, with_key(target.remote(), target.rkey().0 ^ 0x5555))?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_write_beyond_the_end(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_write(lab, &mut left, RemoteMemory { len: 65, ..target.remote() })?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_write_that_begins_before_the_region(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let remote = target.remote();
    refused_write(lab, &mut left, RemoteMemory { addr: remote.addr - 1, ..remote })?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_range_whose_end_wraps(lab: &Lab) -> CaseResult {
    for back in [1, 8, 63] {
        let (mut left, right) = lab.pair()?;
        let target = right.pd.alloc_region(64, OPEN)?;
        refused_write(lab, &mut left, RemoteMemory { addr: u64::MAX - back + 1, ..target.remote() })?;
        check!(bytes_of(&target)? == [0; 64]);
    }
    Ok(())
}

fn a_write_after_deregistration(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let remote = target.remote();
    write(lab, &mut left, &[3; 64], remote)?;
    let memory = target.deregister()?;
    refused_write(lab, &mut left, remote)?;
    check!(memory[..] == [3; 64], "a write landed after deregistration");
    Ok(())
}

fn a_key_of_another_domain(lab: &Lab) -> CaseResult {
    let (mut left, _right) = lab.pair()?;
    let target = lab.context.alloc_pd()?.alloc_region(64, OPEN)?;
    refused_write(lab, &mut left, target.remote())?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_write_to_a_region_for_reading(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    refused_write(lab, &mut left, target.remote())?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_read_of_a_region_for_writing(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    refused_read(lab, &mut left, target.remote(), CompletionStatus::REM_ACCESS_ERR)
}

fn a_read_beyond_the_end(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_read(
        lab,
        &mut left,
        RemoteMemory { len: 128, ..target.remote() },
        CompletionStatus::REM_ACCESS_ERR,
    )
}

fn a_read_with_a_wrong_key(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let wrong = with_key(target.remote(), target.rkey().0 ^ 0x5555);
    refused_read(lab, &mut left, wrong, CompletionStatus::REM_ACCESS_ERR)
}

fn a_write_through_a_queue_pair_for_reading(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.access = Access::REMOTE_READ;
    let (mut left, right) = lab.pair_with(&options)?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let buffer = filled(&left, &pattern(1, 64))?;
    post(&mut left, Work::write(buffer, target.remote()))?;
    left.fails_with(lab, CompletionStatus::REM_INV_REQ_ERR)?;
    check!(bytes_of(&target)? == [0; 64]);
    Ok(())
}

fn a_read_through_a_queue_pair_for_writing(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.access = Access::REMOTE_WRITE;
    let (mut left, right) = lab.pair_with(&options)?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_read(lab, &mut left, target.remote(), CompletionStatus::REM_INV_REQ_ERR)
}

fn both_queue_pairs_end_in_err(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_write(lab, &mut left, with_key(target.remote(), target.rkey().0 ^ 0x5555))?;
    check_eq!(left.qp.query_state(&mut left.worker)?, QpState::ERR);
    check_eq!(right.qp.query_state(&mut right.worker)?, QpState::ERR);
    Ok(())
}

fn later_requests_are_flushed(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    refused_write(lab, &mut left, with_key(target.remote(), target.rkey().0 ^ 0x5555))?;
    for _ in 0..3 {
        let buffer = filled(&left, &pattern(1, 64))?;
        post(&mut left, Work::write(buffer, target.remote()))?;
        left.fails_with(lab, CompletionStatus::WR_FLUSH_ERR)?;
    }
    check!(bytes_of(&target)? == [0; 64], "a flushed write landed");
    Ok(())
}

fn receives_of_the_peer_are_flushed(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    for _ in 0..3 {
        post_recv(&mut right, 16)?;
    }
    refused_write(lab, &mut left, with_key(target.remote(), target.rkey().0 ^ 0x5555))?;
    for _ in 0..3 {
        right.fails_with(lab, CompletionStatus::WR_FLUSH_ERR)?;
    }
    right.stays_silent()
}

fn a_refused_write_changes_nothing(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(3 * 4096, OPEN)?;
    target.copy_in(0, &pattern(2, target.len()))?;
    // The range begins inside the region and ends two pages beyond.
    let remote = target.remote();
    refused_write(
        lab,
        &mut left,
        RemoteMemory { addr: remote.addr + 4096, len: 4 * 4096, rkey: remote.rkey },
    )?;
    let bytes = bytes_of(&target)?;
    check!(bytes[..4096] == pattern(2, target.len())[..4096], "bytes before the range changed");
    check!(bytes == pattern(2, target.len()), "part of a refused write landed");
    Ok(())
}

fn other_connections_go_on(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let (mut third, fourth) = lab.pair()?;
    let (target, other) = (right.pd.alloc_region(64, OPEN)?, fourth.pd.alloc_region(64, OPEN)?);
    refused_write(lab, &mut left, with_key(target.remote(), target.rkey().0 ^ 0x5555))?;
    write(lab, &mut third, &pattern(3, 64), other.remote())?;
    check!(bytes_of(&other)? == pattern(3, 64));
    Ok(())
}

/// Several writes that are refused, each on a connection of its own, because a refusal ends it.
fn refusals_are_counted_at_the_target(lab: &Lab) -> CaseResult {
    let Some(before) = lab.context.refused_requests()? else {
        check!(!lab.context.is_soft(), "the software device counts");
        return Ok(());
    };
    for round in 1..4 {
        let (mut left, right) = lab.pair()?;
        let target = right.pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        // A request that is granted does not count.
        let own = left.pd.alloc_local(64)?;
        post(&mut left, Work::read(own, target.remote()))?;
        left.done(lab)?;
        check_eq!(lab.context.refused_requests()?, Some(before + round - 1));
        refused_write(lab, &mut left, target.remote())?;
        // On the mapped wire the target looks into its mailbox a moment later.
        let deadline = lab.soon();
        while lab.context.refused_requests()? != Some(before + round) {
            check!(!deadline.expired(), "{:?} after {before}", lab.context.refused_requests()?);
            std::thread::yield_now();
        }
    }
    Ok(())
}
