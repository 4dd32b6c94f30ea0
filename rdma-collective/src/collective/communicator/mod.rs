//! The communicator: a group of ranks as one of them sees it, and the calls through which its operations begin.
//!
//! `connect` sets up the links, `state` keeps the queue of operations, and `gate` decides whether a call may take the
//! fast path. The collectives themselves are in `collective`, on top of this module.

mod abort;
mod algorithms;
mod announce;
mod attribution;
mod called;
mod caller_habit;
mod connect;
mod gate;
mod host;
mod hosts;
mod info;
mod lanes;
mod leave;
mod link;
mod link_table;
mod links;
mod liveness_socket;
mod nccl;
mod open_link;
mod options;
mod pending;
mod progress;
mod reach;
mod rendezvous;
mod shared;
mod state;
mod tallies;
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
    AHEAD, HostGroup, RANKS_MAX, ReduceScratch, UNIT_BYTES, WrongMessage, ZERO_COPY_PIECE_BYTES,
    message_bytes_max,
};
pub(crate) use hosts::{Hosts, Spread};
pub use info::RankInfo;
pub(crate) use lanes::LANES_MAX;
pub use lanes::LostLane;
pub(crate) use link::Link;
#[cfg(any(fuzzing, test))]
pub(crate) use link_table::find_blobs;
pub(crate) use link_table::{Unlinked, VERDICT_BYTES, geometry as link_geometry, word_bytes};
use links::FENCE_WITHIN;
pub(crate) use links::{CommContext, Links, Lost, PIECE_BYTES, Scratch, at_fault};
pub use options::CommunicatorOptions;
pub use pending::{Pending, PendingFuture, StillPending, WaitError};
use progress::Event;
pub(crate) use reach::Reach;
pub(crate) use rendezvous::{Origin, Parent, Rendezvous};
use shared::Shared;
use state::State;
pub(in crate::collective) use tallies::{Operation, Tallies};
use tuning::{Orders, Peers};
pub(crate) use wait_graph::WaitingFor;

/// A group of ranks, seen from one of them.
///
/// All ranks create their communicator at the same time, through the store in which they meet. Afterwards they must
/// call the same operations in the same order.
///
/// Neighbours in the ring of ranks are connected at once; other pairs of ranks are connected when an operation first
/// needs it, and stay connected. Ranks of one host, up to 16, also map each other's memory. Operations of a few KiB,
/// and operations on slices, then run in the caller's thread while the peers are there; larger operations on tensors
/// and regions are zero-copy.
///
/// Operations of one communicator run one after the other; those of several communicators on one engine interleave. An
/// operation that fails ends the communicator on all ranks: each later one returns [`CollectiveError::Ended`].
///
/// Dropping the communicator waits until the messages of this rank have arrived, at most
/// [`linger`](CommunicatorOptions::linger); [`close`](Self::close) waits too, and reports an error. A process that
/// exits without either may lose its last messages.
pub struct Communicator {
    shared: Arc<Shared>,
    rank: u32,
    options: CommunicatorOptions,
    ranks: Vec<RankInfo>,
    hosts: Arc<Hosts>,
    /// Previous and next rank of the ring, and how each one's memory is reached.
    neighbours: Option<[(u32, PeerAccess); 2]>,
    origin: Origin,
    /// Number of splits so far.
    splits: u32,
    closed: bool,
    /// Scratch memory of the fast path, which runs without the engine's lock and so without `State`'s scratch.
    scratch: Option<Box<Scratch>>,
    /// The algorithms of each collective, best first.
    orders: Orders,
    /// Sizes whose algorithm was logged already: for each collective code, one bit for each power of two of bytes.
    chosen: [u64; Collective::CODES],
    /// Time at which a fast-path operation last drove the engine; `None` where the engine's thread drives it.
    driven: Option<Instant>,
    clock: CoarseClock,
    /// The plan of the last eager or pipelined call, since the next call is often the same.
    pub(in crate::collective) cached_plan: Option<CachedPlan>,
    /// The counts of the operations, for the recorder of metrics. The present one is that of the cached plan.
    pub(in crate::collective) tallies: Tallies,
}

