//! Mapped access: touches memory of a peer at once, without a request; on the mapped wire and inside this process.

#![expect(unsafe_code, reason = "copies between memory of the caller and of a peer in this process")]

use super::engine::keys::KeyRefusal;
use super::fabric::{DeviceState, State};
use super::qp::{Carrier, QueuePair};
use super::wire::QpRef;
use crate::backend::interface::{MappedAccess, MappedOp, MappedOutcome};
use crate::error::ReachError;
use crate::memory::{PeerWindow, copy_shared_hinted, flag};
use crate::{Access, PeerAccess, QpState, RemoteMemory};

impl State {
    /// Accesses memory of the peer of `id`.
    ///
    /// # Safety
    ///
    /// The local range is as [`access_mapped`](crate::backend::interface::RawWorker::access_mapped) asks.
    pub(super) unsafe fn access_mapped(
        &mut self,
        id: QpRef,
        access: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        match self.mapping_carrier(id)? {
            None => Ok(MappedOutcome::NotYet),
            // SAFETY: the caller vouches for the local range; the wire checks the peer's, so both are valid.
            Some(Carrier::Mapped) => unsafe { self.access_mapped_wire(id, access) },
            // SAFETY: the caller vouches for the local range; `access_local` checks the peer's, so both are valid.
            Some(_) => unsafe { self.access_local(id, access) },
        }
    }

    /// Returns a window of the peer of `id`, once it is mapped.
    pub(super) fn window(
        &mut self,
        id: QpRef,
        memory: RemoteMemory,
    ) -> Result<Option<PeerWindow>, ReachError> {
        match self.mapping_carrier(id)? {
            None => Ok(None),
            Some(Carrier::Mapped) => self.window_mapped(id, memory),
            Some(_) => self.window_local(id, memory),
        }
    }

    /// The wire by which the memory of the peer of `id` is mapped: the mapped or the local one. `None` while the queue
    /// pair is silent.
    fn mapping_carrier(&self, id: QpRef) -> Result<Option<Carrier>, ReachError> {
        let qp = self.qps.get(id).ok_or(ReachError::PeerGone)?;
        match qp.carrier {
            _ if qp.state == QpState::ERR => Err(ReachError::Failed { qp_num: qp.num }),
            Carrier::Tcp => Err(ReachError::NotMapped { access: PeerAccess::Stream }),
            carrier => Ok(self.is_up(id).then_some(carrier)),
        }
    }

    /// Returns a window of a peer inside this process, which needs no mapping: both ends use the same pages.
    fn window_local(&mut self, id: QpRef, memory: RemoteMemory) -> Result<Option<PeerWindow>, ReachError> {
        let Some((qp, device)) = self.local_peer(id)? else { return Ok(None) };
        if !qp.access.contains(Access::WINDOW_BY) {
            return Err(ReachError::AccessDenied);
        }
        let RemoteMemory { addr, len, rkey } = memory;
        let registered = device.keys.check(rkey.0, qp.domain, addr, len, Access::WINDOW)?;
        let (window, offset) = (registered.addr as usize, (addr - registered.addr) as usize);
        PeerWindow::local(window, offset, len as usize).map(Some).ok_or(ReachError::Revoked)
    }

    /// Returns the peer of `id` inside this process, with its device; `None` when it is not connected yet.
    fn local_peer(&mut self, id: QpRef) -> Result<Option<(&QueuePair, &DeviceState)>, ReachError> {
        let Some(to) = self.peer_of(id) else {
            // A peer that was there once and is gone does not come back under the same number.
            let found = self.qps.get(id).and_then(|qp| qp.peer?.found);
            let is_gone = |found| self.qps.get(found).is_none_or(|qp| qp.state == QpState::ERR);
            return if found.is_some_and(is_gone) { Err(ReachError::PeerGone) } else { Ok(None) };
        };
        let qp = self.qps.get(to).ok_or(ReachError::PeerGone)?;
        let device = self.devices.get(qp.device).ok_or(ReachError::PeerGone)?;
        Ok(Some((qp, device)))
    }

    /// # Safety
    ///
    /// The local range is as [`access_mapped`](Self::access_mapped) asks.
    unsafe fn access_local(&mut self, id: QpRef, access: &MappedAccess) -> Result<MappedOutcome, ReachError> {
        let Some((qp, device)) = self.local_peer(id)? else { return Ok(MappedOutcome::NotYet) };
        let (needs, MappedAccess { remote_addr, len, rkey, op }) = (access.op.needs(), *access);
        if !qp.access.contains(needs) {
            return Err(ReachError::AccessDenied);
        }
        let registered = device.keys.check(rkey, qp.domain, remote_addr, len, needs)?;
        if let MappedOp::Probe = op {
            registered.check_any(qp.domain, remote_addr, len)?;
            return Ok(MappedOutcome::Done(0));
        }
        let at = std::ptr::with_exposed_provenance_mut::<u8>(remote_addr as usize);
        // SAFETY: the caller vouches for the local range and for the alignment of a flag. The peer's range was just
        // checked against a registration, which only a deregistration ends, and that needs the lock held here.
        Ok(MappedOutcome::Done(unsafe { perform_at(at, len as u32, op) }))
    }
}

/// Performs an operation on the `len` peer bytes at `at`. Returns the loaded flag, 0 for other operations.
///
/// # Safety
///
/// The peer bytes are mapped for the whole call, and writable unless the operation only reads. So are the `len` local
/// bytes, where the operation has some. No reference to bytes that others may write is used. A flag has 4 or 8 bytes
/// and is aligned. The work of an in-place operation is alive, and nothing else uses it.
#[inline]
pub(super) unsafe fn perform_at(at: *mut u8, len: u32, op: MappedOp) -> u64 {
    // SAFETY: the caller promises valid ranges of `len` bytes, an aligned flag, and live unaliased work, so each call
    // has what it asks for.
    unsafe {
        match op {
            MappedOp::Probe => {}
            MappedOp::Write { from, hint } => {
                copy_shared_hinted(std::ptr::with_exposed_provenance(from as usize), at, len as usize, hint);
            }
            MappedOp::Read { to, hint } => {
                copy_shared_hinted(
                    at,
                    std::ptr::with_exposed_provenance_mut(to as usize),
                    len as usize,
                    hint,
                );
            }
            MappedOp::Store { bits } => flag::store(at, len, bits),
            MappedOp::Load => return flag::load(at, len),
            MappedOp::InPlace { run, work, begin, .. } => run(work, at, begin..begin + len as usize),
        }
    }
    0
}

impl From<KeyRefusal> for ReachError {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Unknown => Self::Revoked,
            KeyRefusal::ForeignDomain => Self::ForeignDomain,
            KeyRefusal::OutOfRange => Self::OutOfRange,
            KeyRefusal::AccessDenied => Self::AccessDenied,
        }
    }
}
