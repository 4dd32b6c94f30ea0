//! Ranks that run the same operations: who they are, and the operations of this one in their order.
//!
//! How the links come to be is `connect`'s; what operations do is `collective`'s, on top of this.

mod abort;
mod algorithms;
mod announce;
mod attribution;
mod connect;
mod gate;
mod host;
mod hosts;
mod info;
mod leave;
mod link_table;
mod liveness_socket;
mod nccl;
mod options;
mod pending;
mod rendezvous;
mod ring;
mod shared;
mod state;
pub mod tuning;
mod wait_graph;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess};

use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::execute::{CachedPlan, Job, Participants};
use crate::collective::rank_of::RankOf;
use crate::engine::{Driver, Engine, EngineState, HANDOVER_DELAY, Service};
use crate::groups::Groups;

pub use abort::Aborter;
pub use algorithms::{Algorithm, Algorithms, UnknownAlgorithm};
use announce::Announcer;
use gate::{CoarseClock, DeferredOp, EngineDrive, FastPath, FastPathGate};
pub(crate) use host::{
    HostGroup, RANKS_MAX, ReduceScratch, UNIT_BYTES, WrongMessage, ZERO_COPY_PIECE_BYTES, message_bytes_max,
};
pub(crate) use hosts::{Hosts, Spread};
pub use info::RankInfo;
#[cfg(any(fuzzing, test))]
pub(crate) use link_table::find_blob;
pub(crate) use link_table::{
    Link, LinkMailboxes, Reach, Unlinked, VERDICT_BYTES, geometry as link_geometry, word_bytes,
};
pub use options::CommunicatorOptions;
pub use pending::{Pending, PendingFuture, StillPending, WaitError};
pub(crate) use rendezvous::{Origin, Parent, Rendezvous};
use ring::FENCE_WITHIN;
pub(crate) use ring::{CommContext, Lost, PIECE_BYTES, RingLinks, Scratch, at_fault, violation};
use shared::Shared;
use state::State;
use tuning::{Orders, Peers};
pub(crate) use wait_graph::{Direction, WaitingFor};

/// A group of ranks, seen from one of them.
///
/// All ranks make it at the same time, by the store where they meet, and call the same operations in the same order.
/// Neighbours in the ring of ranks are connected; other ranks are when an operation first needs it, and stay so. Ranks of one
/// host, up to 16, reach each other's memory besides: for operations of a few KiB and for those on slices, which are then done in the thread of
/// the caller while the others are there, and for larger ones on tensors and regions. Operations run one after the other; those of several communicators
/// on one engine interleave. An operation that fails ends the communicator on all ranks: each later one returns
/// [`CollectiveError::Ended`].
///
/// Dropping it waits for what this rank has sent to arrive, at most
/// [`linger`](CommunicatorOptions::linger); [`close`](Self::close) does so with an error. A process that exits without
/// either may take its last messages with it.
pub struct Communicator {
    shared: Arc<Shared>,
    rank: u32,
    options: CommunicatorOptions,
    ranks: Vec<RankInfo>,
    hosts: Arc<Hosts>,
    /// Rank of, and way to the memory of, the rank before and the rank after.
    neighbours: Option<[(u32, PeerAccess); 2]>,
    origin: Origin,
    /// How often it was split.
    splits: u32,
    closed: bool,
    /// Of what is done at once, without the engine.
    scratch: Option<Box<Scratch>>,
    /// Which way each collective goes.
    orders: Orders,
    /// Of each collective the powers of two of bytes of which it was said which way they take, a bit each.
    chosen: [u64; Collective::CODES],
    /// When such an operation drove the engine.
    driven: Instant,
    clock: CoarseClock,
    /// The plan of the last call in windows, since the next call is often the same.
    pub(in crate::collective) cached_plan: Option<CachedPlan>,
}

