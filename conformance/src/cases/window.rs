//! Windows: mapped where the peer is mapped, an error at once where it is not, and closed to requests everywhere.

use rdma_core::error::ReachError;
use rdma_core::{CompletionStatus, PeerAccess, Work};

use super::cases;
use super::helpers::{OPEN, filled, pattern, post};
use crate::{CaseResult, Lab, check, check_eq};

cases!("window":
    brings_bytes_and_flags_where_the_peer_is_mapped,
    #[exact] is_closed_to_requests,
    of_one_that_is_gone_nothing_is_mapped,
);

const BYTES: usize = 8192;

fn brings_bytes_and_flags_where_the_peer_is_mapped(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let (window, bytes) = (right.pd.alloc_window(BYTES)?, pattern(1, BYTES - 64));
    let mapped = left.worker.peer_window(&left.qp, window.remote(), lab.soon());
    if left.qp.peer_access(&mut left.worker)? != PeerAccess::Mapped {
        check!(matches!(mapped, Err(ReachError::NotMapped { .. })), "{mapped:?}");
        return Ok(());
    }
    let theirs = mapped?;
    theirs.copy_in(64, &bytes)?;
    theirs.store(0, 7_u64)?;
    check_eq!(window.wait(0, |flag: u64| flag != 0, lab.soon())?, 7);
    let mut found = vec![0; bytes.len()];
    window.copy_out(64, &mut found)?;
    check!(found == bytes);
    window.store(8, 9_u32)?;
    check_eq!(theirs.load::<u32>(8)?, 9);
    let region = right.pd.alloc_region(64, OPEN)?;
    let refused = left.worker.peer_window(&left.qp, region.remote(), lab.soon());
    check!(matches!(refused, Err(ReachError::AccessDenied)), "{refused:?}");
    Ok(())
}

fn is_closed_to_requests(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let window = right.pd.alloc_window(64)?;
    let buffer = filled(&left, &pattern(2, 64))?;
    post(&mut left, Work::write(buffer, window.remote()))?;
    left.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    let mut found = [0; 64];
    window.copy_out(0, &mut found)?;
    check_eq!(found, [0; 64]);
    Ok(())
}

fn of_one_that_is_gone_nothing_is_mapped(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    if left.qp.peer_access(&mut left.worker)? != PeerAccess::Mapped {
        return Ok(());
    }
    let window = right.pd.alloc_window(64)?;
    let remote = window.remote();
    let theirs = left.worker.peer_window(&left.qp, remote, lab.soon())?;
    drop(window);
    let refused = left.worker.peer_window(&left.qp, remote, lab.soon());
    check!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
    theirs.copy_in(0, &[1; 64])?;
    Ok(())
}
