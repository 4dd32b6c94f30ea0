//! The state machine of grants and pulls: decode's end of a link.
//!
//! [`Receives`] is a service of the engine: grants fill whichever thread drives. `kv/transfer` has the public handle.
//!
//! A transfer goes `Filling` → `Unchecked` (only with checksums) → `Confirming` → `Ended`, or `Filling` → `Revoking` →
//! `Ended` when it is given up. `state` has the stages. This file owns the entry into `Filling` and the order of the
//! steps in one drive. Its children own the transitions: `arrive` reads messages and counts writes, `check` compares
//! checksums, `unpack` empties the slots of packed writes, `finish` ends transfers that are done or lost, `revoke`
//! gives grants up, `read` posts the reads of pulls, `layer` answers for one layer. `tests` has the table of every
//! event in every stage.

mod arrive;
mod check;
mod finish;
mod layer;
mod read;
mod revoke;
mod state;
#[cfg(test)]
mod tests;
mod unpack;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::blocks::List;
use super::checksum;
use super::given_up::GivenUp;
use super::journal::{Journal, TransferKind};
use super::keep_alive::KeepAlive;
use super::lease::Hold;
use super::link::{Link, LinkOptions, MESSAGE_BYTES_MAX};
use super::machine::Machine;
use super::message::{self, Extend, Grant, Unpacked, Withdraw};
use super::note::{Incoming, Outgoing};
use super::outcome::{Progress, Received};
use super::plan::Wanted;
use super::pool::{AttachedPool, PeerKeys, Pool};
use super::request::Asked;
use super::shared::Shared;
use super::verdict::{Arrived, BlockVerdict, Verdicts};
use super::wakers::Wakers;
use crate::engine::{EngineState, Service};
use crate::kv::{KvError, RequestId, TransferError};
use crate::link::imm::TRANSFERS_MAX;

use check::Checked;
pub(super) use layer::Layer;
use read::Pulls;
use state::{Feed, Stage, State};

/// Time beyond the deadline that checking checksums may take: 5 s.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// The grants and pulls of one link end.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) link: Link,
    journal: Journal,
    pub(super) pool: Pool,
    checksums: bool,
    /// The cap on keeping transfers alive whose requests have none.
    keep_alive: Option<Duration>,
    /// Writes and bytes that have arrived since they were last added to the journal, once a drive, so that its lock
    /// is not taken for each write.
    landed: (u64, u64),
    /// Transfers by slot: the immediate of each write carries the slot.
    grants: Vec<Option<State>>,
    next_grant: u64,
    pulls: Pulls,
    given_up: GivenUp,
    wakers: Wakers,
    /// Wakers by grant and layer.
    pub(super) layer_wakers: Wakers<(u64, u32)>,
    destination: AttachedPool,
    write_bytes_max: u32,
    /// Pieces of pulls that are shorter are read packed.
    pack_bytes: u32,
    /// Whether prefill was told where the slots for packed writes are, if there are any.
    told_staging: bool,
    /// Grants that ended before they were sent; wait for room on the lane.
    withdrawn: VecDeque<Withdraw>,
    /// Slots of grants that have ended, for prefill to use again; wait for room on the lane.
    unpacked: VecDeque<Unpacked>,
    /// The moment at which a read of a pull was last known to be done.
    moved: Instant,
    /// The time to try again to end keys that the device did not end.
    keys_left: Option<Instant>,
    /// Present when checksums are still to be checked, so that the engine drives again at once.
    unchecked: Option<Instant>,
    /// The slot to check first, so that slots take turns.
    check_next: usize,
    scratch: Box<[u8]>,
}

/// The blocks that a transfer takes.
pub(super) struct Taken {
    pub(super) hold: Hold,
    /// The wanted blocks, if not all are.
    pub(super) wanted: Option<Wanted>,
    /// The keys of a grant of a strict link, and their numbers, for each piece of the pool.
    pub(super) keys: (PeerKeys, Vec<u32>),
}

impl Receives {
    pub(super) fn new(
        link: Link,
        pool: Pool,
        destination: AttachedPool,
        journal: Journal,
        options: &LinkOptions,
    ) -> Self {
        let pack_bytes = if link.inbox.is_some() { options.pack_bytes } else { 0 };
        Self {
            link,
            journal,
            pool,
            checksums: options.checksums,
            keep_alive: options.keep_alive,
            landed: (0, 0),
            grants: Vec::new(),
            next_grant: 1,
            pulls: Pulls::default(),
            given_up: GivenUp::default(),
            wakers: Wakers::default(),
            layer_wakers: Wakers::default(),
            destination,
            write_bytes_max: options.write_bytes_max.min(MESSAGE_BYTES_MAX),
            pack_bytes,
            told_staging: false,
            withdrawn: VecDeque::new(),
            unpacked: VecDeque::new(),
            moved: Instant::now(),
            keys_left: None,
            unchecked: None,
            check_next: 0,
            scratch: vec![0; checksum::SCRATCH_BYTES].into(),
        }
    }

