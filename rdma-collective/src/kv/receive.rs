//! Decode's end of a link under way: grants that were given, and what has arrived of them.
//!
//! It is a service of the engine: whoever drives, grants fill. Callers see them through `decode`, which also checks sums,
//! since that takes long.

mod arrive;
mod finish;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::decode::Progress;
use super::lease::Hold;
use super::link::Link;
use super::message::{self, Begin, Done, Grant};
use super::plan::BlockPlan;
use super::pool::Pool;
use super::verdict::{Arrived, BlockVerdict, Verdicts};
use crate::comm::link::imm::TRANSFERS_MAX;
use crate::comm::{Core, Service};
use crate::error::{KvError, LaneFailure, TransferError};

/// How long telling the peer that all has arrived may take beyond the deadline.
pub(super) const TELL_WITHIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) link: Link,
    pub(super) pool: Pool,
    checksums: bool,
    /// By the transfer slot that immediates carry.
    grants: Vec<Option<State>>,
    next_grant: u64,
}

/// One grant.
#[derive(Debug)]
struct State {
    grant: Grant,
    hold: Hold,
    deadline: Deadline,
    granted: Instant,
    /// Blocks told to the peer.
    told: usize,
    begin: Option<Begun>,
    arrived: Arrived,
    /// When the last write arrived.
    latest: Instant,
    bytes_arrived: u64,
    sums: Vec<u32>,
    stage: Stage,
    abandoned: bool,
}

/// What the peer has said of what it writes.
#[derive(Debug)]
struct Begun {
    begin: Begin,
    sources: Vec<u32>,
    at: Instant,
    /// Once all sources are known.
    plan: Option<Arc<BlockPlan>>,
}

#[derive(Debug)]
enum Stage {
    /// Blocks arrive.
    Filling,
    /// All have arrived; their sums are to be checked by whoever waits.
    Arrived,
    /// The peer is to be told that all is done, by then.
    Confirming(Verdicts, Instant),
    Ended(Result<Verdicts, TransferError>),
}

/// What a transfer came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) verdicts: Verdicts,
    pub(super) bytes: u64,
    pub(super) writes: u32,
    pub(super) waited: Duration,
    pub(super) moved: Duration,
}

/// What whoever waits for a grant has to do next.
pub(super) enum Next {
    /// Check these sums, by layer and place, against the blocks.
    Check {
        blocks: Box<[u32]>,
        sums: Vec<u32>,
    },
    Take(Result<Outcome, TransferError>),
}

impl Receives {
    pub(super) fn new(link: Link, pool: Pool, checksums: bool) -> Self {
        Self { link, pool, checksums, grants: Vec::new(), next_grant: 1 }
    }

    /// Grants blocks to a request; the grant's number.
    pub(super) fn add(
        &mut self,
        core: &mut Core,
        request: u64,
        blocks: &[u32],
        deadline: Deadline,
        now: Instant,
    ) -> Result<u64, KvError> {
        self.link.check()?;
        let active = |state: &&State| !matches!(state.stage, Stage::Ended(_));
        if self.grants.iter().flatten().filter(active).any(|state| state.grant.request == request) {
            return Err(KvError::RequestRepeated { request });
        }
        let place = self.grants.iter().position(Option::is_none).unwrap_or(self.grants.len());
        let Some(transfer) = u8::try_from(place).ok().filter(|_| place < TRANSFERS_MAX) else {
            return Err(KvError::TooManyTransfers { max: TRANSFERS_MAX });
        };
        let hold = Hold::grant(&self.pool, blocks)?;
        let left = deadline.instant().saturating_duration_since(now).as_millis();
        let grant = Grant {
            grant: self.next_grant,
            request,
            time_to_live_ms: u32::try_from(left).unwrap_or(u32::MAX),
            transfer,
            checksums: self.checksums,
        };
        self.next_grant += 1;
        let state = State {
            grant,
            hold,
            deadline,
            granted: now,
            told: 0,
            begin: None,
            arrived: Arrived::default(),
            latest: now,
            bytes_arrived: 0,
            sums: Vec::new(),
            stage: Stage::Filling,
            abandoned: false,
        };
        match self.grants.get_mut(place) {
            Some(place) => *place = Some(state),
            None => self.grants.push(Some(state)),
        }
        if let Some(lane) = self.link.lane(core) {
            lane.watch(now);
        }
        Ok(grant.grant)
    }

    #[cfg(test)]
    pub(super) fn has_arrived(&self, transfer: usize) -> bool {
        self.grants[transfer].as_ref().is_some_and(|state| matches!(state.stage, Stage::Arrived))
    }

    fn place(&mut self, id: u64) -> Option<&mut Option<State>> {
        self.grants.iter_mut().find(|place| place.as_ref().is_some_and(|state| state.grant.grant == id))
    }

    /// What whoever waits for a grant does next; `None` while it fills.
    pub(super) fn next(&mut self, id: u64) -> Option<Next> {
        let place = self.place(id)?;
        let state = place.as_mut()?;
        match &state.stage {
            Stage::Filling | Stage::Confirming(..) => None,
            Stage::Arrived => Some(Next::Check {
                blocks: state.hold.blocks().into(),
                sums: std::mem::take(&mut state.sums),
            }),
            Stage::Ended(_) => {
                let state = place.take()?;
                let (bytes, writes) = (state.bytes_arrived, state.arrived.count());
                let begun = state.begin.as_ref().map_or(state.granted, |begun| begun.at);
                let waited = state.latest.saturating_duration_since(state.granted);
                let moved = state.latest.saturating_duration_since(begun);
                let Stage::Ended(outcome) = state.stage else { return None };
                Some(Next::Take(outcome.map(|verdicts| Outcome { verdicts, bytes, writes, waited, moved })))
            }
        }
    }

