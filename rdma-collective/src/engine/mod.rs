//! The progress engine: it owns the workers and lanes of a device or several, and moves all operations on them along
//! when it is driven.
//!
//! Sans-IO in style: [`drive`](Engine::drive) takes the time and a budget, and waits for nothing;
//! [`next_deadline`](Engine::next_deadline) is the latest time for the next drive; [`wake_fd`](Engine::wake_fd) is
//! readable when there is a reason to drive sooner. Blocking calls (`wait`) and the engine's own thread (`thread`) are
//! loops over these three. Communicators and KV links are services on an engine: what is sent, and what an arrival
//! means, is theirs.
//!
//! Several threads may want to drive. A caller that waits drives by itself, because the thread that needs the result
//! should find it without a switch between threads. So the engine's own thread steps back while callers drive, and one
//! thread at a time sleeps by the descriptor for all.

mod alive;
mod announce;
mod attendance;
mod callers;
mod deadlines;
mod error;
mod flush;
mod known;
mod locked;
mod meet;
mod memory;
mod news;
mod options;
mod rail;
mod service;
mod services;
mod state;
mod thread;
mod wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use rdma_core::error::Forked;
use rdma_core::memory::OwnProcess;
use rdma_core::{Context, ProtectionDomain, gid};

pub(crate) use self::announce::net;
use self::attendance::Sleeper;
use self::callers::Callers;
use self::locked::Locked;
use self::rail::Rail;
use self::services::Asked;
pub(crate) use self::services::ServiceId;
pub(crate) use self::state::{EngineState, LaneId};
pub(crate) use options::gid_preference;
pub use options::{Driver, EngineOptions};
pub(crate) use service::Service;
pub(crate) use thread::HANDOVER_DELAY;
pub(crate) use thread::Nudge;
use thread::Thread;

pub use error::{EngineError, SetupError};

use crate::link::RAILS_MAX;
use crate::metrics::{self, Present};

/// A progress engine over a device, or over [several](Self::over). A clone is another handle to the same engine.
///
/// Any number of communicators and KV links can be made on one engine. They make progress on the engine's own
/// [thread](Driver::Thread), during every blocking call, and whenever a caller [drives](Self::drive) the engine.
///
/// The engine ends with its last handle; each communicator and each link keeps one. In a forked child every call on the
/// handles that it inherited is refused, and so is every call on a communicator or a link: the child has neither the
/// thread nor the locks' owners. Dropping them does nothing there.
///
/// ```
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_core::{Device, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let engine = Engine::new(&context, EngineOptions::default())?;
/// engine.drive(std::time::Instant::now(), 16)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    handle: OwnProcess<Arc<Handle>>,
}

/// The part that all handles share. The engine's thread ends when the last handle is dropped.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    _thread: Option<Thread>,
    id: EngineId,
    _present: Present,
}

/// The identity of an engine. No other engine has it as long as a copy exists.
#[derive(Clone, Debug)]
pub(crate) struct EngineId(Arc<()>);

impl EngineId {
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }
}

impl PartialEq for EngineId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The state that handles and the engine's thread share: the locked part, and the means to wake sleepers without it.
#[derive(Debug)]
struct Shared {
    core: Mutex<EngineState>,
    /// Services that callers have changed while another thread had the engine.
    asked: Arc<Asked>,
    /// Threads that wait for the lock.
    waiting: AtomicU32,
    /// Whether the engine is to be [roused](Engine::rouse) by whoever holds the lock.
    roused: AtomicBool,
    /// Signalled when the thread that sleeps for all has woken, and when any thread has found something.
    woken: Condvar,
    /// Wakes the engine's own thread.
    nudge: Nudge,
    /// Wakes the caller that sleeps by the descriptor for all.
    leader: Nudge,
    /// The descriptor by which the engine sleeps: readable at completions, and at the end of a watched peer.
    wake_fd: OwnedFd,
    /// The descriptor by which callers sleep.
    callers: Callers,
    /// At least one.
    devices: Vec<EngineDevice>,
    /// The options of the first device.
    options: EngineOptions,
}

/// Looks at the lock by a thread that [rouses](Engine::rouse) the engine, while another holds it.
const ROUSE_TRIES: u32 = 64;

