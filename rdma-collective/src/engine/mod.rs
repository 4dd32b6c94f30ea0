//! The one progress engine: it owns the worker and its lanes, and moves everything along whenever it is driven.
//!
//! Sans-IO in style: [`drive`](Engine::drive) is handed the time and a budget and waits for nothing to come,
//! [`next_deadline`](Engine::next_deadline) says when it wants to be driven again at the latest, and
//! [`wake_fd`](Engine::wake_fd) is readable when there is reason to sooner. Calls that block are in `wait`, and the
//! engine's own driver in `thread`: loops over the same. What is sent, and what arrivals mean, belongs to the
//! services and operations on it.

mod alive;
mod announce;
mod callers;
mod core;
mod error;
mod known;
mod locked;
mod meet;
mod memory;
mod news;
mod options;
mod service;
mod thread;
mod wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use rdma_core::{Context, gid};

pub(crate) use self::announce::net;
use self::callers::Callers;
pub(crate) use self::core::{Core, LaneId};
use self::locked::Locked;
pub(crate) use options::gid_preference;
pub use options::{Driver, EngineOptions};
pub(crate) use service::Service;
pub(crate) use thread::HANDOVER_DELAY;
use thread::{Nudge, Thread};

pub use error::{EngineError, SetupError};

/// A progress engine over one device. Cloning it clones the handle.
///
/// Communicators and KV links are made on an engine, as many as there are. They make progress on a
/// [thread](Driver::Thread) of the engine's own, and whenever one of them waits or the caller [drives](Self::drive) it.
/// It ends with the last handle, of which each of them keeps one. A forked child may drop what it has inherited of it, and
/// do nothing else with that.
///
/// ```
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_core::{Device, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let engine = Engine::new(&context, EngineOptions::default())?;
/// engine.drive(std::time::Instant::now(), 16)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    handle: Arc<Handle>,
}

/// What all handles have; the thread ends with the last.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    _thread: Option<Thread>,
    id: EngineId,
    /// The process that made it.
    pid: u32,
}

/// Names an engine as long as anything of it is left.
#[derive(Clone, Debug)]
pub(crate) struct EngineId(Arc<()>);

impl PartialEq for EngineId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    /// Told when the thread that sleeps for all has woken, and when anybody has found something.
    woken: Condvar,
    /// Wakes the engine's own thread.
    nudge: Nudge,
    /// Wakes the caller that sleeps for all.
    leader: Nudge,
    /// What the engine sleeps by: readable at completions and at the end of a peer.
    wake_fd: OwnedFd,
    /// What callers sleep by.
    callers: Callers,
    context: Context,
    gid: gid::Chosen,
    options: EngineOptions,
}

