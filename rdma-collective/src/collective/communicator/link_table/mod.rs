//! The table of links by rank. The links to the neighbours in the ring are there from the beginning.
//!
//! All ranks make further links together, when an operation first needs them, and keep them until the communicator
//! ends. A large world therefore pays for them only if it uses an algorithm that needs them. `open` opens lanes and
//! mailboxes; `connect` exchanges the blobs and decides, on all ranks alike, whether the links are usable.

mod connect;
mod open;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::hosts::Hosts;
use super::lanes::is_of_lane;
use super::link::{Link, MISPLACED};
use super::links::{ControlMessage, Lost, read_control, violation};
use super::options::CommunicatorOptions;
use super::reach::Reach;
use crate::collective::CollectiveError;
use crate::engine::{EngineState, LaneId};
use crate::link::imm::Imm;
use crate::link::mailbox::Geometry;
use crate::link::{Arrival, LaneFailure};

use connect::OpenLinks;
#[cfg(any(fuzzing, test))]
pub(crate) use connect::find_blobs;
pub(crate) use connect::{Connecting, Unlinked, VERDICT_BYTES, word_bytes};

/// Bytes that the mailboxes of all links of a rank may take together, unless each link is at [`SLOT_BYTES_MIN`]
/// already.
const SLOTS_BYTES_MAX: usize = 32 << 20;
/// Bytes that the mailboxes of its links at distances of powers of two may take together. With as many to send from,
/// and 8 MiB of the ring, a rank that uses no others has 16 MiB.
const DOUBLINGS_BYTES_MAX: usize = 4 << 20;
/// Bytes of the shortest slot that the limit leads to: one page.
const SLOT_BYTES_MIN: usize = 4096;

/// The geometry of the mailboxes of the links of a reach, in a communicator of `world` ranks. All ranks compute the
/// same.
///
/// Links that a smaller reach has, too, may have longer slots than this.
pub(crate) fn geometry(options: &CommunicatorOptions, world: u32, reach: Reach) -> Geometry {
    let CommunicatorOptions { slots, slot_bytes, .. } = *options;
    let (slot_bytes, bytes) = match reach {
        Reach::All => (geometry(options, world, Reach::Doublings).slot_bytes, SLOTS_BYTES_MAX),
        _ => (slot_bytes, DOUBLINGS_BYTES_MAX),
    };
    let share = bytes / (usize::from(slots.max(1)) * reach.peers(0, world).count().max(1));
    // A slot holds whole elements of any data type.
    let share = share.max(SLOT_BYTES_MIN) & !(size_of::<u64>() - 1);
    Geometry { slots, slot_bytes: slot_bytes.min(share) }
}

/// The links of one rank, and those that are being made.
#[derive(Debug)]
pub(crate) struct LinkTable {
    rank: u32,
    world: u32,
    /// The fingerprint of the job's token, and the epoch of the communicator.
    job: u32,
    epoch: u32,
    hosts: Arc<Hosts>,
    /// Lanes of each link.
    lanes: u8,
    links: BTreeMap<u32, Link>,
    /// The reach of the connected links, equal on all ranks.
    reach: Reach,
    /// Links that callers have opened, in the order of the operations that will connect them.
    opening: VecDeque<OpenLinks>,
    /// Links that the present operation connects; out of the table while the ring is borrowed to carry their words.
    pub(crate) connecting: Option<Connecting>,
    /// The least reach that was found impossible, and why. All ranks hold the same value, because all of them read it
    /// from the same gathered words; so all of them choose the same algorithm from then on.
    unlinked: Option<(Reach, Unlinked)>,
    /// Whether a message has come since [`Links::check_calls`](super::Links::check_calls) looked.
    pub(super) any_message: bool,
    /// Memory in which operations keep messages that they pass on or reduce later.
    pub(crate) scratch: Vec<u8>,
}

