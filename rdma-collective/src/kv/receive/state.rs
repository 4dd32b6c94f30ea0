//! The state of one transfer at decode, and its stages.

use std::sync::Arc;
use std::time::Instant;

use rdma_core::Deadline;

use super::CHECK_WITHIN;
use super::check::Checked;
use super::unpack::Unpack;
use crate::kv::fence::{CONFIRM_WITHIN, Fence};
use crate::kv::gauge::Permit;
use crate::kv::journal::{Entry, TransferOutcome};
use crate::kv::keep_alive::KeepAlive;
use crate::kv::layout::Layout;
use crate::kv::lease::Hold;
use crate::kv::message::{Begin, Grant, Reason};
use crate::kv::note::{Incoming, Outgoing};
use crate::kv::plan::{Cover, Plan, Wanted, pairs};
use crate::kv::pool::PeerKeys;
use crate::kv::verdict::{Arrived, BlockVerdict, Verdicts};
use crate::kv::{KvError, TransferError};
use crate::link::{LaneName, PeerName};
use crate::metrics::{self, Stopwatch};

/// The state of one grant or pull.
#[derive(Debug)]
pub(super) struct State {
    /// The grant as the peer is sent it. A pull has one too, which is not sent.
    pub(super) grant: Grant,
    pub(super) entry: Entry,
    pub(super) hold: Hold,
    /// The room that a node has given the transfer, until its slot is free.
    pub(super) _permit: Option<Arc<Permit>>,
    /// The keys by which the peer of a strict link writes the blocks; none of others.
    pub(super) keys: PeerKeys,
    pub(super) peer: (PeerName, LaneName),
    /// The part of the pool's layers and heads that the link brings.
    pub(super) cover: Arc<Cover>,
    /// The wanted blocks; absent when all are wanted.
    pub(super) wanted: Option<Wanted>,
    /// The list that the peer is sent: the blocks, followed by the bit set of wanted blocks if not all are
    /// wanted, by the token ranges, and by the keys of a grant of a strict link.
    pub(super) list: Vec<u32>,
    /// Bytes that are expected.
    pub(super) bytes: u64,
    pub(super) deadline: Deadline,
    pub(super) keep: KeepAlive,
    /// The deadline was moved, and the peer knows the earlier one.
    pub(super) extended: bool,
    pub(super) granted: Instant,
    /// Number of list entries that the peer was sent.
    pub(super) told: usize,
    /// The announcement of the writes, from its first piece on.
    pub(super) begin: Option<Announced>,
    pub(super) arrived: Arrived,
    /// The moment at which the last write arrived.
    pub(super) latest: Instant,
    pub(super) bytes_arrived: u64,
    /// The note for the peer, and the one of the peer.
    pub(super) note: Outgoing,
    pub(super) note_in: Incoming,
    /// Checksums that the peer has sent so far.
    pub(super) sums: Vec<u32>,
    pub(super) checked: Checked,
    pub(super) stage: Stage,
    /// The handle was dropped, so the state goes once the transfer has ended.
    pub(super) abandoned: bool,
    /// The error of a transfer whose checksums were not all checked in time.
    pub(super) unchecked: Option<Arc<KvError>>,
    pub(super) feed: Feed,
}

/// The way in which the blocks of a transfer are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feed {
    /// The peer writes them: a grant.
    Written,
    /// This side reads them: a pull. It has a lease from the offer that it meets until that is released.
    Read { lease: Option<u64>, by_layer: bool },
}

/// The peer's announcement of its writes, and the plan that follows from it.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) begin: Begin,
    /// Length of the list: source blocks, followed by token ranges if the push has any.
    pub(super) total: u32,
    /// The list as far as it has arrived; the source blocks alone once there is a plan.
    pub(super) sources: Vec<u32>,
    pub(super) at: Instant,
    /// The plan, once all source blocks are known.
    pub(super) plan: Option<Arc<Plan>>,
    /// Packed writes, if there are any.
    pub(super) unpack: Option<Unpack>,
    /// Number of writes up to the end of each layer, if they come layer by layer.
    pub(super) ends: Vec<u32>,
    /// Number of writes of each layer that have not arrived, if they come layer by layer.
    pub(super) layers_left: Vec<u32>,
}

/// The stage of a transfer.
#[derive(Debug)]
pub(super) enum Stage {
    /// Blocks arrive. A pull may still wait for its offer.
    Filling,
    /// The transfer is given up, and some writes or reads may be under way.
    Revoking(Revocation),
    /// All bytes have arrived; their checksums are to be checked by this moment.
    Unchecked(Instant),
    /// All verdicts are known; the peer has to take the confirmation by this moment, or the lane is fenced.
    Confirming(Verdicts, Instant),
    Ended(Result<Verdicts, TransferError>),
}

