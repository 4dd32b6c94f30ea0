//! The record of a link: counters to export, the last events, a span for each transfer, and a line for its end.
//!
//! The journal has a lock of its own, so that reading it keeps no transfer waiting. Transfers touch it rarely: at
//! their begin, at their end, and once in each drive that moved bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::kv::{KvError, RequestId};
use crate::link::{LaneFailure, PeerName};
use crate::log::Span;
use crate::metrics::{self, Counter};

/// Most events kept until they are taken; bounds the memory of a program that takes none.
const EVENTS_MAX: usize = 256;

/// Counters of one end of a link since it was made; they only grow.
///
/// ```
/// # use rdma_collective::kv::LinkStats;
/// fn export(stats: &LinkStats) {
///     println!("kv_bytes_total {}", stats.bytes);
///     println!("kv_transfers_total{{outcome=\"done\"}} {}", stats.done);
///     println!("kv_transfers_total{{outcome=\"expired\"}} {}", stats.expired);
///     println!("kv_prepare_seconds_total {}", stats.preparing.as_secs_f64());
/// }
/// export(&LinkStats::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkStats {
    /// Bytes of blocks that are known to have arrived, including those of transfers that ended badly. Prefill does
    /// not count an offer that ended badly, because only decode knows its bytes.
    pub bytes: u64,
    /// Blocks, summed over all layers, of transfers that ended well.
    pub blocks: u64,
    /// Writes or reads that are known to have arrived.
    pub requests: u64,
    /// Transfers begun. Those that no counter below has are under way.
    pub begun: u64,
    /// Transfers that ended well.
    pub done: u64,
    /// Transfers that arrived in full with at least one checksum that does not match.
    pub corrupt: u64,
    /// Transfers that one of both ends revoked.
    pub revoked: u64,
    /// Transfers that missed a deadline.
    pub expired: u64,
    /// Transfers that ended for another reason: a lost peer, or a request that does not fit.
    pub failed: u64,
    /// Times that the lane had no room for a request that was ready to be posted.
    pub stalls: u64,
    /// Time spent on making plans and posting requests.
    pub preparing: Duration,
    /// The moment at which a byte of a block was last known to have arrived.
    pub last_progress: Option<Instant>,
    /// Events that were dropped because 256 others had not been taken.
    pub events_dropped: u64,
}

/// The kind of a transfer, as seen from this end.
///
/// A part of [`LinkEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferKind {
    /// Blocks are pushed.
    Push,
    /// Blocks are pushed layer by layer.
    Stream,
    /// Blocks are offered.
    Offer,
    /// Blocks are granted.
    Grant,
    /// Blocks are pulled.
    Pull,
    /// Blocks are pulled layer by layer.
    PullLayers,
}

/// The way in which a transfer has ended.
///
/// A part of [`LinkEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferOutcome {
    /// All blocks are valid.
    Done,
    /// All blocks have arrived, and at least one checksum does not match.
    Corrupt,
    /// A user at either end revoked the transfer.
    Revoked,
    /// The transfer missed a deadline.
    Expired,
    /// The transfer ended for another reason: a lost peer, or a request that does not fit.
    Failed,
}

/// An event of a link.
///
/// Returned by [`Decode::next_event`](crate::kv::Decode::next_event).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkEvent {
    /// This end began a transfer.
    Begun {
        /// Kind of the transfer.
        kind: TransferKind,
        /// Request of the transfer.
        request: RequestId,
        /// Moment of the begin.
        at: Instant,
    },
    /// A transfer has ended.
    Ended {
        /// Kind of the transfer.
        kind: TransferKind,
        /// Request of the transfer.
        request: RequestId,
        /// Outcome of the transfer.
        outcome: TransferOutcome,
        /// Bytes of the transfer that are known to have arrived.
        bytes: u64,
        /// Time since the begin.
        elapsed: Duration,
    },
    /// The link has ended, and its transfers with it.
    Down {
        /// Reason of the end.
        cause: LaneFailure,
    },
}

/// The journal of one link end. A clone is another handle to the same journal.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Counts [`LinkStats::bytes`] for the recorder of metrics, which may run only when the lock is free.
    counted: Counter,
}

#[derive(Debug)]
struct Inner {
    stats: LinkStats,
    events: VecDeque<LinkEvent>,
    peer: PeerName,
    /// Bytes of a block in one layer.
    part_bytes: u64,
}

/// The entry of one transfer under way.
#[derive(Debug)]
pub(super) struct Entry {
    journal: Journal,
    kind: TransferKind,
    request: RequestId,
    begun: Instant,
    blocks: usize,
    /// Lasts as long as the transfer; `None` once that has ended.
    span: Option<Span>,
}

impl Inner {
    fn tell(&mut self, event: LinkEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.stats.events_dropped += 1;
        }
        self.events.push_back(event);
    }
}

