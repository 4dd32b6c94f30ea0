//! The lock of an engine. Its guard wakes the threads and tasks that wait for what was found, when it is dropped.
//!
//! Waking is tied to the guard because a path that forgot it would leave another thread asleep beside its own result.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, fence};
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use super::{EngineState, Shared};
use crate::log::Hold;
use crate::wake::wake_all;

/// The guard of the engine's lock.
pub(crate) struct Locked<'a> {
    // The order of the fields is the order of the drops: the lock must be free before a task is woken, because the task
    // may take the lock at once.
    core: MutexGuard<'a, EngineState>,
    waking: Waking<'a>,
    /// Must stay the last field: log lines are written when the lock is free.
    _lines: Hold,
}

/// The tasks to wake once the lock is free.
struct Waking<'a> {
    shared: &'a Shared,
    wakers: Vec<Waker>,
}

/// Times that a thread yields its core to those that wait for the lock: more than a woken thread takes to come.
const YIELDS: u32 = 64;

impl Shared {
    pub(super) fn lock(&self) -> Locked<'_> {
        if let Some(core) = self.try_lock() {
            return core;
        }
        let lines = Hold::new();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.lock_core();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.guard(core, lines)
    }

    /// Posts all that is queued. The lock is released between slices, so that no other thread waits for longer than
    /// one of them.
    ///
    /// Returns whether the lock was released: then other threads may have driven, and whoever waits must look again
    /// before it sleeps.
    pub(super) fn flush<'a>(&'a self, mut core: Locked<'a>) -> (Locked<'a>, bool) {
        let mut released = false;
        while core.flush_slice() {
            drop(core);
            self.let_others();
            released = true;
            core = self.lock();
        }
        (core, released)
    }

    /// Lets the threads that wait for the lock have it: a free lock goes to whoever comes first, which would be this
    /// thread again.
    pub(super) fn let_others(&self) {
        let is_wanted = || self.waiting.load(Ordering::Relaxed) > 0;
        (0..YIELDS).take_while(|_| is_wanted()).for_each(|_| std::thread::yield_now());
    }

    /// Takes the lock if it is free; `None` while another thread holds it.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.guard(core, Hold::new()))
    }

    fn guard<'a>(&'a self, core: MutexGuard<'a, EngineState>, lines: Hold) -> Locked<'a> {
        Locked { core, waking: Waking { shared: self, wakers: Vec::new() }, _lines: lines }
    }

    /// Takes the lock without a guard that wakes others. A poisoned lock is used all the same: a panic elsewhere leaves
    /// the state in order, since nothing in it is half done between calls.
    pub(super) fn lock_core(&self) -> MutexGuard<'_, EngineState> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Self { core, waking, .. } = self;
        if core.news.take() {
            waking.shared.callers.tell(core);
            waking.shared.wake_leader(core);
            waking.shared.wake_followers(core);
        }
        waking.wakers = core.news.take_wakers();
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        // Only now that the lock is free: a thread that rouses the engine either finds the lock free, or is found here.
        fence(Ordering::SeqCst);
        if self.shared.roused.load(Ordering::SeqCst)
            && let Some(mut core) = self.shared.try_lock()
        {
            // Whoever else holds the lock finds the mark in its turn.
            self.shared.roused.store(false, Ordering::SeqCst);
            core.news.note();
        }
        if self.wakers.capacity() > 0 {
            wake_all(self.wakers.drain(..));
            if let Some(mut core) = self.shared.try_lock() {
                core.news.keep_room(std::mem::take(&mut self.wakers));
            }
        }
    }
}

impl Deref for Locked<'_> {
    type Target = EngineState;

    fn deref(&self) -> &EngineState {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut EngineState {
        &mut self.core
    }
}
