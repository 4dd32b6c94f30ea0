//! The state machine of pushes and offers: prefill's end of a link.
//!
//! [`Pushes`] is a service of the engine: pushes go on whichever thread drives. `kv/transfer` has the public handle.
//!
//! A push goes `Waiting` → `Writing` → `Ended`, or `Writing` → `Quiescing` → `Ended` when it is given up. This file
//! owns the stages, the entry into `Waiting`, and the order of the steps in one drive. Its children own the
//! transitions: `arrive` reads messages, `begin` goes to `Writing` or refuses, `post` sends, `finish` ends pushes
//! that are done or lost, `packed` has the slots of packed writes, `revoke` goes to `Quiescing` and ends from there,
//! `layer` has the layers that are announced and sent, and `offer` has the stages of offers. `tests` has the table of
//! every event in every stage.

mod arrive;
mod begin;
mod finish;
mod layer;
mod offer;
mod packed;
mod post;
mod revoke;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use self::layer::Layers;
use self::offer::OfferState;
use self::packed::Packing;
use self::post::Posting;
use super::blocks::List;
use super::checksum;
use super::fence::Fence;
use super::gauge::Permit;
use super::given_up::GivenUp;
use super::journal::{Entry, Journal, TransferKind, TransferOutcome};
use super::keep_alive::KeepAlive;
use super::lease::Hold;
use super::link::{Link, LinkOptions, MESSAGE_BYTES_MAX};
use super::machine::Machine;
use super::message::{Done, Grant, Quiesced, Refuse};
use super::note::{Incoming, Outgoing};
use super::outcome::{Progress, Sent};
use super::pool::{AttachedPool, Pool};
use super::request::Asked;
use super::shared::Shared;
use super::taken_back::TakenBack;
use super::wakers::Wakers;
use crate::engine::{EngineState, Service};
use crate::kv::{KvError, RequestId};
use crate::link::imm::TRANSFERS_MAX;

/// The pushes and offers of one link end.
#[derive(Debug)]
pub(super) struct Pushes {
    pub(super) link: Link,
    journal: Journal,
    pool: Pool,
    source: AttachedPool,
    write_bytes_max: u32,
    pack_bytes: u32,
    /// The cap on keeping transfers alive whose requests have none.
    keep_alive: Option<Duration>,
    packing: Packing,
    /// Grants by transfer slot, which the peer chooses.
    grants: Box<[Option<IncomingGrant>]>,
    /// The highest number of a grant so far: a message about a higher one breaks the protocol, about a lower one it
    /// is late.
    grants_seen: u64,
    offers: Vec<OfferState>,
    given_up: GivenUp,
    wakers: Wakers,
    /// Wakers by lease and layer, or without a layer for the grant.
    pub(super) layer_wakers: Wakers<(u64, Option<u32>)>,
    /// The highest lease offered so far; serves the same purpose for messages about leases.
    leases_given: u64,
    /// Requests whose grant was taken back before a push met it.
    taken_back: TakenBack,
    /// Messages that wait for room on the lane: refusals, and answers to revocations.
    refusals: VecDeque<Refuse>,
    quiesced: VecDeque<Quiesced>,
    pushes: Vec<Option<State>>,
    /// Pushes that have begun and have not sent everything, in the order in which they post.
    posting: VecDeque<Posting>,
    /// Count of writes posted on the lane so far.
    posted: u64,
    /// The writes that are not known to be done, in posting order.
    in_flight: VecDeque<Posted>,
    done: u64,
    /// The moment at which a write was last known to be done.
    moved: Instant,
    /// Present when checksums are still to be computed, so that the engine drives again at once.
    unsummed: Option<Instant>,
    scratch: Box<[u8]>,
}