impl Journal {
    /// The journal of the end that `sends` the blocks, or receives them.
    pub(super) fn new(peer: PeerName, part_bytes: u64, sends: bool) -> Self {
        let (stats, events) = (LinkStats::default(), VecDeque::with_capacity(EVENTS_MAX));
        let inner = Mutex::new(Inner { stats, events, peer, part_bytes });
        Self(Arc::new(Shared { inner, counted: metrics::kv_bytes(sends) }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A poisoned lock is safe to use: each counter changes in one statement.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> LinkStats {
        self.lock().stats
    }

    pub(super) fn next_event(&self) -> Option<LinkEvent> {
        self.lock().events.pop_front()
    }

    pub(super) fn begin(&self, kind: TransferKind, request: RequestId, blocks: usize, now: Instant) -> Entry {
        let mut inner = self.lock();
        inner.stats.begun += 1;
        inner.tell(LinkEvent::Begun { kind, request, at: now });
        let peer = inner.peer.clone();
        drop(inner);
        let empty = crate::log::field::Empty;
        let span = crate::log::debug_span!(
            "kv_transfer",
            ?kind,
            %request,
            blocks,
            %peer,
            outcome = empty,
            bytes = empty
        );
        let span = Some(span);
        Entry { journal: self.clone(), kind, request, begun: now, blocks, span }
    }

    /// Counts writes or reads that have arrived. None is no progress, and takes no lock.
    pub(super) fn moved(&self, requests: u64, bytes: u64, now: Instant) {
        if requests == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.stats.requests += requests;
        inner.stats.bytes += bytes;
        inner.stats.last_progress = Some(now);
        drop(inner);
        self.0.counted.add(bytes);
    }

    /// Time since the link last moved a byte, or since `begun` if that is later.
    pub(super) fn idle(&self, begun: Instant, now: Instant) -> Duration {
        let moved = self.lock().stats.last_progress;
        now.saturating_duration_since(moved.map_or(begun, |moved| moved.max(begun)))
    }

    pub(super) fn stalled(&self) {
        self.lock().stats.stalls += 1;
    }

    /// Adds the time since `since` to the time spent on plans and posting.
    pub(super) fn prepared(&self, since: Instant) {
        let took = since.elapsed();
        self.lock().stats.preparing += took;
    }

    pub(super) fn down(&self, cause: LaneFailure) {
        self.lock().tell(LinkEvent::Down { cause });
    }
}

impl Entry {
    /// Records the end of the transfer; only the first call counts.
    pub(super) fn end(&mut self, outcome: TransferOutcome, bytes: u64) {
        let Some(span) = self.span.take() else { return };
        let (kind, request, elapsed) = (self.kind, self.request, self.begun.elapsed());
        let mut inner = self.journal.lock();
        let part_bytes = inner.part_bytes.max(1);
        let stats = &mut inner.stats;
        *match outcome {
            TransferOutcome::Done => &mut stats.done,
            TransferOutcome::Corrupt => &mut stats.corrupt,
            TransferOutcome::Revoked => &mut stats.revoked,
            TransferOutcome::Expired => &mut stats.expired,
            TransferOutcome::Failed => &mut stats.failed,
        } += 1;
        if outcome == TransferOutcome::Done {
            stats.blocks += bytes / part_bytes;
        }
        inner.tell(LinkEvent::Ended { kind, request, outcome, bytes, elapsed });
        let (blocks, peer) = (self.blocks, inner.peer.clone());
        drop(inner);
        let [role, way] = kind.role_and_way();
        metrics::kv_transfer([role, way, outcome.label()], elapsed);
        crate::log::debug!(?kind, %request, blocks, %peer, ?outcome, bytes, ?elapsed, "transfer ended");
        span.end(move |span| {
            span.record("outcome", crate::log::field::debug(outcome));
            span.record("bytes", bytes);
        });
    }
}

impl TransferKind {
    /// The role of this end, and the way of the blocks, as values of labels.
    fn role_and_way(self) -> [&'static str; 2] {
        match self {
            Self::Push | Self::Stream => ["sender", "push"],
            Self::Offer => ["sender", "pull"],
            Self::Grant => ["receiver", "push"],
            Self::Pull | Self::PullLayers => ["receiver", "pull"],
        }
    }
}

impl TransferOutcome {
    /// The name of the variant as the value of a label.
    fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Corrupt => "corrupt",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    /// The outcome of a transfer that has arrived in full, with so many corrupt blocks.
    pub(super) fn arrived(corrupt: u32) -> Self {
        if corrupt == 0 { Self::Done } else { Self::Corrupt }
    }
}

impl From<&KvError> for TransferOutcome {
    fn from(error: &KvError) -> Self {
        match error {
            KvError::Revoked { .. } | KvError::PeerRevoked { .. } => Self::Revoked,
            KvError::DeadlineExceeded { .. }
            | KvError::NoteMissing { .. }
            | KvError::GrantExpired { .. }
            | KvError::LeaseExpired { .. }
            | KvError::NotOffered { .. } => Self::Expired,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
