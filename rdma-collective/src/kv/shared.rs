//! State that an end of a link shares with the handles of its transfers, the same for decode and prefill.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rdma_core::memory::OwnProcess;
use rdma_core::{Deadline, PeerAccess, ProtectionDomain};

use super::blocks::List;
use super::journal::{Journal, LinkEvent, LinkStats};
use super::link::{Link, LinkOptions};
use super::machine::Machine;
use super::plan::{Cover, Route};
use super::pool::{AttachedPool, Pool};
use super::staging::Staging;
use super::wakers::Wakers;
use crate::engine::{Driver, Engine, EngineState, LaneId, Service, ServiceId};
use crate::kv::{KvError, RequestId};
use crate::link::PeerName;
use crate::log::Held;

/// Blocks, summed over all layers, that are planned and posted in the caller's thread: that takes about 10 us.
const AT_ONCE: u64 = 256;

/// State shared by an end of a link and the handles of its transfers. `S` is the state machine of the end.
pub(super) struct Shared<S> {
    pub(super) engine: Engine,
    state: OwnProcess<Arc<Mutex<S>>>,
    service: ServiceId,
    pub(super) journal: Journal,
    pub(super) pool: Pool,
    /// The domain in which the peer's keys are made.
    pub(super) pd: ProtectionDomain,
    lane: LaneId,
    pub(super) peer: PeerName,
    pub(super) access: PeerAccess,
    pub(super) route: Arc<Route>,
    /// The part of decode's layers and heads that the route brings.
    pub(super) cover: Arc<Cover>,
    pub(super) own_keys: bool,
    /// Whether the link has ended.
    over: Arc<AtomicBool>,
    staging: [Option<Staging>; 2],
    linger: Duration,
    /// The moment at which the link was set up.
    pub(super) opened: Instant,
}

