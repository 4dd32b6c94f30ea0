//! Memory on the engine's device, and the memory of peers.
//!
//! Registration runs without the engine's lock. It may take seconds, and a locked engine would send no heartbeats for
//! that time, so that peers would give this process up.

use rdma_core::error::{ReachError, RegisterError};
use rdma_core::{
    Access, Deadline, LocalBuf, Memory, PeerSlice, PeerWindow, ProtectionDomain, Refused, Region,
    RemoteMemory,
};

use super::state::LaneSlot;
use super::{Engine, EngineState, LaneId};
use crate::engine::SetupError;
use crate::link::{LaneMemory, LaneOptions};

impl Engine {
    /// Registers `memory` on the engine's device, for use by communicators and links of this engine.
    ///
    /// Registration pins the pages and may take seconds for hundreds of gigabytes. The engine goes on meanwhile; only
    /// the calling thread waits.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the memory back if the access rights contradict each other, or if a limit of the system or of
    /// the device is reached; the error names the limit and how to raise it.
    pub fn register(&self, memory: Memory, access: Access) -> Result<Region, Refused<Memory, RegisterError>> {
        self.pd().register(memory, access)
    }

    /// Allocates memory that this engine's lanes can use, and that no peer can reach.
    pub(crate) fn alloc_local(&self, bytes: usize) -> Result<LocalBuf, RegisterError> {
        self.pd().alloc_local(bytes)
    }

    /// Creates a lane that waits for its peer's blob.
    pub(crate) fn open_lane(&self, options: LaneOptions) -> Result<LaneId, SetupError> {
        let memory = LaneMemory::alloc(&self.pd(), options)?;
        self.lock().open_lane(memory)
    }

    /// The protection domain. It is a handle of its own, so memory is registered in it without the engine's lock.
    pub(crate) fn pd(&self) -> ProtectionDomain {
        self.shared().pd.clone()
    }
}

impl EngineState {
    /// Maps a window of a lane's peer into this process.
    pub(crate) fn peer_window(
        &mut self,
        id: LaneId,
        window: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerWindow, ReachError> {
        match self.lanes.get(id.index as usize) {
            Some((generation, LaneSlot::Open(lane))) if *generation == id.generation => {
                self.worker.peer_window(lane.qp().ok_or(ReachError::PeerGone)?, window, deadline)
            }
            _ => Err(ReachError::PeerGone),
        }
    }

    /// A view of memory of a lane's peer, borrowed from the worker, for use before the lock is released.
    pub(crate) fn peer_slice(
        &mut self,
        id: LaneId,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerSlice<'_>, ReachError> {
        match self.lanes.get(id.index as usize) {
            Some((generation, LaneSlot::Open(lane))) if *generation == id.generation => {
                Ok(self.worker.peer_slice(lane.qp().ok_or(ReachError::PeerGone)?, memory, deadline))
            }
            _ => Err(ReachError::PeerGone),
        }
    }
}
