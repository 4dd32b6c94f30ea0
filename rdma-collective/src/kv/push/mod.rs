//! Prefill's end of a link under way: grants that came, blocks that go, and what is still to be confirmed.
//!
//! It is a service of the engine: whoever drives, pushes go on. Callers see them through `prefill`.

mod arrive;
mod begin;
mod finish;
mod offer;
mod post;
mod revoke;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use rdma_core::Deadline;

use self::offer::Offered;
use self::post::Posting;
use super::checksum;
use super::fence::Fence;
use super::journal::{Entry, Journal, TransferKind, TransferOutcome};
use super::lease::Hold;
use super::link::Link;
use super::message::{Done, Grant, Quiesced, Refuse};
use super::pending::Wakers;
use super::pool::{Pool, Source};
use super::prefill::Pushed;
use super::remembered::Remembered;
use crate::engine::{Core, Service};
use crate::kv::KvError;
use crate::kv::layout::LayoutError;
use crate::kv::plan::PlanError;
use crate::link::LaneFailure;
use crate::link::imm::TRANSFERS_MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Pushes {
    pub(super) link: Link,
    pub(super) journal: Journal,
    pool: Pool,
    source: Source,
    write_bytes_max: u32,
    /// By the transfer slot that the peer chose.
    grants: Box<[Option<Granted>]>,
    /// The highest number of a grant.
    grants_seen: u64,
    offers: Vec<Offered>,
    pub(super) push_wakers: Wakers,
    pub(super) offer_wakers: Wakers,
    /// The highest number of a lease that was offered.
    leases_given: u64,
    /// Requests whose grant was taken back before a push met it.
    taken_back: Remembered,
    /// What the peer is to be told of grants that cannot be used, and of those that are given up.
    refusals: VecDeque<Refuse>,
    quiesced: VecDeque<Quiesced>,
    pushes: Vec<Option<State>>,
    next_id: u64,
    /// Those that have begun, in order: the first one posts.
    posting: VecDeque<Posting>,
    /// Writes posted on the lane.
    posted: u64,
    /// Lengths of those that are not known to be done.
    in_flight: VecDeque<(u64, u32)>,
    done: u64,
    /// When one of them was last known to be done.
    moved: Instant,
    /// Sums are still to be made, since then.
    unsummed: Option<Instant>,
    scratch: Box<[u8]>,
}

/// A grant, as far as it has come.
#[derive(Debug)]
struct Granted {
    grant: Grant,
    /// The blocks, and then what is wanted of them.
    list: Vec<u32>,
    total: u32,
    expires: Option<Instant>,
}

/// One push.
#[derive(Debug)]
struct State {
    id: u64,
    request: u64,
    entry: Entry,
    hold: Hold,
    deadline: Deadline,
    started: Instant,
    bytes: u64,
    /// Bytes known to have arrived.
    bytes_done: u64,
    /// Layers announced; absent when all are there from the beginning.
    ready: Option<u32>,
    stage: Stage,
    /// Nobody waits for it.
    abandoned: bool,
}

#[derive(Debug)]
enum Stage {
    /// For the peer to grant blocks.
    Waiting,
    /// Under way, and until the peer has confirmed it.
    Begun(Begun),
    /// Given up; writes up to this one of the lane may be under way until then.
    Quiescing {
        of: Begun,
        last: u64,
        cause: KvError,
        fence: Fence,
    },
    Ended(Result<Pushed, KvError>),
}

/// A push that has met its grant.
#[derive(Debug, Clone, Copy)]
struct Begun {
    grant: u64,
    at: Instant,
    writes: u32,
    /// The last of its writes on the lane, once all are posted.
    all_posted: Option<u64>,
    confirmed: Option<Done>,
}

impl Pushes {
    pub(super) fn new(link: Link, pool: Pool, source: Source, write_bytes_max: u32) -> Self {
        Self {
            journal: Journal::new(link.peer, pool.layout().layer_block_bytes()),
            link,
            pool,
            source,
            write_bytes_max,
            grants: (0..TRANSFERS_MAX).map(|_| None).collect(),
            grants_seen: 0,
            offers: Vec::new(),
            push_wakers: Wakers::default(),
            offer_wakers: Wakers::default(),
            leases_given: 0,
            taken_back: Remembered::default(),
            refusals: VecDeque::new(),
            quiesced: VecDeque::new(),
            pushes: Vec::new(),
            next_id: 1,
            posting: VecDeque::new(),
            posted: 0,
            in_flight: VecDeque::new(),
            done: 0,
            moved: Instant::now(),
            unsummed: None,
            scratch: vec![0; checksum::SCRATCH_BYTES].into(),
        }
    }