/// A grant of the peer, which may arrive in several pieces.
#[derive(Debug)]
struct IncomingGrant {
    grant: Grant,
    /// The destination blocks, followed by the bit set of wanted blocks if the grant is partial, by token ranges if it
    /// has any, and by a key for each piece of the peer's pool if the link is strict. The list of a grant of more
    /// blocks than this side's pool has stays empty, because no push can meet such a grant.
    list: Vec<u32>,
    /// Length of the whole list, and how much of it has arrived.
    total: u32,
    arrived: u32,
    note: Incoming,
    expires: Option<Instant>,
}

/// A push, by its place among all and the number of its lease, so that nothing has to be searched for each write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PushKey {
    place: usize,
    id: u64,
}

/// A write that is not known to be done.
#[derive(Debug, Clone, Copy)]
struct Posted {
    key: PushKey,
    len: u32,
    /// Layer of the source; 0 if the push does not go layer by layer.
    layer: u32,
    /// Whether it was packed on this side.
    packed: bool,
}

/// The state of one push.
#[derive(Debug)]
struct State {
    request: RequestId,
    entry: Entry,
    hold: Hold,
    /// The room that a node has given the transfer, until its slot is free.
    _permit: Option<Arc<Permit>>,
    deadline: Deadline,
    keep: KeepAlive,
    started: Instant,
    bytes: u64,
    /// Number of writes; 0 before the push has met its grant.
    writes: u32,
    /// Bytes, and writes, that are known to have arrived.
    bytes_done: u64,
    writes_done: u32,
    /// Absent when all layers are ready from the beginning.
    layers: Option<Layers>,
    /// The blocks of which decode wants nothing; empty before the push has met its grant.
    skipped: Vec<u32>,
    /// The note for the peer, and the one that came with the grant.
    note: Outgoing,
    note_in: Vec<u8>,
    stage: Stage,
    /// The handle was dropped, so the state goes once the push has ended.
    abandoned: bool,
}

/// The stage of a push.
#[derive(Debug)]
enum Stage {
    /// Waits for the peer to grant blocks. Nothing is posted, so it can end at once.
    Waiting,
    /// Posts its writes, then waits until the peer has confirmed them.
    Writing(Writing),
    /// Given up. Writes up to `last` on the lane may still read the blocks, so they stay leased until then. `fence`
    /// is the moment at which the lane ends instead.
    Quiescing {
        of: Writing,
        last: u64,
        cause: KvError,
        fence: Fence,
    },
    Ended(Result<Sent, KvError>),
}

/// The part of a push that exists once it has met its grant.
#[derive(Debug, Clone, Copy)]
struct Writing {
    grant: u64,
    at: Instant,
    /// Count of posted writes of the lane after its last write, once all are posted.
    all_posted: Option<u64>,
    confirmed: Option<Done>,
}

impl Pushes {
    pub(super) fn new(
        link: Link,
        pool: Pool,
        source: AttachedPool,
        journal: Journal,
        options: &LinkOptions,
    ) -> Self {
        let pack_bytes = if link.staging.is_some() { options.pack_bytes } else { 0 };
        Self {
            link,
            journal,
            pool,
            source,
            write_bytes_max: options.write_bytes_max.min(MESSAGE_BYTES_MAX),
            pack_bytes,
            keep_alive: options.keep_alive,
            packing: Packing::new(),
            grants: (0..TRANSFERS_MAX).map(|_| None).collect(),
            grants_seen: 0,
            offers: Vec::new(),
            given_up: GivenUp::default(),
            wakers: Wakers::default(),
            layer_wakers: Wakers::default(),
            leases_given: 0,
            taken_back: TakenBack::default(),
            refusals: VecDeque::new(),
            quiesced: VecDeque::new(),
            pushes: Vec::new(),
            posting: VecDeque::new(),
            posted: 0,
            in_flight: VecDeque::new(),
            done: 0,
            moved: Instant::now(),
            unsummed: None,
            scratch: vec![0; checksum::SCRATCH_BYTES].into(),
        }
    }

