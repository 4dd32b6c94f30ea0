//! Schedules in rounds over links between any ranks: halving and doubling, circulant rounds, the hierarchy of hosts,
//! binomial trees and pairs of trees, all-to-all pairwise and by Bruck's algorithm, and single sends and receives.
//!
//! An algorithm says what a rank sends and receives in a round (a [`Round`]). This file turns rounds into
//! [`Step`]s: it cuts messages to slots and returns credits.

mod all_to_all;
mod circulant;
mod cost;
mod cube;
mod cut;
mod halving;
mod hierarchy;
mod merging;
mod round;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod two_trees;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use self::all_to_all::Share;
use self::all_to_all::{Bruck, Pairs, Uneven};
use self::circulant::{Circulant, CirculantOp};
use self::cost::AllReduce;
pub(crate) use self::cost::LATENCY_BYTES;
use self::cube::Cube;
pub(crate) use self::cut::Cut;
use self::cut::Pieces;
use self::halving::Halving;
use self::hierarchy::Hierarchy;
use self::merging::Merging;
use self::round::{Copying, Receive, Round, doublings};
pub(crate) use self::transfer::Transfer;
use self::tree::{Tree, TreeOp};
use self::two_trees::TwoTrees;
use super::{Operation, Staging, Step};
use crate::collective::ScheduleError;

/// The steps of one rank in an algorithm of rounds, made one by one.
///
/// In a round a rank sends at most one message and receives at most one. Each message is cut into chunks that fit a
/// slot, and half of a link's slots may be under way. The link between two ranks takes its messages in the order of
/// rounds. A rank goes on to the next round when it has sent and received everything of the present one.
///
/// No deadlock: call a chunk earlier if its round is earlier or, within a round, if its number is less. A rank that
/// is about to send chunk `i` has received all chunks below `i - p`, where `p` is the number of chunks sent ahead. It
/// waits for a slot, that is for the receiver to use a chunk and give it back, which the receiver does before it
/// sends its own chunk `i`, or in an earlier round. A rank that waits for chunk `i` does so after it has sent its own
/// chunk `i`; the sender sends chunk `i` before it waits for a chunk that late. So every rank waits for a rank that
/// is behind it, and the rank that is furthest behind waits for none. The hierarchy and the exchange of short parts
/// have rounds that only send or only receive; their modules have arguments of their own.
///
/// A reduced buffer is the same bytes on all ranks, but its elements are not reduced in the order of ranks.
///
/// The built-in tuning table takes these wherever no protocol of shared memory applies, unless an operation is so long
/// that the latency of a ring is of no account. The hierarchy runs only where
/// [`Algorithms`](crate::collective::Algorithms) or a tuning file asks for it. All but pairwise exchange and the
/// hierarchy send to ranks at distances of powers of two alone.
#[derive(Clone, Debug)]
pub(crate) struct P2pSchedule {
    algorithm: Algorithm,
    cut: Cut,
    /// Messages of this schedule so far, by peer: the first peers here, and the others behind an allocation, so that a
    /// schedule with few peers allocates nothing.
    peers: [(u32, Counts); PEERS_KEPT],
    more: BTreeMap<u32, Counts>,
    /// The piece of the buffer that is done, and the round in it.
    pass: u64,
    round: u32,
    /// The present round, and the chunk of it that comes next.
    present: Round,
    next: u64,
    /// Steps made and not yet taken.
    ready: [Option<Step>; 6],
}

/// Peers of sixteen ranks at distances of powers of two, in both directions.
const PEERS_KEPT: usize = 7;
/// Stands for no peer: a rank is below the number of ranks.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Debug)]
enum Algorithm {
    Halving(Halving),
    Circulant(Circulant),
    Cube(Cube),
    Hierarchy(Hierarchy),
    Merging(Merging),
    Tree(Tree),
    TwoTrees(TwoTrees),
    Pairs(Pairs),
    Uneven(Uneven),
    Bruck(Bruck),
    Transfer(Transfer),
    /// A rank that is alone sends nothing.
    Nothing,
}

