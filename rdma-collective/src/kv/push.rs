//! Prefill's end of a link under way: grants that came, blocks that go, and what is still to be confirmed.
//!
//! It is a service of the engine: whoever drives, pushes go on. Callers see them through `prefill`.

mod arrive;
mod begin;
mod finish;
mod post;

use std::collections::VecDeque;
use std::time::Instant;

use rdma_core::{Attached, Deadline};

use self::post::Posting;
use super::checksum;
use super::lease::Hold;
use super::link::Link;
use super::message::{Done, Grant, Refuse};
use super::pool::Pool;
use super::prefill::Pushed;
use crate::comm::link::imm::TRANSFERS_MAX;
use crate::comm::{Core, Service};
use crate::error::{KvError, LaneFailure};

/// See the module.
#[derive(Debug)]
pub(super) struct Pushes {
    pub(super) link: Link,
    pool: Pool,
    source: Attached,
    write_bytes_max: u32,
    /// By the transfer slot that the peer chose.
    grants: Box<[Option<Granted>]>,
    pushes: Vec<Option<State>>,
    next_id: u64,
    /// Those that have begun, in order: the first one posts.
    posting: VecDeque<Posting>,
    /// Writes posted on the lane.
    posted: u64,
    /// Lengths of those that are not known to be done.
    in_flight: VecDeque<(u64, u32)>,
    done: u64,
    scratch: Box<[u8]>,
}

/// A grant, as far as it has come.
#[derive(Debug)]
struct Granted {
    grant: Grant,
    blocks: Vec<u32>,
    total: u32,
    expires: Option<Instant>,
}

/// One push.
#[derive(Debug)]
struct State {
    id: u64,
    request: u64,
    hold: Hold,
    deadline: Deadline,
    started: Instant,
    bytes: u64,
    /// Bytes known to have arrived.
    bytes_done: u64,
    stage: Stage,
    /// Nobody waits for it.
    abandoned: bool,
}

#[derive(Debug)]
enum Stage {
    /// For the peer to grant blocks.
    Waiting,
    /// The grant cannot be used, and the peer is to be told.
    Refusing(Refuse, KvError),
    /// Under way, and until the peer has confirmed it.
    Begun {
        grant: u64,
        begun: Instant,
        writes: u32,
        all_posted: Option<u64>,
        confirmed: Option<Done>,
    },
    Ended(Result<Pushed, KvError>),
}

impl Pushes {
    pub(super) fn new(link: Link, pool: Pool, source: Attached, write_bytes_max: u32) -> Self {
        Self {
            link,
            pool,
            source,
            write_bytes_max,
            grants: (0..TRANSFERS_MAX).map(|_| None).collect(),
            pushes: Vec::new(),
            next_id: 1,
            posting: VecDeque::new(),
            posted: 0,
            in_flight: VecDeque::new(),
            done: 0,
            scratch: vec![0; checksum::SCRATCH_BYTES].into(),
        }
    }

    /// The pool, as the engine's worker knows it.
    pub(super) fn source(&self) -> Attached {
        self.source
    }

    /// Begins a push; its number.
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
        if self.pushes.iter().flatten().filter(active).any(|state| state.request == request) {
            return Err(KvError::RequestRepeated { request });
        }
        if self.pushes.iter().flatten().count() >= TRANSFERS_MAX {
            return Err(KvError::TooManyTransfers { max: TRANSFERS_MAX });
        }
        let hold = Hold::lease(&self.pool, blocks)?;
        let id = self.next_id;
        self.next_id += 1;
        let bytes = self.pool.layout().block_bytes() * blocks.len() as u64;
        let state = State {
            id,
            request,
            hold,
            deadline,
            started: now,
            bytes,
            bytes_done: 0,
            stage: Stage::Waiting,
            abandoned: false,
        };
        let place = self.pushes.iter().position(Option::is_none);
        match place.and_then(|place| self.pushes.get_mut(place)) {
            Some(place) => *place = Some(state),
            None => self.pushes.push(Some(state)),
        }
        if let Some(lane) = self.link.lane(core) {
            lane.watch(now);
        }
        Ok(id)
    }

    #[cfg(test)]
    pub(super) fn has_grant(&self, transfer: usize) -> bool {
        self.grants[transfer].is_some()
    }

    #[cfg(test)]
    pub(super) fn write_bytes_max(&self) -> u32 {
        self.write_bytes_max
    }

    /// Numbers that a grant has taken memory for.
    #[cfg(test)]
    pub(super) fn grant_capacity(&self, transfer: usize) -> usize {
        self.grants[transfer].as_ref().map_or(0, |granted| granted.blocks.capacity())
    }

    /// What became of a push, once; `None` while it is under way.
    pub(super) fn outcome(&mut self, id: u64) -> Option<Result<Pushed, KvError>> {
        let of_id = |place: &&mut Option<State>| place.as_ref().is_some_and(|state| state.id == id);
        let place = self.pushes.iter_mut().find(of_id)?;
        match &place.as_ref()?.stage {
            Stage::Ended(_) => match place.take()?.stage {
                Stage::Ended(outcome) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }

    /// Bytes of a push that are known to have arrived, and all of them.
    pub(super) fn progress(&self, id: u64) -> Option<(u64, u64)> {
        let state = self.pushes.iter().flatten().find(|state| state.id == id)?;
        Some((state.bytes_done, state.bytes))
    }

    /// Nobody waits for a push any more; it goes on.
    pub(super) fn abandon(&mut self, id: u64) {
        for place in &mut self.pushes {
            match place {
                Some(state) if state.id == id => {
                    state.abandoned = true;
                    if matches!(state.stage, Stage::Ended(_)) {
                        *place = None;
                    }
                }
                _ => {}
            }
        }
    }
}

impl State {
    fn end(&mut self, outcome: Result<Pushed, KvError>) {
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            self.stage = Stage::Ended(outcome);
        }
    }
}

impl Service for Pushes {
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
        any |= self.begin(now);
        self.refuse(core);
        any |= self.post(core);
        any |= self.count_done(core);
        any |= self.finish(core, now);
        self.expire(core, now);
        let ended = match self.link.lane(core) {
            Some(lane) => lane.ended(),
            None => Some(LaneFailure::Fenced),
        };
        if let Some(cause) = ended.filter(|_| self.link.ended.is_none()) {
            self.end(core, cause, now);
        }
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let active = self.pushes.iter().flatten().filter(|state| !matches!(state.stage, Stage::Ended(_)));
        active.map(|state| state.deadline.instant()).min()
    }
}

fn unwatch(link: &Link, core: &mut Core) {
    if let Some(lane) = link.lane(core) {
        lane.unwatch();
    }
}