impl Communicator {
    fn connected(
        engine: &Engine,
        (rank, origin): (u32, Origin),
        options: CommunicatorOptions,
        (ranks, hosts): (Vec<RankInfo>, Arc<Hosts>),
        (links, host): (Option<Links>, Option<HostGroup>),
        announcer: Announcer,
    ) -> Self {
        let neighbours = links.as_ref().and_then(|links| {
            let access = |rank| links.table.link(rank).map(|link| (rank, link.access));
            Some([access(links.previous)?, access(links.next)?])
        });
        let (gate, host) = (Arc::new(FastPathGate::new(links::scratch())), host.map(Arc::new));
        let state = State::new(rank, (links, host.clone()), Arc::clone(&gate), announcer);
        let state = Arc::new(Mutex::new(state));
        engine.lock().register(&state);
        let scratch = host.is_some().then(links::scratch);
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
            driven: (engine.options().driver == Driver::Caller).then(Instant::now),
            clock: CoarseClock::new(handover_within(engine)),
            cached_plan: None,
            tallies: Tallies::default(),
        }
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        // A store serves fewer than 2^32 ranks.
        self.ranks.len() as u32
    }

    /// This process's rank and the number of ranks, together.
    pub(in crate::collective) fn rank_of(&self) -> RankOf {
        RankOf { rank: self.rank, size: self.ranks.len() as u32 }
    }

    /// Host, process and device as each rank announced them, indexed by rank.
    #[must_use]
    pub fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// The options with which the communicator was created.
    #[must_use]
    pub fn options(&self) -> &CommunicatorOptions {
        &self.options
    }

    /// The engine on which the communicator runs.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Lanes of each link.
    pub(in crate::collective) fn lanes_of_link(&self) -> u8 {
        lanes::Lanes::count(self.engine(), &self.options)
    }

    /// The lanes that have failed so far, of links that went on over their other lanes.
    ///
    /// The log tells of each at WARN when it fails. The communicator does not use them again; to do so, make the next
    /// one with the next [epoch](CommunicatorOptions::epoch).
    #[must_use]
    pub fn lost_lanes(&self) -> Vec<LostLane> {
        if self.engine().is_forked() {
            return Vec::new();
        }
        let devices: Vec<&str> = self.engine().contexts().map(|context| context.name()).collect();
        let shared = self.shared.lock();
        let links = shared.links.iter().flat_map(|links| links.table.links());
        let lost = links.flat_map(|link| link.lanes.lost().iter().map(|lost| (link.rank, lost)));
        let tell = |(rank, (lane, reason)): (u32, &(usize, String))| LostLane {
            rank,
            lane: *lane,
            device: devices[lane % devices.len()].to_owned(),
            reason: reason.clone(),
        };
        lost.map(tell).collect()
    }

    /// The two ring neighbours of this rank, and how their memory is reached; none when the rank is alone.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, PeerAccess)> + '_ {
        self.neighbours.iter().flatten().copied()
    }

    /// Queues an operation that owns its memory behind the pending ones. On refusal the job comes back with the reason.
    pub(in crate::collective) fn start<T>(
        &mut self,
        job: Box<Job>,
        deadline: Deadline,
        give_back: fn(Box<Job>) -> T,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let shared = &self.shared;
        // Order matters: a deferred operation is older than this one, and all ranks run operations in the same order.
        shared.hand_to_engine();
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.push(job, deadline)?;
            // Begin here, in the caller's thread: the engine's thread may be asleep, and waking it costs a system call.
            state.advance(core, Instant::now());
            // Only then is there a thread to keep asleep; without one, callers drive the operation in any case.
            if shared.engine.options().driver == Driver::Thread {
                state.leave_to_caller(core, Instant::now());
            }
            Ok::<_, (Box<Job>, CollectiveError)>(id)
        })?;
        // The time is read behind the lock, whose release may wake the thread, for which this caller is not to blame.
        Ok(Pending::new(Arc::clone(shared), id, Instant::now(), give_back))
    }

    /// Runs an operation on borrowed memory, behind the pending ones, and returns when it has ended: the borrow must
    /// not outlive the call. `begin` is called once with the operation's number, then `step` until it is ready. `late`
    /// is called when `deadline` passes first. The communicator ends with an error, unless that is a refusal.
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
                // A rank whose headers are sent has begun already as far as its peers can tell: it must not give up
                // unbegun.
                if deadline.expired_at(now) && among != Participants::AllHeadersSent {
                    return Poll::Ready(Err(state.end_queued(core)));
                }
                // Older operations first. This wait is bounded: each of them ends at its own deadline, and this call at
                // its.
                if !state.is_idle() {
                    return Poll::Pending;
                }
                let sequence = state.next_sequence(among);
                // Before `begin` sends anything, so that no fast-path call and no queued operation takes the same turn.
                shared.gate.on(Event::Borrow);
                running = Some(begin(&mut state.parts(), core, sequence));
                if let Some(links) = &mut state.links {
                    links.give_up_at(core, deadline);
                }
            }
            let looked = match &mut running {
                Some(running) => step(running, &mut state.parts(), core),
                None => Poll::Pending,
            };
            if running.is_some() {
                // The operation is not in the queue, so no service reports this time: only the caller in this wait can
                // look again.
                core.look_again_at(state.look_at.take());
            }
            looked
        });
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
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
            // Last, because it opens the gate: a failure must be known before. Only if this call has begun: otherwise
            // another operation may be under way.
            state.publish_failure();
            if running.is_some() {
                shared.gate.on(Event::Return);
            }
            outcome
        })
    }

    /// The fast path for the next operation, which then runs in the caller's thread without the engine. `None` if older
    /// operations are pending, the ranks are not on one host, or `deadline` is not further than `within` ahead.
    ///
    /// `within` is 0 for an operation on borrowed memory. One that owns its memory may be [deferred](Self::defer), so
    /// the engine must be able to take it over [in time](handover_within).
    #[inline]
    pub(crate) fn fast_path(
        &mut self,
        deadline: Deadline,
        within: impl FnOnce(&Engine) -> Duration,
    ) -> Option<FastPath<'_>> {
        self.shared.hand_to_engine();
        // Ask the clock only now: handing over may have waited for a thread that was looking at the deferred operation.
        if !self.clock.leaves(deadline, || within(&self.shared.engine)) {
            return None;
        }
        let Shared { engine, gate, host, .. } = &*self.shared;
        let (host, scratch) = (host.as_deref()?, self.scratch.as_deref_mut()?);
        // Last, and without a lock: once the gate is seen open it stays open for this call, unless a failure closes it.
        if !gate.is_open() {
            return None;
        }
        let drives = EngineDrive { engine, driven: &mut self.driven };
        Some(FastPath { host, scratch, sequence: gate.sequence(), gate, drives })
    }

    /// The duty to drive the engine now and then, for callers that only run fast-path operations.
    #[inline]
    pub(crate) fn drives(&mut self) -> EngineDrive<'_> {
        EngineDrive { engine: &self.shared.engine, driven: &mut self.driven }
    }

    /// Keeps an operation that has begun on the [fast path](Self::fast_path) and whose messages this rank
    /// has sent. Its handle finishes it, or the engine takes it over.
    pub(in crate::collective) fn defer<T>(
        &mut self,
        job: Box<Job>,
        (started, deadline): (Instant, Deadline),
        give_back: fn(Box<Job>) -> T,
    ) -> Pending<T> {
        let gate = &self.shared.gate;
        // The peers have this rank's messages under the present number, so the number is spent whatever becomes of the
        // operation.
        gate.count();
        let id = gate.next_id();
        gate.defer(DeferredOp { id, job, deadline, started });
        Pending::new(Arc::clone(&self.shared), id, started, give_back)
    }

    /// Checks that one more operation can be queued.
    pub(crate) fn check_queue(&self) -> Result<(), CollectiveError> {
        self.shared.lock().check_queue()
    }

    /// Whether the ranks exchange messages through shared memory, without links.
    pub(crate) fn has_host_group(&self) -> bool {
        self.shared.host.is_some()
    }

    /// The rank that `rank` had in the communicator from which this one was [split](Self::split). `None` if it was not
    /// split from one, or if there is no such rank.
    #[must_use]
    pub fn rank_in_parent(&self, rank: u32) -> Option<u32> {
        self.origin.parent.as_ref()?.rank_of(rank)
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Number of the next split. It is equal on all ranks because all of them split in the same order.
    pub(crate) fn next_split(&mut self) -> u32 {
        self.splits = self.splits.wrapping_add(1);
        self.splits.wrapping_sub(1)
    }

    /// How the ranks reach each other, in the terms of a [tuning table](tuning).
    #[must_use]
    pub fn peers(&self) -> Peers {
        if self.has_host_group() { Peers::Mapped } else { Peers::Links }
    }

    /// Whether the algorithm is possible between these ranks, be it allowed by the options or not. `flat`, `pieces` and
    /// `direct` need ranks that map each other's memory. `hierarchical` needs several hosts of which one has several
    /// ranks, and is impossible for [`reproducible`](CommunicatorOptions::reproducible) communicators. The others are
    /// possible anywhere.
    #[must_use]
    pub fn can(&self, way: Algorithm) -> bool {
        self.orders.have(way)
    }

    /// The ranks, grouped by host.
    pub(crate) fn hosts(&self) -> &Arc<Groups> {
        self.hosts.groups()
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Logs at INFO which algorithm a collective takes, once for each power of two of bytes: a line for each call would
    /// cost more than a small operation.
    pub(crate) fn chose(
        &mut self,
        (collective, bytes): (Collective, usize),
        way: impl FnOnce(&Orders) -> String,
    ) {
        let class = (usize::BITS - bytes.saturating_sub(1).leading_zeros()).min(usize::BITS - 1);
        let Some(said) = self.chosen.get_mut(usize::from(collective.code())) else { return };
        if *said & (1 << class) == 0 {
            *said |= 1 << class;
            self.shared.lock().announcer.way(collective.name(), 1 << class, &way(&self.orders));
        }
    }

    #[cfg(test)]
    pub(crate) fn with_links<T>(&self, with: impl FnOnce(&mut EngineState, &mut Links) -> T) -> Option<T> {
        let shared = &self.shared;
        shared.engine.lock_with(|core| shared.lock().links.as_mut().map(|links| with(core, links)))
    }
}

/// The time within which the engine takes over a deferred operation that nobody waits for. Twice the longer of the
/// heartbeat and the hand-over delay, because a thread that sleeps wakes at least once in half of that.
pub(in crate::collective) fn handover_within(engine: &Engine) -> Duration {
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