impl LinkTable {
    pub(super) fn new(
        (neighbours, lanes): (Vec<Link>, u8),
        (rank, world): (u32, u32),
        (job, epoch): (u32, u32),
        hosts: Arc<Hosts>,
    ) -> Self {
        Self {
            rank,
            world,
            job,
            epoch,
            hosts,
            lanes,
            links: neighbours.into_iter().map(|link| (link.rank, link)).collect(),
            reach: Reach::default(),
            opening: VecDeque::new(),
            connecting: None,
            unlinked: None,
            any_message: false,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// The reach once all opened links are connected.
    fn opened(&self) -> Reach {
        let connecting = self.connecting.iter().map(|connecting| connecting.reach);
        let opening = self.opening.iter().map(|opening| opening.reach);
        connecting.chain(opening).fold(self.reach, Reach::max)
    }

    /// Why links of that reach cannot be made, if that was found.
    pub(crate) fn unlinked(&self, reach: Reach) -> Option<&Unlinked> {
        self.unlinked.as_ref().filter(|(least, _)| *least <= reach).map(|(_, why)| why)
    }

    /// The error for a message to `rank`, to which there is no link.
    pub(crate) fn unconnected(&self, rank: u32) -> CollectiveError {
        let because = self.unlinked(Reach::All).map(|Unlinked { rank, reason }| {
            Arc::new(CollectiveError::Unlinked { rank: *rank, reason: reason.clone() })
        });
        CollectiveError::Unconnected { rank, because }
    }

    pub(crate) fn link(&self, rank: u32) -> Option<&Link> {
        self.links.get(&rank)
    }

    pub(crate) fn link_mut(&mut self, rank: u32) -> Option<&mut Link> {
        self.links.get_mut(&rank)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Asks the device for the completion of the last writes from the operation's memory, where no write has asked.
    pub(crate) fn ask_for_ranges(&mut self, core: &mut EngineState) {
        self.links.values_mut().for_each(|link| link.ask_for_ranges(core));
    }

    /// A peer to which the device still writes from the operation's memory. The memory cannot go back to the caller
    /// before.
    pub(crate) fn unsent(&self, core: &mut EngineState) -> Option<u32> {
        self.links.values().find(|link| link.is_unsent(core)).map(|link| link.rank)
    }

    /// Marks that all linked ranks must be told of a failure.
    pub(super) fn hear(&mut self) {
        self.connected_links().for_each(|link| link.untold = true);
    }

    /// Tells the linked ranks that have not been told; `tell` returns whether a rank must be told again later.
    pub(super) fn pass_on(&mut self, mut tell: impl FnMut(LaneId) -> bool) {
        for link in self.connected_links().filter(|link| link.untold) {
            link.untold = tell(link.lanes.first);
        }
    }

    /// The links in use, and those that are connected and not in use here: the peer may use them already.
    fn connected_links(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.values_mut().chain(self.connecting.iter_mut().flat_map(Connecting::connected_mut))
    }

    /// The lanes of all links, connected or not.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let connected = self.links.values().flat_map(|link| link.lanes.all.iter().copied());
        let connecting = self.connecting.iter().flat_map(Connecting::lanes);
        connected.chain(connecting).chain(self.opening.iter().flat_map(OpenLinks::lanes))
    }

    /// Begins an operation: counts its messages from here, and makes room for `scratch_bytes` of kept messages.
    pub(crate) fn begin(&mut self, scratch_bytes: usize) {
        self.links.values_mut().for_each(Link::begin);
        // The memory never shrinks, so that an operation that is repeated allocates only once.
        if self.scratch.len() < scratch_bytes {
            self.scratch.resize(scratch_bytes, 0);
        }
    }

    /// Sorts the arrivals of all links into their mailboxes, and hands control messages to `told`, which returns
    /// whether that rank may send such a one.
    ///
    /// # Errors
    ///
    /// A rank that has sent what the protocol forbids; its lane has ended.
    pub(super) fn take_arrivals(
        &mut self,
        core: &mut EngineState,
        mut told: impl FnMut(u32, ControlMessage) -> bool,
    ) -> Result<(), Lost> {
        for link in self.links.values_mut() {
            // Once more if the peer has ended a lane: what it has received here is taken before the peer is told.
            let mut again = true;
            while std::mem::take(&mut again) {
                let (are_many, mut fenced) = (link.lanes.all.len() > 1, Vec::new());
                if are_many {
                    link.fence_failed(core)?;
                }
                let Link { rank, lanes, outbox, inbox, .. } = &mut *link;
                for id in &lanes.all {
                    // A lane that is gone is found by `ended`, which also knows the reason.
                    let Some(lane) = core.lane(*id) else { continue };
                    while let Some(arrival) = lane.take() {
                        match arrival {
                            Arrival::Imm(Imm::Freed { count }, _) if outbox.freed(count) => {}
                            Arrival::Imm(Imm::Message { slot, turn }, bytes)
                                if inbox.announce(slot, turn, bytes) =>
                            {
                                self.any_message = true;
                            }
                            Arrival::Imm(..) => {
                                return Err(violation(*rank, lane, "an immediate that cannot be"));
                            }
                            Arrival::Control(received) => {
                                let word = read_control(&received);
                                // The receive buffer goes back to the lane in any case, also before an error.
                                lane.recycle(received);
                                match word {
                                    Some(ControlMessage::LaneFenced(news)) if are_many => {
                                        fenced.push((*id, news));
                                    }
                                    Some(word) if told(*rank, word) => {}
                                    _ => return Err(violation(*rank, lane, MISPLACED)),
                                }
                            }
                        }
                    }
                }
                again = are_many && link.mend(core, fenced)?;
            }
            // An arrival may have taken the peer's last slot, while others are given back untold.
            if link.inbox.has_to_tell(link.inbox.given_back(), true) {
                link.tell_freed(core);
            }
        }
        Ok(())
    }

    /// The linked ranks whose lanes have ended, including those that closed in good order.
    pub(crate) fn ended<'a>(&'a self, core: &'a mut EngineState) -> impl Iterator<Item = Lost> + 'a {
        self.links.values().filter_map(|link| link.ended(core))
    }
}

impl Link {
    /// Why the link to this peer has ended; including an end in good order.
    ///
    /// A lane that fails by itself ends the link only if no other lane is left. A peer has closed when it has closed
    /// every lane that has not failed: until then its last messages may be under way.
    pub(crate) fn ended(&self, core: &mut EngineState) -> Option<Lost> {
        let (mut is_up, mut closed, mut failed) = (false, None, None);
        for id in &self.lanes.open {
            match core.lane(*id).map_or(Some(LaneFailure::Fenced), |lane| lane.ended()) {
                None => is_up = true,
                Some(cause) if is_of_lane(&cause) => failed = Some((*id, cause)),
                Some(cause @ LaneFailure::Closed) => closed = Some((*id, cause)),
                Some(cause) => return Some(self.lost(core, *id, cause)),
            }
        }
        let (id, cause) = closed.or(failed).filter(|_| !is_up)?;
        Some(self.lost(core, id, cause))
    }
}

#[cfg(test)]
mod tests;