    /// Adds a grant or a pull in stage `Filling`, and returns its number. `take` takes the blocks; only a transfer that
    /// can begin takes them.
    pub(super) fn add(
        &mut self,
        asked: Asked,
        take: impl FnOnce(&Pool) -> Result<Taken, KvError>,
        deadline: Deadline,
        now: Instant,
    ) -> Result<u64, KvError> {
        self.link.check()?;
        let Asked { kind, request, note, keep_alive, permit } = asked;
        let by_layer = kind == TransferKind::PullLayers;
        let pulls = kind == TransferKind::Pull || by_layer;
        if pulls {
            self.check_pull(request, now)?;
        }
        let transfer = self.free_slot(request)?;
        let Taken { hold, wanted, keys: (keys, told_keys) } = take(&self.pool)?;
        let (blocks, tokens) = (hold.blocks(), hold.list().has_tokens());
        if pulls && self.checksums && tokens {
            return Err(KvError::ChecksumsOfPull);
        }
        hold.begin();
        let grant = Grant {
            grant: self.next_grant,
            request,
            time_to_live_ms: message::time_to_live_ms(deadline, now),
            transfer,
            checksums: self.checksums,
            partial: wanted.is_some(),
            tokens,
            note: !note.is_empty(),
            // The number fits 32 bits: it is at most the number of blocks in the pool.
            blocks: blocks.len() as u32,
        };
        let bytes = self.link.route.bytes_of(hold.list(), wanted.as_ref());
        // A pull is not told to the peer, so its list is empty.
        let list = if pulls { Vec::new() } else { numbers_of(&hold, wanted.as_ref(), &told_keys) };
        self.next_grant += 1;
        let state = State {
            grant,
            entry: self.journal.begin(kind, request, blocks.len(), now),
            hold,
            _permit: permit,
            keys,
            peer: (self.link.peer.clone(), self.link.name),
            cover: Arc::clone(&self.link.cover),
            wanted,
            list,
            bytes,
            deadline,
            keep: KeepAlive::new(keep_alive.or(self.keep_alive), deadline, now),
            extended: false,
            granted: now,
            told: 0,
            begin: None,
            arrived: Arrived::default(),
            latest: now,
            bytes_arrived: 0,
            note: Outgoing::new(note),
            note_in: Incoming::default(),
            sums: Vec::new(),
            checked: Checked::default(),
            stage: Stage::Filling,
            abandoned: false,
            unchecked: None,
            feed: if pulls { Feed::Read { lease: None, by_layer } } else { Feed::Written },
        };
        self.put(transfer, state);
        self.link.waits += 1;
        Ok(grant.grant)
    }

    fn put(&mut self, transfer: u8, state: State) {
        match self.grants.get_mut(usize::from(transfer)) {
            Some(place) => *place = Some(state),
            None => self.grants.push(Some(state)),
        }
    }

    /// Finds a slot for a transfer of `request`, which must not be under way already.
    fn free_slot(&self, request: RequestId) -> Result<u8, KvError> {
        let active = |state: &&State| !matches!(state.stage, Stage::Ended(_));
        if self.grants.iter().flatten().filter(active).any(|state| state.grant.request == request) {
            return Err(KvError::RequestRepeated { request });
        }
        let place = self.grants.iter().position(Option::is_none).unwrap_or(self.grants.len());
        let slot = u8::try_from(place).ok().filter(|_| place < TRANSFERS_MAX);
        slot.ok_or(KvError::TooManyTransfers { max: TRANSFERS_MAX })
    }

    #[cfg(test)]
    pub(super) fn has_arrived(&self, transfer: usize) -> bool {
        self.grants[transfer].as_ref().is_some_and(|state| matches!(state.stage, Stage::Unchecked(_)))
    }

    /// How many transfers are being given up.
    #[cfg(test)]
    pub(super) fn revoking(&self) -> usize {
        let given_up = |state: &&State| matches!(state.stage, Stage::Revoking(_));
        self.grants.iter().flatten().filter(given_up).count()
    }

    /// Falsifies the last checksum that the peer has sent.
    #[cfg(test)]
    pub(super) fn spoil(&mut self, transfer: usize) {
        if let Some(sum) = self.grants[transfer].as_mut().and_then(|state| state.sums.last_mut()) {
            *sum ^= 1;
        }
    }