/// Messages sent to a peer, received from it, and given back to it.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    signalled: u64,
}

/// The most bytes of other ranks' sums that a rank keeps in a reduce-scatter: the round trips of a piece so long take
/// little of its time.
const SUMS_BYTES_MAX: usize = 2 << 20;

impl P2pSchedule {
    /// All-reduce by the algorithm that takes least time for so many bytes and ranks:
    /// [`halving`](Self::halving), [`circulant`](Self::circulant) or [`merging`](Self::merging).
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn all_reduce(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check()?;
        match cost::all_reduce(&operation) {
            AllReduce::Halving(halvings) => Self::halving(operation, halvings),
            AllReduce::Circulant => Self::circulant(operation),
            AllReduce::Merging => Self::merging(operation),
        }
    }

    /// All-reduce by recursive doubling with `halvings`: `log2 n` rounds, and one more for each halving. A rank sends
    /// all of the buffer in each round without halvings, and with as many as there can be `2 (n-1)/n` of the buffer,
    /// as in a ring.
    ///
    /// Where `n` is not a power of two there are two rounds more, with all of the buffer.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank is not one of the ranks, the count has more bytes than a buffer can, or the
    /// staging has no slot or none that an element fits.
    pub(crate) fn halving(operation: Operation, halvings: u32) -> Result<Self, ScheduleError> {
        operation.check()?;
        Self::new(&operation, Algorithm::Halving(Halving::new(&operation, halvings)))
    }

