//! Memory of a peer reached at once, without a request: by the mapped wire, and inside this process.

#![expect(unsafe_code, reason = "copies between memory of the caller and of a peer in this process")]

use super::engine::keys::KeyRefusal;
use super::engine::state::State as QpStep;
use super::fabric::State;
use super::qp::Carrier;
use super::wire::QpRef;
use crate::PeerAccess;
use crate::backend::interface::{RawReach, RawTouch, Reached};
use crate::error::ReachError;
use crate::memory::{copy_expecting, flag};

impl State {
    /// Reaches into the memory of the peer of `id`.
    ///
    /// # Safety
    ///
    /// As for [`reach`](crate::backend::interface::RawWorker::reach).
    pub(super) unsafe fn reach(&mut self, id: QpRef, reach: &RawReach) -> Result<Reached, ReachError> {
        let Some(qp) = self.qps.get(id) else { return Err(ReachError::PeerGone) };
        if qp.state == QpStep::Error {
            return Err(ReachError::Failed { qp_num: qp.num });
        }
        match qp.carrier {
            Carrier::Tcp => Err(ReachError::NotMapped { access: PeerAccess::Stream }),
            _ if !self.is_up(id) => Ok(Reached::NotYet),
            // SAFETY: the caller's promise.
            Carrier::Mapped => unsafe { self.reach_mapped(id, reach) },
            // SAFETY: the caller's promise.
            Carrier::Local => unsafe { self.reach_local(id, reach) },
        }
    }

    /// # Safety
    ///
    /// As for [`reach`](Self::reach).
    unsafe fn reach_local(&mut self, id: QpRef, reach: &RawReach) -> Result<Reached, ReachError> {
        let Some(to) = self.peer_of(id) else {
            // One that was there once does not come again.
            let found = self.qps.get(id).and_then(|qp| qp.peer?.found);
            let gone =
                found.is_some_and(|found| self.qps.get(found).is_none_or(|qp| qp.state == QpStep::Error));
            return if gone { Err(ReachError::PeerGone) } else { Ok(Reached::NotYet) };
        };
        let (needs, RawReach { remote_addr, len, rkey, touch }) = (reach.touch.needs(), *reach);
        let Some(qp) = self.qps.get(to) else { return Err(ReachError::PeerGone) };
        let Some(device) = self.devices.get(qp.device) else { return Err(ReachError::PeerGone) };
        if !qp.access.contains(needs) {
            return Err(refused(KeyRefusal::AccessDenied));
        }
        let registered = device.keys.check(rkey, qp.domain, remote_addr, len, needs).map_err(refused)?;
        if let RawTouch::Look = touch {
            registered.check_any(qp.domain, remote_addr, len).map_err(refused)?;
            return Ok(Reached::Done(0));
        }
        let at = std::ptr::with_exposed_provenance_mut::<u8>(remote_addr as usize);
        // SAFETY: what is ours by the caller's promise, and aligned; what is the peer's was checked against a registration
        // in this same hold of the lock, and stays until a deregistration, which needs it.
        unsafe {
            match touch {
                RawTouch::Look => {}
                RawTouch::Write { from, expect } => {
                    copy_expecting(
                        std::ptr::with_exposed_provenance(from as usize),
                        at,
                        len as usize,
                        expect,
                    );
                }
                RawTouch::Read { to, expect } => {
                    copy_expecting(
                        at,
                        std::ptr::with_exposed_provenance_mut(to as usize),
                        len as usize,
                        expect,
                    );
                }
                RawTouch::Store { bits } => flag::store(at, len as u32, bits),
                RawTouch::Load => return Ok(Reached::Done(flag::load(at, len as u32))),
            }
        }
        Ok(Reached::Done(0))
    }
}

pub(super) fn refused(refusal: KeyRefusal) -> ReachError {
    match refusal {
        KeyRefusal::Unknown => ReachError::Revoked,
        KeyRefusal::ForeignDomain => ReachError::ForeignDomain,
        KeyRefusal::OutOfRange => ReachError::OutOfRange,
        KeyRefusal::AccessDenied => ReachError::AccessDenied,
    }
}