    fn slot(&mut self, id: u64) -> Option<&mut Option<State>> {
        self.grants.iter_mut().find(|place| place.as_ref().is_some_and(|state| state.grant.grant == id))
    }

    /// The state of a transfer whose outcome has not been taken.
    fn state(&self, id: u64) -> Option<&State> {
        self.grants.iter().flatten().find(|state| state.grant.grant == id)
    }

    /// Whether a transfer is under way, or has an outcome that was not taken.
    pub(super) fn is_used(&self) -> bool {
        self.grants.iter().any(Option::is_some)
    }

    /// Forgets the transfers that have ended and whose outcome nobody waits for.
    fn reap(&mut self) {
        self.grants.iter_mut().for_each(|place| {
            place.take_if(|state| state.abandoned && matches!(state.stage, Stage::Ended(_)));
        });
    }

    /// Wakes the tasks whose transfers have ended, or whose layers have arrived, and forgets the transfers whose
    /// outcome nobody waits for.
    fn wake(&mut self, core: &mut EngineState) {
        self.reap();
        let mut wakers = std::mem::take(&mut self.wakers);
        wakers.wake(core, |id| {
            let state = self.state(id);
            state.is_some_and(|state| !matches!(state.stage, Stage::Ended(_)))
        });
        self.wakers = wakers;
        let mut layers = std::mem::take(&mut self.layer_wakers);
        layers.wake(core, |(id, layer)| self.is_filling(id, layer));
        self.layer_wakers = layers;
    }

    /// Sends grants as far as the lane has room.
    fn send_grants(&mut self, core: &mut EngineState) {
        let room = self.link.list_room(core).max(1);
        for state in self.grants.iter_mut().flatten() {
            let list = &state.list;
            while state.told < list.len() && matches!(state.stage, Stage::Filling) {
                let (grant, told) = (state.grant, state.told);
                if !self.link.send(core, message::GRANT, |body| grant.write(body, list, told, room)) {
                    return;
                }
                state.told += room;
            }
            let id = state.grant.grant;
            let is_due = state.grant.note && !state.pulls() && matches!(state.stage, Stage::Filling);
            if is_due && !state.note.send(&self.link, core, message::NOTE, id) {
                return;
            }
        }
    }

    /// Moves the deadlines of transfers that are kept alive.
    fn keep_alive(&mut self, core: &mut EngineState, now: Instant) {
        let Some(signs) = self.link.signs(core) else { return };
        for state in self.grants.iter_mut().flatten().filter(|state| state.look().is_some()) {
            let moved = state.keep.renew(&mut state.deadline, signs, now);
            // A grant that a push has met lives as long as the push.
            state.extended |= moved && !state.pulls() && state.begin.is_none();
        }
    }

    /// Tells the peer of grants that live longer, as far as the lane has room.
    fn send_extensions(&mut self, core: &mut EngineState, now: Instant) {
        for state in self.grants.iter_mut().flatten().filter(|state| state.extended) {
            let is_told = state.told >= state.list.len();
            if matches!(state.stage, Stage::Filling) && is_told {
                let time_to_live_ms = message::time_to_live_ms(state.deadline, now);
                let extend = Extend { id: state.grant.grant, time_to_live_ms };
                state.extended = !self.link.send(core, message::EXTEND, |body| extend.write(body));
            }
        }
    }
}

impl Machine for Receives {
    type Outcome = Received;
    type Error = TransferError;

    fn take(&mut self, id: u64) -> Option<Result<Received, TransferError>> {
        let place = self.slot(id)?;
        let mut state = place.take_if(|state| matches!(state.stage, Stage::Ended(_)))?;
        let (bytes, writes) = (state.bytes_arrived, state.arrived.count());
        let begun = state.begin.as_ref().map_or(state.granted, |begun| begun.at);
        let elapsed = state.latest.saturating_duration_since(state.granted);
        let moving = state.latest.saturating_duration_since(begun);
        let note = state.note_in.take();
        let Stage::Ended(outcome) = state.stage else { return None };
        Some(outcome.map(|verdicts| Received { verdicts, note, bytes, writes, elapsed, moving }))
    }

    fn wakers(&mut self) -> &mut Wakers {
        &mut self.wakers
    }

    fn progress(&self, id: u64) -> Option<Progress> {
        let state = self.state(id)?;
        let (bytes, bytes_arrived, writes_arrived) =
            (state.bytes, state.bytes_arrived, state.arrived.count());
        Some(Progress { bytes_arrived, bytes, writes_arrived, writes: state.arrived.expected() })
    }