    /// All-reduce by a reduce-scatter and an all-gather in circulant rounds: twice `log2 n` of them, rounded up, in
    /// which a rank sends `2 (n-1)/n` of the buffer, for any `n`.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn circulant(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check()?;
        let circulant = Circulant::new(CirculantOp::AllReduce, &operation, Pieces::one(&operation));
        Self::new(&operation, Algorithm::Circulant(circulant))
    }

    /// All-reduce of few ranks in `log2 n` rounds, rounded up, with all of the buffer in each.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    fn merging(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check()?;
        Self::new(&operation, Algorithm::Merging(Merging::new(&operation)))
    }

    /// All-gather in `log2 n` rounds, rounded up. The count is that of a part.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn all_gather(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        Self::of_parts(&operation, CirculantOp::AllGather, Pieces::one(&operation))
    }

    /// Reduce-scatter in `log2 n` rounds, rounded up. The count is that of a part.
    ///
    /// Parts are done in pieces: a rank keeps at most so many bytes of sums that are not its own as
    /// [`SUMS_BYTES_MAX`], or one element of each.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn reduce_scatter(operation: Operation) -> Result<Self, ScheduleError> {
        Self::reduce_scatter_within(operation, SUMS_BYTES_MAX)
    }

    fn reduce_scatter_within(operation: Operation, bytes: usize) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        let kept = 1_usize << doublings(operation.ranks).saturating_sub(1);
        Self::of_parts(&operation, CirculantOp::ReduceScatter, Pieces::within(&operation, kept, bytes))
    }

    /// Partners exchange where the ranks are a power of two, because that sends fewer bytes to other hosts.
    fn of_parts(operation: &Operation, op: CirculantOp, pieces: Pieces) -> Result<Self, ScheduleError> {
        let algorithm = match operation.ranks.is_power_of_two() {
            true => Algorithm::Cube(Cube::new(op == CirculantOp::ReduceScatter, operation, pieces)),
            false => Algorithm::Circulant(Circulant::new(op, operation, pieces)),
        };
        Self::new(operation, algorithm)
    }

    /// Barrier in `log2 n` rounds, rounded up: a rank that has taken the last has heard of all ranks. The count is 1.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn barrier(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check()?;
        let circulant = Circulant::new(CirculantOp::Barrier, &operation, Pieces::one(&operation));
        Self::new(&operation, Algorithm::Circulant(circulant))
    }

    /// Broadcast of the buffer of `root`, by the trees that take least time for so many bytes and ranks.
    ///
    /// # Errors
    /// As [`halving`](Self::halving); and when the root is not one of the ranks.
    pub(crate) fn broadcast(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_root(root)?;
        let pieces = Pieces::passing(&operation, doublings(operation.ranks))?;
        if cost::two_trees(&operation, &pieces) {
            return Self::two_trees(operation, (false, root), pieces);
        }
        Self::tree(TreeOp::Broadcast, operation, root, Pieces::one(&operation))
    }

    /// Reduce to `root`, by the trees that take least time for so many bytes and ranks.
    ///
    /// The buffer is done in pieces: a rank keeps at most as many reduced bytes as a link's slots hold.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn reduce(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_root(root)?;
        let pieces = Pieces::passing(&operation, doublings(operation.ranks))?;
        if cost::two_trees(&operation, &pieces) {
            return Self::two_trees(operation, (true, root), pieces);
        }
        Self::tree(TreeOp::Reduce, operation, root, Pieces::fitting(&operation, 1)?)
    }

    /// Gather of the parts of all ranks at `root`, by a binomial tree of `log2 n` rounds. The count is that of a
    /// part.
    ///
    /// Parts are done in pieces: a rank keeps at most as many bytes of other ranks as a link's slots hold, or one
    /// element of each.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn gather(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        operation.check_root(root)?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize / 2)?;
        Self::tree(TreeOp::Gather, operation, root, pieces)
    }

    /// Scatter of a part to each rank from `root`: [`gather`](Self::gather) in the other direction.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn scatter(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        operation.check_root(root)?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize / 2)?;
        Self::tree(TreeOp::Scatter, operation, root, pieces)
    }

    /// All-to-all by pairwise exchange: part `j` of rank `i` becomes part `i` of rank `j`, in `n` rounds, each part
    /// sent once. The count is that of a part.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn all_to_all(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        Self::new(&operation, Algorithm::Pairs(Pairs::new(&operation)?))
    }

    /// All-to-all by Bruck's algorithm: `log2 n` rounds, in each of which a rank sends half of all parts; for short
    /// parts.
    ///
    /// Parts are done in pieces: a rank keeps at most as many bytes as a link's slots hold, or one element of each
    /// part.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn all_to_all_short(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize)?;
        Self::new(&operation, Algorithm::Bruck(Bruck::new(&operation, pieces)))
    }

    /// Pairwise exchange of parts of any length: `shares` has, for each rank, the spans that this rank sends and
    /// receives. The count of the operation is not used.
    ///
    /// # Errors
    /// As [`halving`](Self::halving).
    pub(crate) fn uneven(operation: Operation, shares: Arc<[Share]>) -> Result<Self, ScheduleError> {
        operation.check()?;
        let cut = Cut::new(operation.data_type.size(), &operation.staging)?.with_empty();
        Ok(Self::made(Algorithm::Uneven(Uneven::new(operation.rank, shares, &cut)), cut, None))
    }

    /// The spans exchanged with a rank, where parts are of any length.
    pub(crate) fn share(&self, peer: u32) -> Option<Share> {
        match &self.algorithm {
            Algorithm::Uneven(uneven) => Some(uneven.share(peer)),
            _ => None,
        }
    }

    /// Bytes of scratch that this rank needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        match &self.algorithm {
            Algorithm::Circulant(circulant) => circulant.kept() * circulant.pieces().longest(),
            Algorithm::Cube(cube) => cube.kept() * cube.pieces().longest(),
            Algorithm::Tree(tree) => tree.kept() * tree.pieces().longest(),
            Algorithm::TwoTrees(trees) => trees.kept() * trees.pieces().longest(),
            Algorithm::Bruck(bruck) => bruck.kept() * bruck.pieces().longest(),
            _ => 0,
        }
    }

    /// Whether the messages of all ranks join all of them, so that a rank that calls something else sends a message
    /// that another rank does not expect, or lacks one. Equal on all ranks.
    pub(crate) fn joins_all(&self) -> bool {
        match &self.algorithm {
            Algorithm::Halving(halving) => halving.joins_all(),
            Algorithm::Circulant(circulant) => circulant.joins_all(),
            Algorithm::Merging(merging) => merging.joins_all(),
            Algorithm::Pairs(pairs) => pairs.joins_all(),
            // Parts of no elements are messages, too.
            Algorithm::Uneven(_) => true,
            Algorithm::Transfer(_) => false,
            // Without elements there is no piece, and so no message.
            algorithm => algorithm.passes() > 0,
        }
    }

    fn two_trees(
        operation: Operation,
        (reduces, root): (bool, u32),
        pieces: Pieces,
    ) -> Result<Self, ScheduleError> {
        let trees = TwoTrees::new(reduces, &operation, root, pieces);
        // A piece is one message, because a rank may send as many pieces ahead as a link has slots.
        let staging = Staging { chunk_bytes_min: usize::MAX, ..operation.staging };
        Self::new(&Operation { staging, ..operation }, Algorithm::TwoTrees(trees))
    }

    fn tree(op: TreeOp, operation: Operation, root: u32, pieces: Pieces) -> Result<Self, ScheduleError> {
        Self::new(&operation, Algorithm::Tree(Tree::new(op, &operation, root, pieces)))
    }

    fn new(operation: &Operation, algorithm: Algorithm) -> Result<Self, ScheduleError> {
        let cut = Cut::new(operation.data_type.size(), &operation.staging)?;
        let alone = operation.check()?;
        Ok(Self::made(if operation.ranks == 1 { Algorithm::Nothing } else { algorithm }, cut, alone))
    }

    fn made(algorithm: Algorithm, cut: Cut, alone: Option<Step>) -> Self {
        let mut rounds = Self {
            algorithm,
            cut,
            peers: [(NOBODY, Counts::default()); PEERS_KEPT],
            more: BTreeMap::new(),
            pass: 0,
            round: 0,
            present: Round::default(),
            next: 0,
            ready: [alone, None, None, None, None, None],
        };
        if !rounds.is_over() {
            rounds.present = rounds.algorithm.round(0, 0);
        }
        rounds
    }

    fn is_over(&self) -> bool {
        self.pass == self.algorithm.passes() || self.algorithm.rounds() == 0
    }

    /// Makes the steps of one chunk number of the round: use a received chunk, then send the chunk that may follow
    /// it.
    fn advance(&mut self) {
        let Round { copy, send, receive } = self.present;
        let copy = copy.filter(|copy| self.next == 0 && !copy.source.is_empty());
        self.ready = [None; 6];
        self.ready[0] = copy.map(|Copying { source, target }| Step::Copy { source, target });
        let sends = send.map_or(0, |send| self.cut.chunks(send.source.len()));
        let receives = receive.map_or(0, |receive| self.cut.chunks(receive.target.len()));
        let index = self.next.checked_sub(self.cut.ahead);
        if let (Some(receive), Some(index)) = (receive, index.filter(|index| *index < receives)) {
            // A rank that sends to this peer, too, tells of free slots with its next message.
            let exchanges = send.is_some_and(|send| send.to == receive.from)
                || self.algorithm.sends_first() && self.counts(receive.from).sent > 0;
            let may_wait = exchanges && receives <= self.cut.ahead;
            let steps = self.receive(receive, index, index + 1 == receives, may_wait);
            self.ready[1..5].copy_from_slice(&steps);
        }
        if let Some(send) = send.filter(|_| self.next < sends) {
            let source = self.cut.chunk(send.source, self.next);
            let counts = self.counts(send.to);
            let message = counts.sent;
            counts.sent += 1;
            self.ready[5] = Some(Step::Put { to: send.to, message, source, copied: send.copied });
        }
        self.next += 1;
        if self.next >= sends.max(if receives > 0 { receives + self.cut.ahead } else { 0 }) {
            self.go_on();
        }
    }

    fn counts(&mut self, peer: u32) -> &mut Counts {
        let kept = self.peers.iter().position(|(known, _)| *known == peer || *known == NOBODY);
        let Some(at) = kept else { return self.more.entry(peer).or_default() };
        let (known, counts) = &mut self.peers[at];
        *known = peer;
        counts
    }

    fn receive(&mut self, receive: Receive, index: u64, end: bool, may_wait: bool) -> [Option<Step>; 4] {
        let Receive { from, target, operand, last, after } = receive;
        let signal_every = self.cut.signal_every;
        let counts = self.counts(from);
        let message = counts.received;
        counts.received += 1;
        let due = end || counts.received - counts.signalled >= signal_every;
        let signal = due.then(|| {
            counts.signalled = counts.received;
            Step::Signal { to: from, consumed: counts.received, may_wait }
        });
        let target = self.cut.chunk(target, index);
        let used = match operand {
            Some(operand) => {
                let operand = self.cut.chunk(operand, index);
                Step::ReduceFrom { from, message, operand, target, last }
            }
            None => Step::CopyFrom { from, message, target },
        };
        // The message comes first: as long as it is not there, the wait is for its sender.
        let free = after.map(|to| Step::WaitPut { to, message });
        [Some(Step::WaitCount { from, message }), free, Some(used), signal]
    }

    /// Goes on to the next round that is not empty.
    fn go_on(&mut self) {
        self.present = Round::default();
        while self.present.is_empty() {
            (self.next, self.round) = (0, self.round + 1);
            if self.round == self.algorithm.rounds() {
                (self.round, self.pass) = (0, self.pass + 1);
            }
            if self.is_over() {
                return;
            }
            self.present = self.algorithm.round(self.pass, self.round);
        }
    }
}