impl Communicator {
    fn connected(
        engine: &Engine,
        (rank, origin): (u32, Origin),
        options: CommunicatorOptions,
        (ranks, hosts): (Vec<RankInfo>, Arc<Hosts>),
        (ring, host): (Option<RingLinks>, Option<HostGroup>),
        announcer: Announcer,
    ) -> Self {
        let neighbours = ring.as_ref().map(|RingLinks { previous, next, .. }| {
            [(previous.rank, previous.access), (next.rank, next.access)]
        });
        let (gate, host) = (Arc::new(FastPathGate::new()), host.map(Arc::new));
        let state = State::new(rank, (ring, host.clone()), Arc::clone(&gate), announcer);
        let state = Arc::new(Mutex::new(state));
        engine.lock().register(&state);
        let scratch = host.is_some().then(ring::scratch);
        let peers = if host.is_some() { Peers::Mapped } else { Peers::Links };
        let of = (u32::try_from(ranks.len()).unwrap_or(u32::MAX), peers, hosts.spread());
        let orders = Orders::new(&options.tuning, options.algorithms, of, options.reproducible);
        let shared = Arc::new(Shared { engine: engine.clone(), state, gate, host });
        Self {
            shared,
            rank,
            options,
            ranks,
            hosts,
            neighbours,
            origin,
            splits: 0,
            closed: false,
            scratch,
            orders,
            chosen: [0; Collective::CODES],
            driven: Instant::now(),
            clock: CoarseClock::new(taken_over_within(engine)),
            cached_plan: None,
        }
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        // A store serves fewer than 2^32 ranks.
        self.ranks.len() as u32
    }

    /// The rank, and how many there are.
    pub(in crate::collective) fn rank_of(&self) -> RankOf {
        RankOf { rank: self.rank, size: self.ranks.len() as u32 }
    }

    /// What all ranks have said of themselves, by rank.
    #[must_use]
    pub fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &CommunicatorOptions {
        &self.options
    }

