//! The lanes and the memory of links, made by the caller whose operation first needs them, before it begins: to register
//! memory takes long, and the engine goes on meanwhile.

use rdma_core::{Access, Deadline};

use super::super::connect::CONTROL_BYTES_MAX;
use super::connect::{Opened, Opening};
use super::{Reach, geometry};
use crate::collective::CollectiveError;
use crate::collective::CommunicatorError;
use crate::collective::communicator::Communicator;
use crate::collective::communicator::ring::FENCE_WITHIN;
use crate::engine::SetupError;
use crate::engine::{Engine, LaneId};
use crate::link::mailbox::{Geometry, Inbox, Outbox};
use crate::link::{Blob, LaneOptions, LinkKind};

impl Communicator {
    /// Opens what is missing of the links of an operation that is about to begin; it connects them. What the device refuses
    /// the operation tells all ranks.
    pub(crate) fn open_links(&mut self, reach: Reach) {
        let (rank, world) = (self.rank(), self.size());
        let opened = {
            let shared = self.shared.lock();
            match &shared.ring {
                Some(ring) if shared.ended().is_none() && ring.mesh.unlinked(reach).is_none() => {
                    ring.mesh.opened()
                }
                _ => return,
            }
        };
        if reach <= opened {
            return;
        }
        let ranks = reach.peers(rank, world);
        let ranks = ranks.filter(|peer| !opened.peers(rank, world).any(|known| known == *peer));
        let mut opening = Opening { reach, links: Vec::new(), refused: None };
        for peer in ranks {
            match self.open_link(peer) {
                Ok(link) => opening.links.push(link),
                Err(error) => {
                    opening.refused = Some(error);
                    break;
                }
            }
        }
        if let Err(unused) = self.offer(opening) {
            unused.lanes().for_each(|lane| self.fence_unused(lane));
        }
    }

    /// Leaves them for the operation that connects them; back they come where none will, as was found meanwhile.
    fn offer(&self, opening: Opening) -> Result<(), Opening> {
        match &mut self.shared.lock().ring {
            Some(ring) if ring.mesh.unlinked(opening.reach).is_none() => {
                ring.mesh.opening.push_back(opening);
                Ok(())
            }
            _ => Err(opening),
        }
    }

    /// Whether an operation that begins now finds links to all ranks, unless one before it finds that there can be none.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Unconnected`], to `rank` for instance; or the communicator has ended.
    pub(crate) fn check_links(&self, rank: u32) -> Result<(), CollectiveError> {
        let shared = self.shared.lock();
        match &shared.ring {
            Some(ring) if ring.mesh.opened() < Reach::All => {
                Err(shared.ended().unwrap_or_else(|| ring.mesh.unconnected(rank)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the links of `reach` are connected.
    pub(crate) fn is_linked(&self, reach: Reach) -> bool {
        self.shared.lock().ring.as_ref().is_none_or(|ring| ring.mesh.reach() >= reach)
    }

    fn open_link(&self, rank: u32) -> Result<Opened, CommunicatorError> {
        let (engine, options) = (self.engine(), self.options());
        let geometry = geometry(options, self.size());
        let Geometry { slots, slot_bytes } = geometry;
        let bytes = geometry.bytes().ok_or(SetupError::Mailbox { slots, slot_bytes })?;
        let region = engine.pd().alloc_region(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let outbox = Outbox::opened(&engine.pd(), geometry)?;
        let inbox = Inbox::new(geometry, region);
        let requests = 2 * u32::from(slots) + 8;
        let lane = engine.open_lane(LaneOptions {
            epoch: options.epoch,
            max_send_wr: requests,
            credits: requests,
            control_bytes_max: CONTROL_BYTES_MAX,
        })?;
        let blob = blob(engine, lane, self.origin.token.fingerprint(), &inbox);
        // What it was opened for is fenced with the others, which this one is not among.
        let blob = blob.inspect_err(|_| self.fence_unused(lane))?;
        Ok(Opened { rank, lane, outbox, inbox, blob })
    }

    fn fence_unused(&self, lane: LaneId) {
        if let Err(error) = self.engine().lock().fence_lane(lane, Deadline::after(FENCE_WITHIN)) {
            tracing::warn!(%error, "a lane that is of no use stays until the engine goes");
        }
    }
}

fn blob(engine: &Engine, lane: LaneId, job: u32, inbox: &Inbox) -> Result<Vec<u8>, CommunicatorError> {
    let blob = engine.blob(lane, LinkKind::MESH, job)?;
    Ok(Blob { regions: vec![inbox.remote()], ..blob }.encode()?)
}