    /// Nothing is written from the pool any more.
    pub(super) fn detach(&self, core: &mut Core) {
        self.pool.detach(core);
    }

    /// Begins a push; its number.
    pub(super) fn add(
        &mut self,
        core: &mut Core,
        request: u64,
        (blocks, by_layer): (&[u32], bool),
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
        if let Some(reason) = self.taken_back.take(request, now) {
            return Err(revoke::taken_back(request, reason));
        }
        let id = self.next_id;
        self.next_id += 1;
        let bytes = self.pool.layout().block_bytes() * blocks.len() as u64;
        let kind = if by_layer { TransferKind::Stream } else { TransferKind::Push };
        let state = State {
            id,
            request,
            entry: self.journal.begin(kind, request, blocks.len(), now),
            hold,
            deadline,
            started: now,
            bytes,
            bytes_done: 0,
            ready: by_layer.then_some(0),
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

    #[cfg(test)]
    pub(super) fn is_posting(&self) -> bool {
        !self.posting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn held(&self, block: u32) -> Option<super::HoldKind> {
        self.pool.held(block)
    }

    /// Numbers that a grant has taken memory for.
    #[cfg(test)]
    pub(super) fn grant_capacity(&self, transfer: usize) -> usize {
        self.grants[transfer].as_ref().map_or(0, |granted| granted.list.capacity())
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

    /// The blocks of a layer hold what is to be pushed.
    pub(super) fn layer_ready(&mut self, id: u64, layer: u32) -> Result<(), KvError> {
        let layers = self.pool.layout().shape().layers;
        let Some(state) = self.pushes.iter_mut().flatten().find(|state| state.id == id) else {
            return Ok(());
        };
        let request = state.request;
        if layer >= layers {
            return Err(PlanError::from(LayoutError::NoSuchLayer { layer, layers }).into());
        }
        match &mut state.ready {
            Some(ready) if *ready == layer => *ready += 1,
            Some(ready) if *ready < layer => {
                return Err(KvError::LayerOutOfOrder { request, layer, expected: *ready });
            }
            _ => return Err(KvError::LayerRepeated { request, layer }),
        }
        Ok(())
    }

    /// Wakes the tasks whose transfers have ended.
    fn wake(&mut self, core: &mut Core) {
        let pushes = &self.pushes;
        self.push_wakers.wake(core, |id| {
            let state = pushes.iter().flatten().find(|state| state.id == id);
            state.is_some_and(|state| !matches!(state.stage, Stage::Ended(_)))
        });
        let offers = &self.offers;
        self.offer_wakers.wake(core, |lease| offers.iter().any(|offered| offered.is_open(lease)));
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
    /// When it has to be looked at, though nothing arrives.
    fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ended(_) => None,
            Stage::Quiescing { fence, .. } => Some(fence.due()),
            Stage::Waiting | Stage::Begun(_) => Some(self.deadline.instant()),
        }
    }

    fn end(&mut self, outcome: Result<Pushed, KvError>) {
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            let arrived = |pushed: &Pushed| TransferOutcome::arrived(pushed.corrupt);
            let how = outcome.as_ref().map_or_else(TransferOutcome::from, arrived);
            self.entry.end(how, outcome.as_ref().map_or(self.bytes_done, |pushed| pushed.bytes));
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
        any |= self.begin(core, now);
        any |= self.count_done(core, now);
        any |= self.finish(core, now);
        // What has not been taken from the queue yet may be what is waited for.
        let known = core.known_until();
        any |= self.expire(core, known, now);
        any |= self.finish_stopped(core, now);
        // What is said of transfers that end does not wait until others have moved.
        self.refuse(core);
        self.tell_quiesced(core);
        let unsummed = self.tell_offers(core);
        let (posted, again) = self.post(core);
        self.unsummed = (unsummed || again).then_some(now);
        any |= posted || unsummed;
        let ended = match self.link.lane(core) {
            Some(lane) => lane.ended(),
            None => Some(LaneFailure::Fenced),
        };
        if let Some(cause) = ended.filter(|_| self.link.ended.is_none()) {
            self.end(core, cause, now);
            any = true;
        }
        self.wake(core);
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pushes = self.pushes.iter().flatten().filter_map(State::due);
        pushes.chain(self.offers.iter().filter_map(Offered::due)).chain(self.unsummed).min()
    }
}

fn unwatch(link: &Link, core: &mut Core) {
    if let Some(lane) = link.lane(core) {
        lane.unwatch();
    }
}
