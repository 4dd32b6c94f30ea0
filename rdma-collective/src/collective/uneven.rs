//! Collectives on parts of any length: which rank sends how much to which, from the counts that each rank passes.
//!
//! Parts go straight from rank to rank. No rank knows all counts, so a sender puts its count in front of its first
//! message and the receiver compares. `execute` turns the shares into a plan.

use super::DataType;
use super::call::{Collective, Request};
use super::schedule::{Share, Span};
use crate::collective::{CollectiveError, ReduceError, ScheduleError};

/// The span of a whole buffer of `len` bytes.
const fn all(len: usize) -> Span {
    Span { offset: 0, len }
}

/// Counts that a rank passes, one for each rank; empty where the rank has none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts<'a> {
    /// Elements to send to each rank.
    pub(super) sent: &'a [usize],
    /// Elements to receive from each rank.
    pub(super) received: &'a [usize],
}

impl<'a> Counts<'a> {
    pub(super) fn sent(sent: &'a [usize]) -> Self {
        Self { sent, ..Self::default() }
    }

    pub(super) fn received(received: &'a [usize]) -> Self {
        Self { received, ..Self::default() }
    }
}

/// The rank, the group and the sizes of this rank's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) data_type: DataType,
    /// Bytes of the input and of the output.
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Sides {
    /// Computes what this rank sends to each rank and receives from each, by rank.
    ///
    /// # Errors
    ///
    /// The counts do not fit the buffers, or the root is no rank.
    pub(super) fn shares(&self, request: Request, counts: Counts<'_>) -> Result<Vec<Share>, CollectiveError> {
        let Self { rank, ranks, .. } = *self;
        let root = request.root;
        if root >= ranks {
            return Err(ScheduleError::RankOutOfRange { rank: root, ranks }.into());
        }
        self.check_elements()?;
        let mut shares = vec![Share::default(); ranks as usize];
        match request.collective {
            Collective::AllToAllV => {
                let (sent, received) = (self.parts_of_input(counts)?, self.parts_of_output(counts)?);
                for (share, (sent, received)) in shares.iter_mut().zip(sent.into_iter().zip(received)) {
                    *share = Share { sent: Some(sent), received: Some(received) };
                }
            }
            Collective::AllGatherV => {
                for (share, received) in shares.iter_mut().zip(self.parts_of_output(counts)?) {
                    *share = Share { sent: Some(all(self.input)), received: Some(received) };
                }
            }
            Collective::GatherV => {
                if root == rank {
                    for (share, received) in shares.iter_mut().zip(self.parts_of_output(counts)?) {
                        share.received = Some(received);
                    }
                }
                shares[root as usize].sent = Some(all(self.input));
            }
            Collective::ScatterV => {
                if root == rank {
                    for (share, sent) in shares.iter_mut().zip(self.parts_of_input(counts)?) {
                        share.sent = Some(sent);
                    }
                }
                shares[root as usize].received = Some(all(self.output));
            }
            // No other collective has counts.
            _ => {}
        }
        self.check_own(shares[rank as usize])?;
        Ok(shares)
    }

    /// Computes the parts of the input of a reduce-scatter, by rank.
    ///
    /// # Errors
    ///
    /// As for [`shares`](Self::shares).
    pub(super) fn reduced(&self, counts: Counts<'_>) -> Result<Vec<Span>, CollectiveError> {
        self.check_elements()?;
        let parts = self.parts_of_input(counts)?;
        self.check_own(Share { sent: Some(parts[self.rank as usize]), received: Some(all(self.output)) })?;
        Ok(parts)
    }

    fn parts_of_input(&self, counts: Counts<'_>) -> Result<Vec<Span>, CollectiveError> {
        self.parts("input", self.input, counts.sent)
    }

    fn parts_of_output(&self, counts: Counts<'_>) -> Result<Vec<Span>, CollectiveError> {
        self.parts("output", self.output, counts.received)
    }

    /// Cuts a buffer of `len` bytes into parts of these counts, one after the other.
    fn parts(
        &self,
        buffer: &'static str,
        len: usize,
        counts: &[usize],
    ) -> Result<Vec<Span>, CollectiveError> {
        let (element, ranks) = (self.data_type.size(), self.ranks);
        let sum = counts.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
        let elements = len / element;
        if counts.len() != ranks as usize || sum != elements {
            return Err(CollectiveError::CountsDoNotFit {
                buffer,
                elements,
                counts: counts.len(),
                sum,
                ranks,
            });
        }
        let mut offset = 0;
        let span = |count: &usize| {
            let span = Span { offset, len: count * element };
            offset += span.len;
            span
        };
        Ok(counts.iter().map(span).collect())
    }

    /// Checks that both buffers end after a whole element.
    fn check_elements(&self) -> Result<(), ReduceError> {
        let data_type = self.data_type;
        let partial =
            [self.input, self.output].into_iter().find(|bytes| !bytes.is_multiple_of(data_type.size()));
        partial.map_or(Ok(()), |bytes| Err(ReduceError::PartialElement { bytes, data_type }))
    }

    /// Checks that this rank receives from itself as much as it sends to itself.
    fn check_own(&self, Share { sent, received }: Share) -> Result<(), CollectiveError> {
        let (rank, element) = (self.rank, self.data_type.size() as u64);
        match (sent, received) {
            (Some(sent), Some(received)) if sent.len != received.len => {
                let [sent, expected] = [sent, received].map(|span| span.len as u64 / element);
                Err(CollectiveError::CountsDiffer { rank, peer: rank, expected, sent })
            }
            _ => Ok(()),
        }
    }
}