    fn deadline(&self, id: u64) -> Option<Deadline> {
        let state = self.state(id)?;
        Some(match &state.stage {
            Stage::Revoking(revoking) => state.deadline.max(Deadline::at(revoking.fence.latest())),
            _ => state.deadline,
        })
    }

    fn extend(&mut self, id: u64, deadline: Deadline) -> Option<Result<bool, KvError>> {
        Some(self.slot(id)?.as_mut()?.extend(deadline))
    }

    fn give_up(&mut self, core: &mut EngineState, id: u64, until: Option<Deadline>, now: Instant) {
        self.revoke(core, id, until, now);
    }

    fn given_up(&mut self) -> &mut GivenUp {
        &mut self.given_up
    }

    fn abandon(&mut self, id: u64) {
        let link_ended = self.link.ended.is_some();
        let layout = self.pool.layout().clone();
        let Some(place) = self.slot(id) else { return };
        let Some(state) = place else { return };
        state.abandoned = true;
        match state.stage {
            Stage::Ended(_) => *place = None,
            // Neither the peer nor a user waits for the verdicts, so the state goes, which releases the blocks.
            Stage::Unchecked(_) if link_ended => {
                // The transfer is recorded as one that ends, otherwise the counts of begun and ended ones never meet.
                let request = state.grant.request;
                state.fail(Arc::new(KvError::Revoked { request }), &layout);
                *place = None;
            }
            _ => {}
        }
    }

    fn refused(shared: &Shared<Self>, id: u64, list: &List, cause: KvError) -> TransferError {
        let layers = shared.pool.layout().layers();
        let none = || {
            let none = Verdicts::new(layers, list, BlockVerdict::Missing);
            none.only(&shared.cover, shared.pool.layout())
        };
        let verdicts = shared.glance(|state| state.so_far(id)).unwrap_or_else(none);
        TransferError { cause: Arc::new(cause), verdicts }
    }
}

impl Service for Receives {
    fn advance(&mut self, core: &mut EngineState, now: Instant) -> bool {
        // After the link's end only the checksums of transfers that had arrived in full go on: they need no peer.
        if self.link.ended.is_some() {
            let any = self.give_up_asked(core, now) | self.check(now) | self.give_up_unchecked(now);
            self.wake(core);
            return any;
        }
        self.link.watch(core, now);
        let taken = self.take_arrivals(core, now);
        let mut any = self.link.or_violation(core, taken);
        any |= self.count_reads(core, now);
        let (requests, bytes) = std::mem::take(&mut self.landed);
        self.journal.moved(requests, bytes, now);
        any |= self.begin_pulls(now);
        any |= self.post_reads(core);
        // The order matters: count, complete, check and confirm come before expiry, so that a transfer which is done
        // is not called late.
        let complete = self.complete(now);
        any |= self.link.or_violation(core, complete);
        any |= self.check(now);
        // Deadlines are compared with the time up to which completions were taken, and not with `now`: a write that
        // still waits in the queue may be the one that completes a grant in time.
        let known = core.known_until();
        // Before expiry, so that a fence does not strike a transfer whose peer has answered.
        any |= self.give_up_asked(core, now) | self.finish_revoked(core);
        any |= self.give_up_unchecked(known);
        // Answers that free blocks at the peer go before confirmations, which may have long notes.
        self.send_revocations(core);
        self.send_leases(core);
        any |= self.confirm(core);
        self.keep_alive(core, now);
        any |= self.expire(core, known, now);
        any |= self.finish_revoked(core);
        self.send_revocations(core);
        self.signal_reads(core);
        self.send_leases(core);
        self.send_unpacked(core);
        if self.send_staging(core) {
            self.send_grants(core);
        }
        self.send_extensions(core, now);
        // The end of the lane comes last, so that all it had delivered was counted first.
        if let Some(cause) = self.link.lost(core) {
            self.end(core, cause);
            any = true;
        }
        self.wake(core);
        any
    }

    fn next_deadline(&self) -> Option<Instant> {
        let grants = self.grants.iter().flatten().flat_map(|state| [state.due(), state.look()]).flatten();
        grants.chain(self.unchecked).chain(self.keys_left).chain(self.given_up.due()).min()
    }
}

/// The list of a grant: its blocks, which of them are wanted, its token ranges, and its keys.
fn numbers_of(hold: &Hold, wanted: Option<&Wanted>, keys: &[u32]) -> Vec<u32> {
    let (blocks, ranges) = hold.list().numbers().split_at(hold.blocks().len());
    [blocks, wanted.map_or(&[], Wanted::words), ranges, keys].concat()
}
