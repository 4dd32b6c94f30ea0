//! Memory on the engine's device, and the memory of peers.
//!
//! Registration runs without the engine's lock. It may take seconds, and a locked engine would send no heartbeats for
//! that time, so that peers would give this process up.

use rdma_core::error::{ReachError, RegisterError};
use rdma_core::{
    Access, Deadline, LocalBuf, Memory, PeerSlice, PeerWindow, ProtectionDomain, Refused, Region,
    RemoteMemory,
};

use super::{Engine, EngineState, LaneId};
use crate::engine::SetupError;
use crate::link::{LaneMemory, LaneOptions, OpeningLane};

impl Engine {
    /// Registers `memory` on the engine's device (on each of several), for use by communicators and links of this
    /// engine.
    ///
    /// Registration pins the pages and may take seconds for hundreds of gigabytes. The engine goes on meanwhile; only
    /// the calling thread waits.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the memory back if the access rights contradict each other, or if a limit of the system or of
    /// a device is reached; the error names the limit and how to raise it. If one of several devices refuses and
    /// another does not let go of the memory then, the memory is kept for good, and an empty one comes back.
    pub fn register(&self, memory: Memory, access: Access) -> Result<Region, Refused<Memory, RegisterError>> {
        let mut region = self.pd().register(memory, access)?;
        for other in self.pds().skip(1) {
            if let Err(error) = other.add(&mut region) {
                let object = region.deregister().unwrap_or_else(|kept| {
                    crate::log::error!(error = %kept.error, "memory that one device refused is kept by another");
                    Memory::from(Vec::new())
                });
                return Err(Refused { object, error });
            }
        }
        Ok(region)
    }

    /// Allocates memory that this engine's lanes can use, and that no peer can reach.
    pub(crate) fn alloc_local(&self, bytes: usize) -> Result<LocalBuf, RegisterError> {
        let mut memory = self.pd().alloc_local(bytes)?;
        for other in self.pds().skip(1) {
            other.add_local(&mut memory)?;
        }
        Ok(memory)
    }

    /// Creates a lane on a rail, which waits for its peer's blob.
    pub(crate) fn open_lane(&self, rail: usize, options: LaneOptions) -> Result<LaneId, SetupError> {
        let pd = self.pds().nth(rail).ok_or(SetupError::LaneGone)?;
        let memory = LaneMemory::alloc((rail, pd), options)?;
        self.lock().open_lane(memory)
    }

    /// The protection domains of all rails. They are handles of their own, so memory is registered in them without the
    /// engine's lock.
    pub(crate) fn pds(&self) -> impl ExactSizeIterator<Item = &ProtectionDomain> {
        self.shared().devices.iter().map(|device| &device.pd)
    }

    /// The domain of the first rail.
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.shared().devices[0].pd
    }

    /// `region`, as requests of the peer of `lane` name it.
    pub(crate) fn remote(&self, lane: LaneId, region: &Region) -> Result<RemoteMemory, SetupError> {
        let rail = self.lock().opening(lane).map(OpeningLane::rail);
        let pd = rail.and_then(|rail| self.pds().nth(rail));
        pd.and_then(|pd| pd.remote(region)).ok_or(SetupError::LaneGone)
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
        let (worker, qp) = self.worker_and_qp(id).ok_or(ReachError::PeerGone)?;
        worker.peer_window(qp, window, deadline)
    }

    /// A view of memory of a lane's peer, borrowed from the worker, for use before the lock is released.
    pub(crate) fn peer_slice(
        &mut self,
        id: LaneId,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerSlice<'_>, ReachError> {
        let (worker, qp) = self.worker_and_qp(id).ok_or(ReachError::PeerGone)?;
        Ok(worker.peer_slice(qp, memory, deadline))
    }
}
