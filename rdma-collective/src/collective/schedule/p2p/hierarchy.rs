//! All-reduce of ranks on several hosts: inside each host first, then between hosts, then inside each host again.
//!
//! As many ranks of each host as the smallest host has own a column of the buffer each. They reduce it for their host, then around
//! a ring of the owners of the same column on all hosts, and leave it to the others of their host.
//!
//! The buffer is done in pieces, each in four stages, and a beat after one piece the next one begins: while one is reduced between hosts,
//! the one before it is spread between them, the one before that inside hosts, and the next one is gathered there. So neither what is
//! between hosts nor what is inside them rests while the other is at work.
//!
//! No deadlock: a beat is a number of steps, the same on all ranks, in each of which a rank first sends all that it sends in it, and then
//! receives. What is sent in a step is received in that step or a later one, before the next of its stage is sent. So of the two stages
//! that a link is of, one message each is under way, and both fit its slots: no rank waits for room in what is not received in an earlier
//! step, and none for a message that is not sent in this one or before.

use std::sync::Arc;

use super::round::Round;
use super::{Algorithm, P2pSchedule};
use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Operation, Place, Span};
use crate::groups::Groups;

/// See the module; all but `own` and `host` is the same on all ranks.
#[derive(Clone, Debug)]
pub(super) struct Hierarchy {
    hosts: Arc<Groups>,
    /// The place of this rank among the ranks of its host.
    own: usize,
    /// The place of its host among all.
    host: usize,
    /// Ranks of the largest host.
    most: usize,
    /// Ranks of the smallest one.
    columns: usize,
    count: usize,
    element: usize,
    /// Pieces of the buffer.
    pieces: usize,
    /// How many beats after one piece the next one begins: where a link has room for one message, when that is done.
    apart: usize,
}

/// What a host sends to another in a round, at least, if it sends several pieces: less of it takes no less time, since any comes late by as much (5 us
/// at 100 Gb/s).
const ROUND_BYTES: usize = 64 << 10;
/// Pieces of a buffer that is long enough, unless slots ask for more: with the first and the last the links between hosts rest.
const PIECES: usize = 8;

/// What is done with a piece, in their order.
#[derive(Clone, Copy)]
enum Stage {
    GatherNear,
    ReduceFar,
    SpreadFar,
    SpreadNear,
}

/// In which order they send in a step, the earlier piece of a link first; what passes no NIC is received before what does.
const SENDS: [Stage; 4] = [Stage::SpreadFar, Stage::ReduceFar, Stage::SpreadNear, Stage::GatherNear];
const RECEIVES: [Stage; 4] = [Stage::SpreadNear, Stage::GatherNear, Stage::SpreadFar, Stage::ReduceFar];
const STAGES: usize = SENDS.len();

/// A cut of all of the buffer, in elements.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    count: usize,
}

impl Part {
    fn split(self, parts: usize, index: usize) -> Self {
        let (start, count) = split(self.count, parts, index);
        Self { start: self.start + start, count }
    }
}

impl P2pSchedule {
    /// All-reduce of ranks on several hosts, of which `hosts` names that of each rank by a number: reduced inside each host first,
    /// then between hosts, and left to all ranks of each host.
    ///
    /// Between hosts a rank sends `2 (h-1)/h` of its column, where there are `h` hosts: of all of the buffer one of as many columns
    /// as the smallest host has ranks. Ranks beyond that, of a larger host, send nothing to other hosts. The buffer is done in
    /// pieces, of which one is inside hosts while another is between them.
    ///
    /// A column is reduced by its owner from the ranks of its host, beginning with its own and going back from there, and then around the
    /// hosts.
    ///
    /// # Errors
    /// As [`halving_doubling`](Self::halving_doubling); and [`ScheduleError::Hosts`] when not every rank has a host.
    pub(crate) fn hierarchical(operation: Operation, hosts: &Arc<Groups>) -> Result<Self, ScheduleError> {
        operation.check()?;
        Self::new(&operation, Algorithm::Hierarchy(Hierarchy::new(&operation, hosts)?))
    }
}