impl Engine {
    /// An engine on an open device: its worker, its protection domain, and the GID that its lanes send from.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: no usable GID (or not the one asked for), a `peer_timeout` that is too short, or the device or a
    /// limit refuses.
    pub fn new(context: &Context, options: EngineOptions) -> Result<Self, SetupError> {
        options.check_times()?;
        let port = context.port(options.port)?;
        let table = context.gids(options.port)?;
        let gid = options.choose_gid(context.name(), &port, table)?;
        announce::announce(context, &port, &gid, options.gid_index.is_some());
        let core = Core::new(context, &options, gid.entry.index)?;
        let wake_fd = core
            .wake_fd()
            .try_clone_to_owned()
            .map_err(|source| SetupError::Descriptor { what: "the completion channel", source })?;
        let callers = Callers::new(options.driver, wake_fd.as_fd())?;
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            woken: Condvar::new(),
            nudge: Nudge::new()?,
            leader: Nudge::new()?,
            wake_fd,
            callers,
            context: context.clone(),
            gid,
            options,
        });
        let thread = match shared.options.driver {
            Driver::Thread => Some(Thread::start(&shared)?),
            Driver::Caller => None,
        };
        let handle = Handle { shared, _thread: thread, id: EngineId(Arc::new(())), pid: std::process::id() };
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Takes up to `budget` completions, lets everything on the engine act on them and on the time, and posts what it
    /// wants sent.
    ///
    /// Returns how much has happened: the completions, and one more for each communicator or end of a link that did
    /// something. At 0 there is nothing left to be done now. It does not wait for anything to come; it may wait for another
    /// thread that drives, and, when a link ends, a second at most for the device to let go of it.
    ///
    /// `now` is the present, as [`Instant::now`] has it: so the engine's [own thread](Driver::Thread) and calls that wait
    /// take it. That threads which race come with times a little out of order does no harm.
    ///
    /// # Errors
    ///
    /// [`EngineError`] when the device cannot be trusted any more; every operation then ends with that error.
    pub fn drive(&self, now: Instant, budget: usize) -> Result<usize, EngineError> {
        let mut core = self.lock();
        core.attendance.visits += 1;
        let happened = core.drive(|| now, budget);
        core.flush();
        core.health().map(|()| happened)
    }

    /// Drives once, unless another thread does.
    pub(crate) fn try_drive(&self) {
        let Some(mut core) = self.shared().try_lock() else { return };
        core.attendance.visits += 1;
        core.drive(Instant::now, wait::BUDGET);
        core.flush();
    }

    /// When to drive at the latest, though nothing has happened: for a deadline, to look for the messages of a small operation
    /// between ranks of one host, which wake nobody, or to say that this side lives. `None` while nothing is pending and no
    /// peer has to hear that.
    ///
    /// An engine with a [thread](Driver::Thread) is driven then, whatever its callers do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock().next_deadline()
    }

    /// Asks for [`wake_fd`](Self::wake_fd) to become readable once, when something happens from now on. What it was made
    /// readable for is over with; what has happened since, whoever drove then, makes it readable at once.
    ///
    /// Arm, drive, look, sleep, in this order: [drive](Self::drive) afterwards, since completions that nobody has taken do
    /// not make it readable, then look at what is waited for, and sleep only when the drive has returned 0.
    ///
    /// # Errors
    ///
    /// As for [`drive`](Self::drive).
    pub fn arm(&self) -> Result<(), EngineError> {
        let mut core = self.lock();
        self.shared().callers.arm(&mut core);
        if self.options().driver == Driver::Caller {
            // A thread that sleeps for all has to see them first, and takes them then.
            if !core.asleep {
                core.consume_events();
            }
            core.arm();
        }
        core.health()
    }

    /// Readable when there is something to [drive](Self::drive) for, once [`arm`](Self::arm) has asked for it, or when
    /// anybody has done that meanwhile, be it the [engine's own thread](Driver::Thread): look at what is waited for then.
    ///
    /// It is for one loop that waits for all there is on the engine. Of several that sleep by it, the first to arm it again
    /// takes what was told from the others, who may not have seen it: let one of them drive, and the others await the
    /// futures of their operations, each of which is woken by itself. Messages of small operations between ranks of one host
    /// do not make it readable: sleep until [`next_deadline`](Self::next_deadline) at most.
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
    ///     // Until what is waited for has ended; here, for a while.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared().callers.as_fd()
    }

    /// The device that it works on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.shared().context
    }

    /// The GID that its lanes send from, and why the others were not chosen.
    #[must_use]
    pub fn gid(&self) -> &gid::Chosen {
        &self.shared().gid
    }

    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.shared().options
    }

    /// Uses the core, posts what is queued by it, and has others look: something may have ended by it.
    pub(crate) fn lock_with<T>(&self, with: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = with(&mut core);
        core.flush();
        core.news.note();
        self.shared().nudge(&core);
        result
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.shared().lock()
    }

    pub(crate) fn id(&self) -> EngineId {
        self.handle.id.clone()
    }

    /// Whether that is the name of this one.
    pub(crate) fn is(&self, id: &EngineId) -> bool {
        self.handle.id == *id
    }

    /// Whether this process was forked from the one that made it, whose threads and locks it is without.
    pub(crate) fn is_forked(&self) -> bool {
        self.handle.pid != std::process::id()
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}

#[cfg(test)]
mod tests;
