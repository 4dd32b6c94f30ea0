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
mod tests {
    use super::*;

    const STAGING: Staging = Staging { slots: 4, slot_bytes: 64, chunk_bytes_min: 16 };

    fn send(to: u32, count: usize) -> Call {
        Collective::Send.at(to).of(count, DataType::F32)
    }

    fn receive(from: u32, count: usize) -> Call {
        Collective::Receive.at(from).of(count, DataType::F32)
    }

    fn points(calls: &[Call]) -> Result<SendRecvSet, CollectiveError> {
        SendRecvSet::new(calls, RankOf { rank: 1, size: 4 }, &STAGING)
    }

    #[test]
    fn each_follows_the_last_one_the_same_way_over_its_link() {
        let calls = [send(0, 1), send(2, 1), receive(0, 1), send(0, 2), receive(2, 1), receive(0, 3)];
        let behind: Vec<_> = points(&calls).unwrap().all.iter().map(|point| point.behind).collect();
        assert_eq!(behind, [None, None, None, Some(0), None, Some(2)]);
    }

    #[test]
    fn what_a_rank_sends_to_itself_meets_its_receives_in_order() {
        let own = points(&[receive(1, 5), send(1, 5), send(0, 9), send(1, 6), receive(1, 6)]).unwrap().own;
        let [first, second] =
            [SelfTransfer { from: 1, to: 0, bytes: 20 }, SelfTransfer { from: 3, to: 4, bytes: 24 }];
        assert_eq!(own, [first, second]);
        for alone in [&[send(1, 5)][..], &[receive(1, 5)], &[send(1, 5), receive(1, 5), send(1, 5)]] {
            assert!(matches!(points(alone), Err(CollectiveError::ToItself { rank: 1 })));
        }
        let other_type = Call { data_type: DataType::I32, ..receive(1, 5) };
        for unlike in [receive(1, 4), other_type] {
            let error = points(&[send(1, 5), unlike]).unwrap_err();
            let CollectiveError::Mismatch { rank: 1, peer: 1, ours, theirs } = error else {
                panic!("{error}")
            };
            assert_eq!([ours.collective, theirs.collective], ["receive", "send"]);
            assert!(ours.count == 4 || ours.of.starts_with("int32"));
        }
    }

    #[test]
    fn no_rank_and_too_many_are_refused() {
        for call in [send(4, 1), receive(4, 1), send(u32::MAX, 0)] {
            let error = points(&[send(0, 1), call]).unwrap_err();
            assert!(matches!(
                error,
                CollectiveError::Schedule(ScheduleError::RankOutOfRange { ranks: 4, .. })
            ));
        }
        assert!(points(&[send(0, 1); TRANSFERS_MAX]).is_ok());
        let error = points(&[send(0, 1); TRANSFERS_MAX + 1]).unwrap_err();
        assert!(matches!(error, CollectiveError::GroupTooLong { max: TRANSFERS_MAX }));
    }

    #[test]
    fn bytes_are_whole_elements_and_none_is_a_message() {
        let send = |bytes| Call::point(Collective::Send.at(0), DataType::F32, bytes);
        assert_eq!(send(12).unwrap().count, 3);
        assert!(matches!(send(13), Err(ReduceError::PartialElement { bytes: 13, .. })));
        let point = points(&[send(0).unwrap()]).unwrap().all[0];
        assert_eq!(point.cut.chunks(0), 1);
        assert_eq!(point.cut.span(0, 0).len, 0);
    }
}
