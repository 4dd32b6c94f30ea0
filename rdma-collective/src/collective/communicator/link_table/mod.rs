//! The table of links by rank. The links to the neighbours in the ring are there from the beginning.
//!
//! All ranks make further links together, when an operation first needs them, and keep them until the communicator
//! ends. A large world therefore pays for them only if it uses an algorithm that needs them. `open` opens lanes and
//! mailboxes; `connect` exchanges the blobs and decides, on all ranks alike, whether the links are usable.

mod connect;
mod open;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::hosts::Hosts;
use super::links::{ControlMessage, Link, Lost, read_control, violation};
use super::options::CommunicatorOptions;
use crate::collective::CollectiveError;
use crate::engine::{EngineState, LaneId};
use crate::link::Arrival;
use crate::link::imm::Imm;
use crate::link::mailbox::Geometry;

use connect::OpenLinks;
#[cfg(any(fuzzing, test))]
pub(crate) use connect::find_blob;
pub(crate) use connect::{Connecting, Unlinked, VERDICT_BYTES, word_bytes};

/// Bytes that the mailboxes of all links of a rank may take together, unless each link is at [`SLOT_BYTES_MIN`]
/// already.
const SLOTS_BYTES_MAX: usize = 32 << 20;
/// Bytes that the mailboxes of its links at distances of powers of two may take together. With as many to send from,
/// and 8 MiB of the ring, a rank that uses no others has 16 MiB.
const DOUBLINGS_BYTES_MAX: usize = 4 << 20;
/// Bytes of the shortest slot that the limit leads to: one page.
const SLOT_BYTES_MIN: usize = 4096;

/// The set of ranks that each rank has links to. A later variant includes every earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Reach {
    /// The neighbours in the ring.
    #[default]
    Neighbours,
    /// Ranks at distances of powers of two around the ring, in both directions: enough for binomial trees of any root.
    Doublings,
    /// Every other rank.
    All,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neighbours => "neighbours",
            Self::Doublings => "ranks at distances of powers of two",
            Self::All => "all ranks",
        })
    }
}

impl Reach {
    /// The ranks beyond the neighbours that `rank` has links to, in ascending order. The relation is symmetric, and the
    /// count is the same for all ranks.
    fn peers(self, rank: u32, world: u32) -> impl Iterator<Item = u32> {
        (0..world).filter(move |peer| {
            // Steps forward around the ring, without the overflow that `rank + world` could have.
            let distance = if *peer >= rank { peer - rank } else { world - (rank - peer) };
            distance > 1
                && world - distance > 1
                && match self {
                    Self::Neighbours => false,
                    Self::Doublings => distance.is_power_of_two() || (world - distance).is_power_of_two(),
                    Self::All => true,
                }
        })
    }
}

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
    /// Memory in which operations keep messages that they pass on or reduce later.
    pub(crate) scratch: Vec<u8>,
}

impl LinkTable {
    pub(super) fn new(
        neighbours: Vec<Link>,
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
            links: neighbours.into_iter().map(|link| (link.rank, link)).collect(),
            reach: Reach::default(),
            opening: VecDeque::new(),
            connecting: None,
            unlinked: None,
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

    pub(crate) fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.values_mut()
    }

    /// Marks that all linked ranks must be told of a failure.
    pub(super) fn hear(&mut self) {
        self.links.values_mut().for_each(|link| link.untold = true);
    }

    /// Tells the linked ranks that have not been told; `tell` returns whether a rank must be told again later.
    pub(super) fn pass_on(&mut self, mut tell: impl FnMut(LaneId) -> bool) {
        for link in self.links.values_mut().filter(|link| link.untold) {
            link.untold = tell(link.lane);
        }
    }

    /// The lanes of all links, connected or not.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let connected = self.links.values().map(|link| link.lane);
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
        for (&rank, link) in &mut self.links {
            // A lane that is gone is found by `ended`, which also knows the reason.
            let Some(lane) = core.lane(link.lane) else { continue };
            let Link { outbox, inbox, .. } = link;
            while let Some(arrival) = lane.take() {
                match arrival {
                    Arrival::Imm(Imm::Freed { count }, _) if outbox.freed(count) => {}
                    Arrival::Imm(Imm::Message { slot, turn }, bytes) if inbox.announce(slot, turn, bytes) => {
                    }
                    Arrival::Imm(..) => return Err(violation(rank, lane, "an immediate that cannot be")),
                    Arrival::Control(received) => {
                        let word = read_control(lane, received.bytes());
                        // The receive buffer goes back to the lane in any case, also before an error.
                        lane.recycle(received);
                        if !word.is_some_and(|word| told(rank, word)) {
                            let what = "a control message that does not belong here";
                            return Err(violation(rank, lane, what));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The linked ranks whose lanes have ended, including those that closed in good order.
    pub(crate) fn ended<'a>(&'a self, core: &'a mut EngineState) -> impl Iterator<Item = Lost> + 'a {
        self.links.values().filter_map(|link| link.ended(core))
    }
}

#[cfg(test)]
mod tests;