/// A transfer that is taken back: it ends when the peer has said how many writes it posted, and all of those have
/// arrived.
#[derive(Debug)]
pub(super) struct Revocation {
    /// The reason that the peer is sent.
    pub(super) reason: Reason,
    /// The error that the user gets.
    pub(super) cause: Arc<KvError>,
    /// The moment at which the lane is fenced instead.
    pub(super) fence: Fence,
    /// Whether the peer was asked to stop, or needs not be.
    pub(super) told: bool,
    /// Number of writes that the peer has posted, once it is known.
    pub(super) writes: Option<u32>,
    /// The lane is fenced, because the fence of this transfer is due.
    pub(super) unanswered: bool,
    pub(super) begun: Stopwatch,
}

impl Revocation {
    /// A revocation that begins now.
    pub(super) fn new(reason: Reason, cause: Arc<KvError>, fence: Fence) -> Self {
        metrics::kv_revoke_begun();
        let begun = Stopwatch::start();
        Self { reason, cause, fence, told: false, writes: None, unanswered: false, begun }
    }

    /// A revocation of which the peer needs not be told, because so many reads of this side are all that can land.
    pub(super) fn of_reads(cause: Arc<KvError>, fence: Fence, posted: u32) -> Self {
        Self { told: true, writes: Some(posted), ..Self::new(Reason::Revoked, cause, fence) }
    }
}

