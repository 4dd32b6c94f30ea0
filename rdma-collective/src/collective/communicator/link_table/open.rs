//! The opening of links: lanes and registered mailboxes, before any peer knows of them.
//!
//! The caller whose operation first needs the links opens them in its own thread, before the operation begins. The
//! engine's thread never does, because registering memory takes long and other operations go on meanwhile.

use rdma_core::Deadline;

use super::super::connect::CONTROL_BYTES_MAX;
use super::super::reach::Reach;
use super::connect::OpenLinks;
use super::geometry;
use crate::collective::CollectiveError;
use crate::collective::CommunicatorError;
use crate::collective::communicator::Communicator;
use crate::collective::communicator::lanes::fence_unused;
use crate::collective::communicator::links::FENCE_WITHIN;
use crate::collective::communicator::open_link::{LinkShape, OpenLink};
use crate::engine::LaneId;
use crate::link::{LaneOptions, LinkKind};

impl Communicator {
    /// Opens the missing links of an operation that is about to begin; the operation connects them.
    ///
    /// A refusal of the device is kept beside the links. The operation tells it to all ranks, which otherwise would
    /// wait for this rank's links.
    pub(crate) fn open_links(&mut self, reach: Reach) {
        let (rank, world) = (self.rank(), self.size());
        // The lock is released before anything is opened: the engine needs it meanwhile.
        let opened = {
            let shared = self.shared.lock();
            match &shared.links {
                Some(links) if shared.ended().is_none() && links.table.unlinked(reach).is_none() => {
                    links.table.opened()
                }
                _ => return,
            }
        };
        if reach <= opened {
            return;
        }
        let ranks = reach.peers(rank, world);
        // Links of a smaller reach are kept, not opened twice.
        let ranks = ranks.filter(|peer| !opened.peers(rank, world).any(|known| known == *peer));
        let mut opening = OpenLinks { reach, links: Vec::new(), refused: None };
        for peer in ranks {
            match self.open_link(peer) {
                Ok(link) => opening.links.push(link),
                Err(error) => {
                    // The device has no more to give. The operation will tell the reason to all ranks.
                    opening.refused = Some(error);
                    break;
                }
            }
        }
        if let Err(unused) = self.offer(opening) {
            self.fence_unused(&unused.lanes().collect::<Vec<_>>());
        }
    }

    /// Queues links for the operation that connects them; returns them if such links have been found impossible
    /// meanwhile.
    fn offer(&self, opening: OpenLinks) -> Result<(), OpenLinks> {
        match &mut self.shared.lock().links {
            Some(links) if links.table.unlinked(opening.reach).is_none() => {
                links.table.opening.push_back(opening);
                Ok(())
            }
            _ => Err(opening),
        }
    }

    /// Checks that an operation that begins now will find links to all ranks. An operation before it may still find
    /// that they cannot be connected.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Unconnected`], to `rank` for instance; or the communicator has ended.
    pub(crate) fn check_links(&self, rank: u32) -> Result<(), CollectiveError> {
        let shared = self.shared.lock();
        match &shared.links {
            Some(links) if links.table.opened() < Reach::All => {
                Err(shared.ended().unwrap_or_else(|| links.table.unconnected(rank)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the links of `reach` are connected.
    pub(crate) fn is_linked(&self, reach: Reach) -> bool {
        self.shared.lock().links.as_ref().is_none_or(|links| links.table.reach() >= reach)
    }

    /// Opens this rank's end of one link.
    fn open_link(&self, rank: u32) -> Result<OpenLink, CommunicatorError> {
        let options = self.options();
        let doubling = Reach::Doublings.peers(self.rank(), self.size()).any(|peer| peer == rank);
        let geometry = geometry(options, self.size(), if doubling { Reach::Doublings } else { Reach::All });
        let requests = 2 * u32::from(geometry.slots) + 8;
        let lane = LaneOptions {
            epoch: options.epoch,
            max_send_wr: requests,
            credits: requests,
            control_bytes_max: CONTROL_BYTES_MAX,
        };
        let (job, lanes) = (self.origin.token.fingerprint(), self.lanes_of_link());
        let shape = LinkShape { kind: LinkKind::MESH, job, lanes, lane, geometry };
        OpenLink::open(self.engine(), rank, &shape, Vec::new())
    }

    /// Ends lanes of which no peer knows.
    fn fence_unused(&self, lanes: &[LaneId]) {
        fence_unused(&mut self.engine().lock(), lanes, Deadline::after(FENCE_WITHIN));
    }
}
