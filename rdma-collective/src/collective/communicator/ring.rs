//! The two links of a ring that a rank has: what came over them for whatever operation, and word of a failure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::error::ReachError;
use rdma_core::{Deadline, PeerAccess};

use super::host::{HostGroup, MESSAGE_BYTES_MAX};
use super::mesh::Mesh;
use super::stalls::{Awaited, Direction, Stalls};
use crate::collective::operation::{ABORT, Abort, Header, OPERATION, WAITS, Waits};
use crate::engine::{Core, LaneId};
use crate::link::imm::Imm;
use crate::link::mailbox::{Inbox, Outbox};
use crate::link::{Arrival, Lane, control};
use crate::link::{LaneFailure, LaneName};

/// How long a lane may take to end: nothing else on the engine goes on meanwhile.
pub(super) const FENCE_WITHIN: Duration = Duration::from_secs(1);

/// The links of a communicator: those of the ring, and the windows of its host.
pub(super) type Links = (RingLinks, Option<HostGroup>);

/// The two neighbours of a ring.
#[derive(Debug)]
pub(crate) struct RingLinks {
    /// Where this rank sends to, and gets slots back from.
    pub(crate) next: Neighbour<Outbox>,
    /// Where this rank receives from, and gives slots back to.
    pub(crate) previous: Neighbour<Inbox>,
    /// What the rank before has said of operations that have not taken it. It can be some ahead when there is nothing to
    /// reduce, fewer than there are ranks: each completes when the one before it has begun.
    pub(crate) ahead: VecDeque<Header>,
    /// It has said more than can be: this was the first too many, and is no operation of these.
    pub(crate) beyond: Option<Header>,
    /// The first word of a failure, from a neighbour or from here. It may be of an operation that this rank has not
    /// begun; the present one may complete then.
    pub(crate) abort: Option<Abort>,
    /// Whether the rank after and the rank before have still to be told of it.
    untold: [bool; 2],
    /// Whom ranks wait for.
    stalls: Stalls,
    /// The links to ranks that are no neighbours, or not in that direction.
    pub(crate) mesh: Mesh,
    /// When the present operation gives up.
    until: Option<Instant>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Neighbour<B> {
    pub(crate) rank: u32,
    pub(crate) lane: LaneId,
    pub(crate) name: LaneName,
    pub(crate) mailbox: B,
    pub(super) access: PeerAccess,
}

/// A neighbour of which nothing comes any more.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    pub(crate) rank: u32,
    pub(crate) lane: LaneName,
    pub(crate) cause: LaneFailure,
    /// How long this process did not run before it found that, when that is why.
    pub(crate) away: Option<Duration>,
}

impl Lost {
    /// Whether it is more than an end in good order, of that rank or of this one.
    pub(crate) fn is_loss(&self) -> bool {
        !matches!(self.cause, LaneFailure::Closed | LaneFailure::Fenced)
    }
}

/// Bytes that are copied or reduced at a time: so few that two such pieces are in the processor's first cache still when
/// they are reduced, and that the C library copies them without string instructions, which emulators make byte by byte.
pub(crate) const PIECE_BYTES: usize = 8 * 1024;

/// Room for two such pieces, or messages.
pub(crate) type Scratch = [[u8; MESSAGE_BYTES_MAX]; 2];

pub(super) fn scratch() -> Box<Scratch> {
    Box::new([[0; MESSAGE_BYTES_MAX]; 2])
}

/// What an operation works with.
pub(crate) struct CommContext<'a> {
    pub(crate) rank: u32,
    /// Absent when the rank is alone.
    pub(crate) ring: Option<&'a mut RingLinks>,
    /// Absent unless all ranks are on one host.
    pub(crate) host: Option<&'a HostGroup>,
    /// When to look for messages of the host group again, which wake nobody.
    pub(crate) look_at: &'a mut Option<Instant>,
    /// Room for two pieces that are reduced.
    pub(crate) scratch: &'a mut Scratch,
}

