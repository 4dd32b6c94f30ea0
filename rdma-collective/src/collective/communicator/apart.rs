//! An operation that owns its memory and has begun at once, without the engine: this rank has left its messages. When those of the
//! others are there by then it is done; else it waits in a place of its own.
//!
//! Whoever waits for it looks first, and may find it done. It becomes the engine's when that is in vain, when another
//! operation is begun behind it, when its handle is given up, and in any case soon after the engine is driven next: so it goes on, and
//! ends at its deadline, though nobody waits.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdma_core::Deadline;

use super::turn::Turn;
use super::{Communicator, HostGroup, Job, Looks, Output, Pending, Scratch, Shared, ring};
use crate::engine::{LEFT_FOR, Service};

/// The place of one such operation. Whoever holds its lock takes no other.
#[derive(Debug)]
pub(super) struct Apart {
    /// Cleared last: who sees that knows what has become of it.
    occupied: AtomicBool,
    place: Mutex<Place>,
}

/// See [`Apart`].
struct Place {
    begun: Option<Begun>,
    scratch: Box<Scratch>,
}

/// The operation.
pub(super) struct Begun {
    pub(super) id: u64,
    pub(super) job: Box<dyn Job>,
    pub(super) deadline: Deadline,
    pub(super) started: Instant,
}

impl Apart {
    pub(super) fn new() -> Self {
        let place = Place { begun: None, scratch: ring::scratch() };
        Self { occupied: AtomicBool::new(false), place: Mutex::new(place) }
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire)
    }

    /// Holds an operation that has begun, until it is looked at again.
    fn hold(&self, begun: Begun) {
        self.lock().begun = Some(begun);
        self.occupied.store(true, Ordering::Release);
    }

    /// Looks for the messages of operation `id`, `until` then if they do not come at once; its job when it is done.
    fn end(&self, id: u64, host: &HostGroup, until: Option<Deadline>) -> Option<Box<dyn Job>> {
        let mut place = self.lock();
        let Place { begun, scratch } = &mut *place;
        let is_done = |begun: &mut Begun| {
            let looks = until.map_or(Looks::Once, |until| Looks::Until(until.min(begun.deadline)));
            begun.id == id && begun.job.end_at_once(host, scratch, looks)
        };
        let done = begun.take_if(is_done)?;
        self.vacate();
        Some(done.job)
    }

    /// The operation, for the engine, which [says so](Self::vacate) once it has it.
    pub(super) fn take(&self) -> Option<Begun> {
        self.lock().begun.take()
    }

    /// The same if it was left to its caller for long enough, and nobody looks at it now.
    pub(super) fn take_due(&self, now: Instant) -> Option<Begun> {
        let mut place = self.place.try_lock().ok().filter(|_| self.is_occupied())?;
        place.begun.take_if(|begun| begun.due() <= now)
    }

    /// When it is [due](Self::take_due).
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.is_occupied() {
            return None;
        }
        self.place.try_lock().ok()?.begun.as_ref().map(Begun::due)
    }

    /// The operation is known elsewhere, or is done.
    pub(super) fn vacate(&self) {
        self.occupied.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        // Nothing is half done in it.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    fn due(&self) -> Instant {
        self.started + LEFT_FOR
    }
}

impl Communicator {
    /// Keeps an operation that has begun [without the engine](Self::at_once_or_apart), and whose messages are left.
    pub(crate) fn set_apart<T: Output>(
        &mut self,
        job: Box<dyn Job>,
        deadline: Deadline,
        started: Instant,
    ) -> Pending<T> {
        let turn = &self.shared.turn;
        turn.count();
        let id = turn.next_id();
        turn.apart.hold(Begun { id, job, deadline, started });
        Pending::new(Arc::clone(&self.shared), id)
    }
}

impl Shared {
    /// What is left to its caller, if anything is, becomes the engine's.
    pub(super) fn hand_over(&self) {
        if self.turn.is_left() {
            self.engine.lock_with(|_| self.lock().engage());
        }
        let apart = &self.turn.apart;
        if !apart.is_occupied() {
            return;
        }
        // Who looks for it now may find it done, and is not waited for with the engine locked.
        drop(apart.lock());
        if apart.is_occupied() {
            self.engine.lock_with(|core| {
                let mut state = self.lock();
                if let Some(begun) = apart.take() {
                    state.adopt(core, begun, Instant::now());
                }
                state.advance(core, Instant::now());
            });
        }
    }

    /// Looks for the messages of operation `id` if it is under way without the engine, and gives its job when it is done; else
    /// it is the engine's from then on.
    pub(super) fn end_apart(&self, id: u64, until: Option<Deadline>) -> Option<Box<dyn Job>> {
        let (host, Turn { apart, .. }) = (self.host.as_deref()?, &*self.turn);
        // A forked child would take what its parent is left.
        if !apart.is_occupied() || host.check().is_err() {
            return None;
        }
        // What has failed meanwhile is the engine's to tell.
        let done = if self.turn.is_open() { apart.end(id, host, until) } else { None };
        if done.is_none() {
            self.hand_over();
        }
        done
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("id", &self.begun.as_ref().map(|begun| begun.id))
            .finish_non_exhaustive()
    }
}