    /// Adds a push in stage `Waiting`, and returns its lease.
    pub(super) fn add(
        &mut self,
        asked: Asked,
        list: &List,
        deadline: Deadline,
        now: Instant,
    ) -> Result<u64, KvError> {
        self.link.check()?;
        let Asked { kind, request, note, keep_alive, permit } = asked;
        let active = |state: &&State| !matches!(state.stage, Stage::Ended(_));
        if self.pushes.iter().flatten().filter(active).any(|state| state.request == request) {
            return Err(KvError::RequestRepeated { request });
        }
        if self.pushes.iter().flatten().count() >= TRANSFERS_MAX {
            return Err(KvError::TooManyTransfers { max: TRANSFERS_MAX });
        }
        let hold = Hold::lease(&self.pool, list.clone())?;
        if let Some(reason) = self.taken_back.take(request, now) {
            return Err(revoke::taken_back(request, self.link.peer.clone(), reason));
        }
        let id = hold.number();
        let bytes = self.link.route.bytes_of_source(list);
        let state = State {
            request,
            entry: self.journal.begin(kind, request, list.blocks().len(), now),
            hold,
            _permit: permit,
            deadline,
            keep: KeepAlive::new(keep_alive.or(self.keep_alive), deadline, now),
            started: now,
            bytes,
            writes: 0,
            bytes_done: 0,
            writes_done: 0,
            layers: (kind == TransferKind::Stream).then(Layers::default),
            skipped: Vec::new(),
            note: Outgoing::new(note),
            note_in: Vec::new(),
            stage: Stage::Waiting,
            abandoned: false,
        };
        let place = self.pushes.iter().position(Option::is_none);
        match place.and_then(|place| self.pushes.get_mut(place)) {
            Some(place) => *place = Some(state),
            None => self.pushes.push(Some(state)),
        }
        self.link.waits += 1;
        Ok(id)
    }

    /// Whether a transfer is under way, or has an outcome that was not taken.
    pub(super) fn is_used(&self) -> bool {
        self.pushes.iter().any(Option::is_some) || !self.offers.is_empty()
    }

    #[cfg(test)]
    pub(super) fn has_grant(&self, transfer: usize) -> bool {
        self.grants[transfer].is_some()
    }

    /// Whether a grant has arrived.
    #[cfg(test)]
    pub(super) fn is_granted(&self, transfer: usize) -> bool {
        self.grants[transfer].as_ref().is_some_and(|granted| granted.is_whole())
    }

    /// The memory of the peer's pool with the keys of a grant, once it has arrived.
    #[cfg(test)]
    pub(super) fn granted_memory(
        &self,
        transfer: usize,
    ) -> Option<super::pool::Pieces<rdma_core::RemoteMemory>> {
        self.grants[transfer].as_ref().filter(|granted| granted.is_whole())?.memory(&self.link)
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

    /// Capacity of the list of a grant, in numbers.
    #[cfg(test)]
    pub(super) fn grant_capacity(&self, transfer: usize) -> usize {
        self.grants[transfer].as_ref().map_or(0, |granted| granted.list.capacity())
    }

    /// [`push_at`](Self::push_at), to change it.
    fn push_mut(&mut self, key: PushKey) -> Option<&mut State> {
        self.pushes.get_mut(key.place)?.as_mut().filter(|state| state.id() == key.id)
    }

    /// The push of this key, unless its state has gone.
    fn push_at(&self, key: PushKey) -> Option<&State> {
        self.pushes.get(key.place)?.as_ref().filter(|state| state.id() == key.id)
    }

    /// The push of this lease, unless its outcome was taken.
    fn push(&self, id: u64) -> Option<&State> {
        self.pushes.iter().flatten().find(|state| state.id() == id)
    }

    /// Forgets the transfers that have ended and whose outcome nobody waits for.
    fn reap(&mut self) {
        self.pushes.iter_mut().for_each(|place| {
            place.take_if(|state| state.abandoned && matches!(state.stage, Stage::Ended(_)));
        });
        self.offers.retain(|offered| !offered.is_forgotten());
    }

    /// Wakes the tasks whose transfers have ended or met their grants, or whose layers are sent, and forgets the
    /// transfers whose outcome nobody waits for.
    fn wake(&mut self, core: &mut EngineState) {
        self.reap();
        let mut wakers = std::mem::take(&mut self.wakers);
        wakers.wake(core, |id| {
            self.push(id).is_some_and(|state| !matches!(state.stage, Stage::Ended(_)))
                || self.offers.iter().any(|offered| offered.is_open(id))
        });
        self.wakers = wakers;
        let mut layers = std::mem::take(&mut self.layer_wakers);
        layers.wake(core, |(id, layer)| match layer {
            Some(layer) => self.is_sending(id, layer),
            None => self.skipped(id).is_none() && self.push(id).is_some(),
        });
        self.layer_wakers = layers;
    }
}

/// Leases number pushes and offers alike, so a handle need not know which of them it has.
impl Machine for Pushes {
    type Outcome = Sent;
    type Error = KvError;