impl RingLinks {
    /// Links of `rank` over which nothing has come yet, in a ring of `world` ranks.
    pub(super) fn new(
        next: Neighbour<Outbox>,
        previous: Neighbour<Inbox>,
        (rank, world): (u32, u32),
        mesh: Mesh,
    ) -> Self {
        let ahead = VecDeque::with_capacity(world as usize);
        let stalls = Stalls::new(rank, [next.rank, previous.rank], world);
        let (beyond, abort, untold) = (None, None, [false; 2]);
        Self { next, previous, ahead, beyond, abort, untold, stalls, mesh, until: None }
    }

    /// To the rank after and to the rank before.
    pub(crate) fn lanes(&self) -> [LaneId; 2] {
        [self.next.lane, self.previous.lane]
    }

    /// Those, and those of the mesh.
    pub(crate) fn all_lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.lanes().into_iter().chain(self.mesh.lanes())
    }

    /// From now on the silence of the ranks that there are links to is looked into.
    pub(crate) fn watch(&self, core: &mut Core, now: Instant) {
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.watch(now);
            }
        }
    }

    /// The links that were being made are there, and the operation under way may wait for them.
    pub(crate) fn take_links(&mut self, core: &mut Core) {
        let now = core.driven();
        for (rank, id) in self.mesh.take_links() {
            self.stalls.link(rank);
            let Some(lane) = core.lane(id) else { continue };
            lane.set_quiet(false);
            lane.watch(now);
            if let Some(until) = self.until {
                lane.give_up_at(until);
            }
        }
    }

    /// The operation that begins now gives up at `deadline`.
    pub(super) fn give_up_at(&mut self, core: &mut Core, deadline: Deadline) {
        let left = deadline.instant().saturating_duration_since(core.driven());
        // Word of who is late has to go around before.
        self.stalls.begin(core.heartbeat().min(left / 2));
        self.until = Some(deadline.instant());
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.give_up_at(deadline.instant());
            }
        }
    }

    /// No operation waits for the neighbours any more.
    pub(crate) fn unwatch(&mut self, core: &mut Core) {
        self.stalls.end();
        for lane in self.all_lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.unwatch();
            }
        }
        self.tell_waits(core);
    }

    /// Sorts what both neighbours have sent, and the ranks of the mesh.
    ///
    /// # Errors
    ///
    /// The rank that has sent what it may not send; its lane has ended.
    pub(crate) fn take_arrivals(&mut self, core: &mut Core) -> Result<(), Lost> {
        let (next, previous) = (self.next.lane, self.previous.lane);
        let neighbours =
            [(Direction::Next, self.next.rank, next), (Direction::Previous, self.previous.rank, previous)];
        for (side, rank, id) in neighbours {
            let Some(lane) = core.lane(id) else { continue };
            while let Some(arrival) = lane.take() {
                match arrival {
                    Arrival::Imm(Imm::Freed { count }, _) if id == next && self.next.mailbox.freed(count) => {
                    }
                    Arrival::Imm(Imm::Message { slot, turn }, bytes)
                        if id == previous && self.previous.mailbox.announce(slot, turn, bytes) => {}
                    Arrival::Imm(..) => return Err(violation(rank, lane, "an immediate that cannot be")),
                    Arrival::Control(received) => {
                        let told = read_control(lane, received.bytes());
                        lane.recycle(received);
                        match told {
                            Some(Told::Abort(abort)) => self.hear(abort),
                            Some(Told::Header(header)) if id == previous => self.keep(header),
                            Some(Told::Waits(waits)) => self.stalls.hear(side, waits),
                            _ => {
                                let what = "a control message that does not belong here";
                                return Err(violation(rank, lane, what));
                            }
                        }
                    }
                }
            }
        }
        let (stalls, mut aborts) = (&mut self.stalls, None);
        let taken = self.mesh.take_arrivals(core, |rank, told| match told {
            Told::Waits(waits) => stalls.hear_linked(rank, waits),
            Told::Abort(abort) => first(&mut aborts, abort),
            Told::Header(_) => {}
        });
        if let Some(abort) = aborts {
            self.hear(abort);
        }
        taken
    }

    /// Keeps a header until its operation takes it.
    pub(crate) fn keep(&mut self, header: Header) {
        if self.ahead.len() < self.ahead.capacity() {
            self.ahead.push_back(header);
        } else {
            self.beyond.get_or_insert(header);
        }
    }

    /// Notes a failure, which neighbours tell of or this rank has found, to be passed on. One of an earlier operation goes before
    /// what is known: ranks may be in that one, which the later failure does not end, and whoever tells of it leaves with its
    /// word.
    pub(super) fn hear(&mut self, abort: Abort) {
        if self.abort.is_none_or(|known| abort.sequence < known.sequence) {
            self.abort = Some(abort);
            self.untold = [true; 2];
            self.mesh.hear();
        }
    }

    /// Tells both neighbours of a failure, unless they are told of an earlier one. Who has no room for it now is told
    /// by [`pass_on`](Self::pass_on).
    pub(crate) fn tell(&mut self, core: &mut Core, abort: Abort) {
        self.hear(abort);
        self.pass_on(core);
        core.flush();
    }

    /// Passes word of a failure on to neighbours that could not be told before.
    pub(crate) fn pass_on(&mut self, core: &mut Core) {
        let Some(abort) = self.abort else { return };
        for (untold, id) in self.untold.iter_mut().zip([self.next.lane, self.previous.lane]) {
            // One that is gone need not be told, nor one that cannot.
            let lane = core.lane(id).filter(|lane| *untold && lane.can_hear());
            *untold = lane.is_some_and(|lane| lane.last_word(ABORT, |body| abort.write(body)) == Ok(false));
        }
        self.mesh.pass_on(|id| {
            let lane = core.lane(id).filter(|lane| lane.can_hear());
            lane.is_some_and(|lane| lane.last_word(ABORT, |body| abort.write(body)) == Ok(false))
        });
    }

    /// Operation `sequence` waits for another rank, and has done nothing `since`: that is told after a while.
    pub(crate) fn wait(&mut self, core: &mut Core, sequence: u64, awaited: Awaited, since: Instant) {
        self.stalls.wait(sequence, awaited, since);
        self.tell_waits(core);
    }

    /// The rank that operation `sequence` waits for at last.
    pub(crate) fn late(&self, sequence: u64, awaited: Awaited) -> u32 {
        self.stalls.culprit(sequence, awaited)
    }

    /// Tells neighbours whom this rank waits for, when they should know.
    pub(super) fn tell_waits(&mut self, core: &mut Core) {
        if self.abort.is_some() {
            self.stalls.end();
            return;
        }
        self.stalls.update(core.driven());
        let Some(waits) = self.stalls.said() else { return };
        for (unsaid, id) in self.stalls.unsaid.iter_mut().zip([self.next.lane, self.previous.lane]) {
            let lane = core.lane(id).filter(|lane| *unsaid && lane.ended().is_none());
            *unsaid = lane.is_some_and(|lane| lane.control(WAITS, |body| waits.write(body)) == Ok(false));
        }
        let mesh = &self.mesh;
        self.stalls.tell_linked(|rank| {
            let lane = mesh.link(rank).and_then(|link| core.lane(link.lane));
            lane.filter(|lane| lane.ended().is_none())
                .is_some_and(|lane| lane.control(WAITS, |body| waits.write(body)) == Ok(false))
        });
    }

    /// When to [tell](Self::tell_waits) them, though nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.stalls.next_deadline()
    }

    /// A rank of which nothing comes any more, though it has not left in good order.
    pub(crate) fn lost(&self, core: &mut Core) -> Option<Lost> {
        let near = self.ended(core).into_iter().flatten().find(Lost::is_loss);
        near.or_else(|| self.mesh.ended(core).find(Lost::is_loss))
    }

    /// How long this process was away, when neighbours have ended meanwhile: in good order, too, since they had to go on
    /// without it.
    pub(crate) fn left_behind(&self, core: &mut Core) -> Option<Duration> {
        let near = self.ended(core).into_iter().flatten().find_map(|lost| lost.away);
        near.or_else(|| self.mesh.ended(core).find_map(|lost| lost.away))
    }

    /// A rank of this host has left what it may not leave: a lane to it ends, if there is one.
    pub(crate) fn violation_of(&self, core: &mut Core, rank: u32, what: &str) -> Lost {
        let (next, previous) = (&self.next, &self.previous);
        let (of, name) =
            if rank == next.rank { (next.lane, next.name) } else { (previous.lane, previous.name) };
        match core.lane(of).filter(|_| [next.rank, previous.rank].contains(&rank)) {
            Some(lane) => violation(rank, lane, what),
            None => Lost { rank, lane: name, cause: LaneFailure::Violation(what.into()), away: None },
        }
    }

    /// Neighbours of which nothing comes any more, be it that they have left in good order: the one after, the one before.
    pub(crate) fn ended(&self, core: &mut Core) -> [Option<Lost>; 2] {
        [self.next.ended(core), self.previous.ended(core)]
    }
}