impl Hierarchy {
    fn new(operation: &Operation, hosts: &Arc<Groups>) -> Result<Self, ScheduleError> {
        let Operation { rank, ranks, count, data_type, staging } = *operation;
        let (named, element) = (hosts.ranks(), data_type.size());
        let Some(host) = hosts.of(rank).filter(|_| named == ranks as usize) else {
            return Err(ScheduleError::Hosts { named, ranks });
        };
        let sizes = || hosts.all().iter().map(Vec::len);
        let (columns, most) = (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1));
        let own = hosts.all()[host].partition_point(|member| *member < rank);
        // Of each column so much as is under way on a link, if two pieces are.
        let slots = usize::from(staging.slots);
        let longest =
            columns.saturating_mul(staging.slot_elements(element)?.saturating_mul((slots / 2).max(1)));
        let worth = (count * element / hosts.all().len() / ROUND_BYTES).clamp(1, PIECES);
        let pieces = count.div_ceil(longest).max(worth.min(count));
        let apart = if slots < 2 { STAGES } else { 1 };
        Ok(Self { hosts: Arc::clone(hosts), own, host, most, columns, count, element, pieces, apart })
    }

    /// The ranks of its host.
    fn near(&self) -> &[u32] {
        &self.hosts.all()[self.host]
    }

    fn hosts(&self) -> usize {
        self.hosts.all().len()
    }

    /// The beats.
    pub(super) fn passes(&self) -> u64 {
        self.pieces.checked_sub(1).map_or(0, |last| (last * self.apart + STAGES) as u64)
    }

    /// In each step of a beat what each stage sends, and then what it receives.
    pub(super) fn rounds(&self) -> u32 {
        (self.steps() * 2 * STAGES) as u32
    }

    /// As many as the longest stage has rounds.
    fn steps(&self) -> usize {
        self.most.max(self.hosts()) - 1
    }

    pub(super) fn round(&self, beat: u64, round: u32) -> Round {
        let (step, turn) = (round as usize / (2 * STAGES), round as usize % (2 * STAGES));
        let receives = turn >= STAGES;
        let stage = if receives { RECEIVES[turn - STAGES] } else { SENDS[turn] };
        let begun =
            (beat as usize).checked_sub(stage as usize).filter(|begun| begun.is_multiple_of(self.apart));
        let Some(number) = begun.map(|begun| begun / self.apart).filter(|number| *number < self.pieces)
        else {
            return Round::default();
        };
        let rounds = match stage {
            Stage::GatherNear | Stage::SpreadNear => self.most - 1,
            Stage::ReduceFar | Stage::SpreadFar => self.hosts() - 1,
        };
        let Some(index) = self.index(step, rounds, receives) else { return Round::default() };
        let piece = Part { start: 0, count: self.count }.split(self.pieces, number);
        let both = match stage {
            Stage::GatherNear => self.gather_near(piece, index + 1),
            Stage::SpreadNear => self.spread_near(piece, index + 1),
            _ if self.own >= self.columns => Round::default(),
            Stage::ReduceFar => self.reduce_far(piece, index),
            Stage::SpreadFar => self.spread_far(piece, index),
        };
        if receives { Round { send: None, ..both } } else { Round { receive: None, ..both } }
    }

    /// Which of a stage's rounds sends in a step, or receives: they share the steps, send in the first of theirs and receive in the last.
    fn index(&self, step: usize, rounds: usize, receives: bool) -> Option<usize> {
        let at = |step: usize| step * rounds / self.steps();
        let index = at(step);
        let edge = if receives { at(step + 1) > index } else { step == 0 || at(step - 1) < index };
        (rounds > 0 && edge).then_some(index)
    }

    /// Whom a rank sends to, and receives from, at a distance inside its host, if that is so large.
    fn at(&self, distance: usize) -> Option<[usize; 2]> {
        let ranks = self.near().len();
        (distance < ranks).then(|| [(self.own + distance) % ranks, (self.own + ranks - distance) % ranks])
    }

    fn place(&self, buffer: Buffer, part: Part) -> Place {
        let Part { start, count } = part;
        Place::of(buffer, Span { offset: start * self.element, len: count * self.element })
    }

    /// Every owner reduces its column of what the ranks of its host have.
    fn gather_near(&self, piece: Part, distance: usize) -> Round {
        let Some([to, from]) = self.at(distance) else { return Round::default() };
        let column = |index| piece.split(self.columns, index);
        let mut round = Round::default();
        if to < self.columns {
            // It is overwritten by what the owner makes of it.
            round = round.and(Round::send(self.near()[to], self.place(Buffer::Input, column(to)), false));
        }
        if self.own < self.columns {
            let first = if distance == 1 { Buffer::Input } else { Buffer::Output };
            let [operand, target] = [first, Buffer::Output].map(|of| self.place(of, column(self.own)));
            let last = self.hosts() == 1 && distance + 1 == self.near().len();
            round = round.and(Round::reduce_from(self.near()[from], operand, target, last));
        }
        round
    }

    /// The owner of its column on the next host, and on the one before.
    fn around(&self) -> [u32; 2] {
        let hosts = self.hosts.all();
        [1, hosts.len() - 1].map(|distance| hosts[(self.host + distance) % hosts.len()][self.own])
    }

    /// This rank's column, of which each host has a segment; by how many hosts it is before this one.
    fn segment(&self, piece: Part, before: usize) -> Part {
        let hosts = self.hosts();
        let index = (self.host + 2 * hosts - before) % hosts;
        piece.split(self.columns, self.own).split(hosts, index)
    }

    /// Around the owners, a segment each.
    fn reduce_far(&self, piece: Part, round: usize) -> Round {
        let [next, previous] = self.around();
        let (sent, received) = (self.segment(piece, round), self.segment(piece, round + 1));
        // What nobody else of the host has been in.
        let have = if self.near().len() == 1 { Buffer::Input } else { Buffer::Output };
        let source = if round == 0 { have } else { Buffer::Output };
        // It comes back complete, and so after it was used.
        Round::send(next, self.place(source, sent), false).and(Round::reduce_from(
            previous,
            self.place(have, received),
            self.place(Buffer::Output, received),
            round + 2 == self.hosts(),
        ))
    }

    fn spread_far(&self, piece: Part, round: usize) -> Round {
        let [next, previous] = self.around();
        // The last that was received is complete: that of the next host.
        let sent = self.segment(piece, self.hosts() + round - 1);
        let received = self.segment(piece, round);
        let [sent, received] = [sent, received].map(|part| self.place(Buffer::Output, part));
        Round::send(next, sent, false).and(Round::copy_from(previous, received))
    }

    /// Every owner leaves its column to the ranks of its host.
    fn spread_near(&self, piece: Part, distance: usize) -> Round {
        let Some([to, from]) = self.at(distance) else { return Round::default() };
        let column = |index| self.place(Buffer::Output, piece.split(self.columns, index));
        let mut round = Round::default();
        if self.own < self.columns {
            round = round.and(Round::send(self.near()[to], column(self.own), false));
        }
        if from < self.columns {
            round = round.and(Round::copy_from(self.near()[from], column(from)));
        }
        round
    }
}
