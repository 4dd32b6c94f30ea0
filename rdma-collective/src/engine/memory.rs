//! Memory on the engine's device. The engine is not locked while it is registered, which takes long: lanes have to be
//! kept alive meanwhile.

use rdma_core::error::{ReachError, RegisterError};
use rdma_core::{
    Access, Deadline, LocalBuf, Memory, PeerSlice, PeerWindow, ProtectionDomain, Refused, Region,
    RemoteMemory,
};

use super::core::Place;
use super::{Core, Engine, LaneId};
use crate::engine::SetupError;
use crate::link::{LaneMemory, LaneOptions};

impl Engine {
    /// Registers `memory` on the engine's device, for what is made on this engine.
    ///
    /// It may take seconds for hundreds of gigabytes; the engine goes on meanwhile.
    ///
    /// # Errors
    ///
    /// The memory comes back when the rights contradict each other, or when a limit of the system or of the device
    /// refuses, which the error names together with the mend.
    pub fn register(&self, memory: Memory, access: Access) -> Result<Region, Refused<Memory, RegisterError>> {
        self.pd().register(memory, access)
    }

    /// Memory that this engine's lanes can use and no peer.
    pub(crate) fn alloc_local(&self, bytes: usize) -> Result<LocalBuf, RegisterError> {
        self.pd().alloc_local(bytes)
    }

    /// Creates a lane that waits for its peer's blob.
    pub(crate) fn open_lane(&self, options: LaneOptions) -> Result<LaneId, SetupError> {
        let memory = LaneMemory::alloc(&self.pd(), options)?;
        self.lock().open_lane(memory)
    }

    /// What to register memory in, while the engine goes on.
    pub(crate) fn pd(&self) -> ProtectionDomain {
        self.lock().pd().clone()
    }
}

impl Core {
    /// Maps a window of a lane's peer.
    pub(crate) fn peer_window(
        &mut self,
        id: LaneId,
        window: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerWindow, ReachError> {
        match self.lanes.get(id.index as usize) {
            Some((generation, Place::Open(lane))) if *generation == id.generation => {
                self.worker.peer_window(lane.qp(), window, deadline)
            }
            _ => Err(ReachError::PeerGone),
        }
    }

    /// Memory of a lane's peer, to be used at once.
    pub(crate) fn peer_slice(
        &mut self,
        id: LaneId,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerSlice<'_>, ReachError> {
        match self.lanes.get(id.index as usize) {
            Some((generation, Place::Open(lane))) if *generation == id.generation => {
                Ok(self.worker.peer_slice(lane.qp(), memory, deadline))
            }
            _ => Err(ReachError::PeerGone),
        }
    }
}