/// Of neighbours that have [ended](RingLinks::ended) the one for which an operation ends that `waits` for them, or not: one that left
/// in good order has done all that was asked of it, unless it is waited for. It may have left because of the other, which is
/// named then.
pub(crate) fn at_fault(ended: [Option<Lost>; 2], waits: [bool; 2]) -> Option<Lost> {
    let matters = |(lost, waits): &(Lost, bool)| *waits || !matches!(lost.cause, LaneFailure::Closed);
    let ended = ended.into_iter().zip(waits).filter_map(|(lost, waits)| Some((lost?, waits)));
    ended.filter(matters).map(|(lost, _)| lost).min_by_key(|lost| !lost.is_loss())
}

impl<B> Neighbour<B> {
    /// It cannot be told anything.
    pub(crate) fn refused(&self, why: &ReachError) -> Lost {
        let cause = LaneFailure::Device(why.to_string().into());
        Lost { rank: self.rank, lane: self.name, cause, away: None }
    }

    /// Why nothing comes of it any more, be it that it has left in good order.
    pub(crate) fn ended(&self, core: &mut Core) -> Option<Lost> {
        let cause = core.lane(self.lane).map_or(Some(LaneFailure::Fenced), |lane| lane.ended())?;
        Some(Lost { rank: self.rank, lane: self.name, cause, away: core.away_from(self.lane) })
    }
}

