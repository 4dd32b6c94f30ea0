//! The hierarchical all-reduce of ranks on several hosts: inside each host, then between hosts, then inside each host
//! again.
//!
//! The buffer has as many columns as the smallest host has ranks, and each host has one owner of each column. The
//! owner reduces its column over the ranks of its host, then around a ring of the owners of that column on all hosts,
//! and then sends it to the other ranks of its host. Ranks of a larger host beyond the number of columns own none.
//!
//! The buffer is done in pieces, each in four [`Stage`]s. A beat after one piece begins, the next piece begins: while
//! one piece is reduced between hosts, the piece before it is spread between hosts, the piece before that inside
//! hosts, and the next piece is reduced inside hosts. So neither the links between hosts nor the links inside them
//! idle while the others work.
//!
//! No deadlock: a beat is a number of steps, the same on all ranks. In each step a rank first sends all messages of
//! that step, and then receives. A message sent in a step is received in that step or a later one, before the next
//! message of its stage is sent. Each link serves two stages, so that at most one message of each is under way, and
//! both fit its slots. No rank waits for room that only an earlier step could free, and none for a message that is
//! not sent in this step or an earlier one.

use std::sync::Arc;

use super::round::Round;
use super::{Algorithm, P2pSchedule};
use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Extent, Operation, Span};
use crate::groups::Groups;

/// The hierarchical all-reduce, as seen from one rank; all fields but `local` and `host` are the same on all ranks.
#[derive(Clone, Debug)]
pub(super) struct Hierarchy {
    hosts: Arc<Groups>,
    /// The index of this rank among the ranks of its host.
    local: usize,
    /// The index of its host.
    host: usize,
    /// Ranks of the largest host.
    largest: usize,
    /// Columns of the buffer: ranks of the smallest host.
    columns: usize,
    count: usize,
    /// Bytes of an element.
    element: usize,
    /// Pieces of the buffer.
    pieces: usize,
    /// Beats from the beginning of one piece to the beginning of the next: all four stages where a link has room for
    /// only one message.
    interval: usize,
}

/// The least bytes that a host sends to another in a round, if the buffer is cut into several pieces. Fewer bytes
/// take no less time, because the latency of a message (5 us) is the time of 64 KiB at 100 Gb/s.
const ROUND_BYTES: usize = 64 << 10;
/// Pieces of a buffer that is long enough, unless slots ask for more. More pieces overlap better, because the links
/// between hosts idle during the first and the last piece.
const PIECES: usize = 8;

/// The stages of a piece, in their order.
#[derive(Clone, Copy)]
enum Stage {
    /// Each owner reduces its column over the ranks of its host.
    IntraReduce,
    /// The owners of a column reduce-scatter it around their ring.
    InterReduceScatter,
    /// The owners of a column all-gather it around their ring.
    InterAllGather,
    /// Each owner sends its column to the ranks of its host.
    IntraBroadcast,
}

use Stage::{InterAllGather, InterReduceScatter, IntraBroadcast, IntraReduce};

/// The order in which stages send in a step: of the two stages of a link, the stage with the earlier piece first.
const SENDS: [Stage; 4] = [InterAllGather, InterReduceScatter, IntraBroadcast, IntraReduce];
/// The order in which stages receive in a step: messages inside the host first, because they pass no NIC and arrive
/// earlier.
const RECEIVES: [Stage; 4] = [IntraBroadcast, IntraReduce, InterAllGather, InterReduceScatter];
const STAGES: usize = SENDS.len();

/// A contiguous range of the buffer, in elements.
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

/// The rank that a rank sends to in a round, and the rank that it receives from.
#[derive(Clone, Copy)]
struct Peers<T> {
    to: T,
    from: T,
}