impl State {
    /// Whether writes or reads of the transfer may still land.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Filling | Stage::Revoking(_))
    }

    /// Whether this is a pull that has not met an offer.
    pub(super) fn waits_for_offer(&self) -> bool {
        self.pulls() && self.lease().is_none() && matches!(self.stage, Stage::Filling)
    }

    /// Whether this side reads the blocks, and the peer writes none.
    pub(super) fn pulls(&self) -> bool {
        matches!(self.feed, Feed::Read { .. })
    }

    /// Moves the deadline to a later one, and returns whether the peer is to be told.
    pub(super) fn extend(&mut self, deadline: Deadline) -> Result<bool, KvError> {
        let request = self.grant.request;
        match &self.stage {
            Stage::Filling if deadline > self.deadline => {
                self.deadline = deadline;
                self.extended = !self.pulls();
                Ok(self.extended)
            }
            // All bytes have arrived: no deadline of the caller's counts any more.
            Stage::Filling | Stage::Unchecked(_) | Stage::Confirming(..) => Ok(false),
            Stage::Revoking(revoking) => Err((*revoking.cause).clone()),
            Stage::Ended(Ok(_)) => Err(KvError::AlreadyEnded { request }),
            Stage::Ended(Err(error)) => Err((*error.cause).clone()),
        }
    }

    /// The lease that a pull reads.
    pub(super) fn lease(&self) -> Option<u64> {
        if let Feed::Read { lease, .. } = self.feed { lease } else { None }
    }

    /// Sets the lease that a pull reads.
    pub(super) fn set_lease(&mut self, read: Option<u64>) {
        if let Feed::Read { lease, .. } = &mut self.feed {
            *lease = read;
        }
    }

    /// Whether this is a pull that reads layer by layer.
    pub(super) fn reads_by_layer(&self) -> bool {
        matches!(self.feed, Feed::Read { by_layer: true, .. })
    }

    /// `Filling` → `Unchecked`: checking may take [`CHECK_WITHIN`] longer than the deadline.
    pub(super) fn arrive(&mut self, now: Instant) {
        self.stage = Stage::Unchecked(self.deadline.instant().max(now) + CHECK_WITHIN);
    }

    /// → `Confirming`: telling the peer may take [`CONFIRM_WITHIN`] longer than now, and not for ever, because the
    /// blocks are held meanwhile.
    pub(super) fn confirm(&mut self, verdicts: Verdicts, now: Instant) {
        self.stage = Stage::Confirming(verdicts, self.deadline.instant().max(now + CONFIRM_WITHIN));
    }

    /// The moment at which the transfer has to be looked at even if nothing arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Filling => Some(self.deadline.instant()),
            Stage::Confirming(_, by) => Some(*by),
            Stage::Revoking(revoking) => Some(revoking.fence.due()),
            Stage::Unchecked(by) => Some(*by),
            Stage::Ended(_) => None,
        }
    }

    /// The moment at which a deadline that is kept alive may have to be moved.
    pub(super) fn look(&self) -> Option<Instant> {
        matches!(self.stage, Stage::Filling).then(|| self.keep.look()).flatten()
    }

    /// Ends the keys of the grant, so that the device refuses what the peer still writes. Returns `false` when the
    /// device does not end one.
    pub(super) fn end_keys(&mut self) -> bool {
        let ended = self.keys.end();
        if let Err(error) = &ended {
            crate::log::error!(peer = %self.peer.0, %error, "the device did not end a key of a grant");
        }
        ended.is_ok()
    }

    /// Goes to `Ended`: releases the blocks, records the outcome once, and binds the verdicts to the contents of the
    /// blocks. The caller has made sure that no byte of a peer that keeps to the protocol can land any more. A key that
    /// the device does not end quarantines the blocks.
    pub(super) fn end(&mut self, mut outcome: Result<Verdicts, TransferError>) {
        if !self.end_keys() {
            self.hold.quarantine();
            let (request, (peer, lane)) = (self.grant.request, self.peer.clone());
            let cause = Arc::new(KvError::Quarantined { request, peer, lane });
            let verdicts = outcome.unwrap_or_else(|error| error.verdicts);
            outcome = Err(TransferError { cause, verdicts });
        }
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            let corrupt = |verdicts: &Verdicts| verdicts.count(BlockVerdict::Corrupt);
            let how = match &outcome {
                Ok(verdicts) => TransferOutcome::arrived(corrupt(verdicts) as u32),
                Err(error) => TransferOutcome::from(&*error.cause),
            };
            self.entry.end(how, self.bytes_arrived);
            if let Stage::Revoking(Revocation { writes, unanswered, begun, .. }) = &self.stage {
                let last = match writes {
                    Some(writes) if self.arrived.count() >= *writes => "stopped",
                    _ if *unanswered => "fenced",
                    _ => "ended",
                };
                metrics::kv_revoked(last, begun);
            }
            let verdicts = outcome.as_ref().unwrap_or_else(|error| &error.verdicts);
            metrics::kv_blocks(|| verdicts.counts());
            let origin = self.hold.origin();
            self.stage = Stage::Ended(match outcome {
                Ok(verdicts) => Ok(verdicts.of(origin).done()),
                Err(error) => Err(TransferError { verdicts: error.verdicts.of(origin), ..error }),
            });
        }
    }

    /// `Confirming` → `Ended`: the peer was told, or is gone.
    pub(super) fn end_well(&mut self) {
        let Stage::Confirming(verdicts, _) = &self.stage else { return };
        let verdicts = verdicts.clone();
        let unchecked = self.unchecked.take();
        self.end(match unchecked {
            Some(cause) => Err(TransferError { cause, verdicts }),
            None => Ok(verdicts),
        });
    }

    /// → `Ended` with an error, and verdicts on what has arrived so far.
    pub(super) fn fail(&mut self, cause: Arc<KvError>, layout: &Layout) {
        let verdicts = self.verdicts(layout);
        self.end(Err(TransferError { cause, verdicts }));
    }

    pub(super) fn bytes_outstanding(&self) -> u64 {
        self.bytes.saturating_sub(self.bytes_arrived)
    }

    /// Whether a block is wanted.
    pub(super) fn wants(&self, layer: u32, place: u32) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.has(layer, place))
    }

    /// Layer and position of each wanted block, in the order of checksums.
    pub(super) fn parts(&self, layers: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = pairs(layers, self.hold.blocks().len() as u32);
        all.filter(|(layer, place)| self.wants(*layer, *place))
    }

    /// Number of checksums that the peer sends: for all blocks that it leases, or for those that a grant wants. None
    /// where nothing is wanted.
    pub(super) fn sums_total(&self, layers: u32) -> u64 {
        let all = u64::from(layers) * self.hold.blocks().len() as u64;
        let wanted = self.wanted.as_ref().filter(|wanted| !self.pulls() || wanted.is_empty());
        wanted.map_or(all, Wanted::count)
    }

    /// Verdicts on what has arrived so far; with checksums only checked blocks count.
    pub(super) fn verdicts(&self, layout: &Layout) -> Verdicts {
        let plan = self.begin.as_ref().and_then(|begun| begun.plan.as_ref());
        match plan.filter(|_| !self.grant.checksums) {
            Some(plan) => Verdicts::arrived(self.hold.list(), plan, &self.arrived),
            None => self.verdicts_checked(layout.layers()).only(&self.cover, layout),
        }
    }
}
