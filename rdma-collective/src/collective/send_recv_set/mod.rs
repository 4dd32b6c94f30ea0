//! The set of sends and receives that a rank carries out together. Pure data, checked before any of them begins.
//!
//! `schedule` makes the steps of each, and `execute::link_exec` carries them out.

use std::collections::BTreeMap;

use super::DataType;
use super::call::{Call, Collective, Request, name};
use super::schedule::{Cut, P2pSchedule, Schedule, Staging, Transfer};
use crate::collective::rank_of::RankOf;
use crate::collective::{CollectiveError, ReduceError, ScheduleError};

/// The most transfers of one group: each costs some memory until the group ends.
pub(crate) const TRANSFERS_MAX: usize = 4096;

/// A send or a receive, or both of a rank to itself, which is called as the send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) call: Call,
    pub(super) transfer: Transfer,
    /// The position of its buffer in the group.
    pub(super) buffer: usize,
    cut: Cut,
}

/// The sends and receives of one group.
#[derive(Clone, Debug)]
pub(super) struct SendRecvSet {
    rank: u32,
    /// The transfers that take turns, each of at least one step, in the order of the calls: those over one link in one
    /// direction, because the two directions have mailboxes of their own. Sends come first, so that a receive in the
    /// same buffer goes on in the pass in which a chunk was put.
    pub(super) strands: BTreeMap<(Direction, u32), Vec<Point>>,
    /// The buffers of each send of the rank to itself: those of the send and of its receive.
    pub(super) own: Vec<[usize; 2]>,
}

/// The direction of a transfer, in the order in which strands are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    Send,
    Receive,
}

impl Point {
    pub(super) fn steps(&self) -> Schedule {
        Schedule::P2p(P2pSchedule::transfer(self.transfer, self.cut))
    }
}

impl SendRecvSet {
    /// Checks `calls`, each a [`Collective::Send`] or a [`Collective::Receive`] of `rank`, and makes their set.
    pub(super) fn new(
        calls: &[Call],
        RankOf { rank, size: ranks }: RankOf,
        staging: &Staging,
    ) -> Result<Self, CollectiveError> {
        if calls.len() > TRANSFERS_MAX {
            return Err(CollectiveError::GroupTooLong { max: TRANSFERS_MAX });
        }
        let mut strands = BTreeMap::<_, Vec<_>>::new();
        for (buffer, call) in calls.iter().copied().enumerate() {
            // A point-to-point call has the rank at the other end in place of a root.
            let (peer, bytes) = (call.root, call.bytes());
            if peer >= ranks {
                return Err(ScheduleError::RankOutOfRange { rank: peer, ranks }.into());
            }
            let (direction, transfer) = match call.collective {
                Collective::Send => (Direction::Send, Transfer::Send { to: peer, bytes, copied: false }),
                _ => (Direction::Receive, Transfer::Receive { from: peer, bytes, after: None }),
            };
            let transfer = if peer == rank { Transfer::Copy { bytes } } else { transfer };
            let cut = Cut::new(call.data_type.size(), staging)?;
            strands.entry((direction, peer)).or_default().push(Point { call, transfer, buffer, cut });
        }
        let own = [Direction::Send, Direction::Receive].map(|direction| strands.remove(&(direction, rank)));
        let [sent, received] = own.map(Option::unwrap_or_default);
        // A send to itself without a receive would wait forever: no other rank can bring the other half.
        if sent.len() != received.len() {
            return Err(CollectiveError::ToItself { rank });
        }
        // The n-th send meets the n-th receive, as with any other rank.
        let own = sent.iter().zip(received).map(|(from, to)| {
            from.call.check_alike(&to.call, rank)?;
            Ok([from.buffer, to.buffer])
        });
        let own = own.collect::<Result<Vec<_>, CollectiveError>>()?;
        // Nothing to copy is no step.
        let copies: Vec<_> = sent.into_iter().filter(|point| point.transfer.bytes() > 0).collect();
        if !copies.is_empty() {
            strands.insert((Direction::Send, rank), copies);
        }
        Ok(Self { rank, strands, own })
    }

    /// Makes the set of a send and a receive of the same length, which share one buffer.
    pub(super) fn in_place(
        [send, receive]: [Call; 2],
        of: RankOf,
        staging: &Staging,
    ) -> Result<Self, CollectiveError> {
        let mut set = Self::new(&[send, receive], of, staging)?;
        for point in set.strands.values_mut().flatten() {
            match &mut point.transfer {
                Transfer::Send { copied, .. } => *copied = true,
                Transfer::Receive { after, .. } => *after = Some(send.root),
                Transfer::Copy { .. } => {}
            }
        }
        Ok(set)
    }

    /// Whether the set has no send and no receive.
    pub(super) fn is_empty(&self) -> bool {
        self.strands.is_empty() && self.own.is_empty()
    }

    /// The first of the other ranks in the set.
    pub(super) fn peer(&self) -> Option<u32> {
        self.strands.keys().map(|(_, peer)| *peer).find(|peer| *peer != self.rank)
    }
}

impl Call {
    /// Makes the call of a send or receive of `bytes` bytes.
    pub(super) fn point(request: Request, data_type: DataType, bytes: usize) -> Result<Self, ReduceError> {
        if !bytes.is_multiple_of(data_type.size()) {
            return Err(ReduceError::PartialElement { bytes, data_type });
        }
        Ok(request.of(bytes / data_type.size(), data_type))
    }

    /// Fails if the send of `rank` to itself and its `receive` differ in count or data type.
    fn check_alike(&self, receive: &Self, rank: u32) -> Result<(), CollectiveError> {
        if self.count == receive.count && self.data_type == receive.data_type {
            return Ok(());
        }
        let [theirs, ours] = [self, receive].map(|call| name(&call.header(rank, 0)));
        Err(CollectiveError::Mismatch { rank, peer: rank, ours, theirs })
    }
}

#[cfg(test)]
mod tests;