/// The failure of the earlier operation goes before.
fn first(known: &mut Option<Abort>, abort: Abort) {
    if known.is_none_or(|known| abort.sequence < known.sequence) {
        *known = Some(abort);
    }
}

pub(super) enum Told {
    Abort(Abort),
    Header(Header),
    Waits(Waits),
}

pub(super) fn read_control(lane: &Lane, bytes: &[u8]) -> Option<Told> {
    let message = control::decode(bytes, lane.name().epoch).ok()?;
    match message.kind {
        ABORT => Abort::read(message.body).ok().map(Told::Abort),
        OPERATION => Header::read(message.body).ok().map(Told::Header),
        WAITS => Waits::read(message.body).ok().map(Told::Waits),
        _ => None,
    }
}

/// A neighbour that has sent what it may not send.
pub(crate) fn violation(rank: u32, lane: &mut Lane, what: &str) -> Lost {
    lane.violation(what);
    let cause = lane.ended().unwrap_or(LaneFailure::Fenced);
    Lost { rank, lane: lane.name(), cause, away: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_lost_is_at_fault_before_who_left_because_of_it() {
        let lane = LaneName { qp_num: rdma_core::QpNum(7), epoch: 0 };
        let ended = |rank, cause| Some(Lost { rank, lane, cause, away: None });
        let dead = || ended(0, LaneFailure::Silent { since: Duration::from_secs(1) });
        let left = || ended(2, LaneFailure::Closed);
        let named = |ended, waits| at_fault(ended, waits).map(|lost| lost.rank);
        for waits in [[true, false], [false, true], [true; 2], [false; 2]] {
            assert_eq!(named([dead(), left()], waits), Some(0));
            assert_eq!(named([left(), dead()], waits), Some(0));
            assert_eq!(named([None, dead()], waits), Some(0));
            assert_eq!(named([left(), None], waits), waits[0].then_some(2));
            assert_eq!(named([None, None], waits), None);
        }
    }
}
