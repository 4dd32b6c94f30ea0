//! Links to ranks that are no neighbours in the ring, or not in that direction: made when an operation first needs them, by
//! all ranks together, and kept until the communicator ends.
//!
//! How they are opened is `open`'s, and how ranks tell each other of them `connect`'s.

mod connect;
mod open;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::hosts::Hosts;
use super::options::CommunicatorOptions;
use super::ring::{Lost, Neighbour, Told, read_control, violation};
use crate::collective::CollectiveError;
use crate::engine::{Core, LaneId};
use crate::link::Arrival;
use crate::link::imm::Imm;
use crate::link::mailbox::{Geometry, Inbox, Outbox};

use connect::Opening;
#[cfg(any(fuzzing, test))]
pub(crate) use connect::find_blob;
pub(crate) use connect::{Connecting, Unlinked, VERDICT_BYTES, word_bytes};

/// What the slots of all links may take, as far as each can have [`SLOT_BYTES_MIN`].
const SLOTS_BYTES_MAX: usize = 32 << 20;
const SLOT_BYTES_MIN: usize = 4096;

/// To which ranks there are links, besides those of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Reach {
    #[default]
    Neighbours,
    /// At distances of powers of two around the ring, either way: all that binomial trees need, whatever their root.
    Doublings,
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
    /// The ranks that `rank` has links to, in order.
    fn peers(self, rank: u32, world: u32) -> impl Iterator<Item = u32> {
        (0..world).filter(move |peer| {
            let distance = if *peer >= rank { peer - rank } else { world - (rank - peer) };
            distance > 0
                && match self {
                    Self::Neighbours => false,
                    Self::Doublings => distance.is_power_of_two() || (world - distance).is_power_of_two(),
                    Self::All => true,
                }
        })
    }
}

/// The size of a link's mailboxes, in a communicator of `world` ranks.
pub(crate) fn geometry(options: &CommunicatorOptions, world: u32) -> Geometry {
    let CommunicatorOptions { slots, slot_bytes, .. } = *options;
    let links = (world.saturating_sub(1) as usize).max(1);
    let share = SLOTS_BYTES_MAX / (usize::from(slots.max(1)) * links);
    // Whole elements of any type.
    let share = share.max(SLOT_BYTES_MIN) & !(size_of::<u64>() - 1);
    Geometry { slots, slot_bytes: slot_bytes.min(share) }
}

/// Both directions of a link.
#[derive(Debug)]
pub(crate) struct Boxes {
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    /// Messages of earlier operations.
    pub(crate) sent_before: u64,
    pub(crate) received_before: u64,
    /// Whether the rank is known to be in the present operation.
    pub(crate) agreed: bool,
    /// Whether the rank has still to be told of a failure.
    pub(super) untold: bool,
    /// Writes from memory of the operation's that were posted, and those that were done before the first.
    pub(crate) ranges: u64,
    pub(crate) ranges_before: u64,
    /// Sends to the rank and receives from it so far, which have numbers of their own.
    pub(crate) points_sent: u64,
    pub(crate) points_received: u64,
}

/// One of them.
pub(crate) type Link = Neighbour<Boxes>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mesh {
    rank: u32,
    world: u32,
    /// The fingerprint of the job's token, and the epoch of the communicator.
    job: u32,
    epoch: u32,
    hosts: Arc<Hosts>,
    links: BTreeMap<u32, Link>,
    /// How far they reach.
    reach: Reach,
    /// Opened by callers and not connected, for the operations that do that, in order.
    opening: VecDeque<Opening>,
    connecting: Option<Connecting>,
    /// From which reach on there are no links and never will be, and why; all ranks know it.
    unlinked: Option<(Reach, Unlinked)>,
    /// What operations keep of others' messages.
    pub(crate) scratch: Vec<u8>,
}

