//! The one progress engine: it owns the worker and its lanes, and moves everything along whenever it is driven.
//!
//! Sans-IO in style: [`drive`](Engine::drive) is handed the time and a budget and never waits,
//! [`next_deadline`](Engine::next_deadline) says when it wants to be driven again at the latest, and
//! [`wake_fd`](Engine::wake_fd) is readable when there is reason to sooner. Calls that block are loops over these,
//! in `wait`. What is sent, and what arrivals mean, belongs to the [services](service) and operations on it.

mod core;
mod options;
mod service;
mod wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdma_core::{Context, gid};

pub(crate) use self::core::{Core, LaneId};
pub use options::EngineOptions;
pub(crate) use service::Service;

use crate::error::{EngineError, SetupError};

/// A progress engine over one device. Cloning it clones the handle.
///
/// Communicators and KV links are made on an engine, as many as there are, and make progress whenever one of them
/// waits or the caller [drives](Self::drive) it. It ends with the last handle.
///
/// ```
/// use rdma_collective::comm::{Engine, EngineOptions};
/// use rdma_core::{Device, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let engine = Engine::new(&context, EngineOptions::default())?;
/// engine.drive(std::time::Instant::now(), 16)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    /// Told when the thread that sleeps for all has woken.
    woken: Condvar,
    wake_fd: OwnedFd,
    context: Context,
    gid: gid::Chosen,
    options: EngineOptions,
}

impl Engine {
    /// An engine on an open device: its worker, its protection domain, and the GID that its lanes send from.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: no usable GID (or not the one asked for), or the device or a limit refuses.
    pub fn new(context: &Context, options: EngineOptions) -> Result<Self, SetupError> {
        let port = context.port(options.port)?;
        let table = context.gids(options.port)?;
        let gid = options.choose_gid(context.name(), &port, table)?;
        let core = Core::new(context, &options, gid.entry.index)?;
        let wake_fd = core
            .wake_fd()
            .try_clone_to_owned()
            .map_err(|source| SetupError::Descriptor { what: "the completion channel", source })?;
        let shared = Shared {
            core: Mutex::new(core),
            woken: Condvar::new(),
            wake_fd,
            context: context.clone(),
            gid,
            options,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Takes up to `budget` completions, lets everything on the engine act on them, and posts what it wants sent.
    ///
    /// Returns how many there were; it never waits. Time may not run back between calls.
    ///
    /// # Errors
    ///
    /// [`EngineError`] when the device cannot be trusted any more; every operation then ends with that error.
    pub fn drive(&self, now: Instant, budget: usize) -> Result<usize, EngineError> {
        let mut core = self.lock();
        let taken = core.drive(now, budget);
        core.flush();
        core.health().map(|()| taken)
    }

    /// When to drive at the latest, though nothing has happened; `None` while nothing is waited for.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock().next_deadline()
    }

    /// Asks for [`wake_fd`](Self::wake_fd) to become readable at the next completion, and not to be so for earlier ones.
    ///
    /// Drive once more afterwards, before sleeping: what completed in between does not make it readable.
    ///
    /// # Errors
    ///
    /// As for [`drive`](Self::drive).
    pub fn arm(&self) -> Result<(), EngineError> {
        let mut core = self.lock();
        // A thread that sleeps for all has to see them first, and takes them then.
        if !core.asleep {
            core.consume_events();
        }
        core.arm();
        core.health()
    }

    /// Readable when there is something to [drive](Self::drive) for, once [`arm`](Self::arm) has asked for it.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_fd.as_fd()
    }

    /// The device that it works on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    /// The GID that its lanes send from, and why the others were not chosen.
    #[must_use]
    pub fn gid(&self) -> &gid::Chosen {
        &self.shared.gid
    }

    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.shared.options
    }

    /// Uses the core, and posts what is queued by it.
    pub(crate) fn lock_with<T>(&self, with: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.lock();
        let result = with(&mut core);
        core.flush();
        result
    }

    /// A panic elsewhere leaves the core in order: nothing in it is half done between calls.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.shared.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
