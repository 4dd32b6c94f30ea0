//! Memory of a peer that is mapped here, reached at once.

#![expect(unsafe_code, reason = "hands memory of the caller to the responder")]

use super::super::super::fabric::{Command, State};
use super::super::super::mapped_access::reach_error;
use super::super::QpRef;
use super::super::shm::{AccessOutcome, RemoteResponder};
use crate::RemoteMemory;
use crate::backend::interface::{MappedAccess, MappedOutcome};
use crate::error::ReachError;
use crate::memory::PeerWindow;

impl State {
    /// # Safety
    ///
    /// As for [`reach`](Self::reach).
    pub(in super::super::super) unsafe fn access_mapped_wire(
        &mut self,
        id: QpRef,
        reach: &MappedAccess,
    ) -> Result<MappedOutcome, ReachError> {
        let Some(responder) = self.responder(id)? else { return Ok(MappedOutcome::NotYet) };
        // SAFETY: the caller's promise.
        let touched = unsafe { responder.access(reach) };
        Ok(self.settle_touch(id, touched)?.map_or(MappedOutcome::NotYet, MappedOutcome::Done))
    }

    /// A window of the peer, once it is mapped.
    pub(in super::super::super) fn window_mapped(
        &mut self,
        id: QpRef,
        memory: RemoteMemory,
    ) -> Result<Option<PeerWindow>, ReachError> {
        let Some(responder) = self.responder(id)? else { return Ok(None) };
        match responder.window(memory) {
            Ok(window) => Ok(Some(window)),
            Err(touched) => self.settle_touch(id, touched).map(|_| None),
        }
    }

    /// What runs the responder of the peer, once they have met.
    fn responder(&mut self, id: QpRef) -> Result<Option<&RemoteResponder>, ReachError> {
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

    /// What there was to be had, or that it is not there yet.
    fn settle_touch(&mut self, id: QpRef, touched: AccessOutcome) -> Result<Option<u64>, ReachError> {
        match touched {
            AccessOutcome::Done(bits) => Ok(Some(bits)),
            AccessOutcome::Refused(refusal) => Err(reach_error(refusal)),
            AccessOutcome::Closed => Err(ReachError::PeerGone),
            AccessOutcome::Silent => Ok(None),
            AccessOutcome::Unmapped(0) => Err(ReachError::NotShared),
            AccessOutcome::Unmapped(_) => {
                self.commands.push_back(Command::ReadAnnouncements { qp: id });
                Ok(None)
            }
        }
    }
}