    /// The engine that it is on.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The neighbours that this rank is connected to, and how their memory is reached; none when it is alone.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, PeerAccess)> + '_ {
        self.neighbours.iter().flatten().copied()
    }

    /// Queues an operation behind those that are pending, for `deadline`.
    pub(in crate::collective) fn start<T>(
        &mut self,
        job: Box<Job>,
        deadline: Deadline,
        give_back: fn(Box<Job>) -> T,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let shared = &self.shared;
        shared.hand_to_engine();
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.push(job, deadline)?;
            let now = Instant::now();
            state.advance(core, now);
            if shared.engine.options().driver == Driver::Thread {
                state.leave_to_caller(core, now + HANDOVER_DELAY);
            }
            Ok::<_, (Box<Job>, CollectiveError)>(id)
        })?;
        Ok(Pending::new(Arc::clone(shared), id, give_back))
    }

    /// Runs an operation on memory that is borrowed, behind those that are pending: `begin` is called once with its
    /// number, `step` until it is ready or `deadline` passes, and then `late`. The communicator ends with an error.
    pub(crate) fn run<R>(
        &mut self,
        deadline: Deadline,
        among: Participants,
        mut begin: impl FnMut(&mut CommContext<'_>, &mut EngineState, u64) -> R,
        mut step: impl FnMut(&mut R, &mut CommContext<'_>, &mut EngineState) -> Poll<Result<(), CollectiveError>>,
        late: impl FnOnce(&mut R, &mut CommContext<'_>, &mut EngineState) -> CollectiveError,
    ) -> Result<(), CollectiveError> {
        let shared = &self.shared;
        shared.hand_to_engine();
        let mut running = None;
        let outcome = shared.engine.wait_for(deadline, |core, now| {
            let mut state = shared.lock();
            if running.is_none() {
                if let Some(ended) = state.ended() {
                    return Poll::Ready(Err(ended));
                }
                if deadline.expired_at(now) && among != Participants::AllHeadersSent {
                    return Poll::Ready(Err(state.end_queued(core)));
                }
                if !state.is_idle() {
                    return Poll::Pending;
                }
                let sequence = state.next_sequence(among);
                state.borrowed = true;
                state.settle();
                running = Some(begin(&mut state.parts(), core, sequence));
                if let Some(ring) = &mut state.ring {
                    ring.give_up_at(core, deadline);
                }
            }
            let looked = match &mut running {
                Some(running) => step(running, &mut state.parts(), core),
                None => Poll::Pending,
            };
            if running.is_some() {
                // Nobody else can look for it.
                core.look_again_at(state.look_at.take());
            }
            looked
        });
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.borrowed &= running.is_none();
            let outcome = match (outcome, &mut running) {
                (Some(outcome), _) => outcome,
                (None, Some(running)) => Err(late(running, &mut state.parts(), core)),
                (None, None) => Err(state.end_queued(core)),
            };
            if let Err(error) = &outcome
                && running.is_some()
                && !error.is_refusal()
            {
                state.end(error);
            }
            state.settle();
            outcome
        })
    }

    /// What the next operation needs that is done at once, in the thread of the caller; `None` when it has to wait for
    /// others, the ranks are not on one host, or its deadline has passed.
    #[inline]
    pub(crate) fn fast_path(&mut self, deadline: Deadline) -> Option<FastPath<'_>> {
        self.fast_path_within(deadline, |_| Duration::ZERO)
    }

    /// The same for one that owns its memory, which may be [set apart](Self::defer) then: there is time for the engine to take
    /// it over before its deadline.
    #[inline]
    pub(crate) fn fast_path_or_deferred(&mut self, deadline: Deadline) -> Option<FastPath<'_>> {
        self.fast_path_within(deadline, taken_over_within)
    }

    #[inline]
    fn fast_path_within(
        &mut self,
        deadline: Deadline,
        within: impl FnOnce(&Engine) -> Duration,
    ) -> Option<FastPath<'_>> {
        self.shared.hand_to_engine();
        // Not before: others may have been waited for.
        if !self.clock.leaves(deadline, || within(&self.shared.engine)) {
            return None;
        }
        let Shared { engine, gate, host, .. } = &*self.shared;
        let (host, scratch) = (host.as_deref()?, self.scratch.as_deref_mut()?);
        let sequence = gate.sequence_if_open()?;
        let drives = EngineDrive { engine, driven: &mut self.driven };
        Some(FastPath { host, scratch, sequence, gate, drives })
    }

    /// While operations are done at once.
    #[inline]
    pub(crate) fn drives(&mut self) -> EngineDrive<'_> {
        EngineDrive { engine: &self.shared.engine, driven: &mut self.driven }
    }

    /// Keeps an operation that has begun [without the engine](Self::fast_path_or_deferred), and whose messages are left.
    pub(in crate::collective) fn defer<T>(
        &mut self,
        job: Box<Job>,
        (started, deadline): (Instant, Deadline),
        give_back: fn(Box<Job>) -> T,
    ) -> Pending<T> {
        let gate = &self.shared.gate;
        gate.count();
        let id = gate.next_id();
        gate.deferred.hold(DeferredOp { id, job, deadline, started });
        Pending::new(Arc::clone(&self.shared), id, give_back)
    }

    /// That one more operation can be queued.
    pub(crate) fn check_queue(&self) -> Result<(), CollectiveError> {
        self.shared.lock().check_queue()
    }

    /// Whether ranks leave each other messages without a link between.
    pub(crate) fn has_host_group(&self) -> bool {
        self.shared.host.is_some()
    }

    /// Which rank of the communicator that this one was [split](Self::split) from `rank` is; `None` of one that was not, and of no
    /// rank.
    #[must_use]
    pub fn rank_in_parent(&self, rank: u32) -> Option<u32> {
        self.origin.parent.as_ref()?.rank_of(rank)
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The number of another split, the same on all ranks.
    pub(crate) fn next_split(&mut self) -> u32 {
        self.splits = self.splits.wrapping_add(1);
        self.splits.wrapping_sub(1)
    }

    /// How the ranks reach each other, as a [table](tuning) of ways has it.
    #[must_use]
    pub fn peers(&self) -> Peers {
        if self.has_host_group() { Peers::Mapped } else { Peers::Links }
    }

    /// Whether the ranks are such that operations can go that way, be it asked for or not: `flat`, `pieces` and `direct` where they map
    /// each other's memory, `hierarchical` where they are on several hosts and some of them together, unless they are
    /// [`reproducible`](CommunicatorOptions::reproducible), and the others anywhere.
    #[must_use]
    pub fn can(&self, way: Algorithm) -> bool {
        self.orders.have(way)
    }

    /// The ranks of each host.
    pub(crate) fn hosts(&self) -> &Arc<Groups> {
        self.hosts.groups()
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Says at INFO, once for each power of two of bytes, which way a collective takes.
    pub(crate) fn chose(
        &mut self,
        (collective, bytes): (Collective, usize),
        way: impl FnOnce(&Orders) -> String,
    ) {
        let class = (usize::BITS - bytes.saturating_sub(1).leading_zeros()).min(usize::BITS - 1);
        let Some(said) = self.chosen.get_mut(usize::from(collective.code())) else { return };
        if *said & (1 << class) == 0 {
            *said |= 1 << class;
            self.shared.lock().say_way(collective.name(), 1 << class, &way(&self.orders));
        }
    }

    #[cfg(test)]
    pub(crate) fn with_ring<T>(&self, with: impl FnOnce(&mut EngineState, &mut RingLinks) -> T) -> Option<T> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| shared.lock().ring.as_mut().map(|ring| with(core, ring)))
    }
}

/// How soon an operation that is set apart is the engine's, if nobody waits for it: a thread that sleeps wakes in half of that at least.
fn taken_over_within(engine: &Engine) -> Duration {
    engine.options().heartbeat.max(HANDOVER_DELAY).saturating_mul(2)
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