impl Mesh {
    pub(super) fn new((rank, world): (u32, u32), (job, epoch): (u32, u32), hosts: Arc<Hosts>) -> Self {
        Self {
            rank,
            world,
            job,
            epoch,
            hosts,
            links: BTreeMap::new(),
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

    /// How far they reach when those are connected, too, that have been opened.
    fn opened(&self) -> Reach {
        let connecting = self.connecting.iter().map(|connecting| connecting.reach);
        let opening = self.opening.iter().map(|opening| opening.reach);
        connecting.chain(opening).fold(self.reach, Reach::max)
    }

    /// Why there can be no links of that reach, once that was found.
    pub(crate) fn unlinked(&self, reach: Reach) -> Option<&Unlinked> {
        self.unlinked.as_ref().filter(|(least, _)| *least <= reach).map(|(_, why)| why)
    }

    /// That `rank` cannot be sent to.
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

    /// Word of a failure has to go to all of them.
    pub(super) fn hear(&mut self) {
        self.links.values_mut().for_each(|link| link.mailbox.untold = true);
    }

    /// Those that have still to be told; `tell` says whether one still has.
    pub(super) fn pass_on(&mut self, mut tell: impl FnMut(LaneId) -> bool) {
        for link in self.links.values_mut().filter(|link| link.mailbox.untold) {
            link.mailbox.untold = tell(link.lane);
        }
    }

    /// Those of all links, be they connected or not.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let connected = self.links.values().map(|link| link.lane);
        let connecting = self.connecting.iter().flat_map(Connecting::lanes);
        connected.chain(connecting).chain(self.opening.iter().flat_map(Opening::lanes))
    }

    /// An operation begins: its messages are counted from here on.
    pub(crate) fn begin(&mut self, scratch_bytes: usize) {
        for Boxes { outbox, inbox, sent_before, received_before, agreed, ranges, .. } in
            self.links.values_mut().map(|link| &mut link.mailbox)
        {
            (*sent_before, *received_before) = (outbox.sent(), inbox.given_back());
            (*agreed, *ranges) = (false, 0);
        }
        if self.scratch.len() < scratch_bytes {
            self.scratch.resize(scratch_bytes, 0);
        }
    }

    /// Sorts what has come; `told` is what a rank says.
    pub(super) fn take_arrivals(
        &mut self,
        core: &mut Core,
        mut told: impl FnMut(u32, Told),
    ) -> Result<(), Lost> {
        for (&rank, link) in &mut self.links {
            let Some(lane) = core.lane(link.lane) else { continue };
            let Boxes { outbox, inbox, .. } = &mut link.mailbox;
            while let Some(arrival) = lane.take() {
                match arrival {
                    Arrival::Imm(Imm::Freed { count }, _) if outbox.freed(count) => {}
                    Arrival::Imm(Imm::Message { slot, turn }, bytes) if inbox.announce(slot, turn, bytes) => {
                    }
                    Arrival::Imm(..) => return Err(violation(rank, lane, "an immediate that cannot be")),
                    Arrival::Control(received) => {
                        let word = read_control(lane, received.bytes());
                        lane.recycle(received);
                        match word {
                            Some(word @ (Told::Waits(_) | Told::Abort(_))) => told(rank, word),
                            _ => {
                                let what = "a control message that does not belong here";
                                return Err(violation(rank, lane, what));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Ranks of which nothing comes any more, be it that they have left in good order.
    pub(crate) fn ended<'a>(&'a self, core: &'a mut Core) -> impl Iterator<Item = Lost> + 'a {
        self.links.values().filter_map(|link| link.ended(core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_go_both_ways_and_a_tree_of_any_root_has_its() {
        for world in 1..20 {
            for reach in [Reach::Neighbours, Reach::Doublings, Reach::All] {
                for rank in 0..world {
                    let peers: Vec<u32> = reach.peers(rank, world).collect();
                    assert!(!peers.contains(&rank));
                    assert!(peers.iter().all(|peer| reach.peers(*peer, world).any(|back| back == rank)));
                    // Words of all ranks are of one length.
                    assert_eq!(peers.len(), reach.peers(0, world).count());
                }
            }
            for (root, bit) in (0..world).flat_map(|root| (0..5).map(move |bit| (root, bit))) {
                let child = (root + (1 << bit)) % world;
                assert!((1 << bit) >= world || Reach::Doublings.peers(root, world).any(|peer| peer == child));
            }
        }
        assert_eq!(Reach::Doublings.peers(3, 1024).count(), 19);
    }

    #[test]
    fn what_links_take_is_bounded() {
        let options = CommunicatorOptions::default();
        for world in [1, 2, 8, 16, 100, 1024, 65536] {
            let Geometry { slots, slot_bytes } = geometry(&options, world);
            let bytes = usize::from(slots) * slot_bytes * (world as usize - 1);
            assert!(bytes <= SLOTS_BYTES_MAX.max(usize::from(slots) * SLOT_BYTES_MIN * world as usize));
            assert!(slot_bytes.is_multiple_of(8) && slot_bytes <= options.slot_bytes);
        }
        let small = CommunicatorOptions { slot_bytes: 20, ..options };
        assert_eq!(geometry(&small, 1024).slot_bytes, 20);
    }
}