    fn take(&mut self, id: u64) -> Option<Result<Sent, KvError>> {
        let ended = |state: &mut State| state.id() == id && matches!(state.stage, Stage::Ended(_));
        match self.pushes.iter_mut().find_map(|place| place.take_if(ended)) {
            Some(State { stage: Stage::Ended(outcome), note_in, .. }) => {
                Some(outcome.map(|sent| Sent { note: note_in, ..sent }))
            }
            _ => self.take_offer(id),
        }
    }

    fn wakers(&mut self) -> &mut Wakers {
        &mut self.wakers
    }

    fn progress(&self, id: u64) -> Option<Progress> {
        self.push(id).map(State::progress).or_else(|| self.offer_progress(id))
    }

    fn deadline(&self, id: u64) -> Option<Deadline> {
        self.push(id).map(State::ends_by).or_else(|| self.offer_deadline(id))
    }

    fn extend(&mut self, id: u64, deadline: Deadline) -> Option<Result<bool, KvError>> {
        let push = self.pushes.iter_mut().flatten().find(|state| state.id() == id);
        push.map(|state| state.extend(deadline)).or_else(|| self.extend_offer(id, deadline))
    }

    fn give_up(&mut self, core: &mut EngineState, id: u64, until: Option<Deadline>, now: Instant) {
        self.cancel(core, id, until, now);
        self.recall(core, id, until, now);
    }

    fn given_up(&mut self) -> &mut GivenUp {
        &mut self.given_up
    }

    fn abandon(&mut self, id: u64) {
        let push = self.pushes.iter_mut().flatten().find(|state| state.id() == id);
        push.into_iter().for_each(|state| state.abandoned = true);
        self.abandon_offer(id);
        self.reap();
    }

    fn refused(_: &Shared<Self>, _: u64, _: &List, cause: KvError) -> KvError {
        cause
    }
}

impl State {
    /// The number of the lease, which is also the number of the push.
    fn id(&self) -> u64 {
        self.hold.number()
    }

    fn progress(&self) -> Progress {
        let (bytes_arrived, writes_arrived) = (self.bytes_done, self.writes_done);
        Progress { bytes_arrived, bytes: self.bytes, writes_arrived, writes: self.writes }
    }

