//! Access to mapped memory of a peer without a request.

#![expect(unsafe_code, reason = "hands memory of the caller to the responder")]

use super::super::super::fabric::{Command, State};
use super::super::QpRef;
use super::super::shm::{NoAccess, RemoteResponder};
use crate::RemoteMemory;
use crate::backend::interface::{MappedAccess, MappedOutcome};
use crate::error::ReachError;
use crate::memory::PeerWindow;

impl State {
    /// Accesses memory of the peer of `id`, once it is mapped.
    ///
    /// # Safety
    ///
    /// `access` is as for [`access_mapped`](Self::access_mapped).
    pub(in super::super::super) unsafe fn access_mapped_wire(
        &mut self,
        id: QpRef,
        access: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        let Some(responder) = self.remote_responder(id)? else { return Ok(MappedOutcome::NotYet) };
        // SAFETY: `access` is passed on unchanged, so the caller's promise about its local memory covers this call.
        match unsafe { responder.access(access) } {
            Ok(bits) => Ok(MappedOutcome::Done(bits)),
            Err(reason) => self.settle_no_access(id, reason).map(|()| MappedOutcome::NotYet),
        }
    }

    /// Returns a window of the peer of `id`, once it is mapped.
    pub(in super::super::super) fn window_mapped(
        &mut self,
        id: QpRef,
        memory: RemoteMemory,
    ) -> Result<Option<PeerWindow>, ReachError> {
        let Some(responder) = self.remote_responder(id)? else { return Ok(None) };
        match responder.window(memory) {
            Ok(window) => Ok(Some(window)),
            Err(reason) => self.settle_no_access(id, reason).map(|()| None),
        }
    }

    /// Returns the peer's responder; `None` until the two processes have met, which this call starts.
    fn remote_responder(&mut self, id: QpRef) -> Result<Option<&RemoteResponder>, ReachError> {
        let Some(mapped) = self.qps.get_mut(id).map(|qp| &mut qp.mapped) else {
            return Err(ReachError::PeerGone);
        };
        if mapped.outgoing.is_none() {
            if mapped.peer_gone {
                return Err(ReachError::PeerGone);
            }
            if let Some(reason) = mapped.unmet_reason.take() {
                return Err(ReachError::Unmapped { reason });
            }
            self.commands.push_back(Command::FindPeer { qp: id });
        }
        Ok(mapped.outgoing.as_ref().map(|outgoing| &outgoing.responder))
    }

    /// Turns the reason why an access is not done into an error; `Ok` means "not yet, try again".
    fn settle_no_access(&mut self, id: QpRef, reason: NoAccess) -> Result<(), ReachError> {
        match reason {
            NoAccess::Refused(refusal) => Err(refusal.into()),
            NoAccess::Closed => Err(ReachError::PeerGone),
            NoAccess::Silent => Ok(()),
            NoAccess::Unmapped(0) => Err(ReachError::NotShared),
            NoAccess::Unmapped(_) => {
                // The announcement may wait in the socket already.
                self.commands.push_back(Command::ReadAnnouncements { qp: id });
                Ok(())
            }
        }
    }
}
