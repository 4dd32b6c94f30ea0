//! The events found under the engine's lock: whether waiting threads must look, and which tasks to wake.

use std::task::Waker;

/// The events since the lock was last released.
#[derive(Debug, Default)]
pub(super) struct News {
    any: bool,
    /// The tasks to wake once the lock is free: a task that runs at once may take the lock.
    wakers: Vec<Waker>,
}

impl News {
    /// Notes that something has happened that another thread may wait for.
    pub(super) fn note(&mut self) {
        self.any = true;
    }

    /// Notes an event that a task waits for.
    pub(super) fn wake(&mut self, waker: Waker) {
        self.any = true;
        self.wakers.push(waker);
    }

    /// Whether an event was noted that the waiting threads were not told of.
    pub(super) fn is_some(&self) -> bool {
        self.any
    }

    /// Returns whether an event was noted, and forgets it: the caller must wake the waiting threads.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.any)
    }

    /// Takes the tasks to wake. The vector's room is kept if there are none.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        if self.wakers.is_empty() { Vec::new() } else { std::mem::take(&mut self.wakers) }
    }

    /// Gives the room of an emptied vector back, so that waking allocates nothing after the first time.
    pub(super) fn keep_room(&mut self, room: Vec<Waker>) {
        if self.wakers.capacity() < room.capacity() && self.wakers.is_empty() {
            self.wakers = room;
        }
    }
}
