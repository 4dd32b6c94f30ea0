//! One grant: what is known of it, and the stages that it goes through.

use std::sync::Arc;
use std::time::Instant;

use rdma_core::Deadline;

use super::check::Checked;
use super::{CHECK_WITHIN, TELL_WITHIN};
use crate::kv::fence::Fence;
use crate::kv::journal::{Entry, TransferOutcome};
use crate::kv::layout::Layout;
use crate::kv::lease::Hold;
use crate::kv::message::{Begin, Grant, Reason};
use crate::kv::plan::{BlockPlan, Wanted, pairs};
use crate::kv::verdict::{Arrived, BlockVerdict, Verdicts};
use crate::kv::{KvError, TransferError};

/// One grant.
#[derive(Debug)]
pub(super) struct State {
    pub(super) grant: Grant,
    pub(super) entry: Entry,
    pub(super) hold: Hold,
    /// Which blocks are to arrive, when it is not all.
    pub(super) wanted: Option<Wanted>,
    /// The blocks, and then what is wanted of them, as the peer is told.
    pub(super) list: Vec<u32>,
    /// Bytes that are to arrive.
    pub(super) bytes: u64,
    pub(super) deadline: Deadline,
    pub(super) granted: Instant,
    /// How much of the list the peer was told.
    pub(super) told: usize,
    pub(super) begin: Option<Begun>,
    pub(super) arrived: Arrived,
    /// When the last write arrived.
    pub(super) latest: Instant,
    pub(super) bytes_arrived: u64,
    pub(super) sums: Vec<u32>,
    pub(super) checked: Checked,
    pub(super) stage: Stage,
    pub(super) abandoned: bool,
    /// Why the sums were not all checked.
    pub(super) unchecked: Option<Arc<KvError>>,
    /// Its blocks are read from here, and not written by the peer.
    pub(super) pulls: bool,
    /// What a pull reads, once it has begun.
    pub(super) lease: Option<u64>,
}

/// What the peer has said of what it writes.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) begin: Begin,
    pub(super) sources: Vec<u32>,
    pub(super) at: Instant,
    /// Once all sources are known.
    pub(super) plan: Option<Arc<BlockPlan>>,
    /// Writes up to the end of each layer, when they come by layer.
    pub(super) ends: Vec<u32>,
    /// Writes of each layer that have not arrived, when they come by layer.
    pub(super) layers_left: Vec<u32>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Blocks arrive.
    Filling,
    /// No more are to arrive, and some may be under way.
    Revoking(Revoking),
    /// All have arrived; their sums are to be checked, by then.
    Arrived(Instant),
    /// The peer is to be told that all is done, by then.
    Confirming(Verdicts, Instant),
    Ended(Result<Verdicts, TransferError>),
}

/// A grant that is taken back: it ends when the peer has said how many writes there were and all have arrived.
#[derive(Debug)]
pub(super) struct Revoking {
    /// What the peer is told.
    pub(super) reason: Reason,
    /// What whoever waits is told.
    pub(super) cause: Arc<KvError>,
    /// When the lane is fenced instead.
    pub(super) fence: Fence,
    /// The peer has been asked.
    pub(super) told: bool,
    /// Writes that the peer says there were.
    pub(super) writes: Option<u32>,
}

impl State {
    /// Whether the peer may still write.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Filling | Stage::Revoking(_))
    }

    /// Whether it is a pull that has nothing to read yet.
    pub(super) fn waits_for_offer(&self) -> bool {
        self.pulls && self.lease.is_none() && matches!(self.stage, Stage::Filling)
    }

    /// All has arrived, and is to be checked, which may take a little longer than the deadline.
    pub(super) fn arrive(&mut self, now: Instant) {
        self.stage = Stage::Arrived(self.deadline.instant().max(now) + CHECK_WITHIN);
    }

    /// All has arrived; telling the peer may take a little longer than the deadline, and not for ever.
    pub(super) fn confirm(&mut self, verdicts: Verdicts, now: Instant) {
        self.stage = Stage::Confirming(verdicts, self.deadline.instant().max(now + TELL_WITHIN));
    }

    /// When it has to be looked at, though nothing arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Filling => Some(self.deadline.instant()),
            Stage::Confirming(_, by) => Some(*by),
            Stage::Revoking(revoking) => Some(revoking.fence.due()),
            Stage::Arrived(by) => Some(*by),
            Stage::Ended(_) => None,
        }
    }

    pub(super) fn end(&mut self, outcome: Result<Verdicts, TransferError>) {
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            let corrupt = |verdicts: &Verdicts| verdicts.count(BlockVerdict::Corrupt);
            let how = match &outcome {
                Ok(verdicts) => TransferOutcome::arrived(corrupt(verdicts) as u32),
                Err(error) => TransferOutcome::from(&*error.cause),
            };
            self.entry.end(how, self.bytes_arrived);
            let origin = self.hold.origin();
            self.stage = Stage::Ended(match outcome {
                Ok(verdicts) => Ok(verdicts.of(origin)),
                Err(error) => Err(TransferError { verdicts: error.verdicts.of(origin), ..error }),
            });
        }
    }

    /// Ends one that is confirmed, or whose peer is gone.
    pub(super) fn end_well(&mut self) {
        let Stage::Confirming(verdicts, _) = &self.stage else { return };
        let verdicts = verdicts.clone();
        let unchecked = self.unchecked.take();
        self.end(match unchecked {
            Some(cause) => Err(TransferError { cause, verdicts }),
            None => Ok(verdicts),
        });
    }

    /// Ends it with what has arrived so far.
    pub(super) fn fail(&mut self, cause: Arc<KvError>, layout: &Layout) {
        let verdicts = self.verdicts(layout);
        self.end(Err(TransferError { cause, verdicts }));
    }

    pub(super) fn bytes_outstanding(&self) -> u64 {
        self.bytes.saturating_sub(self.bytes_arrived)
    }

    /// Whether a block is to arrive.
    pub(super) fn wants(&self, layer: u32, place: u32) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.has(layer, place))
    }

    /// Layer and place of each block that is to arrive, in the order of checksums.
    pub(super) fn parts(&self, layers: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = pairs(layers, self.hold.blocks().len() as u32);
        all.filter(|(layer, place)| self.wants(*layer, *place))
    }

    /// Checksums that the peer tells: those of all that it leases, or of what is to arrive.
    pub(super) fn sums_total(&self, layers: u32) -> u64 {
        let all = u64::from(layers) * self.hold.blocks().len() as u64;
        self.wanted.as_ref().filter(|_| !self.pulls).map_or(all, Wanted::count)
    }

    /// What has arrived, and was checked where sums are wanted.
    pub(super) fn verdicts(&self, layout: &Layout) -> Verdicts {
        let plan = self.begin.as_ref().and_then(|begun| begun.plan.as_ref());
        match plan.filter(|_| !self.grant.checksums) {
            Some(plan) => Verdicts::arrived(self.hold.blocks(), plan, layout, &self.arrived),
            None => self.verdicts_checked(layout.shape().layers),
        }
    }
}
