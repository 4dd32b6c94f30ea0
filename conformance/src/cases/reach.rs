//! Mapped access: memory of a mapped peer is accessed at once; of another peer, that is an error at once.

use rdma_core::error::ReachError;
use rdma_core::{Access, PeerAccess};

use super::cases;
use super::helpers::{OPEN, bytes_of, pattern, with_key, write};
use crate::{CaseResult, Lab, check, check_eq};

cases!("reach":
    brings_bytes_and_flags_where_the_peer_is_mapped,
    keeps_to_the_bounds_and_the_rights,
    ends_with_the_registration,
);

/// Bytes of an access: more than one chunk of 256 KiB, and not a whole number of chunks.
const BYTES: usize = (300 << 10) + 8;

fn brings_bytes_and_flags_where_the_peer_is_mapped(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let (target, bytes) = (right.pd.alloc_region(BYTES, OPEN)?, pattern(1, BYTES - 8));
    let access = left.qp.peer_access(&mut left.worker)?;
    let mut peer = left.worker.peer_slice(&left.qp, target.remote(), lab.soon());
    if access != PeerAccess::Mapped {
        let refused = [peer.ready(), peer.copy_in(8, &bytes), peer.store(0, 1_u64)];
        for refused in refused {
            check!(matches!(refused, Err(ReachError::NotMapped { .. })), "{access}: {refused:?}");
        }
        check!(bytes_of(&target)?.iter().all(|byte| *byte == 0), "something was written");
        return Ok(());
    }
    peer.ready()?;
    peer.copy_in(8, &bytes)?;
    peer.store(0, 7_u64)?;
    check_eq!(target.wait(0, |flag: u64| flag != 0, lab.soon())?, 7);
    check!(bytes_of(&target)?[8..] == bytes);
    let mut sum = 0;
    peer.reduce_from(8, bytes.len(), |_, part| sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>())?;
    check_eq!(sum, bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    target.store(0, 9_u64)?;
    check_eq!(peer.wait(0, |flag: u64| flag > 7)?, 9);
    Ok(())
}

fn keeps_to_the_bounds_and_the_rights(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    if left.qp.peer_access(&mut left.worker)? != PeerAccess::Mapped {
        return Ok(());
    }
    let readable = right.pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    let mut peer = left.worker.peer_slice(&left.qp, readable.remote(), lab.soon());
    let refused = peer.copy_in(0, &[1; 64]);
    check!(matches!(refused, Err(ReachError::AccessDenied)), "{refused:?}");
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (usize::MAX, 2)] {
        let refused = peer.copy_out(offset, &mut vec![0; len]);
        check!(matches!(refused, Err(ReachError::Range(_))), "{len} bytes from {offset}: {refused:?}");
    }
    let foreign = with_key(readable.remote(), readable.rkey().0 ^ 1);
    let refused = left.worker.peer_slice(&left.qp, foreign, lab.soon()).ready();
    check!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
    check!(bytes_of(&readable)?.iter().all(|byte| *byte == 0), "something was written");
    // Neither queue pair has changed its state.
    let target = right.pd.alloc_region(8, OPEN)?;
    write(lab, &mut left, &pattern(2, 8), target.remote())
}

fn ends_with_the_registration(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    if left.qp.peer_access(&mut left.worker)? != PeerAccess::Mapped {
        return Ok(());
    }
    let target = right.pd.alloc_region(64, OPEN)?;
    let mut peer = left.worker.peer_slice(&left.qp, target.remote(), lab.soon());
    peer.copy_in(0, &[1; 64])?;
    let mut memory = target.deregister()?;
    memory.fill(9);
    let refused = [peer.copy_in(0, &[2; 64]), peer.store(0, 3_u32), peer.wait(0, |_: u32| true).map(drop)];
    for refused in refused {
        check!(matches!(refused, Err(ReachError::Revoked)), "{refused:?}");
    }
    check!(memory.iter().all(|byte| *byte == 9), "a byte landed after the deregistration");
    Ok(())
}
