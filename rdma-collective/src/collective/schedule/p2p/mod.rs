//! Schedules in rounds, between any ranks: recursive doubling, halving and doubling, the hierarchy of hosts, binomial trees,
//! all-to-all in pairs and after Bruck, the dissemination barrier.
//!
//! An algorithm says what a rank sends and receives in a round; here it becomes steps, cut to slots, with credits.

mod all_to_all;
mod cut;
mod halving;
mod hierarchy;
mod round;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::iter::FusedIterator;
use std::sync::Arc;

pub(crate) use self::all_to_all::Share;
use self::all_to_all::{Bruck, Pairs, Uneven};
pub(crate) use self::cut::Cut;
use self::cut::Pieces;
use self::halving::Halving;
use self::hierarchy::Hierarchy;
use self::round::{Receive, Round};
use self::tree::{Along, Tree};
use super::{Operation, Primitive};
use crate::collective::ScheduleError;

/// The steps of one rank in an algorithm of rounds, made one by one.
///
/// In a round a rank sends one message at most and receives one at most, each of them cut into chunks that fit a slot, of
/// which half of a link's slots are under way; the link from one rank to another takes its messages in the order of rounds.
/// A rank goes on to the next round when it has sent and received all of one.
///
/// No deadlock: count rounds, and in a round chunks. A rank that is to send chunk `i` has received those below `i - p` and is
/// about to receive no other; it waits for the slot of a chunk that the receiver uses, and gives back, before it sends its
/// own chunk `i`, or of an earlier round. A rank that waits for chunk `i` does so after it has sent its own; the sender
/// sends it before it waits for any such. So every rank waits for one that is less far, and the one that is least far for
/// none.
///
/// What is reduced is the same bytes on all ranks that have it, but in no order of ranks.
///
/// The hierarchy of hosts has rounds that send or receive alone, and says by itself why none waits for ever.
///
/// Gather, scatter and all-to-all of a [`Communicator`](crate::collective::communicator::Communicator) take them, and so does a short all-reduce of several hosts;
/// the others but for recursive doubling and the barrier where they are asked for.
#[derive(Clone, Debug)]
pub(crate) struct P2pSchedule {
    algorithm: Algorithm,
    cut: Cut,
    /// How many of the present schedule's messages there were, by peer.
    peers: BTreeMap<u32, Counts>,
    pass: u64,
    round: u32,
    /// What is done in the present round, and how far it has come.
    present: Round,
    next: u64,
    /// Steps made and not yet taken.
    ready: [Option<Primitive>; 5],
}

#[derive(Clone, Debug)]
enum Algorithm {
    Halving(Halving),
    Hierarchy(Hierarchy),
    Tree(Tree),
    Pairs(Pairs),
    Uneven(Uneven),
    Bruck(Bruck),
    /// Of a rank that is alone.
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    signalled: u64,
}

impl P2pSchedule {
    /// All-reduce by halving and doubling: `2 log2 n` rounds, in which a rank sends `2 (n-1)/n` of the buffer, as in a ring.
    ///
    /// Where `n` is not a power of two there are two rounds more, with all of the buffer.
    ///
    /// # Errors
    /// [`ScheduleError`] when the rank is not one of the ranks, the count has more bytes than a buffer can, or the staging
    /// has no slot or none that an element fits.
    pub(crate) fn halving_doubling(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check()?;
        Self::new(&operation, Algorithm::Halving(Halving::new(&operation)))
    }

    /// Broadcast of what `root` has, by a binomial tree of `log2 n` rounds.
    ///
    /// # Errors
    /// As [`halving_doubling`](Self::halving_doubling); and when the root is not one of the ranks.
    pub(crate) fn broadcast(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_root(root)?;
        Self::tree(Along::Broadcast, operation, root, Pieces::one(&operation))
    }