/// A device of an engine: what is used of it without the engine's lock.
#[derive(Debug)]
struct EngineDevice {
    context: Context,
    /// The domain of the rail's queue pairs. Registering needs no lock.
    pd: ProtectionDomain,
    gid: gid::Chosen,
}

impl Engine {
    /// Makes an engine on an open device: a worker, a protection domain, the GID to send from, and with
    /// [`Driver::Thread`] a thread.
    ///
    /// # Errors
    ///
    /// [`SetupError::Gid`] or [`SetupError::Connect`] if no GID can be used, or not the one asked for;
    /// [`SetupError::PeerTimeout`] if `peer_timeout` is too short; the other variants if the device or a limit of the
    /// system refuses.
    pub fn new(context: &Context, options: EngineOptions) -> Result<Self, SetupError> {
        Self::over(&[(context.clone(), options)])
    }

    /// Makes an engine over several open devices (or ports of one), for hosts with several NICs.
    ///
    /// Each device is a *rail*. A communicator on this engine has at least one lane on each rail to every peer, and
    /// stripes the messages of all its operations over them. A rail whose requests fail, are refused or stay unanswered
    /// costs time only. A rail that loses completions, or does not let go of a queue pair, ends the communicators, and
    /// so does the loss of the first rail in operations through shared memory. All ranks name as many
    /// devices, in the same order, because the first rail of one rank is connected to the first of another. Memory of
    /// the engine is registered on every device.
    ///
    /// A KV link is on one rail, and ends with it: the one that its [options](crate::kv::LinkOptions::rail) name, or
    /// that a [`KvNode`](crate::kv::KvNode) chooses. A node spreads its links over all rails.
    ///
    /// [`driver`](EngineOptions::driver), [`spin`](EngineOptions::spin), [`heartbeat`](EngineOptions::heartbeat) and
    /// [`peer_timeout`](EngineOptions::peer_timeout) are those of the first device, since they belong to the engine.
    /// Each device has its own of all other options.
    ///
    /// ```
    /// use rdma_collective::engine::{Engine, EngineOptions};
    /// use rdma_core::{Device, SoftOptions};
    ///
    /// let open = |name: &str| Device::soft(SoftOptions { name: name.to_owned(), ..SoftOptions::default() }).open();
    /// let devices = [open("soft0")?, open("soft1")?].map(|context| (context, EngineOptions::default()));
    /// let engine = Engine::over(&devices)?;
    /// let names: Vec<_> = engine.contexts().map(|context| context.name()).collect();
    /// assert_eq!(names, ["soft0", "soft1"]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SetupError::Devices`] without devices, or with more than 8. Otherwise as for [`new`](Self::new), of the first
    /// device that cannot be used.
    pub fn over(devices: &[(Context, EngineOptions)]) -> Result<Self, SetupError> {
        let beyond = SetupError::Devices { count: devices.len(), max: RAILS_MAX };
        let Some((_, options)) = devices.first().filter(|_| devices.len() <= RAILS_MAX) else {
            return Err(beyond);
        };
        options.check_times()?;
        let peer_timeout = options.peer_timeout;
        let (mut rails, mut used) = (Vec::new(), Vec::new());
        for (number, (context, options)) in devices.iter().enumerate() {
            let port = context.port(options.port)?;
            let table = context.gids(options.port)?;
            let gid = options.choose_gid(context.name(), &port, table)?;
            announce::announce(context, number, &port, &gid, options.gid_index.is_some());
            let rail = Rail::new(context, options, gid.entry.index, peer_timeout)?;
            used.push(EngineDevice { context: context.clone(), pd: rail.pd.clone(), gid });
            rails.push(rail);
        }
        let options = options.clone();
        let core = EngineState::new(rails, &options)?;
        let asked = Arc::clone(&core.services.asked);
        let wake_fd = core
            .wake_fd()
            .try_clone_to_owned()
            .map_err(|source| SetupError::Descriptor { what: "the completion channel", source })?;
        let callers = Callers::new(options.driver, wake_fd.as_fd())?;
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            asked,
            woken: Condvar::new(),
            nudge: Nudge::new()?,
            waiting: AtomicU32::new(0),
            roused: AtomicBool::new(false),
            leader: Nudge::new()?,
            wake_fd,
            callers,
            devices: used,
            options,
        });
        let thread = match shared.options.driver {
            Driver::Thread => Some(Thread::start(&shared)?),
            Driver::Caller => None,
        };
        let handle = Handle { shared, _thread: thread, id: EngineId::new(), _present: metrics::engine() };
        Ok(Self { handle: OwnProcess::new(Arc::new(handle)) })
    }

    /// Takes up to `budget` completions, lets every communicator and link act on them and on the time, and posts the
    /// requests that they queue. A loop that drives in vain must yield its core, as one that
    /// [polls](rdma_core::Worker::poll) must.
    ///
    /// Returns how much has happened: the number of completions, plus one for each communicator or end of a link that
    /// did something. After a return of 0 there is nothing to do at this time. The call does not wait for messages. It
    /// may wait for another thread that drives, and, when a link ends, up to 1 s for the device to release the queue
    /// pair.
    ///
    /// `now` must be the present, as [`Instant::now`] returns it, because the engine's [own thread](Driver::Thread) and
    /// blocking calls use that clock too. Threads that race may pass times that are slightly out of order.
    ///
    /// # Errors
    ///
    /// [`EngineError::Device`] once the device has failed; every operation on the engine then ends with that error.
    pub fn drive(&self, now: Instant, budget: usize) -> Result<usize, EngineError> {
        self.check_process()?;
        let mut core = self.lock();
        core.attendance.visits += 1;
        let happened = core.drive(|| now, budget);
        let (core, _) = self.shared().flush(core);
        core.health().map(|()| happened)
    }

    /// Drives once, unless another thread holds the engine's lock: then that thread drives.
    pub(crate) fn try_drive(&self) {
        if self.is_forked() {
            return;
        }
        let Some(mut core) = self.shared().try_lock() else { return };
        core.attendance.visits += 1;
        core.drive(Instant::now, wait::BUDGET);
        let is_left = core.flush_slice();
        drop(core);
        if is_left {
            self.rouse();
        }
    }

    /// The latest time for the next drive, though nothing has happened. `None` while nothing is pending and no
    /// heartbeat is due.
    ///
    /// The reasons are a deadline, a heartbeat, and small operations between ranks of one host: their messages lie in
    /// shared memory and wake nobody, so somebody must look. An engine with a [thread](Driver::Thread) is driven in
    /// time whatever its callers do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.is_forked() { None } else { self.lock().next_deadline() }
    }

    /// Asks for [`wake_fd`](Self::wake_fd) to become readable once, at the next event. Earlier wake-ups are cleared; an
    /// event that nobody was told of makes the descriptor readable at once.
    ///
    /// The order must be arm, drive, look, sleep. [Drive](Self::drive) after arming, because completions that were in
    /// the queue before do not make the descriptor readable. Then look at the operations in question, and sleep only if
    /// the drive returned 0.
    ///
    /// # Errors
    ///
    /// [`EngineError::Device`] once the device has failed, as for [`drive`](Self::drive).
    pub fn arm(&self) -> Result<(), EngineError> {
        self.check_process()?;
        let mut core = self.lock();
        self.shared().callers.arm(&mut core);
        if self.options().driver == Driver::Caller {
            // A thread that sleeps by the descriptor must see the events itself, otherwise it would not wake.
            if core.attendance.sleeper() == Sleeper::Nobody {
                core.consume_events();
            }
            core.arm();
        }
        core.health()
    }

    /// The descriptor to sleep by, for an event loop of the caller. After [`arm`](Self::arm) it becomes readable when
    /// there is a reason to [drive](Self::drive), and when another thread (the [engine's own](Driver::Thread), for
    /// example) has driven meanwhile: then look at the operations in question.
    ///
    /// The descriptor is for one loop. If several threads sleep by it, the first that arms it again clears the wake-up
    /// of the others. Let one thread drive, and let the others await the futures of their operations.
    ///
    /// Messages of small operations between ranks of one host do not make the descriptor readable, so do not sleep
    /// beyond [`next_deadline`](Self::next_deadline).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use rdma_collective::engine::{Driver, Engine, EngineOptions};
    /// use rdma_core::{Device, SoftOptions};
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    ///
    /// let options = EngineOptions { driver: Driver::Caller, ..EngineOptions::default() };
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, options)?;
    /// let end = Instant::now() + Duration::from_millis(20);
    /// loop {
    ///     engine.arm()?;
    ///     let happened = engine.drive(Instant::now(), 64)?;
    ///     // A program ends the loop when its operations are complete; this example ends it after a while.
    ///     if Instant::now() >= end {
    ///         break;
    ///     }
    ///     if happened > 0 {
    ///         continue;
    ///     }
    ///     let due = engine.next_deadline().map_or(end, |due| due.min(end));
    ///     let timeout = Timespec::try_from(due.saturating_duration_since(Instant::now()))?;
    ///     poll(&mut [PollFd::from_borrowed_fd(engine.wake_fd(), PollFlags::IN)], Some(&timeout))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared().callers.as_fd()
    }

    /// The device that the engine works on; of several, the first.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.shared().devices[0].context
    }

    /// All devices that the engine works on.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = &Context> {
        self.shared().devices.iter().map(|device| &device.context)
    }

    /// The GID that the lanes send from, and the reasons against the others; of several devices, that of the first.
    #[must_use]
    pub fn gid(&self) -> &gid::Chosen {
        &self.shared().devices[0].gid
    }

    /// The options that the engine was made with; of several devices, those of the first.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.shared().options
    }

    /// Runs `with` under the lock, posts the requests that it queued, and wakes the other waiting threads: an operation
    /// of theirs may have ended by it.
    pub(crate) fn lock_with<T>(&self, with: impl FnOnce(&mut EngineState) -> T) -> T {
        let mut core = self.lock();
        let result = with(&mut core);
        let (mut core, _) = self.shared().flush(core);
        core.news.note();
        self.shared().nudge(&core);
        result
    }

    /// Lets a service that was changed act if no other thread has the engine, and posts the requests that it queued
    /// unless that takes long; never waits. Whatever is left to be done is left to the engine's thread, or to a caller
    /// that waits.
    pub(crate) fn attend(&self, service: ServiceId) {
        let is_done = self.shared().try_lock().is_some_and(|mut core| {
            core.advance(service, Instant::now());
            core.news.note();
            let at_once = core.flushes_at_once();
            if at_once {
                core.flush();
                self.shared().nudge(&core);
            }
            at_once
        });
        if !is_done {
            self.rouse_for(service);
        }
    }

    /// Has whoever drives let a service act that was changed, at once; never waits for the lock.
    pub(crate) fn rouse_for(&self, service: ServiceId) {
        self.shared().asked.ask(service);
        self.rouse();
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.shared().lock()
    }

    /// Has the engine driven at once, by its thread or by a caller that waits; never waits for the lock. Call it when
    /// the [`next_deadline`](Service::next_deadline) of a service that each drive advances has become earlier.
    pub(crate) fn rouse(&self) {
        let shared = self.shared();
        shared.roused.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Whoever holds the lock finds the mark when it releases it. Only a thread that waits as a follower does not
        // look, and holds the lock for a moment.
        drop((0..ROUSE_TRIES).find_map(|_| {
            let core = shared.try_lock();
            if core.is_none() {
                std::hint::spin_loop();
            }
            core
        }));
        shared.nudge.send();
    }

    pub(crate) fn id(&self) -> EngineId {
        self.handle.unasked().id.clone()
    }

    /// Whether `id` names this engine.
    pub(crate) fn is(&self, id: &EngineId) -> bool {
        self.handle.unasked().id == *id
    }

    /// Fails in a forked child of the process that made the engine. Public calls ask this before they take a lock: a
    /// child has none of the threads, and one of them may have held the lock at the fork.
    #[inline]
    pub(crate) fn own_process(&self) -> Result<(), Forked> {
        self.handle.get().map(drop)
    }

    /// [`own_process`](Self::own_process), with the error of what runs on the engine.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), EngineError> {
        self.handle.get()?;
        Ok(())
    }

    /// Whether this process is a forked child of the one that made the engine.
    pub(crate) fn is_forked(&self) -> bool {
        self.own_process().is_err()
    }

    /// Returns the shared part. What is not plain data in it may be used only after [`own_process`](Self::own_process).
    fn shared(&self) -> &Shared {
        &self.handle.unasked().shared
    }
}

#[cfg(test)]
mod tests;
