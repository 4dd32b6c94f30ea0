//! The set of sends and receives that a rank carries out together. Pure data, checked before any of them begins.
//!
//! `execute::send_recv` moves the bytes.

use std::collections::BTreeMap;

use super::DataType;
use super::call::{Call, Collective, Request, name};
use super::schedule::{Cut, Staging};
use crate::collective::rank_of::RankOf;
use crate::collective::{CollectiveError, ReduceError, ScheduleError};

/// The most transfers of one group. The executor keeps a state for each, and polls all of them.
pub(crate) const TRANSFERS_MAX: usize = 4096;

/// A send or a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) call: Call,
    /// The rank at the other end.
    pub(super) peer: u32,
    pub(super) sends: bool,
    pub(super) cut: Cut,
    /// The previous transfer on the same link in the same direction, which must be done first.
    pub(super) behind: Option<usize>,
    /// The partner in the same buffer. A receive overwrites each chunk after the partner has sent it, so chunks are
    /// sent from copies.
    pub(super) in_place: Option<usize>,
}

/// A send of the rank to itself, and its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SelfTransfer {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: usize,
}

/// The sends and receives of one group, in the order of the calls.
#[derive(Clone, Debug)]
pub(super) struct SendRecvSet {
    pub(super) all: Vec<Transfer>,
    pub(super) own: Vec<SelfTransfer>,
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
        let (mut all, mut last) = (Vec::with_capacity(calls.len()), BTreeMap::new());
        let mut own = [Vec::new(), Vec::new()];
        for (index, call) in calls.iter().enumerate() {
            // A point-to-point call has the rank at the other end in place of a root.
            let peer = call.root;
            if peer >= ranks {
                return Err(ScheduleError::RankOutOfRange { rank: peer, ranks }.into());
            }
            let sends = call.collective == Collective::Send;
            if peer == rank {
                own[usize::from(!sends)].push(index);
            }
            // A transfer of no elements still sends one empty message, because its header must be compared.
            let cut = Cut::new(call.data_type.size(), staging)?.with_empty();
            // The two directions of a link have mailboxes of their own, so only transfers in the same one take turns.
            let behind = last.insert((peer, sends), index);
            all.push(Transfer { call: *call, peer, sends, cut, behind, in_place: None });
        }
        // A send to itself without a receive would wait forever: no other rank can bring the other half.
        let [sent, received] = own;
        if sent.len() != received.len() {
            return Err(CollectiveError::ToItself { rank });
        }
        // The n-th send meets the n-th receive, as with any other rank.
        let own = sent.into_iter().zip(received).map(|(from, to)| {
            calls[from].check_alike(&calls[to], rank)?;
            Ok(SelfTransfer { from, to, bytes: calls[from].bytes() })
        });
        Ok(Self { own: own.collect::<Result<_, CollectiveError>>()?, all })
    }

    /// Makes the set of a send and a receive of the same length, which share one buffer.
    pub(super) fn in_place(
        [send, receive]: [Call; 2],
        of: RankOf,
        staging: &Staging,
    ) -> Result<Self, CollectiveError> {
        let mut points = Self::new(&[send, receive], of, staging)?;
        for (point, other) in points.all.iter_mut().zip([1, 0]) {
            point.in_place = Some(other);
        }
        Ok(points)
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

    /// The call of the peer that sends to rank `to` the elements that this call receives.
    pub(super) fn sent_by(self, to: u32) -> Self {
        Collective::Send.at(to).of(self.count, self.data_type)
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