    /// Reduce to `root`, by a binomial tree of `log2 n` rounds.
    ///
    /// A rank keeps of what it has reduced as much as a link's slots do at most, and does one piece after the other.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn reduce(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_root(root)?;
        Self::tree(Along::Reduce, operation, root, Pieces::fitting(&operation, 1)?)
    }

    /// The parts of all ranks to `root`, by a binomial tree of `log2 n` rounds. The count is that of a part.
    ///
    /// A rank keeps of others' parts as much as a link's slots do at most, or one element of each.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn gather(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        operation.check_root(root)?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize / 2)?;
        Self::tree(Along::Gather, operation, root, pieces)
    }

    /// A part to each rank from `root`, as [`gather`](Self::gather) the other way.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub(crate) fn scatter(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        operation.check_root(root)?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize / 2)?;
        Self::tree(Along::Scatter, operation, root, pieces)
    }

    /// All-to-all in pairs: part `j` of rank `i` becomes part `i` of rank `j`, in `n` rounds and straight. The count is that
    /// of a part.
    ///
    /// # Errors
    /// As [`halving_doubling`](Self::halving_doubling).
    pub(crate) fn all_to_all(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        Self::new(&operation, Algorithm::Pairs(Pairs::new(&operation)))
    }

    /// All-to-all after Bruck: in `log2 n` rounds, in each of which a rank sends half of all parts; for short ones.
    ///
    /// A rank keeps as much as a link's slots do at most, or one element of each part, and does one piece of all parts
    /// after the other.
    ///
    /// # Errors
    /// As [`halving_doubling`](Self::halving_doubling).
    pub(crate) fn all_to_all_short(operation: Operation) -> Result<Self, ScheduleError> {
        operation.check_parts()?;
        let pieces = Pieces::fitting(&operation, operation.ranks as usize)?;
        Self::new(&operation, Algorithm::Bruck(Bruck::new(&operation, pieces)))
    }

    /// Parts of any length in pairs: what this rank sends to each and receives from each is said by rank, and the count is not
    /// looked at.
    ///
    /// # Errors
    /// As [`halving_doubling`](Self::halving_doubling).
    pub(crate) fn uneven(operation: Operation, shares: Arc<[Share]>) -> Result<Self, ScheduleError> {
        operation.check()?;
        let cut = Cut::new(operation.data_type.size(), &operation.staging)?.with_empty();
        Ok(Self::made(Algorithm::Uneven(Uneven::new(operation.rank, shares)), cut, None))
    }

    /// What goes to a rank and comes from it, where parts are of any length.
    pub(crate) fn share(&self, peer: u32) -> Option<Share> {
        match &self.algorithm {
            Algorithm::Uneven(uneven) => Some(uneven.share(peer)),
            _ => None,
        }
    }

    /// Bytes of scratch that this rank needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        match &self.algorithm {
            Algorithm::Tree(tree) => tree.kept() * tree.pieces().longest(),
            Algorithm::Bruck(bruck) => bruck.kept() * bruck.pieces().longest(),
            _ => 0,
        }
    }

    fn tree(along: Along, operation: Operation, root: u32, pieces: Pieces) -> Result<Self, ScheduleError> {
        Self::new(&operation, Algorithm::Tree(Tree::new(along, &operation, root, pieces)))
    }

    fn new(operation: &Operation, algorithm: Algorithm) -> Result<Self, ScheduleError> {
        let cut = Cut::new(operation.data_type.size(), &operation.staging)?;
        let alone = operation.check()?.map(Primitive::from);
        Ok(Self::made(if operation.ranks == 1 { Algorithm::Nothing } else { algorithm }, cut, alone))
    }

    fn made(algorithm: Algorithm, cut: Cut, alone: Option<Primitive>) -> Self {
        let mut rounds = Self {
            algorithm,
            cut,
            peers: BTreeMap::new(),
            pass: 0,
            round: 0,
            present: Round::default(),
            next: 0,
            ready: [alone, None, None, None, None],
        };
        if !rounds.is_over() {
            rounds.present = rounds.algorithm.round(0, 0);
        }
        rounds
    }

    fn is_over(&self) -> bool {
        self.pass == self.algorithm.passes() || self.algorithm.rounds() == 0
    }

    /// Makes the steps at one place of the round: use a chunk, then send the one that may be sent after it.
    fn advance(&mut self) {
        let Round { copy, send, receive } = self.present;
        let copy = copy.filter(|[source, _]| self.next == 0 && !source.is_empty());
        self.ready = [None; 5];
        self.ready[0] = copy.map(|[source, target]| Primitive::Copy { source, target });
        let sends = send.map_or(0, |send| self.cut.chunks(send.source.len()));
        let receives = receive.map_or(0, |receive| self.cut.chunks(receive.target.len()));
        let index = self.next.checked_sub(self.cut.ahead);
        if let (Some(receive), Some(index)) = (receive, index.filter(|index| *index < receives)) {
            let steps = self.receive(receive, index, index + 1 == receives);
            self.ready[1..4].copy_from_slice(&steps);
        }
        if let Some(send) = send.filter(|_| self.next < sends) {
            let source = self.cut.chunk(send.source, self.next);
            let counts = self.peers.entry(send.to).or_default();
            let message = counts.sent;
            counts.sent += 1;
            self.ready[4] = Some(Primitive::Put { to: send.to, message, source, copied: send.copied });
        }
        self.next += 1;
        if self.next >= sends.max(if receives > 0 { receives + self.cut.ahead } else { 0 }) {
            self.turn();
        }
    }

    fn receive(&mut self, receive: Receive, index: u64, end: bool) -> [Option<Primitive>; 3] {
        let Receive { from, target, operand, last } = receive;
        let counts = self.peers.entry(from).or_default();
        let message = counts.received;
        counts.received += 1;
        let due = end || counts.received - counts.signalled >= self.cut.signal_every;
        let signal = due.then(|| {
            counts.signalled = counts.received;
            Primitive::Signal { to: from, consumed: counts.received }
        });
        let target = self.cut.chunk(target, index);
        let used = match operand {
            Some(operand) => {
                let operand = self.cut.chunk(operand, index);
                Primitive::ReduceFrom { from, message, operand, target, last }
            }
            None => Primitive::CopyFrom { from, message, target },
        };
        [Some(Primitive::WaitCount { from, message }), Some(used), signal]
    }

    /// Goes on to the next round in which there is something to do.
    fn turn(&mut self) {
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
    fn passes(&self) -> u64 {
        match self {
            Self::Hierarchy(hierarchy) => hierarchy.passes(),
            Self::Tree(tree) => tree.pieces().len(),
            Self::Bruck(bruck) => bruck.pieces().len(),
            Self::Nothing => 0,
            _ => 1,
        }
    }

    fn rounds(&self) -> u32 {
        match self {
            Self::Halving(halving) => halving.rounds(),
            Self::Hierarchy(hierarchy) => hierarchy.rounds(),
            Self::Tree(tree) => tree.rounds(),
            Self::Pairs(pairs) => pairs.rounds(),
            Self::Uneven(uneven) => uneven.rounds(),
            Self::Bruck(bruck) => bruck.rounds(),
            Self::Nothing => 0,
        }
    }

    fn round(&self, pass: u64, round: u32) -> Round {
        match self {
            Self::Halving(halving) => halving.round(round),
            Self::Hierarchy(hierarchy) => hierarchy.round(pass, round),
            Self::Tree(tree) => tree.round(pass, round),
            Self::Pairs(pairs) => pairs.round(round),
            Self::Uneven(uneven) => uneven.round(round),
            Self::Bruck(bruck) => bruck.round(pass, round),
            Self::Nothing => Round::default(),
        }
    }
}

impl Iterator for P2pSchedule {
    type Item = Primitive;

    fn next(&mut self) -> Option<Primitive> {
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

impl FusedIterator for P2pSchedule {}