    /// The blocks of a grant were checked: those of `corrupt`, by layer and place, do not hold.
    pub(super) fn checked(&mut self, id: u64, corrupt: &[(u32, usize)], now: Instant) {
        let layers = self.pool.layout().shape().layers;
        let ended = self.link.ended.is_some();
        let Some(Some(state)) = self.place(id) else { return };
        if let Stage::Arrived = state.stage {
            let mut verdicts = Verdicts::new(layers, state.hold.blocks(), BlockVerdict::Valid);
            for &(layer, place) in corrupt {
                verdicts.set(layer, place, BlockVerdict::Corrupt);
            }
            if ended {
                // The peer alone does not know.
                state.end(Ok(verdicts));
            } else {
                state.confirm(verdicts, now);
            }
        }
    }

    pub(super) fn progress(&self, id: u64) -> Option<Progress> {
        let state = self.grants.iter().flatten().find(|state| state.grant.grant == id)?;
        let bytes = self.pool.layout().block_bytes() * state.hold.blocks().len() as u64;
        let (bytes_arrived, writes_arrived) = (state.bytes_arrived, state.arrived.count());
        Some(Progress { bytes_arrived, bytes, writes_arrived, writes: state.arrived.expected() })
    }

    /// Nobody waits for a grant any more; it goes on.
    pub(super) fn abandon(&mut self, id: u64) {
        let Some(place) = self.place(id) else { return };
        if let Some(state) = place {
            state.abandoned = true;
            if matches!(state.stage, Stage::Ended(_)) {
                *place = None;
            }
        }
    }

    /// Tells the peer of grants, as far as there is room.
    fn tell_grants(&mut self, core: &mut Core) {
        let room = self.link.list_room(core).max(1);
        for state in self.grants.iter_mut().flatten() {
            let blocks = state.hold.blocks();
            while state.told < blocks.len() && matches!(state.stage, Stage::Filling) {
                let (grant, told) = (state.grant, state.told);
                if !self.link.tell(core, message::GRANT, |body| grant.write(body, blocks, told, room)) {
                    return;
                }
                state.told += room;
            }
        }
    }

    /// Tells the peer what is done, and lets go of the blocks.
    fn confirm(&mut self, core: &mut Core, now: Instant) -> bool {
        let mut any = false;
        for place in &mut self.grants {
            let Some(state) = place else { continue };
            if let Stage::Arrived = state.stage
                && state.abandoned
            {
                // Nobody asks whether the sums hold.
                let layers = self.pool.layout().shape().layers;
                let verdicts = Verdicts::new(layers, state.hold.blocks(), BlockVerdict::Valid);
                state.confirm(verdicts, now);
            }
            let Stage::Confirming(verdicts, _) = &state.stage else { continue };
            let done = Done {
                grant: state.grant.grant,
                lease: state.begin.as_ref().map_or(0, |begun| begun.begin.lease),
                missing: verdicts.count(BlockVerdict::Missing) as u32,
                corrupt: verdicts.count(BlockVerdict::Corrupt) as u32,
            };
            if self.link.tell(core, message::DONE, |body| done.write(body)) {
                any = true;
                let verdicts = verdicts.clone();
                state.end(Ok(verdicts));
                if let Some(lane) = self.link.lane(core) {
                    lane.unwatch();
                }
                if state.abandoned {
                    *place = None;
                }
            }
        }
        any
    }
}

impl State {
    /// All has arrived; telling the peer may take a little longer than the deadline, and not for ever.
    fn confirm(&mut self, verdicts: Verdicts, now: Instant) {
        self.stage = Stage::Confirming(verdicts, self.deadline.instant().max(now + TELL_WITHIN));
    }

    /// When it has to be looked at, though nothing arrives.
    fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Filling => Some(self.deadline.instant()),
            Stage::Confirming(_, by) => Some(by),
            Stage::Arrived | Stage::Ended(_) => None,
        }
    }

    fn end(&mut self, outcome: Result<Verdicts, TransferError>) {
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            self.stage = Stage::Ended(outcome);
        }
    }
}

impl Service for Receives {
    fn advance(&mut self, core: &mut Core, now: Instant) -> bool {
        if self.link.ended.is_some() {
            return false;
        }
        let mut any = match self.take_arrivals(core, now) {
            Ok(any) => any,
            Err(what) => {
                if let Some(lane) = self.link.lane(core) {
                    lane.violation(what);
                }
                true
            }
        };
        any |= self.complete(now);
        any |= self.confirm(core, now);
        self.expire(core, now);
        self.tell_grants(core);
        let ended = match self.link.lane(core) {
            Some(lane) => lane.ended(),
            None => Some(LaneFailure::Fenced),
        };
        if let Some(cause) = ended.filter(|_| self.link.ended.is_none()) {
            self.end(core, cause);
        }
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.grants.iter().flatten().filter_map(State::due).min()
    }
}