impl<S: Service + 'static> Shared<S> {
    /// Makes the state machine of a link that is set up, at the end that `sends` blocks or receives them, and registers
    /// it with the engine.
    pub(super) fn open(
        link: Link,
        engine: &Engine,
        pool: &Pool,
        options: &LinkOptions,
        sends: bool,
        make: impl FnOnce(Link, Pool, AttachedPool, Journal, &LinkOptions) -> S,
    ) -> Arc<Self> {
        let (lane, peer, access, own_keys) = (link.lane, link.peer.clone(), link.access, link.keys.are_own());
        let (route, cover) = (Arc::clone(&link.route), Arc::clone(&link.cover));
        let (rail, pd) = (link.rail, link.pd.clone());
        let (staging, over) = ([link.staging.clone(), link.inbox.clone()], Arc::clone(&link.over));
        let journal = Journal::new(peer.clone(), link.route.layer_block_bytes(), sends);
        let mut core = engine.lock();
        let attached = pool.attach(&mut core, rail);
        let state = Arc::new(Mutex::new(make(link, pool.clone(), attached, journal.clone(), options)));
        let service = core.register_for(lane, &state);
        drop(core);
        // The peer's first messages may be there already.
        engine.attend(service);
        let state = OwnProcess::new(state);
        let (engine, pool, linger) = (engine.clone(), pool.clone(), options.linger);
        Arc::new(Self {
            engine,
            state,
            service,
            journal,
            pool,
            pd,
            lane,
            peer,
            access,
            route,
            cover,
            own_keys,
            over,
            staging,
            linger,
            opened: Instant::now(),
        })
    }

    pub(super) fn lock(&self) -> Held<MutexGuard<'_, S>> {
        // A poisoned lock is safe to use: `advance` does not panic, and every other change is one statement.
        Held::lock(|| self.state.unasked().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state for a transfer of these blocks, and lets the state machine go on unless the change was
    /// refused. Never waits for the engine, because another thread may copy.
    pub(super) fn change<T>(
        &self,
        list: &List,
        change: impl FnOnce(&mut S, Instant) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        self.engine.check_process()?;
        let changed = change(&mut self.lock(), Instant::now())?;
        self.go_on(list);
        Ok(changed)
    }

    /// Lets the state machine go on with a transfer of these blocks. One of many is left to the engine's thread,
    /// because planning it takes long; without a thread nobody else may come.
    fn go_on(&self, list: &List) {
        let parts = list.blocks().len() as u64 * u64::from(self.pool.layout().layers());
        if parts <= AT_ONCE || self.engine.options().driver == Driver::Caller {
            self.engine.attend(self.service);
        } else {
            self.engine.rouse_for(self.service);
        }
    }

    /// Moves the deadline of a transfer to a later one; never waits for the engine.
    pub(super) fn extend(
        &self,
        (id, request): (u64, RequestId),
        list: &List,
        deadline: Deadline,
    ) -> Result<(), KvError>
    where
        S: Machine,
    {
        self.engine.check_process()?;
        let extended = self.lock().extend(id, deadline);
        if extended.unwrap_or(Err(KvError::OutcomeTaken { request }))? {
            self.go_on(list);
        }
        Ok(())
    }

    /// Has a transfer given up, if it is under way; never waits for the engine.
    pub(super) fn ask_to_give_up(&self, id: u64, list: &List, until: Option<Deadline>)
    where
        S: Machine,
    {
        let asked = self.glance(|state| {
            let is_there = state.progress(id).is_some();
            if is_there {
                state.given_up().ask(id, until);
            }
            is_there
        });
        if asked {
            self.go_on(list);
        }
    }

    /// Whether the link has ended. Never waits for the state.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns what `glance` finds in the state; the default in a forked child, where the lock may be held for ever.
    pub(super) fn glance<T: Default>(&self, glance: impl FnOnce(&mut S) -> T) -> T {
        if self.engine.is_forked() { T::default() } else { glance(&mut self.lock()) }
    }

    /// Returns the counts of the link; none in a forked child.
    pub(super) fn stats(&self) -> LinkStats {
        if self.engine.is_forked() { LinkStats::default() } else { self.journal.stats() }
    }

    /// Returns the next event of the link; none in a forked child.
    pub(super) fn next_event(&self) -> Option<LinkEvent> {
        if self.engine.is_forked() { None } else { self.journal.next_event() }
    }

    /// Takes an outcome by `take`; registers the waker, if there is one, under `id` when there is no outcome yet.
    pub(super) fn look<T, Id: Copy + PartialEq>(
        &self,
        id: Id,
        waker: Option<&Waker>,
        take: impl FnOnce(&mut S) -> Option<T>,
        wakers: impl FnOnce(&mut S) -> &mut Wakers<Id>,
    ) -> Poll<T> {
        let mut state = self.lock();
        if let Some(outcome) = take(&mut state) {
            return Poll::Ready(outcome);
        }
        let replaced = waker.and_then(|waker| wakers(&mut state).set(id, waker));
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Has `end` end every transfer at once, because the peer has ended the link, and hears no goodbye.
    pub(super) fn end_with_peer(&self, end: impl FnOnce(&mut S, &mut EngineState)) {
        self.engine.lock_with(|core| {
            // Arrivals are counted first, so that a transfer that is done is not lost.
            core.drive(Instant::now, usize::MAX);
            end(&mut self.lock(), core);
        });
    }

    /// Closes the end: `end` ends every transfer that is left. Does nothing in a forked child.
    pub(super) fn close(&self, end: impl FnOnce(&mut S, &mut EngineState)) {
        if self.engine.is_forked() {
            return;
        }
        // Goodbye comes before the lane is fenced, so that the peer sees an orderly close and not a failure.
        self.engine.say_goodbye(&[self.lane], Deadline::after(self.linger));
        self.engine.lock_with(|core| {
            end(&mut self.lock(), core);
            self.pool.detach(core);
            for staging in self.staging.iter().flatten() {
                core.detach(staging.attached());
            }
            // The lane's buffers come back with its last completions.
            core.drive(Instant::now, usize::MAX);
        });
    }
}
