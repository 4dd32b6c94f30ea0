//! The core while it is locked; who lets go of it tells those who wait, so that nobody can forget to.

use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use super::{Core, Shared};

/// See the module.
pub(crate) struct Locked<'a> {
    // Dropped in this order: a task that is woken may need the core.
    core: MutexGuard<'a, Core>,
    waking: Waking<'a>,
}

/// Tasks to be woken.
struct Waking<'a> {
    shared: &'a Shared,
    wakers: Vec<Waker>,
}

impl Shared {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { core: self.lock_core(), waking: Waking { shared: self, wakers: Vec::new() } }
    }

    /// `None` while another thread has it.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { core, waking: Waking { shared: self, wakers: Vec::new() } })
    }

    /// A panic elsewhere leaves the core in order: nothing in it is half done between calls.
    pub(super) fn lock_core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Self { core, waking } = self;
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
        if self.wakers.capacity() > 0 {
            self.wakers.drain(..).for_each(Waker::wake);
            self.shared.lock_core().news.keep_room(std::mem::take(&mut self.wakers));
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}