impl P2pSchedule {
    /// All-reduce of ranks on the given hosts: reduced inside each host first, then between hosts, and spread inside
    /// each host.
    ///
    /// With `h` hosts an owner sends `2 (h-1)/h` of its column to other hosts. Ranks that own no column send nothing
    /// to other hosts.
    ///
    /// The owner of a column reduces the ranks of its host beginning with its own input and going back from there,
    /// and then the hosts follow around their ring.
    ///
    /// # Errors
    /// As [`halving`](Self::halving); and [`ScheduleError::Hosts`] when not every rank has a host.
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
        let (columns, largest) = (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1));
        let local = hosts.all()[host].partition_point(|member| *member < rank);
        // Half of a link's slots hold the column of a piece, because two pieces share the link.
        let slots = usize::from(staging.slots);
        let longest =
            columns.saturating_mul(staging.slot_elements(element)?.saturating_mul((slots / 2).max(1)));
        let worth = (count * element / hosts.all().len() / ROUND_BYTES).clamp(1, PIECES);
        let pieces = count.div_ceil(longest).max(worth.min(count));
        let interval = if slots < 2 { STAGES } else { 1 };
        let hosts = Arc::clone(hosts);
        Ok(Self { hosts, local, host, largest, columns, count, element, pieces, interval })
    }

    /// The ranks of this rank's host.
    fn local_ranks(&self) -> &[u32] {
        &self.hosts.all()[self.host]
    }

    fn hosts(&self) -> usize {
        self.hosts.all().len()
    }

    /// The number of beats.
    pub(super) fn passes(&self) -> u64 {
        self.pieces.checked_sub(1).map_or(0, |last| (last * self.interval + STAGES) as u64)
    }

    /// The rounds of a beat: in each of its steps the messages that each stage sends, and then those that each stage
    /// receives.
    pub(super) fn rounds(&self) -> u32 {
        (self.steps() * 2 * STAGES) as u32
    }

    /// Steps of a beat: as many as the longest stage has rounds.
    fn steps(&self) -> usize {
        self.largest.max(self.hosts()) - 1
    }

    pub(super) fn round(&self, beat: u64, round: u32) -> Round {
        let (step, turn) = (round as usize / (2 * STAGES), round as usize % (2 * STAGES));
        let receives = turn >= STAGES;
        let stage = if receives { RECEIVES[turn - STAGES] } else { SENDS[turn] };
        let begun =
            (beat as usize).checked_sub(stage as usize).filter(|begun| begun.is_multiple_of(self.interval));
        let Some(number) = begun.map(|begun| begun / self.interval).filter(|number| *number < self.pieces)
        else {
            return Round::default();
        };
        let rounds = match stage {
            IntraReduce | IntraBroadcast => self.largest - 1,
            InterReduceScatter | InterAllGather => self.hosts() - 1,
        };
        let Some(index) = self.stage_round(step, rounds, receives) else { return Round::default() };
        let piece = Part { start: 0, count: self.count }.split(self.pieces, number);
        let both = match stage {
            IntraReduce => self.intra_reduce(piece, index + 1),
            IntraBroadcast => self.intra_broadcast(piece, index + 1),
            _ if self.local >= self.columns => Round::default(),
            InterReduceScatter => self.inter_reduce_scatter(piece, index),
            InterAllGather => self.inter_all_gather(piece, index),
        };
        if receives { Round { send: None, ..both } } else { Round { receive: None, ..both } }
    }

    /// The round of a stage that sends, or receives, in a step; `None` if none does.
    ///
    /// A stage with fewer rounds than the beat has steps stretches each round over several steps: it sends in the
    /// first of them and receives in the last, so that the message has the time between.
    fn stage_round(&self, step: usize, rounds: usize, receives: bool) -> Option<usize> {
        let at = |step: usize| step * rounds / self.steps();
        let index = at(step);
        let edge = if receives { at(step + 1) > index } else { step == 0 || at(step - 1) < index };
        (rounds > 0 && edge).then_some(index)
    }

    /// The indices of this rank's peers at a distance inside its host; `None` if the host has no rank that far.
    fn local_peers(&self, distance: usize) -> Option<Peers<usize>> {
        let ranks = self.local_ranks().len();
        (distance < ranks).then(|| Peers {
            to: (self.local + distance) % ranks,
            from: (self.local + ranks - distance) % ranks,
        })
    }

    /// The owners of this rank's column on the next host and on the previous one.
    fn column_peers(&self) -> Peers<u32> {
        let hosts = self.hosts.all();
        let owner = |distance: usize| hosts[(self.host + distance) % hosts.len()][self.local];
        Peers { to: owner(1), from: owner(hosts.len() - 1) }
    }

    /// The segment of this rank's column that belongs to the host `before` hosts before this one.
    fn segment(&self, piece: Part, before: usize) -> Part {
        let hosts = self.hosts();
        let index = (self.host + 2 * hosts - before) % hosts;
        piece.split(self.columns, self.local).split(hosts, index)
    }

    fn extent(&self, buffer: Buffer, part: Part) -> Extent {
        let Part { start, count } = part;
        Extent::of(buffer, Span { offset: start * self.element, len: count * self.element })
    }

    fn intra_reduce(&self, piece: Part, distance: usize) -> Round {
        let Some(Peers { to, from }) = self.local_peers(distance) else { return Round::default() };
        let column = |index| piece.split(self.columns, index);
        let mut round = Round::default();
        if to < self.columns {
            // No copy: this rank overwrites the column only with the result, which its owner makes after it has used
            // this message.
            let source = self.extent(Buffer::Input, column(to));
            round = round.and(Round::send(self.local_ranks()[to], source, false));
        }
        if self.local < self.columns {
            let first = if distance == 1 { Buffer::Input } else { Buffer::Output };
            let [operand, target] =
                [first, Buffer::Output].map(|buffer| self.extent(buffer, column(self.local)));
            let last = self.hosts() == 1 && distance + 1 == self.local_ranks().len();
            round = round.and(Round::reduce_from(self.local_ranks()[from], operand, target, last));
        }
        round
    }

    fn inter_reduce_scatter(&self, piece: Part, round: usize) -> Round {
        let Peers { to, from } = self.column_peers();
        let (sent, received) = (self.segment(piece, round), self.segment(piece, round + 1));
        // A rank that is alone on its host has reduced nothing yet, so that its column is still in the input.
        let have = if self.local_ranks().len() == 1 { Buffer::Input } else { Buffer::Output };
        let source = if round == 0 { have } else { Buffer::Output };
        // No copy: the segment is overwritten only by the complete result, which depends on this message.
        Round::send(to, self.extent(source, sent), false).and(Round::reduce_from(
            from,
            self.extent(have, received),
            self.extent(Buffer::Output, received),
            round + 2 == self.hosts(),
        ))
    }

    fn inter_all_gather(&self, piece: Part, round: usize) -> Round {
        let Peers { to, from } = self.column_peers();
        // The reduce-scatter ends with the segment of the next host, so that this rank spreads that segment first.
        let sent = self.segment(piece, self.hosts() + round - 1);
        let received = self.segment(piece, round);
        let [sent, received] = [sent, received].map(|part| self.extent(Buffer::Output, part));
        Round::send(to, sent, false).and(Round::copy_from(from, received))
    }

    fn intra_broadcast(&self, piece: Part, distance: usize) -> Round {
        let Some(Peers { to, from }) = self.local_peers(distance) else { return Round::default() };
        let column = |index| self.extent(Buffer::Output, piece.split(self.columns, index));
        let mut round = Round::default();
        if self.local < self.columns {
            round = round.and(Round::send(self.local_ranks()[to], column(self.local), false));
        }
        if from < self.columns {
            round = round.and(Round::copy_from(self.local_ranks()[from], column(from)));
        }
        round
    }
}
