//! Memory of a peer that is mapped here, reached at once.

#![expect(unsafe_code, reason = "hands memory of the caller to the port")]

use super::super::super::fabric::{Command, State};
use super::super::super::reach::refused;
use super::super::QpRef;
use super::super::shm::Touched;
use crate::backend::interface::{RawReach, Reached};
use crate::error::ReachError;

impl State {
    /// # Safety
    ///
    /// As for [`reach`](Self::reach).
    pub(in super::super::super) unsafe fn reach_mapped(
        &mut self,
        id: QpRef,
        reach: &RawReach,
    ) -> Result<Reached, ReachError> {
        let Some(mapped) = self.qps.get_mut(id).map(|qp| &mut qp.mapped) else {
            return Err(ReachError::PeerGone);
        };
        let Some(outgoing) = &mapped.outgoing else {
            if mapped.gone {
                return Err(ReachError::PeerGone);
            }
            if let Some(reason) = mapped.unmet.take() {
                return Err(ReachError::Unmapped { reason });
            }
            self.commands.push_back(Command::Meet { qp: id });
            return Ok(Reached::NotYet);
        };
        // SAFETY: the caller's promise.
        match unsafe { outgoing.port.touch(reach) } {
            Touched::Done(bits) => Ok(Reached::Done(bits)),
            Touched::Refused(refusal) => Err(refused(refusal)),
            Touched::Closed => Err(ReachError::PeerGone),
            Touched::Silent => Ok(Reached::NotYet),
            Touched::Unmapped(0) => Err(ReachError::NotShared),
            Touched::Unmapped(_) => {
                self.commands.push_back(Command::Look { qp: id });
                Ok(Reached::NotYet)
            }
        }
    }
}
