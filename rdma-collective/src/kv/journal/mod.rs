//! What a link has done: counters for whoever exports them, a few of the last events, and a `tracing` span a transfer.
//!
//! It has a lock of its own, so that whoever asks keeps no transfer waiting. Every transfer comes by once, at its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Span;

use crate::kv::KvError;
use crate::link::{LaneFailure, PeerName};

/// Events kept until they are taken.
const EVENTS_MAX: usize = 256;

/// What one end of a link has done since it was made; the counters only grow.
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
    /// Bytes of blocks that are known to have arrived, those of transfers that ended badly too; at prefill not those of
    /// an offer that ended badly, of which decode alone knows.
    pub bytes: u64,
    /// Blocks, counted in each layer, of transfers that ended well.
    pub blocks: u64,
    /// Writes or reads that are known to have arrived.
    pub requests: u64,
    /// Transfers begun. Those of it that are in none of the counters below are under way.
    pub begun: u64,
    /// Transfers that ended well.
    pub done: u64,
    /// Transfers of which all arrived, and some of it does not have its checksum.
    pub corrupt: u64,
    /// Transfers that one end has given up.
    pub revoked: u64,
    /// Transfers that missed a deadline.
    pub expired: u64,
    /// Transfers that ended in another way: a peer that was lost, or a request that does not fit.
    pub failed: u64,
    /// Times that more was to be sent than the lane had room for.
    pub stalls: u64,
    /// Time spent on plans, and on making requests of them.
    pub preparing: Duration,
    /// When a byte of a block was last known to have arrived.
    pub last_progress: Option<Instant>,
    /// Events that nobody took before there were too many.
    pub events_dropped: u64,
}

/// What a transfer is at the end that tells of it.
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
}

/// How a transfer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferOutcome {
    /// Well.
    Done,
    /// All has arrived, and some of it does not have its checksum.
    Corrupt,
    /// One end gave it up.
    Revoked,
    /// It missed a deadline.
    Expired,
    /// In another way.
    Failed,
}

/// Something that happened on a link.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkEvent {
    /// A transfer was begun by this end.
    Begun {
        /// What it is.
        kind: TransferKind,
        /// Its request.
        request: u64,
        /// When.
        at: Instant,
    },
    /// A transfer has ended.
    Ended {
        /// What it was.
        kind: TransferKind,
        /// Its request.
        request: u64,
        /// How.
        outcome: TransferOutcome,
        /// Bytes of it that are known to have arrived.
        bytes: u64,
        /// Since it was begun.
        elapsed: Duration,
    },
    /// The link has ended, and with it what was under way.
    Down {
        /// Why.
        cause: LaneFailure,
    },
}

/// See the module. Cloning it clones the handle.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    stats: LinkStats,
    events: VecDeque<LinkEvent>,
    peer: PeerName,
    /// Bytes of a block in one layer.
    part_bytes: u64,
}

/// A transfer under way.
#[derive(Debug)]
pub(super) struct Entry {
    journal: Journal,
    kind: TransferKind,
    request: u64,
    begun: Instant,
    span: Span,
    ended: bool,
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
    pub(super) fn new(peer: PeerName, part_bytes: u64) -> Self {
        let (stats, events) = (LinkStats::default(), VecDeque::with_capacity(EVENTS_MAX));
        Self(Arc::new(Mutex::new(Inner { stats, events, peer, part_bytes })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves the counters in order: each changes in one statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> LinkStats {
        self.lock().stats
    }

    pub(super) fn next_event(&self) -> Option<LinkEvent> {
        self.lock().events.pop_front()
    }

    pub(super) fn begin(&self, kind: TransferKind, request: u64, blocks: usize, now: Instant) -> Entry {
        let mut inner = self.lock();
        inner.stats.begun += 1;
        inner.tell(LinkEvent::Begun { kind, request, at: now });
        let span = tracing::debug_span!("kv_transfer", ?kind, request, blocks, peer = %inner.peer);
        drop(inner);
        Entry { journal: self.clone(), kind, request, begun: now, span, ended: false }
    }

    /// Blocks have arrived.
    pub(super) fn moved(&self, requests: u64, bytes: u64, now: Instant) {
        let stats = &mut self.lock().stats;
        stats.requests += requests;
        stats.bytes += bytes;
        stats.last_progress = Some(now);
    }

    /// How long ago the link moved anything, or a request began.
    pub(super) fn idle(&self, begun: Instant, now: Instant) -> Duration {
        let moved = self.lock().stats.last_progress;
        now.saturating_duration_since(moved.map_or(begun, |moved| moved.max(begun)))
    }

    pub(super) fn stalled(&self) {
        self.lock().stats.stalls += 1;
    }

    /// Plans or requests were made since then.
    pub(super) fn prepared(&self, since: Instant) {
        let took = since.elapsed();
        self.lock().stats.preparing += took;
    }

    pub(super) fn down(&self, cause: LaneFailure) {
        self.lock().tell(LinkEvent::Down { cause });
    }
}

impl Entry {
    /// The transfer has ended, with so many bytes; once.
    pub(super) fn end(&mut self, outcome: TransferOutcome, bytes: u64) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
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
        drop(inner);
        self.span.in_scope(|| tracing::debug!(?outcome, bytes, ?elapsed, "a transfer has ended"));
    }
}

impl TransferOutcome {
    /// That of a transfer of which so many blocks do not have their checksums.
    pub(super) fn arrived(corrupt: u32) -> Self {
        if corrupt == 0 { Self::Done } else { Self::Corrupt }
    }
}

impl From<&KvError> for TransferOutcome {
    fn from(error: &KvError) -> Self {
        match error {
            KvError::Revoked { .. } | KvError::PeerRevoked { .. } => Self::Revoked,
            KvError::DeadlineExceeded { .. }
            | KvError::GrantExpired { .. }
            | KvError::LeaseExpired { .. }
            | KvError::NotOffered { .. } => Self::Expired,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