impl Algorithm {
    /// Whether a rank sends all its messages before it receives the first.
    fn sends_first(&self) -> bool {
        match self {
            Self::Pairs(pairs) => pairs.sends_first(),
            Self::Uneven(uneven) => uneven.sends_first(),
            _ => false,
        }
    }

    fn passes(&self) -> u64 {
        match self {
            Self::Hierarchy(hierarchy) => hierarchy.passes(),
            Self::Circulant(circulant) => circulant.pieces().len(),
            Self::Cube(cube) => cube.pieces().len(),
            Self::Tree(tree) => tree.pieces().len(),
            Self::TwoTrees(trees) => trees.pieces().len(),
            Self::Bruck(bruck) => bruck.pieces().len(),
            Self::Nothing => 0,
            _ => 1,
        }
    }

    fn rounds(&self) -> u32 {
        match self {
            Self::Halving(halving) => halving.rounds(),
            Self::Circulant(circulant) => circulant.rounds(),
            Self::Cube(cube) => cube.rounds(),
            Self::Hierarchy(hierarchy) => hierarchy.rounds(),
            Self::Merging(merging) => merging.rounds(),
            Self::Tree(tree) => tree.rounds(),
            Self::TwoTrees(trees) => trees.rounds(),
            Self::Pairs(pairs) => pairs.rounds(),
            Self::Uneven(uneven) => uneven.rounds(),
            Self::Bruck(bruck) => bruck.rounds(),
            Self::Transfer(_) => 1,
            Self::Nothing => 0,
        }
    }

    fn round(&self, pass: u64, round: u32) -> Round {
        match self {
            Self::Halving(halving) => halving.round(round),
            Self::Circulant(circulant) => circulant.round(pass, round),
            Self::Cube(cube) => cube.round(pass, round),
            Self::Hierarchy(hierarchy) => hierarchy.round(pass, round),
            Self::Merging(merging) => merging.round(round),
            Self::Tree(tree) => tree.round(pass, round),
            Self::TwoTrees(trees) => trees.round(pass, round),
            Self::Pairs(pairs) => pairs.round(round),
            Self::Uneven(uneven) => uneven.round(round),
            Self::Bruck(bruck) => bruck.round(pass, round),
            Self::Transfer(transfer) => transfer.round(),
            Self::Nothing => Round::default(),
        }
    }
}

impl Iterator for P2pSchedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.iter_mut().find_map(Option::take) {
                return Some(step);
            }
            if self.is_over() {
                return None;
            }
            self.advance();
        }
    }
}