    /// The moment at which the push has to be looked at even if nothing arrives.
    fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ended(_) => None,
            Stage::Quiescing { fence, .. } => Some(fence.due()),
            Stage::Waiting | Stage::Writing(_) => Some(self.deadline.instant()),
        }
    }

    /// The moment at which a deadline that is kept alive may have to be moved.
    fn look(&self) -> Option<Instant> {
        matches!(self.stage, Stage::Waiting | Stage::Writing(_)).then(|| self.keep.look()).flatten()
    }

    /// The moment by which the push ends or its lane is fenced, without what the device needs for that.
    fn ends_by(&self) -> Deadline {
        match &self.stage {
            Stage::Quiescing { fence, .. } => self.deadline.max(Deadline::at(fence.latest())),
            Stage::Waiting | Stage::Writing(_) | Stage::Ended(_) => self.deadline,
        }
    }

    /// The error of a push whose writes are done, and whose promised note is not set.
    fn note_missing(&self, done: u64) -> Option<KvError> {
        let Stage::Writing(of) = &self.stage else { return None };
        let is_sent = of.all_posted.is_some_and(|last| done >= last);
        (is_sent && self.note.is_due()).then_some(KvError::NoteMissing { request: self.request })
    }

    /// Moves the deadline to a later one. The peer is not told, because a grant has a deadline of its own.
    fn extend(&mut self, deadline: Deadline) -> Result<bool, KvError> {
        match &self.stage {
            Stage::Waiting | Stage::Writing(_) => {
                self.deadline = self.deadline.max(deadline);
                Ok(false)
            }
            Stage::Quiescing { cause, .. } => Err(cause.clone()),
            Stage::Ended(Ok(_)) => Err(KvError::AlreadyEnded { request: self.request }),
            Stage::Ended(Err(error)) => Err(error.clone()),
        }
    }

    /// Goes to `Ended`: releases the blocks, and records the outcome once. The caller has made sure that the device
    /// no longer reads the blocks.
    fn end(&mut self, outcome: Result<Sent, KvError>) {
        self.hold.release();
        if !matches!(self.stage, Stage::Ended(_)) {
            let arrived = |sent: &Sent| TransferOutcome::arrived(sent.corrupt);
            let how = outcome.as_ref().map_or_else(TransferOutcome::from, arrived);
            self.entry.end(how, outcome.as_ref().map_or(self.bytes_done, |sent| sent.bytes));
            self.stage = Stage::Ended(outcome);
        }
    }
}

impl Service for Pushes {
    fn advance(&mut self, core: &mut EngineState, now: Instant) -> bool {
        if self.link.ended.is_some() {
            // All transfers have ended with the link.
            self.given_up.take();
            return false;
        }
        self.link.watch(core, now);
        let taken = self.take_arrivals(core, now);
        let mut any = self.link.or_violation(core, taken);
        // Before grants are met, so that one which has just come meets a push whose deadline moves.
        self.keep_alive(core, now);
        // The order matters: arrivals first, since they bring grants and confirmations; then count and finish, so
        // that a push which is done is not expired below.
        any |= self.begin(core, now);
        any |= self.count_done(core, now);
        any |= self.finish(core, now);
        // Before expiry, so that a fence does not strike a push whose writes are done.
        any |= self.give_up_asked(core, now) | self.finish_stopped(core, now);
        // Deadlines are compared with the time up to which completions were taken, and not with `now`: a completion
        // that still waits in the queue may be the one that makes the push in time.
        let known = core.known_until();
        any |= self.expire(core, known, now);
        any |= self.finish_stopped(core, now);
        // Answers to the peer go before new blocks, because the peer frees its blocks on them and must not wait
        // behind other transfers.
        self.refuse(core);
        self.send_quiesced(core);
        let unsummed = self.send_offers(core);
        let (posted, again) = self.post(core);
        self.unsummed = (unsummed || again).then_some(now);
        any |= posted || unsummed;
        // The end of the lane comes last, so that all it had delivered was counted first.
        if let Some(cause) = self.link.lost(core) {
            self.end(core, cause, now);
            any = true;
        }
        self.wake(core);
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pushes = self.pushes.iter().flatten().flat_map(|state| [state.due(), state.look()]);
        let offers = self.offers.iter().flat_map(|offered| [offered.due(), offered.look()]);
        pushes.chain(offers).flatten().chain(self.unsummed).chain(self.given_up.due()).min()
    }
}
